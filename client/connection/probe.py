"""A health check of the coordinator, which any party of the federation may make. It takes seconds at most."""

from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.storage import Address, AnySettings, CoordinatorSettings, ProviderSettings, Route
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity

TIMEOUT_SECONDS: Final = 5.0
"""Seconds."""

_FIX_LISTEN: Final = "Set a fixed port there: with 0 the system picks a free port, and only the log says which."
_FIX_COORDINATOR: Final = "Set the port on which the coordinator listens. Its log names the port."


def address_of(settings: AnySettings) -> Address:
    """Return the coordinator's address. For the coordinator's own settings: its address on its own machine."""
    if isinstance(settings, CoordinatorSettings):
        return _with_port("listen", settings.listen.from_here, _FIX_LISTEN)
    return _with_port("coordinator", settings.coordinator, _FIX_COORDINATOR)


def route_of(settings: AnySettings) -> Route:
    """Return how this party reaches the coordinator."""
    address = address_of(settings)
    return Route(address) if isinstance(settings, CoordinatorSettings) else settings.route


def _with_port(key: str, address: Address, remedy: str) -> Address:
    if not address.port:
        raise InvalidParameterError(f"{key} is {address}, but port 0 cannot be connected to.", remedy)
    return address


def service_of(settings: AnySettings, me: Identity) -> str:
    """Return the service to check: for a provider its own connection, for other parties the coordinator as a whole."""
    return f"{rpc.CONNECTED}{me.name.name}" if isinstance(settings, ProviderSettings) else ""


async def ask(address: str | Route, me: Identity, service: str) -> None:
    """Check that a service is being served. Raise if it is not, or if the coordinator does not answer."""
    async with rpc.dial(address, me) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as problem:
            raise _refused(address, problem) from None
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        if service:
            raise RefusedError("This provider is not connected.", "Start it. If it runs, its log says why.")
        raise RefusedError("The coordinator does not serve.", "Its log says why.")


async def ask_reload_problem(address: str | Route, me: Identity) -> str | None:
    """Ask a coordinator, with its own identity, why its last reload failed. Return None if it did not.

    A coordinator of an earlier version, or one that cannot be reached, gives no reason.
    """
    async with rpc.dial(address, me) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(health_pb2.HealthCheckRequest(service=rpc.SETTINGS), timeout=TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as problem:
            if problem.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return rpc.reason_of(problem)
    return None


def _refused(address: str | Route, problem: grpc.aio.AioRpcError) -> RefusedError:
    unreachable = problem.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    what = "cannot be reached" if unreachable else "refused the health check"
    return RefusedError(
        f"{address} {what} ({problem.code().name}: {rpc.reason_of(problem)}).",
        "Check that the coordinator is running, and that both certificates are valid and of the same federation.",
    )
