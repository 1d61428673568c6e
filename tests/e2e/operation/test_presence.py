"""Who is connected, since when, and why others are not: told to analysts by name, and to the operator of everybody."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from facts import facts
from local_federation import Enrolment, RunningFederation, federation, now, spec
from timeouts import TIMEOUT

from dpspca.client.connection.errors import AwayError
from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import RefusedError
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.common.transport import rpc
from dpspca.common.trust import identity as identities
from dpspca.common.trust.identity import Identity
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

SITES = ["site-0", "site-1"]


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not await holds():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.05)


async def state_of(running: RunningFederation, name: str) -> str:
    (found,) = await running.analyst.presence([name])
    return found.state


async def leave(running: RunningFederation, name: str) -> None:
    """Stop a provider, and wait until the coordinator noticed."""
    running.daemons.pop(name).cancel()
    await until(lambda: is_in(running, name, "away"))


async def is_in(running: RunningFederation, name: str, state: str) -> bool:
    return await state_of(running, name) == state


def revoke(running: RunningFederation, name: str) -> None:
    running.enrolment.authority.revoke(PartyName("town", Role.PROVIDER, name))
    running.revoked.append(running.enrolment.revocations())


def enrolled_again(enrolment: Enrolment, name: str) -> Identity:
    """Give a revoked provider a new certificate."""
    home, party = enrolment.folder / "again", PartyName("town", Role.PROVIDER, name)
    request = identities.request(home, party)
    return identities.install(home, enrolment.authority.sign(request, days=30), enrolment.authority.certificate_pem)


async def asked(running: RunningFederation, me: Identity, *providers: str) -> list[pb.Party]:
    """Ask as this party, without the client's checks."""
    async with rpc.dial(running.coordinator.address, me) as channel:
        stub = pb_grpc.PartyServiceStub(channel)
        return [each async for each in stub.Parties(pb.PartiesRequest(providers=providers), timeout=TIMEOUT)]


def run(enrolment: Enrolment, scene: Callable[[RunningFederation], Awaitable[None]], **limits: Any) -> None:
    async def scenario() -> None:
        async with federation(enrolment, SITES, **limits) as running:
            await scene(running)

    asyncio.run(scenario())


def test_an_analyst_learns_since_when_a_provider_is_here_or_not(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        one, other, unknown = await running.analyst.presence([*SITES, "nroth"])
        for each in (one, other):
            assert (each.state, each.data_sets, each.is_connected) == ("connected", ("cohort",), True)
            assert each.since is not None
            assert abs(each.since.timestamp() - time.time()) < TIMEOUT
            assert each.certificate_until == running.known[each.name].not_after
        assert (unknown.state, unknown.since_start, unknown.certificate_until) == ("unknown", True, None)
        assert "unknown" in unknown.absence
        left_at = time.time()
        await leave(running, "site-1")
        (gone,) = await running.analyst.presence(["site-1"])
        assert gone.since is not None
        assert left_at - 1 < gone.since.timestamp() <= time.time()
        assert gone.absence == f"not connected since {gone.since:%Y-%m-%d %H:%M:%S} UTC"
        await running.start("site-1")
        assert await state_of(running, "site-1") == "connected"

    run(enrolment, scene)


def test_a_job_for_a_revoked_provider_is_refused_at_once(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        revoke(running, "site-1")
        begun = time.monotonic()
        with pytest.raises(RefusedError, match=facts("site-1")):
            await running.analyst.submit(spec(minimum_providers=1), "cohort", SITES)
        assert time.monotonic() - begun < TIMEOUT / 2
        assert await running.analyst.jobs() == []
        assert (await running.analyst.fit(spec(), "cohort", ["site-0"])).statement.parties == 1

    run(enrolment, scene, heartbeat_seconds=1)


def test_a_provider_that_is_turned_away_is_known_to_be_revoked(enrolment: Enrolment) -> None:
    """Also if it was revoked before this coordinator ever saw it, and without a job."""

    async def scene(running: RunningFederation) -> None:
        running.known["site-2"] = enrolment.identity(Role.PROVIDER, "site-2")
        assert await state_of(running, "site-2") == "unknown"
        revoke(running, "site-2")
        with pytest.raises(grpc.aio.AioRpcError):
            await asked(running, running.known["site-2"], "site-0")
        (found,) = await running.analyst.presence(["site-2"])
        assert (found.state, found.since_start) == ("revoked", True)

    run(enrolment, scene)


def test_a_stolen_old_key_says_nothing_about_a_provider_with_a_new_one(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        stolen = running.known["site-1"]
        revoke(running, "site-1")
        await until(lambda: is_in(running, "site-1", "revoked"))
        running.daemons.pop("site-1").cancel()
        await asyncio.sleep(1.1)  # certificates say in whole seconds when they were issued
        running.known["site-1"] = enrolled_again(enrolment, "site-1")
        await running.start("site-1")
        await leave(running, "site-1")
        with pytest.raises(grpc.aio.AioRpcError):
            await asked(running, stolen, "site-0")
        assert await state_of(running, "site-1") == "away"

    run(enrolment, scene, heartbeat_seconds=1)


def test_the_coordinator_shows_everybody_and_an_analyst_asks_by_name(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        hub = Identity.load(enrolment.folder / "coordinator-hub")
        await leave(running, "site-1")
        await running.analyst.jobs()  # a connection is made when it is needed
        seen = await asked(running, hub)
        assert [(each.role, each.name, each.state) for each in seen] == [
            ("provider", "site-0", "connected"),
            ("provider", "site-1", "away"),
            ("analyst", "ada", "connected"),
        ]
        assert seen[2].certificate_until > time.time()
        ada = Identity.load(enrolment.folder / "analyst-ada")
        for names in ((), ("site-0",) * (MAX_PROVIDERS + 1), ("a b",)):
            with pytest.raises(grpc.aio.AioRpcError):
                await asked(running, ada, *names)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await asked(running, running.known["site-0"], "site-1")
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    run(enrolment, scene)


def test_a_coordinator_of_an_earlier_version_says_nothing_and_jobs_go_on(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pb_grpc, "add_PartyServiceServicer_to_server", lambda *_: None)

    async def scene(running: RunningFederation) -> None:
        assert await running.analyst.presence(SITES) == []
        assert (await running.analyst.fit(spec(), "cohort", SITES)).statement.parties == 2

    run(enrolment, scene)


def test_a_coordinator_that_is_away_is_reported_as_such(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        me = enrolment.identity(Role.ANALYST, "ada")
        async with AsyncFederation("127.0.0.1:1", me, now, retry_seconds=0) as alone:
            with pytest.raises(AwayError, match=facts("UNAVAILABLE")):
                await alone.presence(SITES)

    asyncio.run(scenario())
