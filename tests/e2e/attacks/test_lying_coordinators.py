"""A coordinator with a valid certificate that lies to an analyst about the analyst's jobs."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_federation import Enrolment, server_credentials, spec

from dpspca.client.connection.errors import DishonestCoordinatorError
from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import DpspcaError
from dpspca.common.names import Role
from dpspca.common.transport import rpc
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

Forgery = Callable[[SignedJob, Identity], SignedJob]


class Liar(pb_grpc.AnalystServiceServicer):
    """Returns the same job for every request."""

    def __init__(self, shown: SignedJob) -> None:
        self._shown = shown

    async def Get(self, request: pb.JobName, context: Any) -> pb.Job:  # noqa: N802  # the name of the rpc
        return pb.Job(job=self._shown.job_id, state="done", signed_job=self._shown.to_bytes())


def shown_to_ada(enrolment: Enrolment, forge: Forgery) -> None:
    """Let Ada open the job that the coordinator reports as hers."""
    ada, bob = enrolment.identity(Role.ANALYST, "ada"), enrolment.identity(Role.ANALYST, "bob")
    job = forge(enrolment.job(spec(), ada, ["site-0"]), bob)

    async def perform() -> None:
        hub = enrolment.identity(Role.COORDINATOR, "hub")
        server = rpc.server()
        pb_grpc.add_AnalystServiceServicer_to_server(Liar(job), server)
        port = server.add_secure_port("127.0.0.1:0", server_credentials(hub))
        await server.start()
        try:
            async with AsyncFederation(f"127.0.0.1:{port}", ada) as federation:
                assert (await federation.job(job.job_id)).spec == spec()
        finally:
            await server.stop(0)

    asyncio.run(perform())


def cheaper(job: SignedJob) -> bytes:
    """Return the job with a smaller epsilon than was signed."""
    changed = job.payload.replace(b'"epsilon":4.0', b'"epsilon":0.1')
    assert changed != job.payload
    return changed


FORGERIES: dict[str, Forgery] = {
    "without a signature": lambda job, _: replace(job, signature=b"none", certificate_pem=b"none"),
    "with another promise": lambda job, _: replace(job, payload=cheaper(job)),
    "with another's certificate": lambda job, bob: replace(job, certificate_pem=bob.certificate_pem),
}


@pytest.mark.parametrize("way", FORGERIES)
def test_a_job_the_analyst_did_not_sign_is_refused(tmp_path: Path, way: str) -> None:
    with pytest.raises(DpspcaError):
        shown_to_ada(Enrolment.create(tmp_path), FORGERIES[way])


def test_another_analyst_s_job_is_refused(tmp_path: Path) -> None:
    enrolment = Enrolment.create(tmp_path)
    with pytest.raises(DishonestCoordinatorError):
        shown_to_ada(enrolment, lambda _, bob: enrolment.job(spec(), bob, ["site-0"]))


def test_the_analyst_s_own_job_is_accepted(tmp_path: Path) -> None:
    enrolment = Enrolment.create(tmp_path)
    shown_to_ada(enrolment, lambda job, _: job)
