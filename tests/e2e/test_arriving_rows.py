"""Rows that arrive while a job runs, over real mutual TLS: a round waits for its own, and holds nothing meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from town import NOISE_SEED, ROWS, Running, Town, federation, spec, words_for

from dpspca.client.federation import AsyncJob, JobFailedError
from dpspca.client.simulation import simulate
from dpspca.common.spec import JobSpec
from dpspca.provider.data import threads
from dpspca.provider.data.arrivals import Arrivals
from dpspca.provider.data.preparation import CheckedRows, check_rows
from dpspca.provider.ledger.ledger import MemoryLedger

SHARDS = {"north": ROWS[:400], "south": ROWS[400:]}
LONG = 120.0
"""Seconds that nothing takes."""


def streaming(block_rows: int = 100, **changes: Any) -> JobSpec:
    options = {"rounds": 3, "block_rows": block_rows}
    return spec(**{"method": "streaming-power", "options": options, "answer_seconds": 300} | changes)


JOB = streaming()


class Office:
    """Two providers: the rows of the north arrive as the data set "cohort", and those of the south are all there."""

    def __init__(self, folder: Path, running: Running) -> None:
        self.folder, self.running, self.ledger = folder, running, MemoryLedger()
        self.south = MemoryLedger()

    async def start(self) -> None:
        self.add(0, 40)
        await self.start_north(whole=check_rows(SHARDS["north"]))
        offered = {"cohort": check_rows(SHARDS["south"]), "whole": check_rows(SHARDS["south"] / 2)}
        await self.running.start("south", data_sets=offered, ledger=self.south)

    async def start_north(self, **others: CheckedRows) -> None:
        offered = {"cohort": Arrivals("cohort", self.folder, pause=0.02), **others}
        await self.running.start("north", data_sets=offered, ledger=self.ledger)

    async def stop_north(self) -> None:
        self.running.daemons["north"].cancel()
        async with asyncio.timeout(LONG):
            await asyncio.gather(self.running.daemons["north"], return_exceptions=True)

    def add(self, first: int, last: int) -> None:
        """Add rows of the north as a file, whole; its name sorts as its rows do."""
        hidden = self.folder / f".{first:04}.npy"
        np.save(hidden, SHARDS["north"][first:last])
        hidden.rename(self.folder / hidden.name[1:])

    async def submit(self, job: JobSpec = JOB, data_set: str = "cohort") -> AsyncJob:
        return await self.running.analyst.submit(job, data_set, list(SHARDS))

    def paid(self, job: AsyncJob) -> int:
        """Say how many queries of a job the north has reserved the price of."""
        standing = self.ledger.standing(job.name)
        return standing.reached if standing else 0

    def spent(self) -> int:
        return sum(account.spent.units for account in self.ledger._books.data_sets.values())

    async def waits(self, job: AsyncJob, position: int) -> None:
        """See the north wait with a query that the south has answered, having paid for those before it alone."""

        def asked() -> bool:
            standing = self.south.standing(job.name)
            return standing is not None and standing.reached == position + 1

        await until(lambda: asked() and waiting(position))
        assert self.paid(job) == position


Scene: TypeAlias = Callable[[Office], Awaitable[None]]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LONG):
        while not holds():  # noqa: ASYNC110  # nobody tells of these changes
            await asyncio.sleep(0.02)


def waiting(position: int) -> bool:
    """Tell whether a provider has a query at hand that it has not answered."""
    coroutines = {
        getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks() if task.get_name() == str(position)
    }
    return "Conversation._answer" in coroutines


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Scene], None]:
    """Play a scene over a federation that is up."""
    town, folder = Town.found(tmp_path), tmp_path / "arriving"
    folder.mkdir()

    async def perform(scene: Scene) -> None:
        async with federation(town, (), SHARDS, words_for(JOB)) as running:
            office = Office(folder, running)
            await office.start()
            await scene(office)

    return lambda scene: asyncio.run(perform(scene))


def test_rows_arriving_between_rounds_give_the_same_model(
    play: Callable[[Scene], None],
) -> None:
    """Byte by byte; and no round is paid for before its rows are there."""

    async def scene(office: Office) -> None:
        job = await office.submit()
        await office.waits(job, 1)
        office.add(40, 99)
        await office.waits(job, 1)
        office.add(99, 110)
        await office.waits(job, 2)
        office.add(110, 111)
        office.add(111, 290)
        await office.waits(job, 3)
        office.add(290, 301)
        async with asyncio.timeout(LONG):
            model = await job.result()
        inside = simulate(SHARDS, JOB, noise_seed=NOISE_SEED)
        assert model.components.tobytes() == inside.components.tobytes()
        assert model.explained_variance is not None
        assert inside.explained_variance is not None
        assert model.explained_variance.tobytes() == inside.explained_variance.tobytes()
        assert model.statement.parties == 2

    play(scene)


def test_a_provider_whose_rows_never_arrive_is_left_out_at_no_cost(play: Callable[[Scene], None]) -> None:
    async def scene(office: Office) -> None:
        job = await office.submit(streaming(answer_seconds=5))
        async with asyncio.timeout(LONG):
            assert (await job.result()).statement.parties == 1
        reasons = {each.name: each.reason for each in (await job.status()).participants}
        assert any(words in reasons["north"] for words in ("No answer to query 2", "did not arrive within 5 seconds"))
        assert not reasons["south"]
        assert office.spent() == 0
        await until(lambda: not waiting(1))

    play(scene)


def test_a_job_that_needs_missing_rows_fails_at_no_cost_there(
    play: Callable[[Scene], None],
) -> None:
    async def scene(office: Office) -> None:
        job = await office.submit(streaming(answer_seconds=5, minimum_parties=2))
        async with asyncio.timeout(LONG):
            with pytest.raises(JobFailedError, match=r"north: .*(No answer to query 2|were not ready)"):
                await job.result()
        assert office.spent() == 0

    play(scene)


def test_a_job_waiting_for_rows_does_not_block_other_jobs(
    play: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on another data set nor on the same, though all there is to answer with is one thread."""

    monkeypatch.setattr(threads, "_THREADS", ThreadPoolExecutor(1))

    async def scene(office: Office) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waits = [await office.submit() for _ in range(3)]
        for job in waits:
            await office.waits(job, 1)
        async with asyncio.timeout(LONG):
            await (await office.submit(spec(), "whole")).result()
            await (await office.submit(streaming(block_rows=13))).result()
        for job in waits:
            await office.waits(job, 1)

    play(scene)


@pytest.mark.parametrize("end", ["the job is cancelled", "the daemon stops"])
def test_waiting_for_rows_ends_when(end: str, play: Callable[[Scene], None]) -> None:
    async def scene(office: Office) -> None:
        job = await office.submit()
        await office.waits(job, 1)
        if end == "the daemon stops":
            await office.stop_north()
        else:
            await job.cancel()
        await until(lambda: not waiting(1))
        office.add(40, 400)
        assert office.spent() == 0
        if end == "the job is cancelled":
            await until(lambda: not office.ledger.open_jobs())

    play(scene)


def test_a_restart_ends_a_job_over_arriving_rows_and_spends_no_more(
    play: Callable[[Scene], None],
) -> None:
    async def scene(office: Office) -> None:
        job = await office.submit(streaming(minimum_parties=2))
        await office.waits(job, 1)
        office.add(40, 100)
        await office.waits(job, 2)
        spent = office.spent()
        assert spent > 0
        await office.stop_north()
        office.add(100, 400)
        await office.start_north()
        async with asyncio.timeout(LONG):
            with pytest.raises(JobFailedError, match=r"north: .*data changed"):
                await job.result()
        assert office.spent() == spent

    play(scene)


def test_a_disordered_folder_ends_the_job_without_revealing_it(play: Callable[[Scene], None]) -> None:
    async def scene(office: Office) -> None:
        job = await office.submit(streaming(minimum_parties=2))
        await office.waits(job, 1)
        np.save(office.folder / "0000.npy", SHARDS["north"][:30])
        async with asyncio.timeout(LONG):
            with pytest.raises(JobFailedError, match=r"north: Refused: This data set is out of order") as caught:
                await job.result()
        assert "0000" not in str(caught.value)
        assert office.spent() == 0

    play(scene)


def test_a_job_about_all_rows_is_refused_on_arriving_rows(
    play: Callable[[Scene], None],
) -> None:
    async def scene(office: Office) -> None:
        for job in (spec(minimum_parties=2), spec(method="streaming-power", options={}, minimum_parties=2)):
            async with asyncio.timeout(LONG):
                with pytest.raises(
                    JobFailedError, match=r"north: Refused: Rows of this data set still arrive.*block_rows"
                ):
                    await (await office.submit(job)).result()
        assert office.ledger.open_jobs() == ()
        assert office.spent() == 0

    play(scene)
