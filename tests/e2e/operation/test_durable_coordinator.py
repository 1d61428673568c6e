"""A restarted coordinator knows its jobs, and a standby takes them over. Never do two act at a time."""

import asyncio
import json
import re
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import database
import grpc
import grpc.aio
import pytest
from coordinator_processes import (
    SHORT_LEASE_PROGRAM,
    Barrier,
    CoordinatorProcess,
    CountedNoise,
    Forwarder,
    StableEnrolment,
    ada,
    assert_same_as_undisturbed,
    hub_identity,
    retry_while_away,
    signed,
    submit,
    wait_for_answers,
    with_providers,
)
from dishonest_peers import OFFER, DishonestProvider, dishonest_provider
from facts import facts
from local_federation import SHARDS, Enrolment, RunningFederation, now, seeded_noise, spec

from dpspca.client.connection import FederationError, JobFailedError, probe
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError
from dpspca.common.names import Role
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.results import Model
from dpspca.common.trust.signing import SignedJob
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder
from dpspca.server.coordinator import Coordinator
from dpspca.server.job_states import JobRecord
from dpspca.server.jobs.sums import combine
from dpspca.server.journal.contract import NO_RECEIPTS, JournalError
from dpspca.server.journal.sqlite import SqliteJournal, TemporaryJournal

"""Seconds that an answer takes, where a job is to be met half-way."""


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return StableEnrolment.create(tmp_path)


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


# --- Restarts ---------------------------------------------------------------------------------------------------------


def test_a_signed_job_stays_the_same_job_after_a_restart(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        barrier = Barrier(3)
        async with with_providers(enrolment, hub, barrier=barrier) as running:
            job = signed(enrolment)
            first = await submit(running, job)
            await wait_for_answers(first, 2)
            await hub.kill()
            await barrier.lift()
            await hub.start()
            again = await asyncio.gather(*(submit(running, job) for _ in range(5)))
            assert {each.name for each in again} == {first.name}
            assert_same_as_undisturbed(await first.result())
            assert [each.job for each in await running.analyst.jobs()] == [first.name]
            await hub.kill()
            await hub.start()
            assert (await submit(running, job)).name == first.name
            assert [each.state for each in await running.analyst.jobs()] == ["done"]

    asyncio.run(scenario())


def test_finished_jobs_have_the_same_status_after_a_restart(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        async with with_providers(enrolment, hub) as running:
            done = await submit(running, signed(enrolment))
            model = (await done.result()).to_bytes()
            cancelled = await running.analyst.submit(spec(answer_seconds=600), "cohort", ["nobody", *SHARDS])
            assert (await cancelled.cancel()).state == "cancelled"
            failed = await running.analyst.submit(spec(answer_seconds=1), "elsewhere", list(SHARDS))
            with pytest.raises(JobFailedError):
                await failed.result()
            before = await running.analyst.jobs()
            assert [each.state for each in before] == ["done", "cancelled", "failed"]
            await hub.kill()
            await hub.start()
            assert await retry_while_away(running.analyst.jobs) == before
            assert (await done.result()).to_bytes() == model
            assert [each.state async for each in done.watch()] == ["done"]
            assert (await running.analyst.job(done.name)).spec == done.spec
            with pytest.raises(JobFailedError, match=facts("'elsewhere'")):
                await failed.result()

    asyncio.run(scenario())


def test_stopping_the_coordinator_does_not_end_a_job(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        barrier = Barrier(3)
        async with with_providers(enrolment, hub, barrier=barrier) as running:
            job = await submit(running, signed(enrolment))
            await wait_for_answers(job, 2)
            assert await hub.kill(signal.SIGTERM) == 0
            await barrier.lift()
            await hub.start()
            assert "continues at query" in "".join(hub.log)
            assert_same_as_undisturbed(await retry_while_away(job.result))

    asyncio.run(scenario())


def test_a_stopping_coordinator_does_not_close_jobs_at_providers(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        home = enrolment.identity(Role.PROVIDER, "site-0")
        async with (
            dishonest_provider(hub.address, home) as held,
            AsyncFederation(hub.address, ada(enrolment)) as analyst,
        ):
            await held.greet(OFFER)
            await analyst.submit_signed(enrolment.job(spec(), ada(enrolment), ["site-0"]), spec())
            await held.query()
            hub.process.send_signal(signal.SIGTERM)
            assert await orders_until_the_end(held) == []
            assert await hub.ended() == 0

    asyncio.run(scenario())


def test_a_query_possibly_sent_before_a_kill_counts_as_sent(enrolment: Enrolment) -> None:
    """The journal may not show yet that the first query was sent, so its cost must not be reported as zero."""

    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        home = enrolment.identity(Role.PROVIDER, "site-0")
        async with AsyncFederation(hub.address, ada(enrolment)) as analyst:
            async with dishonest_provider(hub.address, home) as held:
                await held.greet(OFFER)
                job = await analyst.submit(spec(answer_seconds=600), "cohort", ["site-0"])
                assert (await held.query()).position == 0
                await hub.kill()
            await hub.start()
            try:
                (output,) = (await retry_while_away(job.status)).participants
                assert (output.asked, output.answered) == (1, 0)
                await job.cancel()
                with pytest.raises(JobFailedError, match=facts("(cancelled)")):
                    await job.result()
            finally:
                await hub.stop()

    asyncio.run(scenario())


def test_a_result_dropped_after_a_restart_stays_dropped(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with serving(enrolment) as running:
            first, second = [await submit(running, signed(enrolment)) for _ in range(2)]
            for job in (first, second):
                await job.result()
            size = max([len(await job._content()) for job in (first, second)])
        for room in (3 * size // 2, 3 * size):
            async with serving(enrolment, result_bytes=room) as running:
                stub = running.analyst.stub
                assert [each.state for each in await running.analyst.jobs()] == ["done", "done"]
                assert (await AsyncJob(second.name, second.plan, stub).result()).components.size
                with pytest.raises(FederationError, match=facts("result-gone")):
                    await AsyncJob(first.name, first.plan, stub).result()

    asyncio.run(scenario())


@pytest.mark.nightly
def test_a_provider_left_out_before_a_restart_stays_left_out(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        barrier = Barrier(2)
        async with with_providers(enrolment, hub, names={"site-0": None, "site-1": None}, barrier=barrier) as running:
            # Long enough for the other providers to reconnect, however slowly the coordinator starts.
            job = await running.analyst.submit(spec(answer_seconds=20, minimum_providers=2), "cohort", list(SHARDS))
            await wait_for_answers(job, 1)
            await hub.kill()
            await barrier.lift()
            await hub.start()
            await running.start("site-2")
            assert (await retry_while_away(job.result)).statement.parties == 2
            (output,) = await running.analyst.jobs()
            reasons = {each.name: each.reason for each in output.participants}
            assert "Not connected" in reasons.pop("site-2")
            assert set(reasons.values()) == {""}

    asyncio.run(scenario())


# --- Checks of the journal --------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(
    enrolment: Enrolment, clock: Callable[[], datetime] = now, barrier: Barrier | None = None, **limits: int
) -> AsyncIterator[RunningFederation]:
    """Run all parties in this process, with the town's journal."""
    me, journal = hub_identity(enrolment), SqliteJournal(enrolment.folder / "journal.db")
    coordinator = Coordinator(lambda: me, enrolment.revocations, clock, journal=journal, **limits)
    await coordinator.start("127.0.0.1:0")
    async with with_providers(enrolment, coordinator, barrier=barrier) as running:
        yield running


async def leave_half_way(enrolment: Enrolment) -> AsyncJob:
    async with serving(enrolment, barrier=Barrier(3)) as running:
        job = await submit(running, signed(enrolment))
        await wait_for_answers(job, 2)
        return job


async def ending(enrolment: Enrolment, job: AsyncJob, clock: Callable[[], datetime] = now) -> tuple[str, str]:
    """Restart on the journal, and return how the job ends and how many words of noise were drawn."""
    async with serving(enrolment, clock) as running:
        drawn = CountedNoise.tally.drawn
        last = [state async for state in AsyncJob(job.name, job.plan, running.analyst.stub).watch()][-1]
        assert CountedNoise.tally.drawn == drawn == 0
        return str(last.state), last.reason


def test_a_job_that_expired_while_the_coordinator_was_down_fails(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        job = await leave_half_way(enrolment)
        state, reason = await ending(enrolment, job, lambda: now() + timedelta(hours=2))
        assert state == "failed"
        assert re.search(r"restart: .*\b\d{10} to \d{10}\b", reason)

    asyncio.run(scenario())


def test_a_job_counted_by_version_0_1_0_goes_on_with_plain_sums(enrolment: Enrolment) -> None:
    """That version did not record how many rows each provider has: weights would have to be guessed."""

    async def scenario() -> Model:
        hub, barrier = CoordinatorProcess(enrolment), Barrier(2)
        await hub.start()
        async with with_providers(enrolment, hub, barrier=barrier) as running:
            job = await submit(running, signed(enrolment))
            await wait_for_answers(job, 1)
            await hub.kill()
            forget_rows(enrolment)
            await barrier.lift()
            await hub.start()
            return await retry_while_away(job.result)

    model, plain = asyncio.run(scenario()), simulate_plainly()
    assert model.weights is None
    assert model.components.tobytes() == plain.components.tobytes()


def forget_rows(enrolment: Enrolment) -> None:
    with closing(sqlite3.connect(enrolment.folder / "journal.db", isolation_level=None)) as file:
        ((standing,),) = file.execute("SELECT standing FROM jobs").fetchall()
        older = json.loads(standing)
        assert [each.pop("rows") for _, each in sorted(older["participants"].items())] == [550, 250, 100]
        file.execute("UPDATE jobs SET standing = ?", (json.dumps(older),))


def simulate_plainly() -> Model:
    """Compute the usual job's model from the usual answers, added up as they are."""
    plan, asked = catalogue.plan(spec()), count()
    providers = [
        Responder(plan, Shard(check_rows(rows), spec().norm_bound), MemoryLedger(), seeded_noise(at), seat=at)
        for at, rows in enumerate(SHARDS.values())
    ]

    def ask(query: RowQuery) -> Aggregate:
        at = next(asked)
        return combine(spec(), plan[at], [each.respond(at, query) for each in providers])

    return drive(catalogue.run(plan), ask)


def test_a_journal_that_replays_another_query_fails_the_job(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        job = await leave_half_way(enrolment)
        with sqlite3.connect(enrolment.folder / "journal.db") as file:
            file.execute("UPDATE sums SET content = zeroblob(length(content)) WHERE position = 1")
        file.close()
        state, reason = await ending(enrolment, job)
        assert state == "failed"
        assert "query 3" in reason

    asyncio.run(scenario())


class Failing(TemporaryJournal):
    """A journal that fails when a job ends."""

    def end(self, job: JobRecord, model: bytes | None, receipts: Mapping[str, bytes] = NO_RECEIPTS) -> None:
        raise JournalError("The disk is full.", "Make room.")


def test_t38_a_failing_journal_reports_no_job_done_and_admits_no_party(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        me = hub_identity(enrolment)
        coordinator = Coordinator(lambda: me, enrolment.revocations, now, journal=Failing())
        await coordinator.start("127.0.0.1:0")
        running_out = asyncio.create_task(coordinator.run())
        around_it, impatient = (
            with_providers(enrolment, coordinator),
            AsyncFederation(coordinator.address, ada(enrolment), retry_seconds=0),
        )
        async with around_it as running, impatient as analyst:
            job = await analyst.submit(spec(), "cohort", list(SHARDS))
            watching = asyncio.create_task(_states(job))
            with pytest.raises(JournalError, match=facts("disk")):
                await running_out
            with pytest.raises(FederationError, match=facts("UNAVAILABLE")):
                await analyst.jobs()
            await running.stop()
            assert "done" not in await watching

    asyncio.run(scenario())


async def _states(job: AsyncJob) -> list[str]:
    seen: list[str] = []
    with suppress(FederationError):
        async for state in job.watch():
            seen += [str(state.state)]
    return seen


# --- Taking over ------------------------------------------------------------------------------------------------------


async def serves(hub: CoordinatorProcess) -> bool:
    try:
        await probe.ask(hub.address, ada(hub.enrolment), "")
    except DpspcaError:
        return False
    return True


async def until_it_serves(hub: CoordinatorProcess) -> None:
    await hub.says("Serving.")
    assert await serves(hub)


@pytest.fixture(params=["sqlite", "postgres"])
def journal(request: pytest.FixtureRequest) -> str:
    """Return the location of a journal that two coordinators share."""
    if request.param == "sqlite":
        return "journal.db"
    return str(request.getfixturevalue("server").database())


@pytest.mark.slow
def test_a_standby_refuses_calls_until_it_takes_over(enrolment: Enrolment, journal: str) -> None:
    async def scenario() -> None:
        first, second = (
            CoordinatorProcess(enrolment, "first", journal),
            CoordinatorProcess(enrolment, "second", journal),
        )
        forwarder = Forwarder()
        await forwarder.start()
        await first.start()
        await until_it_serves(first)
        forwarder.redirect(first.address)
        await second.start()
        try:
            await second.says("as a standby")
            barrier = Barrier(3)
            async with with_providers(enrolment, forwarder, barrier=barrier) as running:
                job = signed(enrolment)
                await wait_for_answers(await submit(running, job), 2)
                assert not await serves(second)
                async with AsyncFederation(second.address, ada(enrolment)) as early:
                    with pytest.raises(FederationError, match=facts("UNAVAILABLE", "standby")):
                        await early.submit_signed(job, spec())
                await first.kill()
                await barrier.lift()
                forwarder.redirect(second.address)
                await until_it_serves(second)
                assert_same_as_undisturbed(await (await submit(running, job)).result())
                assert [each.state for each in await running.analyst.jobs()] == ["done"]
        finally:
            await second.stop()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_coordinator_paused_during_a_takeover_does_nothing_more(
    enrolment: Enrolment, server: database.Server
) -> None:
    """It has received the whole answer to its last query, and must neither send the next nor accept a job."""

    async def scenario() -> None:
        journal = server.database()
        first, second = (
            CoordinatorProcess(enrolment, "first", journal),
            CoordinatorProcess(enrolment, "second", journal),
        )
        await first.start(SHORT_LEASE_PROGRAM, 2.0)
        await second.start(SHORT_LEASE_PROGRAM, 2.0)
        home = enrolment.identity(Role.PROVIDER, "site-0")
        impatient = AsyncFederation(first.address, ada(enrolment), retry_seconds=0)
        async with dishonest_provider(first.address, home) as held, impatient as analyst:
            try:
                await held.greet(OFFER)
                job = enrolment.job(spec(answer_seconds=60), ada(enrolment), ["site-0"])
                await analyst.submit_signed(job, spec())
                ask = await held.query()
                assert ask.position == 0
                first.process.send_signal(signal.SIGSTOP)
                await held.answer(ask, (0, bytes(8)))
                late = asyncio.create_task(analyst.submit_signed(_another(enrolment), spec()))
                await until_it_serves(second)
                first.process.send_signal(signal.SIGCONT)
                assert await orders_until_the_end(held) == []
                with pytest.raises(FederationError, match=facts("UNAVAILABLE")):
                    await late
                assert await first.ended() == 2
                assert "cannot be used" in first.log[-1]
                async with AsyncFederation(second.address, ada(enrolment)) as elsewhere:
                    (output,) = await elsewhere.jobs()
                    assert (output.job, output.state, output.answered) == (job.job_id, "running", 0)
            finally:
                await second.stop()

    asyncio.run(scenario())


async def orders_until_the_end(held: DishonestProvider) -> list[str]:
    """Read a connection to its end, and list the orders to the provider: admit, answer, or close a job."""
    orders: list[str] = []
    with suppress(grpc.aio.AioRpcError):
        while (message := await held.call.read()) is not grpc.aio.EOF:
            orders.append(str(message.WhichOneof("message")))
    return [each for each in orders if each in {"admit", "query", "frame", "farewell"}]


def _another(enrolment: Enrolment) -> SignedJob:
    return enrolment.job(spec(), ada(enrolment), ["site-0"])
