"""A coordinator limits its connections and closes unused ones."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
from dishonest_peers import OFFER, dishonest_provider, open_channel
from local_federation import Enrolment, RunningFederation, federation
from raw_http2 import open_connection
from timeouts import TIMEOUT

from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.common.trust.identity import Identity
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.rpc import connections, tls_frontend

PLACES = 4
IDLE = "grpc.max_connection_idle_ms"


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def run_scene(enrolment: Enrolment, scene: Callable[[RunningFederation], Awaitable[None]]) -> None:
    """Run a scene with a coordinator."""

    async def scenario() -> None:
        async with asyncio.timeout(TIMEOUT), federation(enrolment, ()) as running:
            await scene(running)

    asyncio.run(scenario())


async def is_admitted(running: RunningFederation, caller: Identity) -> bool:
    """Return whether a new client with a certificate is admitted and answered."""
    async with open_channel(running.coordinator.address, caller) as channel:
        try:
            await pb_grpc.AnalystServiceStub(channel).DataSets(pb.DataSetsRequest()).read()
        except grpc.aio.AioRpcError as problem:
            assert problem.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, problem  # noqa: PT017  # any other error is not a connection limit
            return False
        return True


async def wait_until(holds: Callable[[], Awaitable[bool]]) -> bool:
    """Wait until a condition holds."""
    while not await holds():  # noqa: ASYNC110  # there is no event for it
        await asyncio.sleep(0.02)
    return True


def test_connection_limits_equal_those_in_the_documents() -> None:
    assert (rpc.MAX_CONNECTIONS, tls_frontend.MAX_PARTY_CONNECTIONS, tls_frontend.MAX_HANDSHAKES) == (1024, 48, 512)
    assert (connections.HANDSHAKE_SECONDS, dict(rpc._SERVER)[IDLE]) == (10, 60_000)


def test_unidentified_connections_make_room_for_identified_ones(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_frontend, "MAX_HANDSHAKES", PLACES)

    async def scene(running: RunningFederation) -> None:
        host, _, port = running.coordinator.address.rpartition(":")
        async with dishonest_provider(running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")) as site:
            await site.greet(OFFER)
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(3 * PLACES)]
            assert await is_admitted(running, enrolment.identity(Role.ANALYST, "cyd"))
            for reader, writer in silent[: 2 * PLACES]:  # the oldest had to go
                assert not await reader.read()
                writer.close()
            for _, writer in silent[2 * PLACES :]:
                writer.close()
            assert running.coordinator.roster.links  # existing connections stay

    run_scene(enrolment, scene)


def test_a_connection_without_identification_is_closed(enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.5)

    async def scene(running: RunningFederation) -> None:
        host, _, port = running.coordinator.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert not await reader.read()
        writer.close()

    run_scene(enrolment, scene)


def test_connections_are_limited_for_each_party(enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_frontend, "MAX_PARTY_CONNECTIONS", PLACES)

    async def scene(running: RunningFederation) -> None:
        cyd, dot = (enrolment.identity(Role.ANALYST, name) for name in ("cyd", "dot"))
        async with AsyncExitStack() as held:
            for _ in range(PLACES):
                channel = await held.enter_async_context(open_channel(running.coordinator.address, cyd))
                await pb_grpc.AnalystServiceStub(channel).DataSets(pb.DataSetsRequest()).read()
            assert not await is_admitted(running, cyd)
            assert await is_admitted(running, dot)
        assert await wait_until(lambda: is_admitted(running, cyd))  # it has hung up

    run_scene(enrolment, scene)


def test_t35_an_idle_connection_is_closed_unless_it_has_a_stream(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "_SERVER", tuple((dict(rpc._SERVER) | {IDLE: 1000}).items()))

    async def scene(running: RunningFederation) -> None:
        async with dishonest_provider(running.coordinator.address, enrolment.identity(Role.PROVIDER, "site-0")) as site:
            await site.greet(OFFER)
            idle = await open_connection(
                running.coordinator.address, enrolment.identity(Role.ANALYST, "bea"), enrolment.folder
            )
            await idle.listen()
            idle.hang_up()
            assert running.coordinator.roster.links

    run_scene(enrolment, scene)
