"""The analysts' side of the coordinator: takes signed jobs, and tells their own analyst what becomes of them.

A job is known by the digest of what was signed. Another analyst's job does not exist for whoever asks. Of a job that
is over, what was signed and how it stands are kept in the journal, up to so many bytes for each analyst, and looked up
there when somebody asks; its result is kept as long as ``jobs.Results`` has room for it. All of it is in the journal
before an analyst is told of it, and so a restart knows the same jobs, goes on with those that are not over, and has the
same results.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from sys import intern
from typing import Any, Final, Self, TypeAlias, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.log_context import about
from dpspca.common.names import PartyName
from dpspca.common.spec import JobSpec
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity, SignedJob, verify
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.job import Event, JobRecord, Results, State
from dpspca.server.jobs import Conductor, News, Roster
from dpspca.server.journal import Journal, JournalError, Keeper, Recorded, damaged

from .messages import as_message

Found = TypeVar("Found")
Context = grpc.aio.ServicerContext[Any, Any]

MAX_JOBS: Final = 1000
"""Jobs that run at once."""
MAX_RUNNING: Final = 100
"""Of these, one analyst's."""
MAX_RUNNING_BYTES: Final = 2**25
"""Bytes of the signed jobs of one analyst that run at once: they are held in memory until they are over."""
MAX_KEPT: Final = 250
"""Jobs of one analyst that are remembered; beyond, the oldest that is over is forgotten."""
MAX_SIGNED_BYTES: Final = 2**26
"""Bytes of signed jobs of one analyst that are remembered, likewise."""
RESULT_BYTES: Final = 2**30
"""Bytes of results that a coordinator keeps unless it is told otherwise."""
BELIEVING: Final = 4
"""Jobs that are verified at a time: two analysts' turns, in threads of their own, for jobs that run need the others."""
MAX_WATCHES: Final = 250
"""Streams on which one analyst watches jobs at once."""

_NO_JOB: Final = ("There is no such job of yours.", "Look at the list of your jobs.")

_log = logging.getLogger(__name__)


class _NoJobError(RefusedError):
    """Whoever asks has no job of that name, or has it no longer."""


@dataclass(frozen=True, slots=True)
class _Over:
    """What is remembered of a job that is over; the journal has all else."""

    name: str
    analyst: str
    signed_bytes: int

    @classmethod
    def of(cls, job: JobRecord, signed_bytes: int) -> Self:
        """Remember a job; its analyst's name once, however many jobs there are."""
        return cls(job.name, intern(job.analyst), signed_bytes)


_Known: TypeAlias = Conductor | _Over


class AnalystService(pb_grpc.AnalystServiceServicer):
    """Takes signed jobs, and tells their own analyst what becomes of them."""

    def __init__(
        self,
        door: rpc.CallerCheck,
        roster: Roster,
        keeper: Keeper,
        identity: Callable[[], Identity],
        result_bytes: int = RESULT_BYTES,
    ) -> None:
        self._door = door
        self._roster = roster
        self._keeper = keeper
        self._identity = identity
        self._known: dict[str, _Known] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._accepting = asyncio.Lock()
        self._believing = ThreadPoolExecutor(BELIEVING, "believing")
        self._results = Results(result_bytes)
        self._watches = rpc.CallLimit(MAX_WATCHES, f"You watch {MAX_WATCHES} jobs already.")
        self._changes = News()

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.Job:  # noqa: N802
        """Start a job; the same signed bytes are the same job."""
        analyst = await self._door.admit(context, "Submit")
        conductor = await self._believed(request.signed_job, analyst.uri)
        # Shielded: who hangs up half-way must not leave a job that is in the journal and does not run.
        return as_message(await asyncio.shield(_looked_at(asyncio.ensure_future(self._accept(conductor)))))

    async def Watch(self, request: pb.JobName, context: Context) -> AsyncIterator[pb.Job]:  # noqa: N802
        """Tell the job now and after every change, until it is over."""
        caller, known = await self._own(request, context, "Watch")
        async with self._watches.slot(caller, context):
            async for job in self._states(known):
                self._door.identify(context, "Watch")  # who was revoked meanwhile is told no more
                yield as_message(job)

    async def List(self, request: pb.ListRequest, context: Context) -> AsyncIterator[pb.Job]:  # noqa: N802
        """Tell an analyst's own jobs, one by one: all of them together may be more than one message takes."""
        analyst = await self._door.admit(context, "List")
        own = [each for each in self._known.values() if each.analyst == analyst.uri]
        for known in own:
            with suppress(_NoJobError):  # forgotten meanwhile
                yield as_message(await self._job(known))

    async def Get(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """Tell one job."""
        _, known = await self._own(request, context, "Get")
        return as_message(await self._job(known), await self._signed(known))

    async def Cancel(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """End a job at once; one that is over stays as it is."""
        _, known = await self._own(request, context, "Cancel")
        if isinstance(known, Conductor):
            known.cancel()
        await self._settled(known)
        return as_message(await self._job(known))

    async def Result(self, request: pb.JobName, context: Context) -> AsyncIterator[pb.Frame]:  # noqa: N802
        """Send a finished job's model, as long as it is kept: who reads slowly does not hold it."""
        caller, known = await self._own(request, context, "Result")
        job = await self._job(known)
        if job.state is not State.DONE:
            raise _without_result(job)
        await self._settled(known)
        for sequence in count():
            piece = await self._piece(job.name, sequence)
            self._results.require(caller.uri, job.name)  # or what is gone would look like the end
            if not piece:
                return
            yield pb.Frame(sequence=sequence, content=piece)

    async def DataSets(  # noqa: N802
        self, request: pb.DataSetsRequest, context: Context
    ) -> AsyncIterator[pb.Offer]:
        """Tell what the providers that are connected now offer."""
        await self._door.admit(context, "DataSets")
        for link in self._roster.links:
            for name, schema in link.data_sets.items():
                offered = pb.DataSet(name=name, dimension=schema.dimension, columns=schema.names or ())
                yield pb.Offer(provider=link.name, data_set=offered)

    async def resume(self) -> None:
        """Take up what the journal knows: receipts, and jobs. Jobs that are over are remembered, the others go on."""
        receipts, recorded = await self._keeper.do(lambda journal: (_receipts(journal), journal.jobs()))
        self._roster.receipts |= receipts
        for each in recorded:
            if each.job.state.is_final:
                self._known[each.job.name] = _Over.of(each.job, len(each.signed))
                await self._keep_result(each.job, each.model_bytes)
            else:
                await self._go_on(each)

    async def ended(self, job: str, provider: str) -> str | None:
        """Say how a job ended, to a provider that took part in it and has not heard so."""
        known = self._known.get(job)
        if known is None:
            return None
        try:
            found = await self._job(known)
        except (JournalError, _NoJobError):
            return None  # it asks again when it connects again
        return found.state.value if found.state.is_final and provider in found.participants else None

    async def _job(self, known: _Known) -> JobRecord:
        """Say how a job stands."""
        if isinstance(known, Conductor):
            return known.job
        found = await self._keeper.do(lambda journal: journal.job(known.name))
        if found is None:
            raise _NoJobError(*_NO_JOB)
        return found

    async def _signed(self, known: _Known) -> bytes:
        if isinstance(known, Conductor):
            return known.signed
        return await self._keeper.do(lambda journal: journal.signed(known.name))

    async def stop(self) -> None:
        """Stop driving what still runs; it is not over, and goes on when the journal is taken up again."""
        self._stopping = True
        self._believing.shutdown(wait=False, cancel_futures=True)
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _believed(self, content: bytes, caller: str) -> Conductor:
        """Verify a job and plan it, off the event loop; whoever hangs up has his turn until that is done."""
        work = _looked_at(asyncio.get_running_loop().run_in_executor(self._believing, self._believe, content, caller))
        try:
            return await asyncio.shield(work)
        finally:
            await asyncio.wait([work])
            del work  # what was raised leads to here, and would be led to

    def _believe(self, content: bytes, caller: str) -> Conductor:
        signed = SignedJob.from_bytes(content)
        me, revoked = rpc.read_own(self._identity), rpc.read_own(self._door.revocations)
        door = self._door
        envelope, analyst = verify(signed, me.authority_pem, me=me.name, now=door.clock(), revoked=revoked)
        if analyst.uri != caller:
            raise RefusedError("The job was signed by another analyst.", "Submit it with the identity that signed it.")
        _require_room(JobSpec.from_json(envelope.spec), self._results.most)
        return Conductor(
            signed, envelope, analyst, self._roster, self._keeper, door.clock, lambda job: self._changes.tell(job.name)
        )

    async def _accept(self, conductor: Conductor) -> JobRecord:
        """Record a job and start it, unless it has been: the same signed bytes are the same job."""
        job = conductor.job
        async with self._accepting:
            if job.name not in self._known:
                self._require_share(job.analyst, conductor.signed_bytes)
                await self._make_room(job.analyst)
                await self._keeper.do(lambda journal: journal.accept(job, conductor.signed))
                if self._stopping:
                    raise JournalError("The coordinator stops.", "The job goes on when it is back.")
                self._start(conductor)
        return await self._job(self._known[job.name])

    def _start(self, conductor: Conductor) -> None:
        job = conductor.job
        asked, who = [*job.participants], about(job.analyst)
        _log.info("Job %.12s of %s over '%s' asks %s.", job.name, job.analyst, job.data_set, asked, extra=who)
        self._known[job.name] = conductor
        self._running[job.name] = asyncio.create_task(self._run(conductor))

    async def _go_on(self, recorded: Recorded) -> None:
        """Go on with a job of before; one that nobody would believe any more, or that ran out meanwhile, fails."""
        job = recorded.job.asked_up_to(recorded.queries)
        try:
            conductor = await self._believed(recorded.signed, job.analyst)
        except DpspcaError as problem:
            ended = job.after(Event.FAIL, f"After a restart: {problem}", now=self._door.clock().timestamp())
            _log.warning("Job %.12s does not go on: %s", job.name, problem, extra=about(job.analyst))
            await self._keeper.do(lambda journal: journal.end(ended, None))
            self._known[job.name] = _Over.of(ended, len(recorded.signed))
            return
        conductor.resume(job, recorded.queries)
        number, who = recorded.queries or 1, about(job.analyst)
        _log.info("Job %.12s goes on at query %d of %d.", job.name, number, job.queries, extra=who)
        self._start(conductor)

    async def _run(self, conductor: Conductor) -> None:
        """Run a job to its end, and remember of it no more than is needed."""
        name = conductor.job.name
        try:
            await conductor.run()
            self._known[name] = _Over.of(conductor.job, conductor.signed_bytes)
            await self._keep_result(conductor.job, conductor.model_bytes)
        except JournalError:
            pass  # its keeper ends everything
        finally:
            del self._running[name]

    async def _keep_result(self, job: JobRecord, size: int) -> None:
        """Keep a model, if there is one, and let go what is too much."""
        gone = self._results.keep(job.analyst, job.name, size) if size else []
        if gone:
            await self._keeper.do(lambda journal: journal.drop_models(gone))

    async def _piece(self, job: str, number: int) -> bytes:
        return await self._keeper.do(lambda journal: journal.model(job, number))

    async def _settled(self, known: _Known) -> None:
        """Wait until a job that is over, or has been told to end, is filed."""
        if known.name in self._running:
            await asyncio.wait([self._running[known.name]])

    def _require_share(self, analyst: str, size: int) -> None:
        """Refuse one job too many, or too large beside those that run."""
        own = [self._known[name] for name in self._running if self._known[name].analyst == analyst]
        held = sum(each.signed_bytes for each in own)
        for most, running, whose in (
            (MAX_JOBS, len(self._running), "of all analysts"),
            (MAX_RUNNING, len(own), "of yours"),
        ):
            if running >= most:
                raise RefusedError(
                    f"{running} jobs {whose} are running; at most {most} may.",
                    "Wait until one is over, or cancel one with `dpspca jobs cancel`.",
                )
        if held + size > MAX_RUNNING_BYTES:
            raise RefusedError(
                f"Your running jobs take {held} bytes as they were signed, and this one {size} more; "
                f"at most {MAX_RUNNING_BYTES} may be held.",
                "Wait until one is over, cancel one with `dpspca jobs cancel`, or name no columns in the job.",
            )

    async def _make_room(self, analyst: str) -> None:
        """Forget the oldest jobs of an analyst that are over, where there are too many."""
        own = {name: each for name, each in self._known.items() if each.analyst == analyst}
        forgotten: list[str] = []
        for name in [name for name in own if name not in self._running]:
            if len(own) < MAX_KEPT and sum(each.signed_bytes for each in own.values()) <= MAX_SIGNED_BYTES:
                break
            forgotten.append(name)
            del own[name], self._known[name]
            self._results.drop(analyst, name)
        if forgotten:
            await self._keeper.do(lambda journal: journal.forget(forgotten))

    async def _states(self, known: _Known) -> AsyncIterator[JobRecord]:
        """Give the job now and after every change; a state that was overtaken is left out."""
        if isinstance(known, _Over):
            yield await self._job(known)
            return
        while True:
            job = known.job
            yield job
            if job.state.is_final:
                return
            while known.job is job:
                await self._changes.of([known.name])

    async def _own(self, request: pb.JobName, context: Context, method: str) -> tuple[PartyName, _Known]:
        """Find a job of the caller's by its name, or by the beginning of it; another's does not exist for it."""
        caller = await self._door.admit(context, method)
        found = [
            each
            for name, each in self._known.items()
            if request.job and name.startswith(request.job) and each.analyst == caller.uri
        ]
        if len(found) != 1:
            raise RefusedError("Several jobs of yours begin like this.", _NO_JOB[1]) if found else _NoJobError(*_NO_JOB)
        return caller, found[0]


def _looked_at(work: "asyncio.Future[Found]") -> "asyncio.Future[Found]":
    """Have what is raised looked at: else asyncio logs it, with all that a caller said, where nobody waits for it."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    return work


def _receipts(journal: Journal) -> dict[str, pb.Receipt]:
    try:
        return {name: pb.Receipt.FromString(content) for name, content in journal.receipts().items()}
    except DecodeError:
        raise damaged("a receipt cannot be read") from None


def _require_room(spec: JobSpec, most: int) -> None:
    """Refuse, before anything is paid for it, a job whose components and mean alone are more than is kept."""
    least = 8 * (spec.components + 1) * spec.schema.dimension
    if least > most:
        raise RefusedError(
            f"The model of this job takes {least} bytes, and the coordinator keeps {most} bytes of results.",
            "Ask for fewer components or columns, or its operator to keep more.",
        )


def _without_result(job: JobRecord) -> RefusedError:
    if job.state.is_final:
        return RefusedError(f"The job is {job.state}, and has no result.", "Submit a new job.")
    return RefusedError(f"The job is {job.state}.", "Wait until it is done.")
