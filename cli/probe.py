"""Asks a coordinator how it is, as anybody of the federation may, and within seconds."""

from typing import Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.transport import rpc
from dpspca.common.transport.config import Address, AnyConfig, CoordinatorConfig, ProviderConfig
from dpspca.common.transport.identity import Identity

PATIENCE: Final = 5.0
"""Seconds."""

_OWN: Final = "Name a port there: 0 takes any that is free, and only the coordinator's log says which."
_ITS: Final = "Name the port on which the coordinator listens; its log says which."


def address_of(settings: AnyConfig) -> Address:
    """Give where the coordinator is reached; for itself, from its own machine."""
    if isinstance(settings, CoordinatorConfig):
        return _with_port("listen", settings.listen.from_here, _OWN)
    return _with_port("coordinator", settings.coordinator, _ITS)


def _with_port(key: str, address: Address, remedy: str) -> Address:
    if not address.port:
        raise InvalidParameterError(f"{key} is {address}, and at port 0 nobody can be asked.", remedy)
    return address


def service_of(settings: AnyConfig, me: Identity) -> str:
    """Give the name of what is asked for: a provider's own connection, for others the coordinator as a whole."""
    return f"{rpc.CONNECTED}{me.name.name}" if isinstance(settings, ProviderConfig) else ""


async def ask(address: str, me: Identity, service: str) -> None:
    """Ask whether a service is served; if it is not, or nobody answers, say so."""
    async with rpc.dial(address, me) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)
        except grpc.aio.AioRpcError as problem:
            raise _refused(address, problem) from None
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        what = "This provider is not connected" if service else "The coordinator does not serve"
        raise RefusedError(f"{what}.", "Its log says why.")


def _refused(address: str, problem: grpc.aio.AioRpcError) -> RefusedError:
    unheard = problem.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    return RefusedError(
        f"{address} {'cannot be reached' if unheard else 'says no'} ({problem.code().name}: {rpc.said(problem)}).",
        "See that the coordinator runs, and that both identities are of the same federation and in force.",
    )
