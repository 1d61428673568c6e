"""If an analyst disconnects, the job continues, and its model can be fetched later."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest
from coordinator_processes import Forwarder, StableEnrolment, ada, assert_same_as_undisturbed
from local_federation import SHARDS, Enrolment, RunningFederation, federation, spec
from timeouts import TIMEOUT

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
"""The price of all queries, each answered once."""


class Paused(MemoryLedger):
    """A ledger that holds back the answer to one query until ``let_go`` is set."""

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
    """A federation whose analyst connects through a forwarder, which can be stopped."""

    running: RunningFederation
    way: Forwarder
    analyst: AsyncFederation
    ledgers: dict[str, Paused]

    async def start(self, *names: str) -> None:
        for name in names:
            await self.running.start(name, ledger=self.ledgers[name])

    @property
    def watches(self) -> int:
        """Return how many streams report a job to an analyst."""
        return sum(self.running.coordinator._analysts._watches._open.values())

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds, by polling."""
        async with asyncio.timeout(TIMEOUT):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def is_finished(self, job: str) -> bool:
        """Return whether all providers have answered all queries and closed the job."""
        reached = [found.reached if (found := each.standing(job)) else 0 for each in self.ledgers.values()]
        return reached == [QUERIES] * len(SHARDS) and not any(each.open_jobs() for each in self.ledgers.values())


@asynccontextmanager
async def scene(enrolment: StableEnrolment, paused: int | None = None) -> AsyncIterator[Scene]:
    """Run a coordinator, and an analyst who connects through a forwarder. Providers are not started yet."""
    ledgers = {name: Paused(paused) for name in SHARDS}
    async with federation(enrolment, ()) as running:
        way = Forwarder()
        way.target = running.coordinator.address
        await way.start()
        analyst = AsyncFederation(way.address, ada(enrolment))
        try:
            yield Scene(running, way, analyst, ledgers)
        finally:
            for ledger in ledgers.values():
                ledger.let_go.set()
            await analyst.close()
            await way.stop()


async def closes_the_connection(here: Scene) -> None:
    """Close the connection, as a program does at its end."""
    await here.analyst.close()


async def is_cut_off(here: Scene) -> None:
    """Cut the connection from outside, and let no other be made."""
    await here.way.stop()


Going = Callable[[Scene], Awaitable[None]]
leaving = pytest.mark.parametrize("goes", [closes_the_connection, is_cut_off])


async def leave_while_waiting(here: Scene, job: AsyncJob, goes: Going) -> None:
    """Disconnect the analyst while he waits for the model, until the coordinator has noticed."""
    waiting = asyncio.create_task(job.result())
    await here.wait_until(lambda: here.watches == 1)
    await goes(here)
    await here.wait_until(lambda: here.watches == 0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def assert_finished(enrolment: StableEnrolment, here: Scene, name: str) -> None:
    """Check that the job was done meanwhile at its price, and that fetching its model sends no query."""
    await here.wait_until(lambda: here.is_finished(name))
    assert here.watches == 0
    heads = [ledger.head() for ledger in here.ledgers.values()]
    async with AsyncFederation(here.running.coordinator.address, ada(enrolment)) as back:
        assert [(each.job, each.state) for each in await back.jobs()] == [(name, "done")]
        job = await back.job(name)
        assert_same_as_undisturbed(await job.result())
        output = (await job.status()).participants
    assert [(each.asked, each.answered, each.reason) for each in output] == [(QUERIES, QUERIES, "")] * len(SHARDS)
    for ledger in here.ledgers.values():
        standing = ledger.standing(name)
        assert standing is not None
        assert (standing.reached, standing.spent) == (QUERIES, COST)
    assert [ledger.head() for ledger in here.ledgers.values()] == heads


@pytest.fixture
def enrolment(tmp_path: Path) -> StableEnrolment:
    return StableEnrolment(tmp_path, Enrolment.create(tmp_path).authority)


@leaving
def test_a_waiting_job_is_done_after_its_analyst_disconnects(enrolment: StableEnrolment, goes: Going) -> None:
    async def scenario() -> None:
        async with scene(enrolment) as here:
            await here.start("site-0")
            job = await here.analyst.submit(SPEC, "cohort", list(SHARDS))
            assert (await job.status()).state == "waiting"
            await leave_while_waiting(here, job, goes)
            assert not any(ledger.open_jobs() for ledger in here.ledgers.values())
            await here.start("site-1", "site-2")
            await assert_finished(enrolment, here, job.name)

    asyncio.run(scenario())


@leaving
@pytest.mark.parametrize("reached", range(QUERIES))
def test_a_job_is_done_if_its_analyst_disconnects_at_any_query(
    enrolment: StableEnrolment, reached: int, goes: Going
) -> None:
    async def scenario() -> None:
        async with scene(enrolment, paused=reached) as here:
            await here.start(*SHARDS)
            job = await here.analyst.submit(SPEC, "cohort", list(SHARDS))
            await here.wait_until(lambda: all(each.query_digest(job.name, reached) for each in here.ledgers.values()))
            await leave_while_waiting(here, job, goes)
            for ledger in here.ledgers.values():
                assert ledger.open_jobs() == (job.name,)
                ledger.let_go.set()
            await assert_finished(enrolment, here, job.name)

    asyncio.run(scenario())


@leaving
def test_an_analyst_who_reconnects_can_fetch_the_model(enrolment: StableEnrolment, goes: Going) -> None:
    async def scenario() -> None:
        async with scene(enrolment) as here:
            await here.start(*SHARDS)
            job = await here.analyst.submit(SPEC, "cohort", list(SHARDS))
            assert [state async for state in job.watch()][-1].state == "done"
            await goes(here)
            await assert_finished(enrolment, here, job.name)

    asyncio.run(scenario())
