"""The health service: it reports to parties of the federation whether the coordinator serves, and who is connected.

Each watcher is served on its own call. A watcher that stops reading uses one of its own places, and delays neither
other watchers nor the coordinator's stop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.server.jobs import Roster

SERVICES: Final = frozenset({"", "dpspca.v1.ProviderService", "dpspca.v1.AnalystService"})
"""The services that a caller may ask about; an empty name stands for all."""
MAX_HEALTH_WATCHES: Final = 16
"""Streams on which one party watches the coordinator's health at once."""


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]  # the package comes without types
    """Reports that nothing is served until ``set_serving`` is called."""

    def __init__(self, door: rpc.CallerCheck, roster: Roster, reload_problem: Callable[[], str | None]) -> None:
        self._door = door
        self._roster = roster
        self._reload_problem = reload_problem
        self._serving = False
        self._changed = asyncio.Event()
        self._watches = rpc.CallLimit(MAX_HEALTH_WATCHES, f"You already have {MAX_HEALTH_WATCHES} health watches.")

    def set_serving(self, *, serving: bool) -> None:
        """Report from now on that all services are served, or none."""
        self._serving = serving
        self._changed.set()
        self._changed = asyncio.Event()

    async def Check(  # noqa: N802  # the name of the rpc
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        """Answer once."""
        caller = await self._door.admit(context, "Health.Check")
        provider = request.service.removeprefix(rpc.CONNECTED)
        if provider != request.service:
            return _response(_status(serving=self._roster.link_of(provider) is not None))
        if request.service == rpc.SETTINGS and caller.role is Role.COORDINATOR:
            if problem := self._reload_problem():
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, problem[: rpc.MAX_REASON])
            return _response(_status(serving=True))
        if request.service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return _response(_status(serving=self._serving))

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Answer now and after every change; skip states that a newer one replaced."""
        caller = await self._door.admit(context, "Health.Watch")
        async with self._watches.counted(caller, context):
            sent = None
            while True:
                changed = self._changed
                status = _status(serving=self._serving) if request.service in SERVICES else "SERVICE_UNKNOWN"
                if status != sent:
                    yield _response(status)
                    sent = status
                await changed.wait()
                await self._door.admit(context, "Health.Watch")  # the certificate may have been revoked


def _status(*, serving: bool) -> str:
    return "SERVING" if serving else "NOT_SERVING"


def _response(status: str) -> health_pb2.HealthCheckResponse:
    return health_pb2.HealthCheckResponse(status=status)
