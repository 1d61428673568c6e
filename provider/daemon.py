"""The daemon beside the data: dials out to the coordinator, holds one stream, answers what signed jobs plan.

It believes the analyst's signature and nothing that the coordinator says: the job is verified here, the plan is worked
out here, and every question goes through ``respond.py``. A lost connection is dialled again, with growing, random
pauses; the same question then gets the same bytes.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
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
from dpspca.common.queries import CovarianceProduct
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
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                await self._serve()
            except* grpc.aio.AioRpcError as problems:
                _log.warning("connection ended: %s", "; ".join(str(each) for each in problems.exceptions))
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
        """Take messages in order: a question's frames follow its announcement with nothing between them."""
        async for message in stream:
            match message.WhichOneof("message"):
                case "welcome":
                    self.connected.set()
                case "ask":
                    frames = [await anext(stream) for _ in range(self._frames_of(message.ask))]
                    answers.create_task(self._answer(message.ask, frames, outbound))
                case "farewell":
                    self._jobs.pop(message.farewell.job, None)
                case _:
                    pass

    def _greeting(self) -> pb.Hello:
        offered = [
            pb.DataSet(name=name, dimension=rows.dimension) for name, rows in sorted(self._settings.data_sets.items())
        ]
        return pb.Hello(software=SOFTWARE, data_sets=offered)

    @staticmethod
    def _frames_of(ask: pb.Ask) -> int:
        """Bound what is read before anything is believed, by what was announced; the plan decides after that."""
        return min(ask.frames, wire.frame_count(_announced(ask).size), MAX_FRAMES)

    async def _answer(
        self, ask: pb.Ask, messages: list[pb.ToProvider], outbound: "asyncio.Queue[pb.FromProvider]"
    ) -> None:
        """Answer or refuse; either way in words that do not depend on a row."""
        job = SignedJob.from_bytes(ask.signed_job).job_id if ask.signed_job else ""
        try:
            answer = await asyncio.to_thread(self._respond, ask, messages)
        except DpspcaError as problem:
            _log.warning("refused question %d of job %.12s: %s", ask.position + 1, job, problem)
            refusal = pb.Refusal(job=job, position=ask.position, code=problem.code, what=problem.what)
            await outbound.put(pb.FromProvider(refusal=refusal))
            return
        for sequence, frame in enumerate(wire.frames(wire.answer_content(answer))):
            piece = pb.AnswerFrame(job=job, position=ask.position, sequence=sequence, content=bytes(frame))
            await outbound.put(pb.FromProvider(answer=piece))

    def _respond(self, ask: pb.Ask, messages: list[pb.ToProvider]) -> wire.Integers:
        signed = SignedJob.from_bytes(ask.signed_job)
        job = self._jobs.get(signed.job_id) or self._open(signed)
        if ask.position >= len(job.plan):
            raise RefusedError(f"This job has {len(job.plan)} questions.", "Sign a new job.")
        reader = wire.QuestionReader(_announced(ask), job.plan[ask.position])
        for message in messages:
            reader.add(message.frame.sequence, message.frame.content)
        return job.responder.respond(ask.position, reader.query())

    def _open(self, signed: SignedJob) -> _OpenJob:
        """Verify a job, once, and make the rows ready for it."""
        settings = self._settings
        me = settings.identity()
        envelope, _ = verify(signed, me.authority_pem, me=me.name, now=settings.clock(), revoked=settings.revocations())
        rows = settings.data_sets.get(envelope.dataset)
        if rows is None:
            raise RefusedError("There is no such data set here.", "Ask for one that this provider offers.")
        if len(self._jobs) >= MAX_OPEN_JOBS:
            raise RefusedError("Too many jobs are open.", "Ask again when one is over.")
        spec = JobSpec.from_json(envelope.spec)
        plan = catalogue.plan(spec)
        products = sum(step.question is CovarianceProduct for step in plan)
        shard = Shard(rows, spec.norm_bound, mean_bound=spec.mean_bound, strategy=Strategy.for_rounds(rows, products))
        responder = Responder(spec, shard, settings.ledger, settings.words(), job=signed.job_id)
        opened = self._jobs[signed.job_id] = _OpenJob(spec, plan, responder)
        return opened


MAX_FRAMES: Final = 2**12
"""Four gigabytes: a basis of 2^24 rows and 30 columns."""


def _announced(ask: pb.Ask) -> wire.Announcement:
    extent = Extent(ask.dimension, ask.columns, ask.nonzero_rows)
    return wire.Announcement(ask.kind, extent, ask.centred, ask.threshold, ask.power)


async def _drained(queue: "asyncio.Queue[pb.FromProvider]") -> AsyncIterator[pb.FromProvider]:
    while True:
        yield await queue.get()
