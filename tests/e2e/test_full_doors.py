"""A coordinator takes so many connections, and keeps none that nobody uses: the "full doors" of docs/security.md."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from patience import PATIENCE
from puppets import OFFER, line, puppet
from raw import connected
from town import Running, Town, federation

from dpspca.common.transport import rpc
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import Role
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

PLACES = 4
MOST, SILENT, IDLE = (
    "grpc.max_allowed_incoming_connections",
    "grpc.server_handshake_timeout_ms",
    "grpc.max_connection_idle_ms",
)


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


def at_a_door(
    town: Town, patch: pytest.MonkeyPatch, scene: Callable[[Running], Awaitable[None]], changed: dict[str, int]
) -> None:
    """Play a scene at a coordinator that has some settings of its own, and all others as they are."""
    patch.setattr(rpc, "_SERVER", tuple((dict(rpc._SERVER) | changed).items()))

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE), federation(town, ()) as running:
            await scene(running)

    asyncio.run(scenario())


async def answered(running: Running, caller: Identity) -> bool:
    """Say whether somebody with a certificate gets in and is answered, who connects now."""
    async with line(running.coordinator.address, caller) as channel:
        try:
            await pb_grpc.AnalystServiceStub(channel).DataSets(pb.DataSetsRequest()).read()
        except grpc.aio.AioRpcError as problem:
            assert problem.code() is grpc.StatusCode.UNAVAILABLE, problem  # noqa: PT017  # anything else is not the door
            return False
        return True


def test_what_the_doors_are_set_to_is_what_is_written_of_them() -> None:
    settings = dict(rpc._SERVER)
    assert {name: settings[name] for name in (MOST, SILENT, IDLE)} == {MOST: 2048, SILENT: 10_000, IDLE: 300_000}


def test_t35_of_connections_there_are_so_many_and_who_says_nothing_on_one_does_not_keep_it(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(running: Running) -> None:
        cyd = town.identity(Role.ANALYST, "cyd")
        host, _, port = running.coordinator.address.rpartition(":")
        async with puppet(running.coordinator.address, town.identity(Role.PROVIDER, "site-0")) as site:
            await site.greet(OFFER)
            silent = [await asyncio.open_connection(host, int(port)) for _ in range(PLACES - 1)]
            assert not await answered(running, cyd)
            for reader, writer in silent:
                assert not await reader.read()
                writer.close()
            assert await answered(running, cyd)
            assert running.coordinator.roster.links  # who was connected stays so

    at_a_door(town, monkeypatch, scene, {MOST: PLACES, SILENT: 2000})


def test_t35_a_connection_on_which_nothing_is_asked_is_ended_and_one_with_a_stream_is_not(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(running: Running) -> None:
        async with puppet(running.coordinator.address, town.identity(Role.PROVIDER, "site-0")) as site:
            await site.greet(OFFER)
            idle = await connected(running.coordinator.address, town.identity(Role.ANALYST, "bea"), town.folder)
            await idle.listen()
            idle.hang_up()
            assert running.coordinator.roster.links

    at_a_door(town, monkeypatch, scene, {IDLE: 1000})
