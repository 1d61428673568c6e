"""The coordinator: its services behind one door. Everything decided here is liveness; privacy is the providers'."""

from collections.abc import Callable
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health  # type: ignore[attr-defined]

from dpspca.common.transport import rpc
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import Role
from dpspca.common.transport.trust import RevocationList
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .analysts import AnalystService
from .roster import Roster
from .streams import HEARTBEAT_SECONDS, ProviderService

_ANALYST: Final = frozenset({Role.ANALYST})

ALLOWED: Final = MappingProxyType(
    {
        "Connect": frozenset({Role.PROVIDER}),
        "Submit": _ANALYST,
        "Watch": _ANALYST,
        "List": _ANALYST,
        "Get": _ANALYST,
        "Cancel": _ANALYST,
        "Result": _ANALYST,
        "DataSets": _ANALYST,
        "Health.Check": frozenset(Role),
        "Health.Watch": frozenset(Role),
    }
)
"""Who may call what. What is not listed is refused to everybody."""

MAX_HEALTH_WATCHES: Final = 16
"""Streams on which one party watches the coordinator's health at once."""

SERVICES: Final = ("dpspca.v1.ProviderService", "dpspca.v1.AnalystService")


class Coordinator:
    """A running coordinator; ``address`` says where it listens."""

    def __init__(
        self,
        identity: Callable[[], Identity],
        revocations: Callable[[], RevocationList],
        clock: Callable[[], datetime],
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
    ) -> None:
        self._identity = identity
        door = rpc.Doorkeeper(identity().authority_pem, revocations, clock, ALLOWED)
        self.roster = Roster()
        self._analysts = AnalystService(door, self.roster, identity)
        self._health = _Health(door, self.roster)
        self._server = rpc.server()
        providers = ProviderService(door, self.roster, heartbeat_seconds)
        pb_grpc.add_ProviderServiceServicer_to_server(providers, self._server)
        pb_grpc.add_AnalystServiceServicer_to_server(self._analysts, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.address = ""

    async def start(self, address: str) -> None:
        """Listen; port 0 takes a free one."""
        port = self._server.add_secure_port(address, rpc.server_credentials(self._identity))
        self.address = f"{address.rpartition(':')[0]}:{port}"
        await self._server.start()
        await self._health.open()

    async def stop(self, grace: float = 5.0) -> None:
        """End jobs and connections."""
        await self._health.enter_graceful_shutdown()
        await self._analysts.stop()
        await self.roster.dismiss()
        await self._server.stop(grace)


class _Health(health.HealthServicer):
    """Tells, to members of the federation alone, that we serve, and whether a certain provider is connected."""

    def __init__(self, door: rpc.Doorkeeper, roster: Roster) -> None:
        super().__init__()
        self._door = door
        self._roster = roster
        self._watches = rpc.Quota(MAX_HEALTH_WATCHES, "You watch already.")

    async def open(self) -> None:
        """Say that everything is served from now on."""
        for service in SERVICES:
            await self.set(service, health_pb2.HealthCheckResponse.SERVING)

    async def Check(  # noqa: N802  # the name of the rpc
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """Answer once."""
        await self._door.admit(context, "Health.Check")
        provider = request.service.removeprefix(rpc.CONNECTED)
        if provider == request.service:
            return await super().Check(request, context)
        there = any(link.name == provider for link in self._roster.links)
        return health_pb2.HealthCheckResponse(status="SERVING" if there else "NOT_SERVING")

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Answer now and after every change."""
        caller = await self._door.admit(context, "Health.Watch")
        async with self._watches.one_of(caller, context):
            await super().Watch(request, context)
