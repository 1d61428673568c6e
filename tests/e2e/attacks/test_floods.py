"""Floods of calls with valid certificates do not stop honest jobs or make the coordinator grow."""

import asyncio
import resource
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import grpc
import pytest
from dishonest_peers import (
    DESCRIPTORS,
    OFFER,
    DishonestProvider,
    dishonest_provider,
    measured_coordinator,
    open_channel,
)
from files_in_use import put
from local_federation import Enrolment, spec
from raw_http2 import NO_REPLIES_ALLOWED, RawConnection, begun_and_cancelled, open_connection, pings, settings
from timeouts import TIMEOUT

from dpspca.client.federation import AsyncFederation
from dpspca.common.names import Role
from dpspca.common.transport.rpc import MAX_MESSAGE
from dpspca.common.trust.connection_proof import new_challenge
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.rpc.analyst_service import MAX_WATCHES
from dpspca.server.rpc.tls_frontend import MAX_HANDSHAKES


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


Flood = Callable[[AsyncExitStack, Enrolment, str], Awaitable[None]]


SHOWN_OUT = ("connected a second time", "streams that did not send a hello", "Internal error from Core")
"""Why a stream of many ends; the last is gRPC's word for a greeting whose stream was refused meanwhile."""


async def many_streams(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
    """Connect repeatedly with one certificate, over several connections."""
    intruder = enrolment.identity(Role.PROVIDER, "intruder")
    lines = [await held.enter_async_context(open_channel(address, intruder)) for _ in range(5)]
    streams = [DishonestProvider(lines[number % len(lines)]) for number in range(200)]
    await asyncio.gather(
        *(stream.say(hello=pb.Hello(data_sets=[OFFER], challenge=new_challenge())) for stream in streams),
        return_exceptions=True,  # one that is refused before its greeting is written
    )
    endings = [asyncio.ensure_future(stream.ending()) for stream in streams]
    for _, over in zip(streams[1:], asyncio.as_completed(endings), strict=False):  # all but one of them
        _, words = await over
        assert any(reason in words for reason in SHOWN_OUT), words


async def many_watches(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
    """Open five hundred streams that watch one waiting job."""
    mallory = enrolment.identity(Role.ANALYST, "mallory")
    analyst = await held.enter_async_context(AsyncFederation(address, mallory))
    job = await analyst.submit(spec(answer_seconds=600), "cohort", ["nobody"])
    lines = [await held.enter_async_context(open_channel(address, mallory)) for _ in range(10)]
    calls = [pb_grpc.AnalystServiceStub(lines[number % 10]).Watch(pb.JobName(job=job.name)) for number in range(500)]
    outcomes = await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)
    refused = [each for each in outcomes if isinstance(each, grpc.aio.AioRpcError)]
    assert {each.code() for each in refused} == {grpc.StatusCode.FAILED_PRECONDITION}
    assert len(refused) == 500 - MAX_WATCHES


async def many_unknowns(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
    """Send five thousand messages of unknown kind."""
    site = await held.enter_async_context(dishonest_provider(address, enrolment.identity(Role.PROVIDER, "intruder")))
    await site.greet()
    unknown = pb.FromProvider.FromString(b"\xfa\x01\x80\x08" + bytes(1024))  # a field number 31, of bytes
    for _ in range(5000):
        await site.call.write(unknown)


async def much_junk(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
    """Send the largest messages allowed, about a job that does not exist."""
    site = await held.enter_async_context(dishonest_provider(address, enrolment.identity(Role.PROVIDER, "intruder")))
    await site.greet()
    for _ in range(100):
        await site.say(answer=pb.AnswerFrame(job="0" * 64, content=bytes(MAX_MESSAGE - 80)))


async def many_sockets(held: AsyncExitStack, _: Enrolment, address: str) -> None:
    """Open sockets and send nothing."""
    host, _, port = address.rpartition(":")
    for _ in range(SOCKETS):
        _, writer = await asyncio.open_connection(host, int(port))
        held.callback(writer.close)


async def idle_connections(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
    """Connect with a revoked certificate, and call nothing."""
    mallory = enrolment.identity(Role.ANALYST, "mallory")
    enrolment.authority.revoke(mallory.name)
    put(enrolment.folder / "revoked.pem", enrolment.authority.revocation_list())
    for _ in range(SOCKETS):
        each = await open_connection(address, mallory, enrolment.folder)
        held.callback(each.hang_up)


def unfinished(role: Role, path: str, size: int, *, revoked: bool = False) -> Flood:
    """Begin very many requests and finish none: more than there are places for calls, or gigabytes."""

    async def flood(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
        mallory = enrolment.identity(role, "mallory")
        if revoked:
            enrolment.authority.revoke(mallory.name)
            put(enrolment.folder / "revoked.pem", enrolment.authority.revocation_list())
        lines = [await open_connection(address, mallory, enrolment.folder) for _ in range(LINES)]
        for each in lines:
            held.callback(each.hang_up)
            listening = asyncio.create_task(each.listen())
            held.callback(listening.cancel)
        await asyncio.gather(*map(begun, lines))

    async def begun(each: RawConnection) -> None:
        with suppress(ConnectionError):  # a refused caller is disconnected and can send no more
            await each.begin(path, CALLS, size, SECONDS)

    return flood


def untaken(role: Role, path: str) -> Flood:
    """Make more calls than there are places, and read no reply."""

    async def flood_of_calls(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
        mallory = enrolment.identity(role, "mallory")
        for _ in range(LINES):
            each = await open_connection(address, mallory, enrolment.folder, NO_REPLIES_ALLOWED)
            held.callback(each.hang_up)
            listening = asyncio.create_task(each.listen())
            held.callback(listening.cancel)
            each.ask(path, CALLS, b"")
        await asyncio.sleep(SECONDS)

    return flood_of_calls


def pour_frames(content: Callable[[int], bytes]) -> Flood:
    """Send unusually many frames of one kind. Reconnect after each disconnection."""

    async def flood_of_frames(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
        mallory = enrolment.identity(Role.ANALYST, "mallory")
        until = asyncio.get_running_loop().time() + SECONDS / 2
        while (left := until - asyncio.get_running_loop().time()) > 0:
            each = await open_connection(address, mallory, enrolment.folder)
            held.callback(each.hang_up)
            listening = asyncio.create_task(each.listen())
            await each.pour(content, left)
            listening.cancel()

    return flood_of_frames


async def compressed_bombs(held: AsyncExitStack, enrolment: Enrolment, address: str) -> None:
    """Send requests and answers that expand from kilobytes to more than a hundred megabytes."""
    mallory, intruder = enrolment.identity(Role.ANALYST, "mallory"), enrolment.identity(Role.PROVIDER, "intruder")
    analyst = await held.enter_async_context(open_channel(address, mallory))
    bomb = pb.SubmitRequest(signed_job=bytes(2**27))
    with pytest.raises(grpc.aio.AioRpcError):
        await pb_grpc.AnalystServiceStub(analyst).Submit(bomb, compression=grpc.Compression.Gzip)
    channel = await held.enter_async_context(open_channel(address, intruder))
    site = DishonestProvider.__new__(DishonestProvider)
    site.call = pb_grpc.ProviderServiceStub(channel).Connect(compression=grpc.Compression.Gzip)
    await site.greet()
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await site.say(answer=pb.AnswerFrame(job="0" * 64, content=bytes(2**27)))
    code, _ = await site.ending()
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


LINES, CALLS, SECONDS = 40, 64, 3.0
SOCKETS = 640
"""More than the descriptors that a coordinator is started with, and than the handshakes that it takes at once."""
assert max(DESCRIPTORS, MAX_HANDSHAKES) < SOCKETS
WINDOW = 2**16
"""Bytes that a caller may send of a call before anybody has looked at it: gRPC takes so much of any."""
CONNECTION = 2**17
"""Bytes that a connection with TLS may take."""
SUBMIT, CHECK = "/dpspca.v1.AnalystService/Submit", "/grpc.health.v1.Health/Check"
OFFERS = "/dpspca.v1.AnalystService/DataSets"
FLOODS: dict[str, Flood] = {
    each.__name__: each
    for each in (many_streams, many_watches, many_unknowns, much_junk, many_sockets, idle_connections)
} | {
    "pings": pour_frames(pings),
    "settings": pour_frames(settings),
    "calls that are given up": pour_frames(begun_and_cancelled),
    "compressed bombs": compressed_bombs,
    "large requests, unfinished": unfinished(Role.ANALYST, SUBMIT, 2**20),
    "small requests, unfinished": unfinished(Role.ANALYST, SUBMIT, 2**10),
    "requests of who was revoked, unfinished": unfinished(Role.ANALYST, SUBMIT, 2**20, revoked=True),
    "requests of another role, unfinished": unfinished(Role.PROVIDER, SUBMIT, 2**20),
    "queries for the health, unfinished": unfinished(Role.PROVIDER, CHECK, 2**16),
    "queries for the health, replies untaken": untaken(Role.PROVIDER, CHECK),
    "lists of what is on offer, untaken": untaken(Role.ANALYST, OFFERS),
}
RELATIVES = {
    "many_watches",
    "much_junk",
    "settings",
    "small requests, unfinished",
    "requests of another role, unfinished",
    "queries for the health, unfinished",
}
"""Floods that are stopped at the same place as another in the list."""
LONG = {"idle_connections", "large requests, unfinished", "lists of what is on offer, untaken", "many_streams", "pings"}
"""Others that take longer than their like."""
MOST_GROWTH = 64 * 2**20
"""Bytes by which a coordinator under a flood may outgrow one that ran the same honest job before."""


def most_held(flood: Flood) -> int:
    """Return the most bytes that a flood's connections can hold, or its calls' windows before they are refused."""
    if flood is idle_connections:
        return SOCKETS * CONNECTION
    return LINES * CALLS * WINDOW if flood.__name__ == "flood" else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(flood, id=name, marks=[pytest.mark.nightly] if name in RELATIVES | LONG else [])
        for name, flood in FLOODS.items()
    ],
)
def test_t35_a_flood_does_not_stop_honest_jobs_or_fill_the_memory(enrolment: Enrolment, flood: Flood) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # this process holds both ends of nearly all connections

    async def scenario() -> None:
        async with asyncio.timeout(5 * TIMEOUT), measured_coordinator(enrolment) as measured, AsyncExitStack() as held:
            await measured.fit()
            before = measured.most_memory()
            flooding = asyncio.create_task(flood(held, enrolment, measured.address))
            await measured.fit()
            await flooding
            await measured.fit()
            assert measured.most_memory() - before < MOST_GROWTH + most_held(flood)

    asyncio.run(scenario())
