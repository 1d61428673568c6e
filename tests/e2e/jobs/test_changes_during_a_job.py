"""Changes while a job runs: a certificate is revoked, renewed or expires, or the analyst cancels."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from coordinator_processes import assert_same_as_undisturbed, wait_for_answers
from local_federation import SHARDS, AllowEverything, Enrolment, RunningFederation, federation, now, seeded_noise, spec
from timeouts import TIMEOUT

from dpspca.client.connection import JobFailedError
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.job import JobSpec
from dpspca.common.names import PartyName, Role
from dpspca.common.plan import prices
from dpspca.common.privacy.costs import NOTHING
from dpspca.common.trust import identity as identities
from dpspca.common.trust.identity import CurrentIdentity
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.server.coordinator import Coordinator
from dpspca.server.jobs.roster import Link

SPEC = spec(answer_seconds=4, minimum_providers=2)
QUERIES = len(catalogue.plan(SPEC))
COSTS = (NOTHING, *prices(catalogue.plan(SPEC)))
"""Of as many queries."""


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


REACHED = 2
"""Queries that are answered when something happens to a certificate."""


class HoldingLedger(MemoryLedger):
    """A ledger that holds back the answer to one query, so that its job waits there until ``let_go`` is set."""

    def __init__(self, reached: int = REACHED) -> None:
        super().__init__()
        self.let_go = Event()
        self._reached = reached

    def store(self, job: str, position: int, answer: Integers) -> None:
        if position == self._reached:
            assert self.let_go.wait(TIMEOUT)
        super().store(job, position, answer)

    def require_paid(self, job: str, queries: int) -> None:
        """Check that so many queries were charged, each once."""
        standing = self.standing(job)
        assert standing is not None
        assert (standing.reached, standing.spent) == (queries, COSTS[queries])


@pytest.mark.slow
@pytest.mark.parametrize("reached", [1, 3])
def test_a_revoked_provider_is_disconnected_and_others_continue(enrolment: Enrolment, reached: int) -> None:
    """It waits at its next query until the coordinator has ended its connection, so it cannot finish before."""

    async def scenario() -> None:
        async with federation(enrolment, (), heartbeat_seconds=1) as running:
            held = HoldingLedger(reached)
            for name in SHARDS:
                await running.start(name, ledger=held if name == "site-1" else MemoryLedger())
            link = running.coordinator.roster.link_of("site-1")
            assert link
            try:
                job = await running.analyst.submit(SPEC, "cohort", list(SHARDS))
                await wait_for_answers(job, reached)
                await wait_until_charged(held, job.name, reached)
                enrolment.authority.revoke(PartyName("town", Role.PROVIDER, "site-1"))
                running.revoked.append(enrolment.revocations())
                await wait_until_disconnected(link, "was revoked")
            finally:
                held.let_go.set()
            model = await job.result()
            output = {each.name: each for each in (await job.status()).participants}
            assert model.statement.parties == 2
            assert output["site-1"].reason
            assert (output["site-1"].answered, output["site-1"].asked) == (reached, reached + 1)
            held.require_paid(job.name, reached + 1)
            assert [output[name].answered for name in ("site-0", "site-2")] == [QUERIES] * 2

    asyncio.run(scenario())


async def wait_until_charged(ledger: MemoryLedger, job: str, position: int) -> None:
    """Wait until a provider has charged a query."""
    async with asyncio.timeout(TIMEOUT):
        while not ledger.query_digest(job, position):  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.05)


async def wait_until_disconnected(link: Link, why: str) -> None:
    """Wait until the coordinator has ended a connection."""
    async with asyncio.timeout(TIMEOUT):
        while not link.closed:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.05)
    assert why in str(link.ended_by)


@dataclass
class Renewing:
    """A federation in which site-1 rereads its identity when the file changes, as the daemon does."""

    enrolment: Enrolment
    running: RunningFederation
    ledgers: dict[str, HoldingLedger]
    ahead: list[timedelta]
    """By how much the coordinator's clock is ahead: the last counts."""

    @property
    def home(self) -> Path:
        return self.enrolment.folder / "provider-site-1"

    def renew(self) -> None:
        """Renew the certificate of site-1, and install it."""
        authority, request = self.enrolment.authority, identities.renew_request(self.home)
        identities.install(self.home, authority.sign(request), authority.certificate_pem)

    def expire(self) -> None:
        """Set the clock to after the end of site-1's first certificate, which lasts one day."""
        self.ahead.append(timedelta(hours=25))

    async def begin(self, what: JobSpec) -> AsyncJob:
        """Submit a job, and wait until all providers are at the same query."""
        job = await self.running.analyst.submit(what, "cohort", list(SHARDS))
        for each in self.ledgers.values():
            await wait_until_charged(each, job.name, REACHED)
        self.let_go("site-0", "site-2")
        return job

    def let_go(self, *names: str) -> None:
        for name in names:
            self.ledgers[name].let_go.set()

    async def wait_for_disconnection(self, why: str) -> None:
        """Wait until the coordinator has ended the connection of site-1."""
        old = self.running.coordinator.roster.link_of("site-1")
        assert old
        await wait_until_disconnected(old, why)


@asynccontextmanager
async def renewing(enrolment: Enrolment) -> AsyncIterator[Renewing]:
    """Run a federation in which the certificate of site-1 lasts a day, and all others longer."""
    enrolment.identity(Role.PROVIDER, "site-1", days=1)
    ahead = [timedelta(0)]
    async with AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as patching:  # only the coordinator's clock
            patching.setattr("local_federation.now", lambda: now() + ahead[-1])
            running = await stack.enter_async_context(federation(enrolment, (), heartbeat_seconds=1))
        here = Renewing(enrolment, running, {name: HoldingLedger() for name in SHARDS}, ahead)
        stack.callback(here.let_go, *SHARDS)
        for name in ("site-0", "site-2"):
            await running.start(name, ledger=here.ledgers[name])
        settings = ProviderSetup(
            running.coordinator.address,
            CurrentIdentity(here.home).get,
            lambda: running.revoked[-1],
            now,
            {"cohort": check_rows(SHARDS["site-1"])},
            AllowEverything,
            here.ledgers["site-1"],
            running.words(1),
        )
        daemon = Daemon(settings)
        running.daemons["site-1"] = asyncio.create_task(daemon.run())
        await asyncio.wait_for(daemon.connected.wait(), TIMEOUT)
        yield here


async def nothing_happens(here: Renewing) -> None:
    here.renew()


async def the_old_one_is_revoked(here: Renewing) -> None:
    (old,) = [each.serial for each in here.enrolment.authority.list() if each.name.name == "site-1"]
    here.renew()
    here.enrolment.authority.revoke(old)
    here.running.revoked.append(here.enrolment.revocations())
    await here.wait_for_disconnection("was revoked")


async def the_old_one_runs_out(here: Renewing) -> None:
    here.renew()
    here.expire()
    await here.wait_for_disconnection("is valid from")


async def the_old_one_has_run_out(here: Renewing) -> None:
    here.expire()
    await here.wait_for_disconnection("is valid from")
    here.renew()


FATES = [nothing_happens, the_old_one_is_revoked, the_old_one_runs_out, the_old_one_has_run_out]


@pytest.mark.parametrize("fate", FATES)
def test_a_provider_that_renewed_its_identity_stays_in_the_job(
    enrolment: Enrolment, fate: Callable[[Renewing], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        async with renewing(enrolment) as here:
            job = await here.begin(spec(answer_seconds=60))
            await fate(here)
            here.let_go("site-1")
            assert_same_as_undisturbed(await job.result())
            output = (await job.status()).participants
            assert [(each.answered, each.reason) for each in output] == [(QUERIES, "")] * len(SHARDS)
            for ledger in here.ledgers.values():
                ledger.require_paid(job.name, QUERIES)

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize(("least", "state"), [(2, "done"), (3, "failed")])
def test_a_job_handles_a_provider_whose_certificate_expires(enrolment: Enrolment, least: int, state: str) -> None:
    async def scenario() -> None:
        async with renewing(enrolment) as here:
            job = await here.begin(spec(answer_seconds=3, minimum_providers=least))
            here.expire()
            await here.wait_for_disconnection("is valid from")
            here.let_go("site-1")
            wait_until_disconnected = [each async for each in job.watch()][-1]
            assert wait_until_disconnected.state == state
            output = {each.name: each for each in wait_until_disconnected.participants}
            assert (output["site-1"].asked, output["site-1"].answered) == (REACHED + 1, REACHED)
            assert output["site-1"].reason == f"No answer to query {REACHED + 1} within 3 seconds."
            if state == "failed":
                assert wait_until_disconnected.reason.startswith(
                    "2 providers are left; the job needs at least 3. site-1: No answer"
                )
            here.ledgers["site-1"].require_paid(job.name, REACHED + 1)
            for name in ("site-0", "site-2"):
                here.ledgers[name].require_paid(job.name, QUERIES if state == "done" else REACHED + 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("revoked", [False, True])
def test_a_coordinator_that_renewed_its_identity_continues_jobs(enrolment: Enrolment, revoked: bool) -> None:
    """If the old certificate is revoked, every provider disconnects, reconnects, and sees the new one."""

    async def scenario() -> None:
        old = enrolment.identity(Role.COORDINATOR, "hub")
        home = enrolment.folder / "coordinator-hub"
        lists = [enrolment.revocations()]
        hub = Coordinator(CurrentIdentity(home).get, lambda: lists[-1], now, heartbeat_seconds=1)
        await hub.start("127.0.0.1:0")
        ledgers = {name: HoldingLedger() for name in SHARDS}
        async with AsyncFederation(hub.address, enrolment.identity(Role.ANALYST, "ada")) as analyst:
            running = RunningFederation(enrolment, hub, analyst, lists, SHARDS, seeded_noise)
            try:
                for name, ledger in ledgers.items():
                    await running.start(name, ledger=ledger)
                job = await Renewing(enrolment, running, ledgers, []).begin(spec(answer_seconds=60))
                before = {name: hub.roster.link_of(name) for name in SHARDS}
                authority = enrolment.authority
                identities.install(home, authority.sign(identities.renew_request(home)), authority.certificate_pem)
                if revoked:
                    authority.revoke(authority.list()[0].serial)
                    lists.append(enrolment.revocations())
                    await wait_until_reconnected(hub, before)
                assert CurrentIdentity(home).get().certificate_pem != old.certificate_pem
                ledgers["site-1"].let_go.set()
                assert_same_as_undisturbed(await job.result())
                for ledger in ledgers.values():
                    ledger.require_paid(job.name, QUERIES)
            finally:
                for ledger in ledgers.values():
                    ledger.let_go.set()
                await running.stop()

    asyncio.run(scenario())


async def wait_until_reconnected(hub: Coordinator, before: Mapping[str, Link | None]) -> None:
    """Wait until every provider has reconnected."""
    async with asyncio.timeout(TIMEOUT):
        while any(hub.roster.link_of(name) in {None, link} for name, link in before.items()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("reached", range(QUERIES))
def test_a_job_cancelled_at_any_query_costs_the_queries_so_far(enrolment: Enrolment, reached: int) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            ledgers = {name: HoldingLedger(reached) for name in SHARDS}
            for name, ledger in ledgers.items():
                await running.start(name, ledger=ledger)
            try:
                job = await running.analyst.submit(SPEC, "cohort", list(SHARDS))
                await wait_for_answers(job, reached)
                cancelled = await job.cancel()
            finally:
                for ledger in ledgers.values():
                    ledger.let_go.set()
            assert (cancelled.state, cancelled.reason) == ("cancelled", "Cancelled by the analyst.")
            with pytest.raises(JobFailedError):
                await job.result()
            async with asyncio.timeout(TIMEOUT):  # for answers in the making, and for the message that closes the job
                while any(ledger.open_jobs() for ledger in ledgers.values()):  # noqa: ASYNC110  # there is no event for it
                    await asyncio.sleep(0.05)
            output = {each.name: each for each in cancelled.participants}
            for name, ledger in ledgers.items():
                known = ledger._state.jobs.get(job.name)
                if known is None:  # the job was cancelled before the first query
                    assert reached == 0
                    continue
                assert (known.account.reserved.units, known.account.reserved.slack_units) == (0, 0)
                assert known.account.spent.units <= COSTS[output[name].asked].units

    asyncio.run(scenario())
