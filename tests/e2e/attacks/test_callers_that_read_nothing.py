"""Callers with valid certificates that read no replies, hang up half-way, or send invalid messages.

They block nobody else, and the coordinator neither spins nor reveals its internal errors. Sockets are real.
"""

import asyncio
import logging
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from dishonest_peers import OFFER, dishonest_provider, open_channel
from facts import a_line_names, names_facts
from grpc_health.v1 import health_pb2, health_pb2_grpc
from local_federation import Enrolment, RunningFederation, federation, spec
from raw_http2 import (
    DATA,
    END_OF_HEADERS,
    END_OF_STREAM,
    HEADERS,
    NO_REPLIES_ALLOWED,
    SETTINGS,
    RawConnection,
    frame,
    headers,
    open_connection,
)
from timeouts import TIMEOUT

from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import FaultError, UnsafeFileError
from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.common.trust.connection_proof import new_challenge
from dpspca.common.trust.identity import Identity
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.jobs.roster import Link
from dpspca.server.rpc import call_interceptor
from dpspca.server.rpc.analyst_service import AnalystService
from dpspca.server.rpc.call_interceptor import CONCURRENT_CALLS

ANALYSTS, CONNECT = "/dpspca.v1.AnalystService/", "/dpspca.v1.ProviderService/Connect"
WATCH = "/grpc.health.v1.Health/Watch"
WINDOW = 2**16 - 1
"""Bytes of a call that may be sent before anybody has looked at it, as HTTP/2 begins."""


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def run_scene(enrolment: Enrolment, scene: Callable[[RunningFederation], Awaitable[None]], **limits: int) -> None:
    """Run a scene with a coordinator that has no connections yet."""

    async def scenario() -> None:
        async with asyncio.timeout(TIMEOUT), federation(enrolment, (), **limits) as running:
            await scene(running)

    asyncio.run(scenario())


async def wait_until(what: Callable[[], object]) -> None:
    """Wait until a condition holds, or the scene times out."""
    while not what():  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.01)


@asynccontextmanager
async def connect_raw(running: RunningFederation, caller: Identity, own: bytes = b"") -> AsyncIterator[RawConnection]:
    """Connect with raw frames, and read what arrives."""
    each = await open_connection(running.coordinator.address, caller, running.enrolment.folder, own)
    listening = asyncio.create_task(each.listen())
    yield each
    listening.cancel()
    each.hang_up()


async def error_of(call: Any) -> grpc.aio.AioRpcError:
    """Wait for a call that must fail, and return its error."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as problem:
        return problem
    raise AssertionError(await call.code())


def test_t35_a_health_watcher_that_reads_nothing_blocks_no_caller(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        async with connect_raw(running, enrolment.identity(Role.PROVIDER, "mallory"), NO_REPLIES_ALLOWED) as deaf:
            deaf.ask(WATCH, 1, b"")
            await asyncio.sleep(0.3)
            async with open_channel(running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")) as channel:
                watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                first = await asyncio.wait_for(watch.read(), 10)
                assert first == health_pb2.HealthCheckResponse(status="SERVING")
                async with asyncio.timeout(6):  # its own grace period
                    stopping = asyncio.create_task(running.coordinator.stop(grace=1))
                    assert await watch.read() == health_pb2.HealthCheckResponse(status="NOT_SERVING")
                    await stopping

    run_scene(enrolment, scene)


@pytest.mark.parametrize("service", ["", "dpspca.v1.AnalystService", "nothing of ours"])
def test_a_revoked_health_watcher_is_refused(enrolment: Enrolment, service: str) -> None:
    async def scene(running: RunningFederation) -> None:
        bea = enrolment.identity(Role.ANALYST, "bea")
        async with open_channel(running.coordinator.address, bea) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
            output = await watch.read()
            assert output.status == (3 if "nothing" in service else 1)  # unknown, or serving
            enrolment.authority.revoke(bea.name)
            running.revoked.append(enrolment.revocations())
            running.coordinator._health.set_serving(serving=False)
            assert (await error_of(watch)).code() is grpc.StatusCode.UNAUTHENTICATED

    run_scene(enrolment, scene)


async def send_greeting(provider: RawConnection) -> None:
    """Send a provider's greeting in the connection's first call."""
    hello = pb.FromProvider(hello=pb.Hello(data_sets=[OFFER], challenge=new_challenge())).SerializeToString()
    provider.writer.write(frame(HEADERS, END_OF_HEADERS, 1, headers(CONNECT)))
    provider.writer.write(frame(DATA, 0, 1, struct.pack(">BI", 0, len(hello)) + hello))
    await provider.writer.drain()


def test_t35_a_provider_that_stops_reading_counts_as_gone(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    admit = Link.admit

    async def counted(link: Link, *output: Any) -> None:
        asked.append(link.name)
        await admit(link, *output)

    monkeypatch.setattr(Link, "admit", counted)

    async def scene(running: RunningFederation) -> None:
        mallory = enrolment.identity(Role.PROVIDER, "mallory")
        async with connect_raw(running, mallory) as deaf:
            await send_greeting(deaf)
            await wait_until(lambda: running.coordinator.roster.links)
            deaf.writer.write(frame(SETTINGS, 0, 0, NO_REPLIES_ALLOWED))
            await running.analyst.submit(spec(), "cohort", ["mallory"])
            await wait_until(lambda: asked)
            (link,) = running.coordinator.roster.links
            deaf.writer.write(frame(DATA, END_OF_STREAM, 1))  # it has sent everything, and its leaving is not noticed
            await wait_until(lambda: link.closed)
            await asyncio.sleep(0.5)
            assert asked == ["mallory"]
            assert running.coordinator.roster.links == ()
            assert await running.analyst.data_sets() == []
            async with dishonest_provider(running.coordinator.address, mallory) as back:
                await back.greet(OFFER)
                await back.query()
                assert asked == ["mallory", "mallory"]

    run_scene(enrolment, scene)


def test_t35_offers_for_a_caller_that_reads_nothing_are_bounded(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    serve = AnalystService.DataSets

    async def counted(self: AnalystService, request: Any, context: Any) -> AsyncIterator[pb.Offer]:
        begun.append(context.peer())
        async for each in serve(self, request, context):
            yield each

    monkeypatch.setattr(AnalystService, "DataSets", counted)

    async def scene(running: RunningFederation) -> None:
        named = pb.DataSet(name="genes", dimension=2000, columns=[f"gene-{number}" for number in range(2000)])
        async with dishonest_provider(running.coordinator.address, enrolment.identity(Role.PROVIDER, "wide")) as wide:
            await wide.greet(named)
            async with connect_raw(running, enrolment.identity(Role.ANALYST, "mallory"), NO_REPLIES_ALLOWED) as deaf:
                deaf.ask(f"{ANALYSTS}DataSets", 40, b"")
                await wait_until(lambda: len(begun) == CONCURRENT_CALLS["DataSets"])
                await asyncio.sleep(0.3)
                assert len(begun) == CONCURRENT_CALLS["DataSets"]
                assert [offer.data_set for offer in await running.analyst.data_sets()] == ["genes"]

    run_scene(enrolment, scene)


@pytest.mark.slow
def test_t35_unread_bytes_of_a_fast_sender_are_bounded(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        for role in (Role.ANALYST, Role.PROVIDER):  # a call whose requests are read, and one that is refused
            each = await open_connection(
                running.coordinator.address, enrolment.identity(role, "mallory"), enrolment.folder
            )
            listening = asyncio.create_task(each.listen())
            await each.begin(f"{ANALYSTS}Submit", 64, 2**20, 2.0)
            assert each.initial == WINDOW
            assert (
                max(each.window, *each.windows.values()) < 2**20 + 2 * WINDOW
            )  # one message that is being read may arrive completely
            listening.cancel()
            each.hang_up()

    run_scene(enrolment, scene)


class SlowVerification:
    """The jobs of mallory whose verification has begun. ``going_on`` lets it end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.going_on = threading.Event()


@pytest.fixture
def slow_verification(monkeypatch: pytest.MonkeyPatch) -> SlowVerification:
    """Make verifying mallory's signatures slow."""
    seen = SlowVerification()
    believe = AnalystService._verify

    def slow(analysts: AnalystService, content: bytes, caller: str) -> Any:
        if caller.endswith("/mallory"):
            seen.begun.append(caller)
            assert seen.going_on.wait(20)
        return believe(analysts, content, caller)

    monkeypatch.setattr(AnalystService, "_verify", slow)
    return seen


def test_t35_two_jobs_of_an_analyst_are_verified_at_a_time(
    enrolment: Enrolment, slow_verification: SlowVerification
) -> None:
    async def scene(running: RunningFederation) -> None:
        async with AsyncFederation(running.coordinator.address, enrolment.identity(Role.ANALYST, "mallory")) as mallory:
            jobs = [asyncio.create_task(mallory.submit(spec(), "cohort", ["north"])) for _ in range(20)]
            await wait_until(lambda: len(slow_verification.begun) == 2)
            await running.analyst.submit(spec(), "cohort", ["north"])
            assert len(slow_verification.begun) == 2
            slow_verification.going_on.set()
            assert len({job.name for job in await asyncio.gather(*jobs)}) == 20

    run_scene(enrolment, scene)


def test_t35_hanging_up_does_not_free_a_place_before_verification_ends(
    enrolment: Enrolment, slow_verification: SlowVerification
) -> None:
    async def scene(running: RunningFederation) -> None:
        mallory = enrolment.identity(Role.ANALYST, "mallory")
        asked = pb.SubmitRequest(signed_job=enrolment.job(spec(), mallory, ["north"]).to_bytes())
        async with open_channel(running.coordinator.address, mallory) as channel:
            for _ in range(6):
                calls = [pb_grpc.AnalystServiceStub(channel).Submit(asked) for _ in range(2)]
                await asyncio.sleep(0.1)
                for call in calls:
                    call.cancel()
            await asyncio.sleep(0.3)
            assert len(slow_verification.begun) == CONCURRENT_CALLS["Submit"]
            await running.analyst.submit(spec(), "cohort", ["north"])  # another analyst's job does not wait
            slow_verification.going_on.set()
            assert (await pb_grpc.AnalystServiceStub(channel).Submit(asked)).state == "waiting"

    run_scene(enrolment, scene)


def test_t35_one_party_s_connections_with_calls_are_bounded(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_interceptor, "MAX_CALL_CONNECTIONS", 2)
    kept: list[rpc.ConnectionLimit] = []
    made = rpc.ConnectionLimit.__init__

    def keep(self: rpc.ConnectionLimit, *output: Any) -> None:
        made(self, *output)
        kept.append(self)

    monkeypatch.setattr(rpc.ConnectionLimit, "__init__", keep)

    async def scene(running: RunningFederation) -> None:
        address, bea = running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")
        async with (
            open_channel(address, bea) as first,
            open_channel(address, bea) as second,
            open_channel(address, bea) as third,
        ):
            watches = [channel.unary_stream(WATCH)(b"") for channel in (first, second, second)]
            for watch in watches:
                await watch.read()
            problem = await error_of(third.unary_stream(WATCH)(b""))
            assert names_facts(str(problem.details()), "2 connections")
            async with open_channel(address, enrolment.identity(Role.ANALYST, "cyd")) as another:
                await another.unary_stream(WATCH)(b"").read()
            watches[0].cancel()
            await wait_until(lambda: len(kept[0]._open[bea.name]) == 1)
            await third.unary_stream(WATCH)(b"").read()

    run_scene(enrolment, scene)


@pytest.mark.parametrize(
    "path",
    [
        *(f"{ANALYSTS}{method}" for method in ("Submit", "Watch", "List", "Get", "Cancel", "Result", "DataSets")),
        f"{ANALYSTS}Statements",
        "/dpspca.v1.PartyService/Parties",
    ],
)
def test_t35_bytes_that_are_not_a_message_are_refused_in_our_words(enrolment: Enrolment, path: str) -> None:
    async def scene(running: RunningFederation) -> None:
        async with open_channel(running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")) as channel:
            problem = await error_of(channel.unary_stream(path)(b"\xff\xff\xff"))
            assert (problem.code(), problem.details()) == NO_MESSAGE
            assert (rpc.CODE_KEY, "invalid-data") in [tuple(each) for each in problem.trailing_metadata()]

    run_scene(enrolment, scene)


NO_MESSAGE = (
    grpc.StatusCode.INVALID_ARGUMENT,
    "The request is not a message of this service. Use a matching version.",
)


@pytest.mark.parametrize("welcome", [False, True], ids=["at once", "after the greeting"])
def test_t35_a_provider_that_sends_no_message_is_refused_at_once(enrolment: Enrolment, *, welcome: bool) -> None:
    async def scene(running: RunningFederation) -> None:
        async with open_channel(running.coordinator.address, enrolment.identity(Role.PROVIDER, "mallory")) as channel:
            call = channel.stream_stream(CONNECT)()
            if welcome:
                hello = pb.Hello(data_sets=[OFFER], challenge=new_challenge())
                await call.write(pb.FromProvider(hello=hello).SerializeToString())  # type: ignore[arg-type]
                await call.read()
            await call.write(b"\xff\xff\xff")  # type: ignore[arg-type]
            async with asyncio.timeout(5):  # and not after three heartbeats
                problem = await error_of(call)
            assert (problem.code(), problem.details()) == NO_MESSAGE
            assert not running.coordinator.roster.links

    run_scene(enrolment, scene)


def test_an_internal_error_is_logged_and_not_sent_to_callers(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("of /somewhere/secret")

    monkeypatch.setattr(AnalystService, "Get", broken)

    async def scene(running: RunningFederation) -> None:
        async with open_channel(running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")) as channel:
            stub = pb_grpc.AnalystServiceStub(channel)
            for faulty in (lambda: stub.Get(pb.JobName(job="0")), lambda: stub.DataSets(pb.DataSetsRequest()).read()):
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    await faulty()
                assert ended.value.code() is grpc.StatusCode.INTERNAL
                assert ended.value.details() == str(FaultError())
                assert "secret" not in str(ended.value.details())
                running.revoked.clear()  # where the file is read

    with caplog.at_level(logging.ERROR, "dpspca"):
        run_scene(enrolment, scene)
    assert a_line_names(caplog.text, "ERROR", "call of Get")
    assert a_line_names(caplog.text, "ValueError", "/somewhere/secret")
    assert "IndexError" in caplog.text


def test_an_error_about_our_own_file_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    problem = UnsafeFileError("/somewhere/secret/revoked.pem cannot be opened.", "Put it back.")

    def unsafe() -> None:
        raise problem

    with pytest.raises(FaultError) as output:
        rpc.read_own(unsafe)
    assert "secret" not in str(output.value)
    assert str(problem) in caplog.text


def test_a_job_submitted_while_stopping_runs_after_the_restart(enrolment: Enrolment) -> None:
    async def scene(running: RunningFederation) -> None:
        analysts = running.coordinator._analysts
        analysts._stopping = True
        bea = enrolment.identity(Role.ANALYST, "bea")
        asked = pb.SubmitRequest(signed_job=enrolment.job(spec(), bea, ["north"]).to_bytes())
        async with open_channel(running.coordinator.address, bea) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await pb_grpc.AnalystServiceStub(channel).Submit(asked)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE  # so the client submits it again
        assert not analysts._running
        assert len(await analysts._journal.run(lambda journal: journal.jobs())) == 1

    run_scene(enrolment, scene)
