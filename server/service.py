"""The coordinator's two gRPC services. Everything decided here is liveness; privacy is decided at the providers."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

import grpc
import grpc.aio

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.spec import JobSpec
from dpspca.common.transport import rpc, wire
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import PartyName, Role, check_name
from dpspca.common.transport.signing import SignedJob, verify
from dpspca.common.transport.trust import RevocationList
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .conductor import Conductor
from .jobs import Job
from .roster import Link, Roster

Context = grpc.aio.ServicerContext[Any, Any]

ALLOWED: Final = MappingProxyType(
    {
        "Connect": Role.PROVIDER,
        "Submit": Role.ANALYST,
        "Watch": Role.ANALYST,
        "List": Role.ANALYST,
        "Get": Role.ANALYST,
        "Cancel": Role.ANALYST,
        "Result": Role.ANALYST,
    }
)

HEARTBEAT_SECONDS: Final = 20
MAX_DATA_SETS: Final = 256
MAX_JOBS: Final = 1000
SOFTWARE: Final = "dpspca"


class ProviderService(pb_grpc.ProviderServiceServicer):
    """Holds one stream for every provider."""

    def __init__(self, door: rpc.Doorkeeper, roster: Roster) -> None:
        self._door = door
        self._roster = roster

    async def Connect(  # noqa: N802  # the name of the rpc
        self, request_iterator: AsyncIterator[pb.FromProvider], context: Context
    ) -> AsyncIterator[pb.ToProvider]:
        """Greet, then carry questions out and answers in until either side ends."""
        name = await self._door.admit(context, "Connect")
        try:
            link = await _greet(name, request_iterator)
        except DpspcaError as problem:
            await rpc.abort(context, problem)
        yield pb.ToProvider(welcome=pb.Welcome(software=SOFTWARE, heartbeat_seconds=HEARTBEAT_SECONDS))
        await self._roster.join(link)
        reading = asyncio.ensure_future(_read(link, request_iterator))
        try:
            async for message in _outbound(link, reading):
                yield message
        finally:
            reading.cancel()
            await self._roster.leave(link)


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
        conductor = await self._own(request, context, "Watch")
        while True:
            job = conductor.job
            yield _as_message(job)
            if job.state.is_final:
                return
            async with self._changed:
                await self._changed.wait_for(lambda seen=job: conductor.job is not seen)  # type: ignore[misc]

    async def List(self, request: pb.ListRequest, context: Context) -> pb.JobList:  # noqa: N802
        """Tell an analyst's own jobs."""
        analyst = await self._door.admit(context, "List")
        own = [each.job for each in self._conductors.values() if each.job.analyst == analyst.uri]
        return pb.JobList(jobs=[_as_message(job) for job in own])

    async def Get(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """Tell one job."""
        return _as_message((await self._own(request, context, "Get")).job)

    async def Cancel(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """End a job at once; one that is over stays as it is."""
        conductor = await self._own(request, context, "Cancel")
        task = self._tasks[request.job]
        task.cancel()
        await asyncio.wait([task])
        conductor.cancel()
        return _as_message(conductor.job)

    async def Result(self, request: pb.JobName, context: Context) -> AsyncIterator[pb.Frame]:  # noqa: N802
        """Send a finished job's model."""
        conductor = await self._own(request, context, "Result")
        if conductor.model is None:
            await rpc.abort(context, RefusedError(f"The job is {conductor.job.state}.", "Wait until it is done."))
        stored = await asyncio.to_thread(conductor.model.to_bytes)
        for sequence, frame in enumerate(wire.frames(stored)):
            yield pb.Frame(sequence=sequence, content=bytes(frame))

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
        questions = len(catalogue.plan(JobSpec.from_json(envelope.spec)))
        job = Job(signed.job_id, analyst.uri, envelope.dataset, questions)
        return Conductor(signed, envelope, job, self._roster, lambda _: self._wake())

    def _start(self, conductor: Conductor) -> Job:
        """Start a job, unless it has been: the same signed bytes are the same job."""
        name = conductor.job.name
        if name not in self._conductors:
            if sum(not task.done() for task in self._tasks.values()) >= MAX_JOBS:
                raise RefusedError(f"{MAX_JOBS} jobs are running.", "Wait until one is over.")
            self._conductors[name] = conductor
            self._tasks[name] = asyncio.create_task(conductor.run())
        return self._conductors[name].job

    def _wake(self) -> None:
        self._waking = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _own(self, request: pb.JobName, context: Context, method: str) -> Conductor:
        """Find a job of the caller's; another's does not exist for it."""
        caller = await self._door.admit(context, method)
        found = self._conductors.get(request.job)
        if found is None or found.job.analyst != caller.uri:
            await rpc.abort(context, RefusedError("There is no such job of yours.", "Look at the list of your jobs."))
        return found


class Coordinator:
    """A running coordinator; ``address`` says where it listens."""

    def __init__(
        self,
        identity: Callable[[], Identity],
        revocations: Callable[[], RevocationList],
        clock: Callable[[], datetime],
    ) -> None:
        self._identity = identity
        me = identity()
        door = rpc.Doorkeeper(me.authority_pem, revocations, clock, ALLOWED)
        self.roster = Roster()
        self._analysts = AnalystService(door, self.roster, identity)
        self._server = rpc.server()
        pb_grpc.add_ProviderServiceServicer_to_server(ProviderService(door, self.roster), self._server)
        pb_grpc.add_AnalystServiceServicer_to_server(self._analysts, self._server)
        self.address = ""

    async def start(self, address: str) -> None:
        """Listen; port 0 takes a free one."""
        port = self._server.add_secure_port(address, rpc.server_credentials(self._identity()))
        self.address = f"{address.rpartition(':')[0]}:{port}"
        await self._server.start()

    async def stop(self, grace: float = 5.0) -> None:
        """End jobs and connections."""
        await self._analysts.stop()
        await self._server.stop(grace)


async def _greet(name: PartyName, messages: AsyncIterator[pb.FromProvider]) -> Link:
    """Take a provider's first message, which has to be its greeting."""
    async for message in messages:
        if message.WhichOneof("message") != "hello" or len(message.hello.data_sets) > MAX_DATA_SETS:
            break
        offered = {check_name("a data set", each.name): each.dimension for each in message.hello.data_sets}
        return Link(name.name, offered)
    raise RefusedError("A provider greets first, with the data sets it offers.", "Use a matching version.")


async def _read(link: Link, messages: AsyncIterator[pb.FromProvider]) -> None:
    async for message in messages:
        match message.WhichOneof("message"):
            case "answer":
                link.receive_answer(message.answer)
            case "refusal":
                link.receive_refusal(message.refusal)
            case _:
                pass


async def _outbound(link: Link, reading: "asyncio.Future[None]") -> AsyncIterator[pb.ToProvider]:
    """Give what is to be sent, and a heartbeat where there is nothing, until the other side has ended."""
    while not reading.done():
        waiting: asyncio.Future[Any] = asyncio.ensure_future(link.outbound.get())
        try:
            await asyncio.wait({waiting, reading}, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not waiting.done():
                waiting.cancel()
        if waiting.done() and not waiting.cancelled():
            yield waiting.result()
        elif not reading.done():
            yield pb.ToProvider(heartbeat=pb.Heartbeat())


def _as_message(job: Job) -> pb.Job:
    participants = [
        pb.Participant(name=name, reason=each.reason, answered=each.answered) for name, each in job.participants.items()
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
        participants=participants,
    )
