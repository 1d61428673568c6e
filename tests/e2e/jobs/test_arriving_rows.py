"""Rows that arrive while a job runs, over mutual TLS: a round waits for its rows without blocking anything."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from facts import facts
from local_federation import NOISE_SEED, ROWS, Enrolment, RunningFederation, federation, noise_for, spec

from dpspca.client.connection import JobFailedError
from dpspca.client.federation import AsyncJob
from dpspca.client.simulation import simulate
from dpspca.common.job import JobSpec
from dpspca.provider.data.arrivals import Arrivals
from dpspca.provider.data.checked.preparation import CheckedRows, check_rows
from dpspca.provider.jobs import row_places
from dpspca.provider.ledger.ledger import MemoryLedger

SHARDS = {"north": ROWS[:400], "south": ROWS[400:]}
LONG = 120.0
"""Seconds that nothing takes."""


def streaming(block_rows: int = 100, **changes: Any) -> JobSpec:
    options = {"rounds": 3, "block_rows": block_rows}
    return spec(**{"method": "streaming-power", "options": options, "answer_seconds": 300} | changes)


JOB = streaming()


class TwoProviders:
    """Two providers: rows arrive at north in the data set "cohort"; south has all of its rows."""

    def __init__(self, folder: Path, running: RunningFederation) -> None:
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
        """Add rows at north as a whole file, whose name sorts like its rows."""
        hidden = self.folder / f".{first:04}.npy"
        np.save(hidden, SHARDS["north"][first:last])
        hidden.rename(self.folder / hidden.name[1:])

    async def submit(self, job: JobSpec = JOB, data_set: str = "cohort") -> AsyncJob:
        return await self.running.analyst.submit(job, data_set, list(SHARDS))

    def charged_queries(self, job: AsyncJob) -> int:
        """Return how many queries of a job have been charged at north."""
        standing = self.ledger.standing(job.name)
        return standing.reached if standing else 0

    def spent(self) -> int:
        return sum(account.spent.units for account in self.ledger._state.data_sets.values())

    async def wait_until_north_waits(self, job: AsyncJob, position: int) -> None:
        """Wait until south has answered a query for which north waits. Check that north paid only for earlier ones."""

        def asked() -> bool:
            standing = self.south.standing(job.name)
            return standing is not None and standing.reached == position + 1

        await until(lambda: asked() and is_waiting(position))
        assert self.charged_queries(job) == position


Scene: TypeAlias = Callable[[TwoProviders], Awaitable[None]]


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(LONG):
        while not holds():  # noqa: ASYNC110  # there is no event for these changes
            await asyncio.sleep(0.02)


def is_waiting(position: int) -> bool:
    """Return whether a provider has received a query that it has not answered."""
    coroutines = {
        getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks() if task.get_name() == str(position)
    }
    return "Conversation._answer" in coroutines


@pytest.fixture
def run_scene(tmp_path: Path) -> Callable[[Scene], None]:
    """Return a function that runs a scene in a running federation."""
    enrolment, folder = Enrolment.create(tmp_path), tmp_path / "arriving"
    folder.mkdir()

    async def perform(scene: Scene) -> None:
        async with federation(enrolment, (), SHARDS, noise_for(JOB)) as running:
            parties = TwoProviders(folder, running)
            await parties.start()
            await scene(parties)

    return lambda scene: asyncio.run(perform(scene))


def test_rows_arriving_between_rounds_give_the_same_model(
    run_scene: Callable[[Scene], None],
) -> None:
    """The models agree byte by byte, and no round is charged before its rows are there."""

    async def scene(parties: TwoProviders) -> None:
        job = await parties.submit()
        await parties.wait_until_north_waits(job, 1)
        parties.add(40, 99)
        await parties.wait_until_north_waits(job, 1)
        parties.add(99, 110)
        await parties.wait_until_north_waits(job, 2)
        parties.add(110, 111)
        parties.add(111, 290)
        await parties.wait_until_north_waits(job, 3)
        parties.add(290, 301)
        async with asyncio.timeout(LONG):
            model = await job.result()
        inside = simulate(SHARDS, JOB, noise_seed=NOISE_SEED)
        assert model.components.tobytes() == inside.components.tobytes()
        assert model.explained_variance is not None
        assert inside.explained_variance is not None
        assert model.explained_variance.tobytes() == inside.explained_variance.tobytes()
        assert model.statement.parties == 2

    run_scene(scene)


@pytest.mark.slow
def test_a_provider_whose_rows_never_arrive_is_left_out_at_no_cost(run_scene: Callable[[Scene], None]) -> None:
    async def scene(parties: TwoProviders) -> None:
        job = await parties.submit(streaming(answer_seconds=5))
        async with asyncio.timeout(LONG):
            assert (await job.result()).statement.parties == 1
        reasons = {each.name: each.reason for each in (await job.status()).participants}
        assert any(words in reasons["north"] for words in ("No answer to query 2", "did not arrive within 5 seconds"))
        assert not reasons["south"]
        assert parties.spent() == 0
        await until(lambda: not is_waiting(1))

    run_scene(scene)


@pytest.mark.slow
def test_a_job_that_needs_missing_rows_fails_at_no_cost_there(
    run_scene: Callable[[Scene], None],
) -> None:
    async def scene(parties: TwoProviders) -> None:
        job = await parties.submit(streaming(answer_seconds=5, minimum_providers=2))
        async with asyncio.timeout(LONG):
            with pytest.raises(JobFailedError, match=facts("north", "5 seconds")):
                await job.result()
        assert parties.spent() == 0

    run_scene(scene)


def test_a_job_waiting_for_rows_does_not_block_other_jobs(
    run_scene: Callable[[Scene], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for another data set and for the same one, although there is only one place."""

    monkeypatch.setattr(row_places, "PLACES", 1)

    async def scene(parties: TwoProviders) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waits = [await parties.submit() for _ in range(3)]
        for job in waits:
            await parties.wait_until_north_waits(job, 1)
        async with asyncio.timeout(LONG):
            await (await parties.submit(spec(), "whole")).result()
            await (await parties.submit(streaming(block_rows=13))).result()
        for job in waits:
            await parties.wait_until_north_waits(job, 1)

    run_scene(scene)


@pytest.mark.parametrize("end", ["the job is cancelled", "the daemon stops"])
def test_waiting_for_rows_ends_when(end: str, run_scene: Callable[[Scene], None]) -> None:
    async def scene(parties: TwoProviders) -> None:
        job = await parties.submit()
        await parties.wait_until_north_waits(job, 1)
        if end == "the daemon stops":
            await parties.stop_north()
        else:
            await job.cancel()
        await until(lambda: not is_waiting(1))
        parties.add(40, 400)
        assert parties.spent() == 0
        if end == "the job is cancelled":
            await until(lambda: not parties.ledger.open_jobs())

    run_scene(scene)


def test_a_restart_ends_a_job_over_arriving_rows_and_spends_no_more(
    run_scene: Callable[[Scene], None],
) -> None:
    async def scene(parties: TwoProviders) -> None:
        job = await parties.submit(streaming(minimum_providers=2))
        await parties.wait_until_north_waits(job, 1)
        parties.add(40, 100)
        await parties.wait_until_north_waits(job, 2)
        spent = parties.spent()
        assert spent > 0
        await parties.stop_north()
        parties.add(100, 400)
        await parties.start_north()
        async with asyncio.timeout(LONG):
            with pytest.raises(JobFailedError, match=facts("north: Refused (data-changed)")):
                await job.result()
        assert parties.spent() == spent

    run_scene(scene)


def test_a_disordered_folder_ends_the_job_without_revealing_it(run_scene: Callable[[Scene], None]) -> None:
    async def scene(parties: TwoProviders) -> None:
        job = await parties.submit(streaming(minimum_providers=2))
        await parties.wait_until_north_waits(job, 1)
        np.save(parties.folder / "0000.npy", SHARDS["north"][:30])
        async with asyncio.timeout(LONG):
            with pytest.raises(JobFailedError, match=facts("north: Refused (data-set-unusable)")) as caught:
                await job.result()
        assert "0000" not in str(caught.value)
        assert parties.spent() == 0

    run_scene(scene)


def test_a_job_about_all_rows_is_refused_on_arriving_rows(
    run_scene: Callable[[Scene], None],
) -> None:
    async def scene(parties: TwoProviders) -> None:
        for job in (spec(minimum_providers=2), spec(method="streaming-power", options={}, minimum_providers=2)):
            async with asyncio.timeout(LONG):
                with pytest.raises(JobFailedError, match=facts("north: Refused", "block_rows")):
                    await (await parties.submit(job)).result()
        assert parties.ledger.open_jobs() == ()
        assert parties.spent() == 0

    run_scene(scene)
