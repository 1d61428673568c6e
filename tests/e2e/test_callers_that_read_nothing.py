"""Callers with true certificates who take no replies, hang up half-way, or send what is no message: real sockets.

What they hold is their own. Nobody else waits for it, and the coordinator neither spins nor tells them what went wrong
on its side.
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
from grpc_health.v1 import health_pb2, health_pb2_grpc
from patience import PATIENCE
from puppets import OFFER, line, puppet
from raw import DATA, DEAF, END_OF_HEADERS, END_OF_STREAM, HEADERS, SETTINGS, Line, connected, frame, headers
from town import Running, Town, federation, spec

from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import FaultError, UnsafeFileError
from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.common.trust.connection_proof import new_challenge
from dpspca.common.trust.identity import Identity
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.jobs.roster import Link
from dpspca.server.rpc import receiving
from dpspca.server.rpc.analyst_service import AnalystService
from dpspca.server.rpc.receiving import AT_A_TIME

ANALYSTS, CONNECT = "/dpspca.v1.AnalystService/", "/dpspca.v1.ProviderService/Connect"
WATCH = "/grpc.health.v1.Health/Watch"
WINDOW = 2**16 - 1
"""Bytes of a call that may be sent before anybody has looked at it, as HTTP/2 begins."""


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


def among(town: Town, scene: Callable[[Running], Awaitable[None]], **limits: int) -> None:
    """Play a scene at a coordinator that nobody has connected to yet."""

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), federation(town, (), **limits) as running:
            await scene(running)

    asyncio.run(scenario())


async def come_true(what: Callable[[], object]) -> None:
    """Wait until something is so; the scene's time ends what never is."""
    while not what():  # noqa: ASYNC110  # nobody tells when
        await asyncio.sleep(0.01)


@asynccontextmanager
async def heard(running: Running, caller: Identity, own: bytes = b"") -> AsyncIterator[Line]:
    """Connect frame by frame, and take in what is said."""
    each = await connected(running.coordinator.address, caller, running.town.folder, own)
    listening = asyncio.create_task(each.listen())
    yield each
    listening.cancel()
    each.hang_up()


async def refused(call: Any) -> grpc.aio.AioRpcError:
    """Hear a call out that is to fail."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as problem:
        return problem
    raise AssertionError(await call.code())


def test_t35_a_health_watcher_that_reads_nothing_blocks_nobody(town: Town) -> None:
    async def scene(running: Running) -> None:
        async with heard(running, town.identity(Role.PROVIDER, "mallory"), DEAF) as deaf:
            deaf.ask(WATCH, 1, b"")
            await asyncio.sleep(0.3)
            async with line(running.coordinator.address, town.identity(Role.ANALYST, "bea")) as channel:
                watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
                first = await asyncio.wait_for(watch.read(), 10)
                assert first == health_pb2.HealthCheckResponse(status="SERVING")
                async with asyncio.timeout(6):  # that its own grace is over
                    stopping = asyncio.create_task(running.coordinator.stop(grace=1))
                    assert await watch.read() == health_pb2.HealthCheckResponse(status="NOT_SERVING")
                    await stopping

    among(town, scene)


@pytest.mark.parametrize("service", ["", "dpspca.v1.AnalystService", "nothing of ours"])
def test_a_revoked_health_watcher_is_refused(town: Town, service: str) -> None:
    async def scene(running: Running) -> None:
        bea = town.identity(Role.ANALYST, "bea")
        async with line(running.coordinator.address, bea) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
            told = await watch.read()
            assert told.status == (3 if "nothing" in service else 1)  # unknown, or serving
            town.authority.revoke(bea.name)
            running.revoked.append(town.revocations())
            running.coordinator._health.say(serving=False)
            assert (await refused(watch)).code() is grpc.StatusCode.UNAUTHENTICATED

    among(town, scene)


async def greeted(provider: Line) -> None:
    """Greet as a provider does, in the connection's first call."""
    hello = pb.FromProvider(hello=pb.Hello(data_sets=[OFFER], challenge=new_challenge())).SerializeToString()
    provider.writer.write(frame(HEADERS, END_OF_HEADERS, 1, headers(CONNECT)))
    provider.writer.write(frame(DATA, 0, 1, struct.pack(">BI", 0, len(hello)) + hello))
    await provider.writer.drain()


def test_t35_a_provider_that_stops_reading_counts_as_gone(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    admit = Link.admit

    async def counted(link: Link, *told: Any) -> None:
        asked.append(link.name)
        await admit(link, *told)

    monkeypatch.setattr(Link, "admit", counted)

    async def scene(running: Running) -> None:
        mallory = town.identity(Role.PROVIDER, "mallory")
        async with heard(running, mallory) as deaf:
            await greeted(deaf)
            await come_true(lambda: running.coordinator.roster.links)
            deaf.writer.write(frame(SETTINGS, 0, 0, DEAF))
            await running.analyst.submit(spec(), "cohort", ["mallory"])
            await come_true(lambda: asked)
            (link,) = running.coordinator.roster.links
            deaf.writer.write(frame(DATA, END_OF_STREAM, 1))  # it has said all, and is not heard to go
            await come_true(lambda: link.closed)
            await asyncio.sleep(0.5)
            assert asked == ["mallory"]
            assert running.coordinator.roster.links == ()
            assert await running.analyst.data_sets() == []
            async with puppet(running.coordinator.address, mallory) as back:
                await back.greet(OFFER)
                await back.query()
                assert asked == ["mallory", "mallory"]

    among(town, scene)


def test_t35_offers_for_a_caller_that_reads_nothing_are_bounded(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    serve = AnalystService.DataSets

    async def counted(self: AnalystService, request: Any, context: Any) -> AsyncIterator[pb.Offer]:
        begun.append(context.peer())
        async for each in serve(self, request, context):
            yield each

    monkeypatch.setattr(AnalystService, "DataSets", counted)

    async def scene(running: Running) -> None:
        named = pb.DataSet(name="genes", dimension=2000, columns=[f"gene-{number}" for number in range(2000)])
        async with puppet(running.coordinator.address, town.identity(Role.PROVIDER, "wide")) as wide:
            await wide.greet(named)
            async with heard(running, town.identity(Role.ANALYST, "mallory"), DEAF) as deaf:
                deaf.ask(f"{ANALYSTS}DataSets", 40, b"")
                await come_true(lambda: len(begun) == AT_A_TIME["DataSets"])
                await asyncio.sleep(0.3)
                assert len(begun) == AT_A_TIME["DataSets"]
                assert [offer.data_set for offer in await running.analyst.data_sets()] == ["genes"]

    among(town, scene)


def test_t35_unread_bytes_of_a_fast_sender_are_bounded(town: Town) -> None:
    async def scene(running: Running) -> None:
        for role in (Role.ANALYST, Role.PROVIDER):  # one whose requests are read, and one whose are refused
            each = await connected(running.coordinator.address, town.identity(role, "mallory"), town.folder)
            listening = asyncio.create_task(each.listen())
            await each.begin(f"{ANALYSTS}Submit", 64, 2**20, 2.0)
            assert each.initial == WINDOW
            assert max(each.window, *each.windows.values()) < 2**20 + 2 * WINDOW  # a message being read may come whole
            listening.cancel()
            each.hang_up()

    among(town, scene)


class Verified:
    """What of mallory's the coordinator has begun to verify; ``going_on`` lets that end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.going_on = threading.Event()


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Verified:
    """Have the coordinator take long to verify what mallory signed."""
    seen = Verified()
    believe = AnalystService._believe

    def slow(analysts: AnalystService, content: bytes, caller: str) -> Any:
        if caller.endswith("/mallory"):
            seen.begun.append(caller)
            assert seen.going_on.wait(20)
        return believe(analysts, content, caller)

    monkeypatch.setattr(AnalystService, "_believe", slow)
    return seen


def test_t35_two_jobs_of_an_analyst_are_verified_at_a_time(town: Town, verified: Verified) -> None:
    async def scene(running: Running) -> None:
        async with AsyncFederation(running.coordinator.address, town.identity(Role.ANALYST, "mallory")) as mallory:
            jobs = [asyncio.create_task(mallory.submit(spec(), "cohort", ["north"])) for _ in range(20)]
            await come_true(lambda: len(verified.begun) == 2)
            await running.analyst.submit(spec(), "cohort", ["north"])
            assert len(verified.begun) == 2
            verified.going_on.set()
            assert len({job.name for job in await asyncio.gather(*jobs)}) == 20

    among(town, scene)


def test_t35_hanging_up_does_not_free_a_place_before_verification_ends(town: Town, verified: Verified) -> None:
    async def scene(running: Running) -> None:
        mallory = town.identity(Role.ANALYST, "mallory")
        asked = pb.SubmitRequest(signed_job=town.job(spec(), mallory, ["north"]).to_bytes())
        async with line(running.coordinator.address, mallory) as channel:
            for _ in range(6):
                calls = [pb_grpc.AnalystServiceStub(channel).Submit(asked) for _ in range(2)]
                await asyncio.sleep(0.1)
                for call in calls:
                    call.cancel()
            await asyncio.sleep(0.3)
            assert len(verified.begun) == AT_A_TIME["Submit"]
            await running.analyst.submit(spec(), "cohort", ["north"])  # another's need not wait
            verified.going_on.set()
            assert (await pb_grpc.AnalystServiceStub(channel).Submit(asked)).state == "waiting"

    among(town, scene)


def test_t35_one_party_s_connections_with_calls_are_bounded(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "MAX_LINES", 2)
    kept: list[rpc.ConnectionLimit] = []
    made = rpc.ConnectionLimit.__init__

    def keep(self: rpc.ConnectionLimit, *told: Any) -> None:
        made(self, *told)
        kept.append(self)

    monkeypatch.setattr(rpc.ConnectionLimit, "__init__", keep)

    async def scene(running: Running) -> None:
        address, bea = running.coordinator.address, town.identity(Role.ANALYST, "bea")
        async with line(address, bea) as first, line(address, bea) as second, line(address, bea) as third:
            watches = [channel.unary_stream(WATCH)(b"") for channel in (first, second, second)]
            for watch in watches:
                await watch.read()
            problem = await refused(third.unary_stream(WATCH)(b""))
            assert "over too many connections" in str(problem.details())
            async with line(address, town.identity(Role.ANALYST, "cyd")) as another:
                await another.unary_stream(WATCH)(b"").read()
            watches[0].cancel()
            await come_true(lambda: len(kept[0]._open[bea.name]) == 1)
            await third.unary_stream(WATCH)(b"").read()

    among(town, scene)


@pytest.mark.parametrize("method", ["Submit", "Watch", "List", "Get", "Cancel", "Result", "DataSets"])
def test_t35_bytes_that_are_no_message_are_refused_in_our_words(town: Town, method: str) -> None:
    async def scene(running: Running) -> None:
        async with line(running.coordinator.address, town.identity(Role.ANALYST, "bea")) as channel:
            problem = await refused(channel.unary_stream(f"{ANALYSTS}{method}")(b"\xff\xff\xff"))
            assert (problem.code(), problem.details()) == NO_MESSAGE
            assert (rpc.CODE_KEY, "invalid-data") in [tuple(each) for each in problem.trailing_metadata()]

    among(town, scene)


NO_MESSAGE = (
    grpc.StatusCode.INVALID_ARGUMENT,
    "What arrived is no message of this service. Use a matching version.",
)


@pytest.mark.parametrize("welcome", [False, True], ids=["at once", "after the greeting"])
def test_t35_a_provider_that_sends_no_message_is_refused_at_once(town: Town, *, welcome: bool) -> None:
    async def scene(running: Running) -> None:
        async with line(running.coordinator.address, town.identity(Role.PROVIDER, "mallory")) as channel:
            call = channel.stream_stream(CONNECT)()
            if welcome:
                hello = pb.Hello(data_sets=[OFFER], challenge=new_challenge())
                await call.write(pb.FromProvider(hello=hello).SerializeToString())  # type: ignore[arg-type]
                await call.read()
            await call.write(b"\xff\xff\xff")  # type: ignore[arg-type]
            async with asyncio.timeout(5):  # and not after three heartbeats
                problem = await refused(call)
            assert (problem.code(), problem.details()) == NO_MESSAGE
            assert not running.coordinator.roster.links

    among(town, scene)


def test_an_internal_error_is_logged_and_not_sent_to_callers(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("of /somewhere/secret")

    monkeypatch.setattr(AnalystService, "Get", broken)

    async def scene(running: Running) -> None:
        async with line(running.coordinator.address, town.identity(Role.ANALYST, "bea")) as channel:
            stub = pb_grpc.AnalystServiceStub(channel)
            for faulty in (lambda: stub.Get(pb.JobName(job="0")), lambda: stub.DataSets(pb.DataSetsRequest()).read()):
                with pytest.raises(grpc.aio.AioRpcError) as ended:
                    await faulty()
                assert ended.value.code() is grpc.StatusCode.INTERNAL
                assert (
                    ended.value.details()
                    == "The coordinator had an internal error. Ask its operator, whose log has the details."
                )
                running.revoked.clear()  # where it is read

    with caplog.at_level(logging.ERROR, "dpspca"):
        among(town, scene)
    assert "A fault of this program's in a call of Get." in caplog.text
    assert "IndexError" in caplog.text


def test_an_error_about_our_own_file_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    def unsafe() -> None:
        raise UnsafeFileError("/somewhere/secret/revoked.pem cannot be opened.", "Put it back.")

    with pytest.raises(FaultError) as told:
        rpc.read_own(unsafe)
    assert "secret" not in str(told.value)
    assert "/somewhere/secret/revoked.pem cannot be opened. Put it back." in caplog.text


def test_a_job_submitted_while_stopping_runs_after_the_restart(town: Town) -> None:
    async def scene(running: Running) -> None:
        analysts = running.coordinator._analysts
        analysts._stopping = True
        bea = town.identity(Role.ANALYST, "bea")
        asked = pb.SubmitRequest(signed_job=town.job(spec(), bea, ["north"]).to_bytes())
        async with line(running.coordinator.address, bea) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await pb_grpc.AnalystServiceStub(channel).Submit(asked)
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE  # and so it is submitted again
        assert not analysts._running
        assert len(await analysts._keeper.do(lambda journal: journal.jobs())) == 1

    among(town, scene)
