"""An analyst who goes away without a word: his job goes on without him, and he finds its model when he is back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from hubs import Forwarder, LastingTown, ada, assert_undisturbed
from patience import PATIENCE
from town import SHARDS, Running, Town, federation, spec

from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.plan import prices
from dpspca.common.privacy.costs import NOTHING
from dpspca.provider.ledger.ledger import MemoryLedger

SPEC = spec(answer_seconds=60)
PLAN = catalogue.plan(SPEC)
QUERIES = len(PLAN)
COST = (NOTHING, *prices(PLAN))[-1]
"""Of all queries, each once."""


class Paused(MemoryLedger):
    """A ledger that keeps the answer to one query back until it is let go."""

    def __init__(self, position: int | None) -> None:
        super().__init__()
        self.let_go = Event()
        self._position = position

    def store(self, job: str, position: int, answer: Integers) -> None:
        if position == self._position:
            assert self.let_go.wait(60)
        super().store(job, position, answer)


@dataclass
class Scene:
    """A federation whose analyst has a way to the coordinator of his own, which can be cut."""

    running: Running
    way: Forwarder
    analyst: AsyncFederation
    ledgers: dict[str, Paused]

    async def start(self, *names: str) -> None:
        for name in names:
            await self.running.start(name, ledger=self.ledgers[name])

    @property
    def watches(self) -> int:
        """On how many streams the coordinator tells an analyst of a job."""
        return sum(self.running.coordinator._analysts._watches._open.values())

    async def see(self, holds: Callable[[], bool]) -> None:
        """Wait for something that tells nobody when it happens."""
        async with asyncio.timeout(PATIENCE):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def is_finished(self, job: str) -> bool:
        """Tell whether all providers have answered all that there is to ask, and were told that this is the end."""
        reached = [found.reached if (found := each.standing(job)) else 0 for each in self.ledgers.values()]
        return reached == [QUERIES] * len(SHARDS) and not any(each.open_jobs() for each in self.ledgers.values())


@asynccontextmanager
async def scene(town: LastingTown, paused: int | None = None) -> AsyncIterator[Scene]:
    """Run a coordinator, and an analyst who knows it by another address; its providers are to be started."""
    ledgers = {name: Paused(paused) for name in SHARDS}
    async with federation(town, ()) as running:
        way = Forwarder()
        way.target = running.coordinator.address
        await way.start()
        analyst = AsyncFederation(way.address, ada(town))
        try:
            yield Scene(running, way, analyst, ledgers)
        finally:
            for ledger in ledgers.values():
                ledger.let_go.set()
            await analyst.close()
            await way.stop()


async def hangs_up(here: Scene) -> None:
    """End the connection as a program does that ends."""
    await here.analyst.close()


async def is_cut_off(here: Scene) -> None:
    """End the connection where the analyst has no say, and let him find no other."""
    await here.way.stop()


Going = Callable[[Scene], Awaitable[None]]
leaving = pytest.mark.parametrize("goes", [hangs_up, is_cut_off])


async def left(here: Scene, job: AsyncJob, goes: Going) -> None:
    """Have the analyst go while he waits for the model; the coordinator notices that nobody listens."""
    waiting = asyncio.create_task(job.result())
    await here.see(lambda: here.watches == 1)
    await goes(here)
    await here.see(lambda: here.watches == 0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def assert_found(town: LastingTown, here: Scene, name: str) -> None:
    """See that the job was finished while nobody was there, at its price, and that to fetch its model asks nobody."""
    await here.see(lambda: here.is_finished(name))
    assert here.watches == 0
    heads = [ledger.head() for ledger in here.ledgers.values()]
    async with AsyncFederation(here.running.coordinator.address, ada(town)) as back:
        assert [(each.name, each.state) for each in await back.jobs()] == [(name, "done")]
        job = await back.job(name)
        assert_undisturbed(await job.result())
        told = (await job.status()).participants
    assert [(each.asked, each.answered, each.reason) for each in told] == [(QUERIES, QUERIES, "")] * len(SHARDS)
    for ledger in here.ledgers.values():
        standing = ledger.standing(name)
        assert standing is not None
        assert (standing.reached, standing.spent) == (QUERIES, COST)
    assert [ledger.head() for ledger in here.ledgers.values()] == heads


@pytest.fixture
def town(tmp_path: Path) -> LastingTown:
    return LastingTown(tmp_path, Town.found(tmp_path).authority)


@leaving
def test_a_waiting_job_is_done_after_its_analyst_disconnects(town: LastingTown, goes: Going) -> None:
    async def scenario() -> None:
        async with scene(town) as here:
            await here.start("site-0")
            job = await here.analyst.submit(SPEC, "cohort", list(SHARDS))
            assert (await job.status()).state == "waiting"
            await left(here, job, goes)
            assert not any(ledger.open_jobs() for ledger in here.ledgers.values())
            await here.start("site-1", "site-2")
            await assert_found(town, here, job.name)

    asyncio.run(scenario())


@leaving
@pytest.mark.parametrize("reached", range(QUERIES))
def test_a_job_is_done_if_its_analyst_disconnects_at_any_query(town: LastingTown, reached: int, goes: Going) -> None:
    async def scenario() -> None:
        async with scene(town, paused=reached) as here:
            await here.start(*SHARDS)
            job = await here.analyst.submit(SPEC, "cohort", list(SHARDS))
            await here.see(lambda: all(each.query_digest(job.name, reached) for each in here.ledgers.values()))
            await left(here, job, goes)
            for ledger in here.ledgers.values():
                assert ledger.open_jobs() == (job.name,)
                ledger.let_go.set()
            await assert_found(town, here, job.name)

    asyncio.run(scenario())


@leaving
def test_an_analyst_who_reconnects_can_fetch_the_model(town: LastingTown, goes: Going) -> None:
    async def scenario() -> None:
        async with scene(town) as here:
            await here.start(*SHARDS)
            job = await here.analyst.submit(SPEC, "cohort", list(SHARDS))
            assert [state async for state in job.watch()][-1].state == "done"
            await goes(here)
            await assert_found(town, here, job.name)

    asyncio.run(scenario())
