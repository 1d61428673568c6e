"""A real federation from the analyst's side: sign a job, submit it, watch it, fetch its model.

The coordinator is not believed: the privacy statement is worked out here, from the job that was signed.
"""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Final, Self, TypeVar

import grpc
import grpc.aio

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.model import Model
from dpspca.common.spec import JobSpec
from dpspca.common.statement import PrivacyStatement
from dpspca.common.transport import rpc
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName, Role
from dpspca.common.transport.signing import JobEnvelope, SignedJob, sign
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

LIFE: Final = timedelta(hours=12)


class FederationError(DpspcaError):
    """The coordinator refused, or could not be reached."""

    code = "federation"


class JobFailedError(FederationError):
    """The job ended without a model."""

    code = "job-failed"


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A submitted job."""

    name: str
    spec: JobSpec
    federation: "AsyncFederation"

    async def watch(self) -> AsyncIterator[pb.Job]:
        """Give the job's state now and after every change, until it is over."""
        async for job in _asked(self.federation.stub.Watch(pb.JobName(job=self.name))):
            yield job

    async def cancel(self) -> pb.Job:
        """End the job; one that is over stays as it is."""
        return await _ask(self.federation.stub.Cancel(pb.JobName(job=self.name)))

    async def result(self) -> Model:
        """Wait for the end, and give the model with a statement of our own making."""
        last = pb.Job()
        async for job in self.watch():
            last = job
        if last.state != "done":
            raise JobFailedError(f"The job is {last.state}: {last.reason}", "See the reason, and submit a new job.")
        frames = [frame.content async for frame in _asked(self.federation.stub.Result(pb.JobName(job=self.name)))]
        model = Model.from_bytes(b"".join(frames))
        parties = sum(each.answered == last.questions for each in last.participants)
        statement = PrivacyStatement.of(
            self.spec, catalogue.plan(self.spec), parties=parties, releasable=True, federated=True
        )
        return replace(model, statement=statement)


class AsyncFederation:
    """A connection to a coordinator."""

    def __init__(self, address: str, identity: Identity, clock: Callable[[], datetime] | None = None) -> None:
        self._identity = identity
        self._clock = clock or (lambda: datetime.now(UTC))
        self._channel = rpc.dial(address, identity)
        self.stub = pb_grpc.AnalystServiceStub(self._channel)

    async def submit(self, spec: JobSpec, data_set: str, providers: Sequence[str]) -> JobHandle:
        """Sign a job for these providers and submit it."""
        federation = self._identity.name.federation
        audience = [PartyName(federation, Role.PROVIDER, name) for name in providers]
        envelope = JobEnvelope.draw(spec.to_json().encode(), audience, data_set, now=self._clock(), life=LIFE)
        return await self.submit_signed(sign(envelope, self._identity), spec)

    async def submit_signed(self, signed: SignedJob, spec: JobSpec) -> JobHandle:
        """Submit a job that was signed before; the same bytes are the same job."""
        job = await _ask(self.stub.Submit(pb.SubmitRequest(signed_job=signed.to_bytes())))
        if job.job != signed.job_id:
            raise RefusedError("The coordinator speaks of another job.", "Do not trust it.")
        return JobHandle(job.job, spec, self)

    async def fit(self, spec: JobSpec, data_set: str, providers: Sequence[str]) -> Model:
        """Submit a job and wait for its model."""
        return await (await self.submit(spec, data_set, providers)).result()

    async def jobs(self) -> list[pb.Job]:
        """List this analyst's jobs."""
        return list((await _ask(self.stub.List(pb.ListRequest()))).jobs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close(None)


Reply = TypeVar("Reply")


async def _ask(call: Awaitable[Reply]) -> Reply:
    try:
        return await call
    except grpc.aio.AioRpcError as problem:
        raise _told(problem) from None


async def _asked(call: AsyncIterable[Reply]) -> AsyncIterator[Reply]:
    try:
        async for reply in call:
            yield reply
    except grpc.aio.AioRpcError as problem:
        raise _told(problem) from None


def _told(problem: grpc.aio.AioRpcError) -> FederationError:
    """Pass on what the coordinator said; it is a stranger's word."""
    return FederationError(
        f"The coordinator answered {problem.code().name}: {problem.details()}", "See what it says, and try again."
    )
