"""The analysts' side of the coordinator: takes signed jobs, and tells their own analyst what becomes of them.

A job is known by the digest of what was signed. Another analyst's job does not exist for whoever asks.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc.aio

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.transport import rpc, wire
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName
from dpspca.common.transport.signing import SignedJob, verify
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .conductor import Conductor
from .jobs import Job
from .roster import Roster

Context = grpc.aio.ServicerContext[Any, Any]

MAX_JOBS: Final = 1000
"""Jobs that run at once."""
MAX_RUNNING: Final = 100
"""Of these, one analyst's."""
MAX_KEPT: Final = 250
"""Jobs of one analyst that are remembered; beyond, the oldest that is over is forgotten."""
MAX_WATCHES: Final = 250
"""Streams on which one analyst watches jobs at once."""


class AnalystService(pb_grpc.AnalystServiceServicer):
    """Takes signed jobs, and tells their own analyst what becomes of them."""

    def __init__(
        self,
        door: rpc.Doorkeeper,
        roster: Roster,
        identity: Callable[[], Identity],
    ) -> None:
        self._door = door
        self._roster = roster
        self._identity = identity
        self._conductors: dict[str, Conductor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watches = rpc.Quota(MAX_WATCHES, f"You watch {MAX_WATCHES} jobs already.")
        self._changed = asyncio.Condition()

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.Job:  # noqa: N802
        """Start a job; the same signed bytes are the same job."""
        analyst = await self._door.admit(context, "Submit")
        try:
            conductor = await asyncio.to_thread(self._believe, request.signed_job, analyst)
            return _as_message(self._start(conductor))
        except DpspcaError as problem:
            await rpc.abort(context, problem)

    async def Watch(self, request: pb.JobName, context: Context) -> AsyncIterator[pb.Job]:  # noqa: N802
        """Tell the job now and after every change, until it is over."""
        caller, conductor = await self._own(request, context, "Watch")
        async with self._watches.one_of(caller, context):
            try:
                async for job in self._states(conductor):
                    self._door.judge(context, "Watch")  # who was revoked meanwhile is told no more
                    yield _as_message(job)
            except RefusedError as problem:
                await rpc.abort(context, problem)

    async def List(self, request: pb.ListRequest, context: Context) -> pb.JobList:  # noqa: N802
        """Tell an analyst's own jobs."""
        analyst = await self._door.admit(context, "List")
        own = [each.job for each in self._conductors.values() if each.job.analyst == analyst.uri]
        return pb.JobList(jobs=[_as_message(job) for job in own])

    async def Get(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """Tell one job."""
        _, conductor = await self._own(request, context, "Get")
        return _as_message(conductor.job, conductor.signed)

    async def Cancel(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """End a job at once; one that is over stays as it is."""
        _, conductor = await self._own(request, context, "Cancel")
        task = self._tasks[conductor.job.name]
        task.cancel()
        await asyncio.wait([task])
        conductor.cancel()
        return _as_message(conductor.job)

    async def Result(self, request: pb.JobName, context: Context) -> AsyncIterator[pb.Frame]:  # noqa: N802
        """Send a finished job's model."""
        _, conductor = await self._own(request, context, "Result")
        if conductor.model is None:
            await rpc.abort(context, RefusedError(f"The job is {conductor.job.state}.", "Wait until it is done."))
        stored = await asyncio.to_thread(conductor.model.to_bytes)
        for sequence, frame in enumerate(wire.frames(stored)):
            yield pb.Frame(sequence=sequence, content=bytes(frame))

    async def DataSets(  # noqa: N802
        self, request: pb.DataSetsRequest, context: Context
    ) -> AsyncIterator[pb.Offer]:
        """Tell what the providers that are connected now offer."""
        await self._door.admit(context, "DataSets")
        for link in self._roster.links:
            for name, schema in link.data_sets.items():
                offered = pb.DataSet(name=name, dimension=schema.dimension, columns=schema.names or ())
                yield pb.Offer(provider=link.name, data_set=offered)

    async def stop(self) -> None:
        """Cancel what still runs."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _believe(self, content: bytes, caller: PartyName) -> Conductor:
        """Verify a job and plan it; off the event loop, for that takes a while."""
        signed = SignedJob.from_bytes(content)
        me = self._identity()
        door = self._door
        envelope, analyst = verify(signed, me.authority_pem, me=me.name, now=door.clock(), revoked=door.revocations())
        if analyst != caller:
            raise RefusedError("The job was signed by another analyst.", "Submit it with the identity that signed it.")
        return Conductor(signed, envelope, analyst, self._roster, door.clock, lambda _: self._wake())

    def _start(self, conductor: Conductor) -> Job:
        """Start a job, unless it has been: the same signed bytes are the same job."""
        job = conductor.job
        if job.name not in self._conductors:
            self._make_room(job.analyst)
            self._conductors[job.name] = conductor
            self._tasks[job.name] = asyncio.create_task(conductor.run())
        return self._conductors[job.name].job

    def _make_room(self, analyst: str) -> None:
        """Refuse one job too many, and forget the oldest that is over."""
        running = [name for name, task in self._tasks.items() if not task.done()]
        own = [name for name, each in self._conductors.items() if each.job.analyst == analyst]
        for limit, count in ((MAX_JOBS, len(running)), (MAX_RUNNING, len(set(own).intersection(running)))):
            if count >= limit:
                raise RefusedError(f"{limit} jobs are running.", "Wait until one is over, or cancel one.")
        if len(own) >= MAX_KEPT:
            oldest = next(name for name in own if name not in running)
            del self._conductors[oldest], self._tasks[oldest]

    async def _states(self, conductor: Conductor) -> AsyncIterator[Job]:
        """Give the job now and after every change; a state that was overtaken is left out."""
        while True:
            job = conductor.job
            yield job
            if job.state.is_final:
                return
            async with self._changed:
                await self._changed.wait_for(lambda seen=job: conductor.job is not seen)  # type: ignore[misc]

    def _wake(self) -> None:
        self._waking = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _own(self, request: pb.JobName, context: Context, method: str) -> tuple[PartyName, Conductor]:
        """Find a job of the caller's by its name, or by the beginning of it; another's does not exist for it."""
        caller = await self._door.admit(context, method)
        found = [
            each
            for name, each in self._conductors.items()
            if request.job and name.startswith(request.job) and each.job.analyst == caller.uri
        ]
        if len(found) != 1:
            what = "There is no such job of yours." if not found else "Several jobs of yours begin like this."
            await rpc.abort(context, RefusedError(what, "Look at the list of your jobs."))
        return caller, found[0]


def _as_message(job: Job, signed: bytes = b"") -> pb.Job:
    participants = [
        pb.Participant(name=name, reason=each.reason, answered=each.answered, asked=each.asked)
        for name, each in job.participants.items()
    ]
    return pb.Job(
        job=job.name,
        analyst=job.analyst,
        data_set=job.data_set,
        state=job.state,
        reason=job.reason,
        answered=job.answered,
        questions=job.questions,
        step=job.step,
        bytes_moved=job.bytes_moved,
        submitted=job.submitted,
        ended=job.ended,
        signed_job=signed,
        participants=participants,
    )
