"""If the clock of the coordinator or an analyst jumps while a job runs, the job ends at the price of its answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from facts import facts
from local_federation import SHARDS, Enrolment, RunningFederation, federation, now, spec
from timeouts import TIMEOUT

from dpspca.client.connection.jobs import JobStatus
from dpspca.client.federation import AsyncFederation
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.common.job import JobSpec
from dpspca.common.names import Role
from dpspca.common.plan import prices
from dpspca.common.privacy.costs import NOTHING
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.server.journal.contract import Journal

JUMPS = [timedelta(hours=1), -timedelta(hours=1), timedelta(days=3652), -timedelta(days=3652)]
PLAN = catalogue.plan(spec())
QUERIES = len(PLAN)
COSTS = (NOTHING, *prices(PLAN))
"""Of as many queries."""
HEARTBEAT = 1
"""Seconds after which the coordinator judges by its clock who is connected."""
FINAL = {"done", "failed", "cancelled"}


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


@dataclass
class Clock:
    """A clock with a settable error."""

    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return now() + self.ahead


class WatchingLedger(MemoryLedger):
    """A ledger that calls a function before it stores an answer, and records it."""

    def __init__(self, before: Callable[[int], None]) -> None:
        super().__init__()
        self._before = before
        self.kept: list[int] = []

    def store(self, job: str, position: int, answer: Integers) -> None:
        self._before(position)
        super().store(job, position, answer)
        self.kept.append(position)

    def require_charged_once(self, job: str) -> None:
        """Check that nothing was answered twice, and that at most one charged query was not answered."""
        assert self.kept == list(range(len(self.kept)))
        known = self._state.jobs.get(job)
        if known is None:
            assert not self.kept
            return
        most = COSTS[min(len(self.kept) + 1, QUERIES)]
        assert COSTS[len(self.kept)].units <= known.account.spent.units <= most.units
        assert known.account.spent.units + known.account.reserved.units <= COSTS[QUERIES].units


@dataclass
class Place:
    """A federation in which the test sets the clocks of coordinator and analyst."""

    running: RunningFederation
    analyst: AsyncFederation
    coordinators: Clock
    analysts: Clock
    spec: JobSpec
    ledgers: dict[str, WatchingLedger] = field(default_factory=dict)

    async def job_ends(self) -> JobStatus:
        """Run a job, ask for its result while clocks are wrong, and return how it ended when they are right."""
        job = await self.analyst.submit(self.spec, "cohort", list(SHARDS))
        async with asyncio.timeout(TIMEOUT):
            with suppress(DpspcaError):  # with a wrong clock nobody may be admitted, but the job continues
                await job.result()
            while not await self._is_over(job.name):  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0.02)
            self.coordinators.ahead = self.analysts.ahead = timedelta()
            ended = [state async for state in job.watch()][-1]
        assert ended.state == "done" or (ended.state, bool(ended.reason)) == ("failed", True)
        for ledger in self.ledgers.values():
            ledger.require_charged_once(job.name)
            assert ended.state == "failed" or ledger.kept == list(range(QUERIES))
        return ended

    async def _is_over(self, job: str) -> bool:
        def read(journal: Journal) -> bool:
            return any(each.job.name == job and each.job.state in FINAL for each in journal.jobs())

        return await self.running.coordinator._journal.run(read)

    def wait_until_alone(self) -> None:
        """Wait, in a provider's thread, until the coordinator has disconnected everybody."""
        until = time.monotonic() + TIMEOUT
        while self.running.coordinator.roster.links and time.monotonic() < until:
            time.sleep(0.02)


@asynccontextmanager
async def place(enrolment: Enrolment, before: Callable[["Place", int], None], seconds: int = 2) -> AsyncIterator[Place]:
    """Run a federation that calls a function before it stores an answer. It waits so many seconds for answers."""
    coordinators, analysts = Clock(), Clock()
    async with AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as patching:  # only the coordinator's clock
            patching.setattr("local_federation.now", coordinators)
            running = await stack.enter_async_context(federation(enrolment, (), heartbeat_seconds=HEARTBEAT))
        bob = enrolment.identity(Role.ANALYST, "bob")
        analyst = await stack.enter_async_context(
            AsyncFederation(running.coordinator.address, bob, analysts, retry_seconds=1)
        )
        here = Place(running, analyst, coordinators, analysts, spec(answer_seconds=seconds))
        for name in SHARDS:
            here.ledgers[name] = WatchingLedger(lambda position: before(here, position))
            await running.start(name, ledger=here.ledgers[name])
        yield here


def clock_error(first: int, position: int) -> timedelta:
    """Return the error of the clock at a query. Over all values of ``first``, every query meets every error."""
    return JUMPS[(first + position) % len(JUMPS)]


@pytest.mark.parametrize("first", range(len(JUMPS)))
def test_t15_jumps_of_the_coordinator_s_clock_do_not_stop_a_job(enrolment: Enrolment, first: int) -> None:
    def move(here: Place, position: int) -> None:
        here.coordinators.ahead = clock_error(first, position)

    async def scenario() -> None:
        async with place(enrolment, move) as here:
            await here.job_ends()

    asyncio.run(scenario())


@pytest.mark.parametrize("first", range(len(JUMPS)))
def test_t15_jumps_of_the_analyst_s_clock_do_not_affect_a_job(enrolment: Enrolment, first: int) -> None:
    def move(here: Place, position: int) -> None:
        here.analysts.ahead = clock_error(first, position)

    async def scenario() -> None:
        async with place(enrolment, move) as here:
            assert (await here.job_ends()).state == "done"

    asyncio.run(scenario())


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_t15_a_lasting_clock_error_fails_a_job_without_extra_cost(enrolment: Enrolment, jump: timedelta) -> None:
    """If no certificate is valid by its clock, it disconnects everybody, and waits for them as long as usual."""
    holds = jump == timedelta(hours=1)  # certificates do by such a clock

    def move(here: Place, position: int) -> None:
        if position == 1:
            here.coordinators.ahead = jump
            if holds:
                time.sleep(1.3 * HEARTBEAT)
            else:
                here.wait_until_alone()

    async def scenario() -> None:
        async with place(enrolment, move, seconds=TIMEOUT if holds else 2) as here:
            assert (await here.job_ends()).state == ("done" if holds else "failed")

    asyncio.run(scenario())


@pytest.mark.parametrize("jump", [each for each in JUMPS if abs(each) > timedelta(days=1)], ids=str)
def test_t15_a_corrected_clock_lets_the_job_finish_charged_once(enrolment: Enrolment, jump: timedelta) -> None:
    moved = Event()

    def move(here: Place, position: int) -> None:
        if position == 1 and not moved.is_set():
            moved.set()
            here.coordinators.ahead = jump
            here.wait_until_alone()
            here.coordinators.ahead = timedelta()

    async def scenario() -> None:
        async with place(enrolment, move, seconds=TIMEOUT) as here:
            assert (await here.job_ends()).state == "done"

    asyncio.run(scenario())


@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_t15_a_job_signed_by_a_wrong_clock_is_done_or_refused_free(enrolment: Enrolment, jump: timedelta) -> None:
    async def scenario() -> None:
        async with place(enrolment, lambda *_: None) as here:
            here.analysts.ahead = jump
            if jump == -timedelta(hours=1):  # the job's signature is valid for longer
                assert (await here.job_ends()).state == "done"
                return
            with pytest.raises(DpspcaError, match=facts("clock")):
                await here.job_ends()
            for ledger in here.ledgers.values():
                assert not ledger._state.jobs

    asyncio.run(scenario())
