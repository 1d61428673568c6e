"""The service for analysts: it accepts signed jobs, and reports each job to its own analyst only.

A job's name is the digest of the signed bytes. For other analysts the job does not exist. When a job has ended, the
journal keeps the signed job and its state, up to a limit for each analyst, and the service reads them on request. The
result is kept while ``job.Results`` has room for it. Everything is in the journal before an analyst can see it, so a
restart knows the same jobs, continues those that have not ended, and has the same results.
"""

import asyncio
import logging
from collections import Counter
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
from dpspca.common.job import JobSpec
from dpspca.common.log_context import about
from dpspca.common.names import PartyName
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity, SignedJob, verify
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.job_states import Event, JobRecord, Results, State
from dpspca.server.jobs import JobRunner, NameEvents, Roster
from dpspca.server.journal import Journal, JournalError, JournalThread, RecordedJob, StoppingError, damaged_error

from .messages import as_message, no_result_error, require_storable
from .statement_relay import statements

Value = TypeVar("Value")
Context = grpc.aio.ServicerContext[Any, Any]

MAX_JOBS: Final = 1000
"""Jobs that run at once."""
MAX_RUNNING: Final = 100
"""Jobs of one analyst that run at once."""
MAX_RUNNING_BYTES: Final = 2**25
"""Bytes of one analyst's signed jobs that run at once; they stay in memory while they run."""
MAX_KEPT: Final = 250
"""Jobs that are kept for one analyst; beyond this, the oldest job that has ended is forgotten."""
MAX_SIGNED_BYTES: Final = 2**26
"""Bytes of signed jobs that are kept for one analyst; beyond this, the oldest job that has ended is forgotten."""
RESULT_BYTES: Final = 2**30
"""Bytes of results that a coordinator keeps by default."""
VERIFY_THREADS: Final = 4
"""Jobs verified at once: two each of two analysts. Running jobs use other threads."""
MAX_WATCHES: Final = 250
"""Streams on which one analyst watches jobs at once."""
SHOWN_JOBS: Final = 5
"""Jobs that are listed when a name is ambiguous."""

_NO_JOB: Final = ("You have no such job.", "See your jobs with `dpspca jobs list`.")

_log = logging.getLogger(__name__)


class _NoJobError(RefusedError):
    """The analyst has no job with this name, or no longer."""


@dataclass(frozen=True, slots=True)
class _EndedJob:
    """The facts that are kept in memory about a job that has ended. The journal has the rest."""

    name: str
    analyst: str
    signed_bytes: int

    @classmethod
    def of(cls, job: JobRecord, signed_bytes: int) -> Self:
        """Return the entry of a job; all entries of an analyst share one string for the name."""
        return cls(job.name, intern(job.analyst), signed_bytes)


_Known: TypeAlias = JobRunner | _EndedJob


class AnalystService(pb_grpc.AnalystServiceServicer):
    """Accepts signed jobs, and reports each job to its own analyst only."""

    def __init__(
        self,
        door: rpc.CallerCheck,
        roster: Roster,
        journal: JournalThread,
        identity: Callable[[], Identity],
        result_bytes: int = RESULT_BYTES,
    ) -> None:
        self._door = door
        self._roster = roster
        self._journal = journal
        self._identity = identity
        self._known: dict[str, _Known] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping = False
        self._accepting = asyncio.Lock()
        self._verifiers = ThreadPoolExecutor(VERIFY_THREADS, "verify")
        self.results = Results(result_bytes)
        self._watches = rpc.CallLimit(MAX_WATCHES, f"You already watch {MAX_WATCHES} jobs.")
        self._changes = NameEvents()
        self.ended: Counter[str] = Counter()
        """Jobs that ended since the start, by state."""

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.Job:  # noqa: N802
        """Start a job. The same signed bytes are the same job."""
        analyst = await self._door.admit(context, "Submit")
        runner = await self._verify_off_loop(request.signed_job, analyst.uri)
        # Shielded: if the analyst disconnects now, no job may be in the journal without running.
        return as_message(await asyncio.shield(_with_exception_read(asyncio.ensure_future(self._accept(runner)))))

    async def Watch(self, request: pb.JobName, context: Context) -> AsyncIterator[pb.Job]:  # noqa: N802
        """Send the job now and after every change, until it has ended."""
        caller, known = await self._find_own(request, context, "Watch")
        async with self._watches.counted(caller, context):
            async for job in self._states(known):
                self._door.identify(context, "Watch")  # the certificate may have been revoked
                yield as_message(job)

    async def List(self, request: pb.ListRequest, context: Context) -> AsyncIterator[pb.Job]:  # noqa: N802
        """Send an analyst's jobs one by one, because one message may be too small for all."""
        analyst = await self._door.admit(context, "List")
        own = [each for each in self._known.values() if each.analyst == analyst.uri]
        for known in own:
            with suppress(_NoJobError):  # it may have been forgotten
                yield as_message(await self._job(known))

    async def Get(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """Return one job."""
        _, known = await self._find_own(request, context, "Get")
        return as_message(await self._job(known), await self._signed(known))

    async def Cancel(self, request: pb.JobName, context: Context) -> pb.Job:  # noqa: N802
        """Cancel a job at once. A job that has ended stays as it is."""
        _, known = await self._find_own(request, context, "Cancel")
        if isinstance(known, JobRunner):
            known.cancel()
        await self._wait_until_recorded(known)
        return as_message(await self._job(known))

    async def Result(self, request: pb.JobName, context: Context) -> AsyncIterator[pb.Frame]:  # noqa: N802
        """Send a finished job's model while it is kept. A slow reader does not delay its deletion."""
        caller, known = await self._find_own(request, context, "Result")
        job = await self._job(known)
        if job.state is not State.DONE:
            raise no_result_error(job)
        await self._wait_until_recorded(known)
        for sequence in count():
            piece = await self._piece(job.name, sequence)
            self.results.require(caller.uri, job.name)  # else a deleted model would look complete
            if not piece:
                return
            yield pb.Frame(sequence=sequence, content=piece)

    async def DataSets(  # noqa: N802
        self, request: pb.DataSetsRequest, context: Context
    ) -> AsyncIterator[pb.Offer]:
        """Send which data sets the connected providers offer."""
        await self._door.admit(context, "DataSets")
        for link in self._roster.links:
            for offered in link.offered():
                yield pb.Offer(provider=link.name, data_set=offered)

    async def Statements(  # noqa: N802
        self, request: pb.StatementsRequest, context: Context
    ) -> AsyncIterator[pb.Statement]:
        """Ask providers to state something, and send what each replies."""
        caller = await self._door.admit(context, "Statements")
        async for statement in statements(self._door, self._roster, caller, request):
            yield statement

    def running_states(self) -> "Counter[str]":
        """Count the jobs that have not ended, by state."""
        running = (self._known[name] for name in self._running)
        return Counter(each.job.state.value for each in running if isinstance(each, JobRunner))

    async def resume(self) -> None:
        """Load receipts and jobs from the journal, and continue the jobs that have not ended."""
        receipts, recorded = await self._journal.run(lambda journal: (_receipts(journal), journal.jobs()))
        self._roster.receipts |= receipts
        for each in recorded:
            if each.job.state.is_final:
                self._known[each.job.name] = _EndedJob.of(each.job, len(each.signed))
                await self._keep_result(each.job, each.model_bytes)
            else:
                await self._resume_job(each)

    async def final_state(self, job: str, provider: str) -> str | None:
        """Return the final state of a job that has ended, for a provider that took part in it."""
        known = self._known.get(job)
        if known is None:
            return None
        try:
            found = await self._job(known)
        except (JournalError, _NoJobError):
            return None  # the provider asks again when it reconnects
        return found.state.value if found.state.is_final and provider in found.participants else None

    async def _job(self, known: _Known) -> JobRecord:
        """Return a job's current state."""
        if isinstance(known, JobRunner):
            return known.job
        found = await self._journal.run(lambda journal: journal.job(known.name))
        if found is None:
            raise _NoJobError(*_NO_JOB)
        return found

    async def _signed(self, known: _Known) -> bytes:
        if isinstance(known, JobRunner):
            return known.signed
        return await self._journal.run(lambda journal: journal.signed(known.name))

    async def stop(self) -> None:
        """Stop running jobs without ending them; they continue after ``resume``."""
        self._stopping = True
        self._verifiers.shutdown(wait=False, cancel_futures=True)
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _verify_off_loop(self, content: bytes, caller: str) -> JobRunner:
        """Verify and plan a job in a thread. A caller that disconnects keeps its place until this is done."""
        work = _with_exception_read(
            asyncio.get_running_loop().run_in_executor(self._verifiers, self._verify, content, caller)
        )
        try:
            return await asyncio.shield(work)
        finally:
            await asyncio.wait([work])
            del work  # else its exception and this frame would refer to each other

    def _verify(self, content: bytes, caller: str) -> JobRunner:
        signed = SignedJob.from_bytes(content)
        me, revoked = rpc.read_own(self._identity), rpc.read_own(self._door.revocations)
        door = self._door
        envelope, analyst = verify(signed, me.authority_pem, me=me.name, now=door.clock(), revoked=revoked)
        if analyst.uri != caller:
            raise RefusedError(
                f"The job was signed by {analyst.uri}, but {caller} submits it.",
                "Submit it with the identity that signed it.",
            )
        require_storable(JobSpec.from_json(envelope.spec), self.results.max_bytes)

        def notify(job: JobRecord) -> None:
            self._changes.notify(job.name)

        return JobRunner(signed, envelope, analyst, self._roster, self._journal, door.clock, notify)

    async def _accept(self, runner: JobRunner) -> JobRecord:
        """Record and start a job, unless it is already known."""
        job = runner.job
        async with self._accepting:
            if job.name not in self._known:
                self._require_capacity(job.analyst, runner.signed_bytes)
                await self._forget_old_jobs(job.analyst)
                await self._journal.run(lambda journal: journal.accept(job, runner.signed))
                self._roster.events("submitted", job=job.name, analyst=job.analyst, queries=job.queries, **runner.asked)
                if self._stopping:
                    raise StoppingError("The coordinator is stopping.", "The job continues after it has restarted.")
                self._start(runner)
        return await self._job(self._known[job.name])

    def _start(self, runner: JobRunner) -> None:
        job = runner.job
        audience, who = [*job.participants], about(job.analyst)
        _log.info(
            "Job %.12s of %s about '%s' starts with %s.", job.name, job.analyst, job.data_set, audience, extra=who
        )
        self._known[job.name] = runner
        self._running[job.name] = asyncio.create_task(self._run(runner))

    async def _resume_job(self, recorded: RecordedJob) -> None:
        """Continue a job after a restart. It fails if its signature is no longer valid or it has expired."""
        job = recorded.job.with_asked_at_least(recorded.queries)
        try:
            runner = await self._verify_off_loop(recorded.signed, job.analyst)
        except DpspcaError as problem:
            ended = job.after(Event.FAIL, f"After a restart: {problem}", now=self._door.clock().timestamp())
            _log.warning("Job %.12s cannot continue: %s", job.name, problem, extra=about(job.analyst))
            await self._journal.run(lambda journal: journal.end(ended, None))
            self._roster.events("ended", job=job.name, state=str(ended.state), reason=ended.reason or None)
            self._known[job.name] = _EndedJob.of(ended, len(recorded.signed))
            return
        runner.resume(job, recorded.queries)
        number, who = recorded.queries or 1, about(job.analyst)
        _log.info("Job %.12s continues at query %d of %d.", job.name, number, job.queries, extra=who)
        self._roster.events("continued", job=job.name, query=number)
        self._start(runner)

    async def _run(self, runner: JobRunner) -> None:
        """Run a job to its end, then keep only its entry in memory."""
        name = runner.job.name
        try:
            await runner.run()
            self.ended[runner.job.state.value] += 1
            self._known[name] = _EndedJob.of(runner.job, runner.signed_bytes)
            await self._keep_result(runner.job, runner.model_bytes)
        except JournalError:
            pass  # the coordinator notices the failure and stops
        finally:
            del self._running[name]

    async def _keep_result(self, job: JobRecord, size: int) -> None:
        """Keep a model, if there is one, and delete those for which there is no room."""
        dropped = self.results.keep(job.analyst, job.name, size) if size else []
        if dropped:
            await self._journal.run(lambda journal: journal.drop_models(dropped))

    async def _piece(self, job: str, number: int) -> bytes:
        return await self._journal.run(lambda journal: journal.model(job, number))

    async def _wait_until_recorded(self, known: _Known) -> None:
        """Wait until the end of a job that has ended or was cancelled is recorded."""
        if known.name in self._running:
            await asyncio.wait([self._running[known.name]])

    def _require_capacity(self, analyst: str, size: int) -> None:
        """Refuse a job if too many jobs, or too many bytes of them, are running."""
        own = [self._known[name] for name in self._running if self._known[name].analyst == analyst]
        held = sum(each.signed_bytes for each in own)
        for most, running, whose in (
            (MAX_JOBS, len(self._running), "of all analysts"),
            (MAX_RUNNING, len(own), "of yours"),
        ):
            if running >= most:
                raise RefusedError(
                    f"{running} jobs {whose} are running; at most {most} may run at once.",
                    "Wait until one has ended, or cancel one with `dpspca jobs cancel`.",
                )
        if held + size > MAX_RUNNING_BYTES:
            raise RefusedError(
                f"Your running jobs take {held} bytes as signed, and this one takes {size}; "
                f"at most {MAX_RUNNING_BYTES} bytes may run at once.",
                "Wait until one has ended, cancel one with `dpspca jobs cancel`, or leave out the column names.",
            )

    async def _forget_old_jobs(self, analyst: str) -> None:
        """Forget an analyst's oldest jobs that have ended, if there are too many."""
        own = {name: each for name, each in self._known.items() if each.analyst == analyst}
        forgotten: list[str] = []
        for name in [name for name in own if name not in self._running]:
            if len(own) < MAX_KEPT and sum(each.signed_bytes for each in own.values()) <= MAX_SIGNED_BYTES:
                break
            forgotten.append(name)
            del own[name], self._known[name]
            self.results.drop(analyst, name)
        if forgotten:
            await self._journal.run(lambda journal: journal.forget(forgotten))

    async def _states(self, known: _Known) -> AsyncIterator[JobRecord]:
        """Yield the job now and after every change; skip states that a newer one replaced."""
        if isinstance(known, _EndedJob):
            yield await self._job(known)
            return
        while True:
            job = known.job
            yield job
            if job.state.is_final:
                return
            while known.job is job:
                await self._changes.wait_for([known.name])

    async def _find_own(self, request: pb.JobName, context: Context, method: str) -> tuple[PartyName, _Known]:
        """Find one of the caller's own jobs by its name or the beginning of it."""
        caller = await self._door.admit(context, method)
        found = [
            each
            for name, each in self._known.items()
            if request.job and name.startswith(request.job) and each.analyst == caller.uri
        ]
        if not found:
            raise _NoJobError(*_NO_JOB)
        if len(found) > 1:
            shown = ", ".join(each.name[:12] for each in found[:SHOWN_JOBS])
            raise RefusedError(
                f"{len(found)} of your jobs begin with '{request.job}': {shown}.", "Use more characters of the name."
            )
        return caller, found[0]


def _with_exception_read(work: "asyncio.Future[Value]") -> "asyncio.Future[Value]":
    """Read the exception of ``work``: asyncio would log an unread one, with the caller's data in it."""
    work.add_done_callback(lambda done: done.cancelled() or done.exception())
    return work


def _receipts(journal: Journal) -> dict[str, pb.Receipt]:
    try:
        return {name: pb.Receipt.FromString(content) for name, content in journal.receipts().items()}
    except DecodeError:
        raise damaged_error("a receipt cannot be read") from None
