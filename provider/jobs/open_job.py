"""A job that is open: its queries are answered one after the other, and its answers leave on a schedule."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from dpspca.common.errors import RefusedError
from dpspca.common.plan import Plan, Step
from dpspca.common.transport import wire
from dpspca.common.trust import JobEnvelope, SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data import Arrivals, DataSet, WaitingRoom, run_in_row_thread
from dpspca.provider.evaluate import MatrixShard, Shard
from dpspca.provider.release import PaidAnswer, Responder, Schedule


@dataclass(slots=True)
class OpenJob:
    """A verified job and all it needs to be answered, one query after the other."""

    signed: SignedJob
    envelope: JobEnvelope
    plan: Plan
    responder: Responder
    schedule: Schedule
    receipt: Callable[[], pb.Receipt | None]
    """Makes what is handed out with an answer, if anything is."""
    ready: Callable[[Step, int], Awaitable[None]]
    """Waits until the rows that a query of so many bytes is about are there, or refuses; it holds no thread and
    nobody's turn."""
    still: Callable[[], None]
    """Refuses if the job is to be believed no longer, or is not allowed any more (``permission.py``)."""
    name_rows: Callable[[], None]
    """Has the ledger know what these rows say, and as which data set they are offered."""
    name: str = field(init=False)
    """What the job is called everywhere."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asking: int = 0
    """How many queries wait for rows or for their turn, or are answered."""

    def __post_init__(self) -> None:
        self.name = self.signed.job_id

    async def answer(
        self, position: int, query: wire.QueryReader, asker: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        """Answer in a thread, with a receipt of the ledger that has the answer, once the rows are there.

        ``asker`` refuses if whoever asked may ask no longer. The answer is stored and given, or its refusal raised, at
        a moment of the schedule. Until then the job answers nothing else, and the ledger has no answer: whoever asked
        may be gone and back on another connection, end the job, or look at the receipts of others, and finds out no
        sooner whether the answer was made.
        """
        self._asking += 1
        try:
            await self.ready(self.plan[position], query.size)
            await self._turn.acquire()
        finally:
            self._asking -= 1
        leaving = asyncio.create_task(self._answered(position, query, asker))
        leaving.add_done_callback(self._done)
        return await asyncio.shield(leaving)

    @property
    def is_busy(self) -> bool:
        """Tell whether an answer is being made, or is held back, or a query waits."""
        return self._turn.locked() or self._asking > 0

    async def _answered(
        self, position: int, query: wire.QueryReader, asker: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        making = run_in_row_thread(self._make, position, query, asker)
        making.add_done_callback(seen)
        made = await self.schedule.delay_result(position, making)
        return await asyncio.to_thread(self._store, made)

    def _make(self, position: int, query: wire.QueryReader, asker: Callable[[], None]) -> PaidAnswer:
        self.still()  # both may have changed while rows, the turn and a thread were waited for
        asker()
        self.name_rows()
        return self.responder.make(position, query.query())

    def _store(self, made: PaidAnswer) -> tuple[memoryview, pb.Receipt | None]:
        return wire.answer_content(self.responder.store(made)), self.receipt()

    def _done(self, leaving: "asyncio.Future[Any]") -> None:
        self._turn.release()
        seen(leaving)


def seen(work: "asyncio.Future[Any]") -> None:
    """Look at what went wrong even if nobody waits for it any more."""
    if not work.cancelled():
        work.exception()


@dataclass(frozen=True, slots=True)
class Wait:
    """Waits for the rows that a query is about where they arrive, before a unit of the budget is touched.

    For as long as the analyst gave for an answer, and no longer than the job is believed. A query about rows that
    are there takes nobody's place among those that wait.
    """

    rows: DataSet
    shard: Shard | MatrixShard
    seconds: int
    still: Callable[[], None]
    room: WaitingRoom

    async def __call__(self, step: Step, size: int) -> None:
        if not isinstance(self.rows, Arrivals) or not isinstance(self.shard, Shard):
            return
        reach = self.shard.reach(step)
        try:
            with nullcontext() if self.rows.count >= reach else self.room.place(size):
                async with asyncio.timeout(self.seconds):
                    await self.rows.until(reach, self.still)
        except TimeoutError:
            what = f"The rows for '{step.name}' were not ready within {self.seconds} seconds."
            raise RefusedError(what, "Give more answer_seconds, or ask about fewer rows.") from None
