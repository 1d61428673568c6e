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


def address_of(settings: AnyConfig) -> Address:
    """Give where the coordinator is reached; for itself, from its own machine."""
    if not isinstance(settings, CoordinatorConfig):
        return settings.coordinator
    if not settings.listen.port:
        raise InvalidParameterError(
            "The coordinator listens on any port that is free, and only its log says on which.", "Choose a port."
        )
    return settings.listen.from_here


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
            raise RefusedError(
                f"{address} answers {problem.code().name}: {problem.details()}.",
                "See that the coordinator runs, and that both identities are of the same federation and in force.",
            ) from None
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        what = "This provider is not connected" if service else "The coordinator does not serve"
        raise RefusedError(f"{what}.", "Its log says why.")
