"""Whom the coordinator admits, refuses and disconnects, and with which errors. Real sockets and mutual TLS."""

import asyncio
import gc
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import local_federation as towns
import pytest
from dishonest_peers import OFFER, DishonestProvider, dishonest_provider, open_channel, reissued
from facts import facts
from local_federation import Enrolment, RunningFederation, federation, now, spec
from raw_http2 import NO_REPLIES_ALLOWED, open_connection
from timeouts import TIMEOUT

from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import COORDINATOR_HOST, Role
from dpspca.common.trust.connection_proof import new_challenge
from dpspca.common.trust.identity import Identity
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server import coordinator as service
from dpspca.server.coordinator import ALLOWED, Coordinator
from dpspca.server.rpc import call_interceptor
from dpspca.server.rpc.call_interceptor import CallInterceptor
from dpspca.server.rpc.health import MAX_HEALTH_WATCHES
from dpspca.server.rpc.provider_service import MAX_STREAMS_WITHOUT_HELLO

BADLY_NAMED = pb.DataSet(name="!!", dimension=1)
REFUSED = grpc.StatusCode.FAILED_PRECONDITION
UNKNOWN_CALLER = grpc.StatusCode.UNAUTHENTICATED
LIST = "/dpspca.v1.AnalystService/List"
CHECK = "/grpc.health.v1.Health/Check"


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def run_scene(enrolment: Enrolment, scene: Callable[[RunningFederation], Awaitable[None]], **limits: int) -> None:
    """Run a scene with a coordinator that has no connections yet."""

    async def scenario() -> None:
        async with asyncio.timeout(TIMEOUT), federation(enrolment, (), **limits) as running:
            await scene(running)

    asyncio.run(scenario())


def test_a_coordinator_that_cannot_listen_reports_why_and_stops(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        revoked, me = enrolment.revocations(), enrolment.identity(Role.COORDINATOR, "second")
        for address in (running.coordinator.address, "198.51.100.1:0", "nowhere.invalid:0"):
            second = Coordinator(lambda: me, lambda: revoked, now)
            with pytest.raises(InvalidParameterError, match=facts(address)):
                await second.start(address)
            assert second.address == ""
            await second.stop(grace=0)
        assert await running.analyst.jobs() == []

    run_scene(enrolment, scene)


async def wait_until(what: Callable[[], object]) -> None:
    """Wait until a condition holds, or the scene times out."""
    while not what():  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.01)


def paths() -> dict[str, str]:
    """Return the path of every rpc of the coordinator's services."""
    ours = {
        method.name: f"/{service.full_name}/{method.name}"
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    health = {f"Health.{name}": f"/grpc.health.v1.Health/{name}" for name in ("Check", "Watch")}
    return ours | health


async def code_of(channel: grpc.aio.Channel, path: str, request: bytes = b"") -> grpc.StatusCode:
    """Call an rpc, and return whether it began with a reply or a refusal."""
    call = channel.unary_stream(path)(request)
    try:
        await call.read()
    except grpc.aio.AioRpcError as problem:
        return problem.code()
    call.cancel()
    return grpc.StatusCode.OK


async def outcome_of(running: RunningFederation, identity: Identity, path: str = LIST) -> grpc.StatusCode:
    async with open_channel(running.coordinator.address, identity) as channel:
        return await code_of(channel, path)


def test_every_rpc_is_listed_with_its_roles() -> None:
    assert set(paths()) == set(ALLOWED)


@pytest.mark.parametrize("role", Role)
def test_t33_an_rpc_is_only_for_its_roles(enrolment: Enrolment, role: Role) -> None:
    async def scene(running: RunningFederation) -> None:
        async with open_channel(running.coordinator.address, enrolment.identity(role, "caller")) as channel:
            codes = {name: await code_of(channel, path) for name, path in paths().items()}
            refused = {name for name, code in codes.items() if code is grpc.StatusCode.PERMISSION_DENIED}
            assert refused == {name for name, roles in ALLOWED.items() if role not in roles}
            unsigned = grpc.StatusCode.UNAUTHENTICATED  # an empty request for statements
            assert set(codes.values()) <= {grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED, REFUSED, unsigned}
            assert not running.coordinator.roster.links

    run_scene(enrolment, scene)


@pytest.mark.parametrize(
    "path",
    [
        "/dpspca.v1.AnalystService/Everything",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/x/y",
        "/",
    ],
)
def test_an_unknown_rpc_is_refused(enrolment: Enrolment, path: str) -> None:
    async def scene(running: RunningFederation) -> None:
        code = await outcome_of(running, enrolment.identity(Role.ANALYST, "bea"), path)
        assert code is grpc.StatusCode.UNIMPLEMENTED

    run_scene(enrolment, scene)


def test_t35_a_request_that_arrives_too_slowly_is_ended(enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CallInterceptor", partial(CallInterceptor, seconds=0.3))

    async def scene(running: RunningFederation) -> None:
        bea = enrolment.identity(Role.ANALYST, "bea")
        slow = await open_connection(running.coordinator.address, bea, enrolment.folder)
        listening = asyncio.create_task(slow.listen())
        await slow.begin("/dpspca.v1.AnalystService/Cancel", 3, 100, 0.1)
        assert not slow.ended
        await wait_until(lambda: slow.ended == {1, 3, 5})
        listening.cancel()
        slow.hang_up()

    run_scene(enrolment, scene)


def test_t35_calls_of_a_caller_that_reads_nothing_are_bounded(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[CallInterceptor] = []
    monkeypatch.setattr(call_interceptor, "MAX_OPEN_CALLS", 40)

    def kept(*given: Any, **named: Any) -> CallInterceptor:
        made.append(CallInterceptor(*given, **named))
        return made[0]

    monkeypatch.setattr(service, "CallInterceptor", kept)

    async def scene(running: RunningFederation) -> None:
        bea = enrolment.identity(Role.PROVIDER, "bea")
        deaf = await open_connection(running.coordinator.address, bea, enrolment.folder, NO_REPLIES_ALLOWED)
        listening = asyncio.create_task(deaf.listen())
        deaf.ask(CHECK, 60, b"")
        await wait_until(lambda: len(deaf.ended) == 20)
        places = made[0]._open._open
        assert places[bea.name] == 40
        await asyncio.sleep(0.3)
        assert (places[bea.name], len(deaf.ended)) == (40, 20)
        assert await outcome_of(running, enrolment.identity(Role.PROVIDER, "cyd"), CHECK) is grpc.StatusCode.OK
        deaf.hang_up()
        await wait_until(lambda: not places[bea.name])
        listening.cancel()

    run_scene(enrolment, scene)


@pytest.fixture
def without_garbage_collection() -> Iterator[None]:
    """Turn off garbage collection and log records meanwhile."""
    gc.collect()
    gc.disable()
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    gc.enable()


def calls() -> int:
    """Return how many calls are in a server's memory."""
    return sum(1 for each in gc.get_objects() if type(each).__name__ == "_ServicerContext")


@pytest.mark.usefixtures("without_garbage_collection")
def test_a_finished_call_is_freed_without_garbage_collection(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        before = calls()
        async with open_channel(running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")) as channel:
            for path in paths().values():
                await code_of(channel, path)
        job = await running.analyst.submit(spec(), "cohort", ["north"])
        await job.status()
        await job.cancel()
        await wait_until(lambda: calls() <= before)

    run_scene(enrolment, scene)


@pytest.mark.usefixtures("without_garbage_collection")
def test_a_refused_stream_is_freed_without_garbage_collection(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        before = calls()
        async with open_channel(running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")) as channel:
            for message in (
                pb.FromProvider(refusal=pb.Refusal()),
                pb.FromProvider(hello=pb.Hello(data_sets=[BADLY_NAMED])),
            ):
                site = DishonestProvider(channel)
                await site.call.write(message)
                await site.ending()
        await wait_until(lambda: calls() <= before)

    run_scene(enrolment, scene)


@pytest.mark.usefixtures("without_garbage_collection")
def test_hanging_up_half_way_leaves_no_connection_open(enrolment: Enrolment) -> None:
    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    async def scene(running: RunningFederation) -> None:
        address, bea = running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")
        async with AsyncFederation(address, bea) as analyst:
            job = await analyst.submit(spec(), "cohort", ["north"])
        await running.start("site-0")
        running.daemons["site-0"].cancel()
        await wait_until(lambda: not running.coordinator.roster.links)
        await asyncio.sleep(0.5)
        before = open_files()
        for _ in range(5):
            async with AsyncFederation(address, bea) as analyst:
                watch = (await analyst.job(job.name)).watch()
                await anext(watch)
                await watch.aclose()  # type: ignore[attr-defined]  # it is a generator
            await running.start("site-0")
            running.daemons["site-0"].cancel()
            await wait_until(lambda: not running.coordinator.roster.links)
        await wait_until(lambda: open_files() <= before)

    run_scene(enrolment, scene)


def test_a_call_without_a_request_is_refused(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        async with open_channel(running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")) as channel:
            call = channel.stream_unary("/dpspca.v1.AnalystService/Submit")(iter(()))
            with pytest.raises(grpc.aio.AioRpcError, match=facts("FAILED_PRECONDITION")):
                await call

    run_scene(enrolment, scene)


def test_an_unlisted_rpc_is_refused_to_every_role(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        code = await outcome_of(running, enrolment.identity(Role.ANALYST, "bea"), "/grpc.health.v1.Health/List")
        assert code is grpc.StatusCode.PERMISSION_DENIED

    run_scene(enrolment, scene)


def test_a_certificate_that_is_not_in_force_is_refused(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        true = enrolment.identity(Role.ANALYST, "bea")
        for since in (now() - timedelta(days=3), now() + timedelta(hours=1)):
            assert await outcome_of(running, reissued(enrolment, true, since=since)) is grpc.StatusCode.UNAVAILABLE
        assert await outcome_of(running, reissued(enrolment, true)) is grpc.StatusCode.OK

    run_scene(enrolment, scene)


def test_a_certificate_with_two_names_or_too_long_a_life_is_refused(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        true = enrolment.identity(Role.ANALYST, "bea")
        for forged in (
            reissued(enrolment, true, ["dpspca://town/provider/site-0"]),
            reissued(enrolment, true, ["dpspca://town/analyst/bea"]),
            reissued(enrolment, true, ["https://elsewhere.example"]),
            reissued(enrolment, true, days=4000),
        ):
            assert await outcome_of(running, forged) is UNKNOWN_CALLER

    run_scene(enrolment, scene)


def test_a_certificate_revoked_before_is_refused(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        home = enrolment.identity(Role.PROVIDER, "site-0")
        enrolment.authority.revoke(home.name)
        running.revoked.append(enrolment.revocations())
        async with dishonest_provider(running.coordinator.address, home) as site:
            code, words = await site.ending()
        assert (code, "was revoked" in words) == (UNKNOWN_CALLER, True)
        assert not running.coordinator.roster.links

    run_scene(enrolment, scene)


def test_a_connected_party_is_disconnected_soon_after_revocation(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        homes = [enrolment.identity(Role.PROVIDER, name) for name in ("site-0", "site-1")]
        address = running.coordinator.address
        async with dishonest_provider(address, homes[0]) as revoked, dishonest_provider(address, homes[1]) as other:
            await revoked.greet()
            await other.greet()
            enrolment.authority.revoke(homes[0].name)
            running.revoked.append(enrolment.revocations())
            code, words = await asyncio.wait_for(revoked.ending(), TIMEOUT)
            assert (code, "was revoked" in words) == (UNKNOWN_CALLER, True)
            assert [link.name for link in running.coordinator.roster.links] == ["site-1"]
            assert [offer.provider for offer in await running.analyst.data_sets()] == ["site-1"]

    run_scene(enrolment, scene, heartbeat_seconds=1)


def test_a_connected_party_is_disconnected_when_its_certificate_ends(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [timedelta()]
    monkeypatch.setattr(towns, "now", lambda: now() + later[-1])

    async def scene(running: RunningFederation) -> None:
        short = reissued(enrolment, enrolment.identity(Role.PROVIDER, "site-0"), days=1)
        async with dishonest_provider(running.coordinator.address, short) as site:
            await site.greet()
            later.append(timedelta(days=1))
            code, words = await asyncio.wait_for(site.ending(), TIMEOUT)
            assert (code, "is valid from" in words) == (REFUSED, True)
            assert not running.coordinator.roster.links

    run_scene(enrolment, scene, heartbeat_seconds=1)


def test_an_untrusted_certificate_fails_in_the_tls_handshake(enrolment: Enrolment, tmp_path: Path) -> None:
    elsewhere = Enrolment.create(tmp_path / "elsewhere").identity(Role.PROVIDER, "site-0")

    async def scene(running: RunningFederation) -> None:
        stranger = replace(elsewhere, authority_pem=enrolment.authority.certificate_pem)
        async with dishonest_provider(running.coordinator.address, stranger) as site:
            assert (await site.ending())[0] is grpc.StatusCode.UNAVAILABLE
        assert not running.coordinator.roster.links

    run_scene(enrolment, scene)


def handshake(
    enrolment: Enrolment, address: str, home: Path, **limits: ssl.TLSVersion
) -> tuple[str | None, bytes | None]:
    """Do a handshake with Python's TLS. Return the version and the peer's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=enrolment.authority.certificate_pem.decode())
    context.load_cert_chain(home)
    context.set_alpn_protocols(["h2"])
    for name, version in limits.items():
        setattr(context, name, version)
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=TIMEOUT) as plain,
        context.wrap_socket(plain, server_hostname=COORDINATOR_HOST) as secure,
    ):
        return secure.version(), secure.getpeercert(binary_form=True)


@pytest.fixture
def home(enrolment: Enrolment) -> Path:
    """Return the file of a valid identity, because Python's TLS reads keys only from files."""
    enrolment.identity(Role.ANALYST, "cleo")
    return enrolment.folder / "analyst-cleo" / "identity.pem"


def test_tls_1_2_is_refused_and_1_3_is_used(enrolment: Enrolment, home: Path) -> None:
    async def scene(running: RunningFederation) -> None:
        shake = partial(asyncio.to_thread, handshake, enrolment, running.coordinator.address, home)
        assert (await shake())[0] == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            await shake(maximum_version=ssl.TLSVersion.TLSv1_2)

    run_scene(enrolment, scene)


def test_a_renewed_identity_is_used_from_the_next_handshake(enrolment: Enrolment, home: Path) -> None:
    async def scenario() -> None:
        first = enrolment.identity(Role.COORDINATOR, "hub")
        shown = [first]
        revoked = enrolment.revocations()
        coordinator = Coordinator(lambda: shown[-1], lambda: revoked, now)
        await coordinator.start("127.0.0.1:0")
        try:
            for renewed in (first, reissued(enrolment, first), reissued(enrolment, first)):
                shown.append(renewed)
                _, seen = await asyncio.to_thread(handshake, enrolment, coordinator.address, home)
                assert seen == ssl.PEM_cert_to_DER_cert(renewed.certificate_pem.decode())
        finally:
            await coordinator.stop(grace=0)

    asyncio.run(scenario())


Opening = Callable[[DishonestProvider], Awaitable[None]]

OPENINGS: dict[str, Opening] = {
    "an answer": lambda site: site.say(answer=pb.AnswerFrame(job="x")),
    "a heartbeat": lambda site: site.say(heartbeat=pb.Heartbeat()),
    "nothing known": lambda site: site.say(),
    "257 data sets": lambda site: site.say(
        hello=pb.Hello(data_sets=[pb.DataSet(name=f"d{number}", dimension=3) for number in range(257)])
    ),
    "the end": lambda site: site.call.done_writing(),
}
ILL_NAMED = ["", "Cohort", "../cohort", "x" * 64, "cohort\n", "сohort"]


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS.keys())
def test_an_invalid_greeting_is_refused_with_the_reason(enrolment: Enrolment, opening: Opening) -> None:
    async def scene(running: RunningFederation) -> None:
        async with dishonest_provider(running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")) as site:
            await opening(site)
            code, words = await site.ending()
        assert (code, "must be a hello" in words) == (REFUSED, True)
        assert not running.coordinator.roster.links

    run_scene(enrolment, scene)


def test_a_data_set_with_an_invalid_name_or_shape_is_refused(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        address, site = running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")
        offers = [pb.DataSet(name=name, dimension=3) for name in ILL_NAMED]
        offers += [pb.DataSet(name="cohort"), pb.DataSet(name="cohort", dimension=3, columns=["a", "b"])]
        for offer in offers:
            async with dishonest_provider(address, site) as liar:
                await liar.say(hello=pb.Hello(data_sets=[offer], challenge=new_challenge()))
                code, words = await liar.ending()
            assert code is grpc.StatusCode.INVALID_ARGUMENT, offer
            assert len(words) < 500
            assert words.isprintable()
        assert not running.coordinator.roster.links

    run_scene(enrolment, scene)


def test_a_second_greeting_changes_nothing(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        async with dishonest_provider(running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")) as site:
            await site.greet()
            (link,) = running.coordinator.roster.links
            await site.say(hello=pb.Hello(data_sets=[pb.DataSet(name="other", dimension=5)], challenge=new_challenge()))
            await site.call.done_writing()
            assert (await site.ending())[0] is grpc.StatusCode.OK
            assert list(link.data_sets) == ["cohort"]

    run_scene(enrolment, scene)


@pytest.mark.slow
def test_a_provider_that_never_greets_is_disconnected(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        async with dishonest_provider(running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")) as site:
            assert "must be a hello" in (await asyncio.wait_for(site.ending(), TIMEOUT))[1]

    run_scene(enrolment, scene, heartbeat_seconds=1)


@pytest.mark.slow
def test_a_silent_provider_is_disconnected_after_three_heartbeats(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        async with dishonest_provider(running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")) as site:
            await site.greet(OFFER)
            started = asyncio.get_running_loop().time()
            code, words = await site.ending()
            assert (code, "sent nothing" in words) == (REFUSED, True)
            assert 2.9 < asyncio.get_running_loop().time() - started < 6
            assert not running.coordinator.roster.links

    run_scene(enrolment, scene, heartbeat_seconds=1)


def test_a_second_connection_of_a_provider_replaces_the_first(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        address, home = running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")
        async with dishonest_provider(address, home) as first, dishonest_provider(address, home) as second:
            await first.greet()
            await second.greet(pb.DataSet(name="other", dimension=4))
            code, words = await first.ending()
            assert (code, "connected a second time" in words) == (REFUSED, True)
            assert [offer.data_set for offer in await running.analyst.data_sets()] == ["other"]

    run_scene(enrolment, scene)


def test_one_party_cannot_use_up_all_places_for_calls(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        intruder = enrolment.identity(Role.PROVIDER, "intruder")
        async with open_channel(running.coordinator.address, intruder) as channel:
            watches = [channel.unary_stream(paths()["Health.Watch"])(b"") for _ in range(MAX_HEALTH_WATCHES)]
            await asyncio.gather(*(watch.read() for watch in watches))
            assert await code_of(channel, paths()["Health.Watch"]) is REFUSED
            watches.pop().cancel()
            assert await code_of(channel, paths()["Health.Check"]) is grpc.StatusCode.OK
            silent = [DishonestProvider(channel) for _ in range(MAX_STREAMS_WITHOUT_HELLO + 1)]
            ended = [asyncio.ensure_future(each.call.code()) for each in silent]
            done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            assert {task.result() for task in done} == {REFUSED}
            for task in ended:
                task.cancel()

    run_scene(enrolment, scene)
