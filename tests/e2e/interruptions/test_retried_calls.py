"""A call that met a temporary error of the coordinator is retried. A refused call is not."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from local_federation import Enrolment, server_credentials, spec
from timeouts import TIMEOUT

from dpspca.client.connection import FederationError
from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import BusyError, RefusedError
from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

TROUBLES = 3


async def cancelled(context: Any) -> None:
    await context.abort(grpc.StatusCode.CANCELLED, "")


async def busy(context: Any) -> None:
    await rpc.abort(context, BusyError("You make too many calls.", "Try again."))


async def full(context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")


async def too_large(context: Any) -> None:
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max")


async def refused(context: Any) -> None:
    await rpc.abort(context, RefusedError("Not this one.", "Sign another."))


class FailingCoordinator(pb_grpc.AnalystServiceServicer):
    """A coordinator that accepts a job at the fourth attempt."""

    def __init__(self, trouble: Callable[[Any], Any]) -> None:
        self._trouble = trouble
        self.submitted: list[bytes] = []

    async def Submit(self, request: pb.SubmitRequest, context: Any) -> pb.Job:  # noqa: N802  # the name of the rpc
        self.submitted.append(request.signed_job)
        if len(self.submitted) <= TROUBLES:
            await self._trouble(context)
        return pb.Job(job=SignedJob.from_bytes(request.signed_job).job_id)


def submit(folder: Path, trouble: Callable[[Any], Any]) -> list[bytes]:
    """Submit a job to a coordinator with errors, and return what it received."""
    enrolment = Enrolment.create(folder)
    hub, ada = enrolment.identity(Role.COORDINATOR, "hub"), enrolment.identity(Role.ANALYST, "ada")
    service = FailingCoordinator(trouble)

    async def scenario() -> None:
        server = rpc.server()
        pb_grpc.add_AnalystServiceServicer_to_server(service, server)
        port = server.add_secure_port("127.0.0.1:0", server_credentials(hub))
        await server.start()
        try:
            async with asyncio.timeout(TIMEOUT), AsyncFederation(f"127.0.0.1:{port}", ada) as analyst:
                await analyst.submit_signed(enrolment.job(spec(), ada, ["north"]), spec())
        finally:
            await server.stop(0)

    asyncio.run(scenario())
    return service.submitted


@pytest.mark.parametrize("trouble", [cancelled, busy, full])
def test_a_call_that_met_a_temporary_error_is_retried(tmp_path: Path, trouble: Callable[[Any], Any]) -> None:
    sent = submit(tmp_path, trouble)
    assert sent == sent[:1] * (TROUBLES + 1)  # the same signed bytes are the same job


@pytest.mark.parametrize("trouble", [too_large, refused])
def test_a_call_that_is_refused_is_not_retried(tmp_path: Path, trouble: Callable[[Any], Any]) -> None:
    with pytest.raises(FederationError, match=r"FAILED_PRECONDITION|RESOURCE_EXHAUSTED"):
        submit(tmp_path, trouble)
