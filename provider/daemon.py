"""The daemon beside the data: dials out to the coordinator, holds one stream, answers what signed jobs plan.

It believes the analyst's signature and nothing that the coordinator says: the job is verified here, the plan is worked
out here, and every question goes through ``respond.py``. A lost connection is dialled again, with growing, random
pauses; the same question then gets the same bytes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from secrets import randbelow
from typing import Final

import grpc
import grpc.aio

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.plan import Step
from dpspca.common.privacy.keystream import WordSource
from dpspca.common.question import Extent
from dpspca.common.spec import JobSpec
from dpspca.common.transport import rpc, wire
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.signing import SignedJob, verify
from dpspca.common.transport.trust import RevocationList
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc

from .entropy import SystemEntropy
from .ledger import Ledger, MemoryLedger
from .preparation import CheckedRows
from .respond import Responder
from .shard import Shard, Strategy

SOFTWARE: Final = "dpspca"
HEARTBEAT_SECONDS: Final = 20
"""Between words of the coordinator at most, until it says how often it speaks."""
MISSED: Final = 3
"""Heartbeats without a word after which the coordinator is taken for lost."""
SLOWEST_HEARTBEAT: Final = 300
MOST_COLUMN_LETTERS: Final = 2**18
"""Of the names of a data set's columns; longer lists are not told."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 30.0
MAX_OPEN_JOBS: Final = 64
"""Jobs whose rows are kept ready; further ones are refused until one is over."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _OpenJob:
    """A verified job and all it needs to be answered."""

    spec: JobSpec
    plan: tuple[Step, ...]
    responder: Responder


@dataclass(slots=True)
class _Question:
    """A question whose frames are arriving."""

    name: str
    ask: pb.Ask
    job: _OpenJob
    reader: wire.QuestionReader


@dataclass(slots=True)
class Settings:
    """What a daemon is told at its start. ``words`` makes noise; other than the default is for tests alone."""

    address: str
    identity: Callable[[], Identity]
    revocations: Callable[[], RevocationList]
    clock: Callable[[], datetime]
    data_sets: Mapping[str, CheckedRows]
    ledger: Ledger = field(default_factory=MemoryLedger)
    words: Callable[[], WordSource] = SystemEntropy


class Daemon:
    """One provider."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._jobs: dict[str, _OpenJob] = {}
        self._shards: dict[str, Shard] = {}
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._serve()
            except* grpc.aio.AioRpcError as problems:
                _log.warning("The connection ended: %s", "; ".join(map(_ending, _leaves(problems))))
            except* TimeoutError:
                _log.warning("The connection ended: the coordinator has fallen silent.")
            except* DpspcaError as problems:
                _log.error("No connection: %s", "; ".join(map(str, _leaves(problems))))
            pause = FIRST_PAUSE if self.connected.is_set() else min(2 * pause, LONGEST_PAUSE)
            self.connected.clear()
            # All providers lose a coordinator at once; they should not all come back at once.
            await asyncio.sleep(pause * (0.5 + randbelow(1000) / 1000))

    async def _serve(self) -> None:
        """Hold one connection to its end."""
        outbound: asyncio.Queue[pb.FromProvider] = asyncio.Queue(8)
        await outbound.put(pb.FromProvider(hello=self._greeting()))
        async with rpc.dial(self._settings.address, self._settings.identity()) as channel:
            stream = aiter(pb_grpc.ProviderServiceStub(channel).Connect(_drained(outbound)))
            async with asyncio.TaskGroup() as answers:
                await self._hear(stream, outbound, answers)

    async def _hear(
        self,
        stream: AsyncIterator[pb.ToProvider],
        outbound: "asyncio.Queue[pb.FromProvider]",
        answers: asyncio.TaskGroup,
    ) -> None:
        """Take messages in order. A question's frames follow its announcement; another announcement abandons it."""
        question: _Question | None = None
        patience = MISSED * HEARTBEAT_SECONDS
        while True:
            async with asyncio.timeout(patience):
                message = await anext(stream, None)
            if message is None:
                return
            match message.WhichOneof("message"):
                case "welcome":
                    patience = MISSED * min(max(1, message.welcome.heartbeat_seconds), SLOWEST_HEARTBEAT)
                    self.connected.set()
                    _log.info("Connected to %s.", self._settings.address)
                case "heartbeat" if not outbound.full():
                    outbound.put_nowait(pb.FromProvider(heartbeat=pb.Heartbeat()))
                case "ask":
                    question = await self._begin(message.ask, outbound)
                    if question and message.ask.content:
                        question = await self._take(question, pb.Frame(content=message.ask.content), outbound)
                case "frame" if question:
                    question = await self._take(question, message.frame, outbound)
                case "farewell":
                    self._jobs.pop(message.farewell.job, None)
                case _:
                    pass
            if question and question.reader.complete:
                answers.create_task(self._answer(question, outbound))
                question = None

    def _greeting(self) -> pb.Hello:
        offered = [_offer(name, rows) for name, rows in sorted(self._settings.data_sets.items())]
        return pb.Hello(software=SOFTWARE, data_sets=offered)

    async def _begin(self, ask: pb.Ask, outbound: "asyncio.Queue[pb.FromProvider]") -> "_Question | None":
        """Verify the job, and hold the announcement against its plan, before a frame is kept."""
        try:
            signed = SignedJob.from_bytes(ask.signed_job)
            name = signed.job_id
            job = self._jobs[name] if name in self._jobs else await asyncio.to_thread(self._open, signed)
            return _expect(ask, name, job)
        except DpspcaError as problem:
            await self._refuse(ask, problem, outbound)
            return None

    async def _take(
        self, question: "_Question", frame: pb.Frame, outbound: "asyncio.Queue[pb.FromProvider]"
    ) -> "_Question | None":
        try:
            question.reader.add(frame.sequence, frame.content)
        except DpspcaError as problem:
            await self._refuse(question.ask, problem, outbound)
            return None
        return question

    async def _answer(self, question: "_Question", outbound: "asyncio.Queue[pb.FromProvider]") -> None:
        """Answer or refuse; either way in words that do not depend on a row."""
        position = question.ask.position

        def content() -> bytes:
            return wire.answer_content(question.job.responder.respond(position, question.reader.query()))

        try:
            answer = await asyncio.to_thread(content)
        except DpspcaError as problem:
            await self._refuse(question.ask, problem, outbound)
            return
        _log.info("Answered question %d of %d of job %.12s.", position + 1, len(question.job.plan), question.name)
        for sequence, frame in enumerate(wire.frames(answer)):
            piece = pb.AnswerFrame(job=question.name, position=position, sequence=sequence, content=bytes(frame))
            await outbound.put(pb.FromProvider(answer=piece))

    @staticmethod
    async def _refuse(ask: pb.Ask, problem: DpspcaError, outbound: "asyncio.Queue[pb.FromProvider]") -> None:
        job = _job_name(ask)
        _log.warning("Refused question %d of job %.12s: %s", ask.position + 1, job, problem)
        refusal = pb.Refusal(
            job=job, position=ask.position, code=problem.code, what=problem.what, remedy=problem.remedy
        )
        await outbound.put(pb.FromProvider(refusal=refusal))

    def _open(self, signed: SignedJob) -> _OpenJob:
        """Verify a job, once, and make the rows ready for it."""
        settings = self._settings
        me = settings.identity()
        envelope, analyst = verify(
            signed, me.authority_pem, me=me.name, now=settings.clock(), revoked=settings.revocations()
        )
        rows = settings.data_sets.get(envelope.dataset)
        if rows is None:
            raise RefusedError("There is no such data set here.", "Ask for one that this provider offers.")
        if len(self._jobs) >= MAX_OPEN_JOBS:
            raise RefusedError("Too many jobs are open.", "Ask again when one is over.")
        spec = JobSpec.from_json(envelope.spec)
        plan = catalogue.plan(spec)
        shard = self._shard(envelope.dataset, rows, spec)
        responder = Responder(spec, shard, settings.ledger, settings.words(), job=signed.job_id)
        opened = self._jobs[signed.job_id] = _OpenJob(spec, plan, responder)
        _log.info(
            "Opened job %.12s of %s over '%s': epsilon %g, delta %g.",
            signed.job_id,
            analyst.name,
            envelope.dataset,
            spec.budget.epsilon,
            spec.budget.delta,
        )
        return opened

    def _shard(self, name: str, rows: CheckedRows, spec: JobSpec) -> Shard:
        """Make rows ready under a job's bounds, or find them so: what the last job used is kept for the next."""
        kept = self._shards.get(name)
        if kept is None or not kept.fits(spec):
            kept = Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=Strategy.SETTLE)
            self._shards[name] = kept
        return kept


def _expect(ask: pb.Ask, name: str, job: _OpenJob) -> _Question:
    """Hold an announcement against the job's plan."""
    if ask.position >= len(job.plan):
        raise RefusedError(f"This job has {len(job.plan)} questions.", "Sign a new job.")
    extent = Extent(ask.dimension, ask.columns, ask.nonzero_rows)
    announced = wire.Announcement(ask.kind, extent, ask.centred, ask.threshold, ask.power)
    return _Question(name, ask, job, wire.QuestionReader(announced, job.plan[ask.position]))


def _offer(name: str, rows: CheckedRows) -> pb.DataSet:
    letters = sum(map(len, rows.names or ()))
    columns = rows.names if rows.names and letters <= MOST_COLUMN_LETTERS else ()
    return pb.DataSet(name=name, dimension=rows.dimension, columns=columns)


def _leaves(problems: BaseExceptionGroup[Exception]) -> Iterator[BaseException]:
    """List what a group, and the groups in it, hold."""
    for each in problems.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


def _ending(problem: BaseException) -> str:
    """Say in a line how a call ended."""
    return f"{problem.code().name}, {problem.details()}" if isinstance(problem, grpc.aio.AioRpcError) else str(problem)


def _job_name(ask: pb.Ask) -> str:
    """Name the job that a question claims to be of, if it can be read at all."""
    try:
        return SignedJob.from_bytes(ask.signed_job).job_id
    except DpspcaError:
        return ""


async def _drained(queue: "asyncio.Queue[pb.FromProvider]") -> AsyncIterator[pb.FromProvider]:
    while True:
        yield await queue.get()
