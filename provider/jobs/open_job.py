"""An open job: its queries are answered one after the other, and its answers leave on a schedule."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from dpspca.common.errors import RowsNotReadyError
from dpspca.common.plan import Plan, Step
from dpspca.common.transport import wire
from dpspca.common.trust import JobEnvelope, SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data import Arrivals, DataSet, WaitingQueries, run_in_row_thread
from dpspca.provider.evaluate import MatrixShard, Shard
from dpspca.provider.release import PaidAnswer, Responder, Schedule


@dataclass(slots=True)
class OpenJob:
    """A verified job, and everything that answering its queries needs."""

    signed: SignedJob
    envelope: JobEnvelope
    plan: Plan
    responder: Responder
    schedule: Schedule
    receipt: Callable[[], pb.Receipt | None]
    """Makes the receipt that is sent with an answer, if there is one."""
    wait_for_rows: Callable[[Step, int], Awaitable[None]]
    """Waits until the rows for a query of this many bytes have arrived, or refuses. Takes no thread and no turn."""
    require_permission: Callable[[], None]
    """Refuses if the job is no longer valid or no longer allowed (``permission.py``)."""
    name_rows: Callable[[], None]
    """Records the rows' fingerprints and their data set in the ledger."""
    used: Callable[[], None] = lambda: None
    """Notes that a query was evaluated (``last_prepared.py``)."""
    name: str = field(init=False)
    """The job's identifier."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asking: int = 0
    """How many queries wait for rows or for their turn."""

    def __post_init__(self) -> None:
        self.name = self.signed.job_id

    async def answer(
        self, position: int, query: wire.QueryReader, require_requester: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        """Answer a query in a thread once its rows are there. Return it with a receipt of the ledger that stores it.

        ``require_requester`` refuses if the requester has lost its authority. The answer is stored and returned, or the
        refusal raised, at a moment of the schedule. Until then the job answers nothing else, and the ledger has no
        answer. So a requester that reconnects, ends the job or reads others' receipts does not learn sooner whether the
        answer was made.
        """
        self._asking += 1
        try:
            await self.wait_for_rows(self.plan[position], query.size)
            await self._turn.acquire()
        finally:
            self._asking -= 1
        leaving = asyncio.create_task(self._answer_on_schedule(position, query, require_requester))
        leaving.add_done_callback(self._done)
        return await asyncio.shield(leaving)

    @property
    def is_busy(self) -> bool:
        """Tell whether an answer is being made or waits to leave, or a query waits."""
        return self._turn.locked() or self._asking > 0

    async def _answer_on_schedule(
        self, position: int, query: wire.QueryReader, require_requester: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        making = run_in_row_thread(self._make, position, query, require_requester)
        making.add_done_callback(retrieve_exception)
        made = await self.schedule.delay_result(position, making)
        return await asyncio.to_thread(self._store, made)

    def _make(self, position: int, query: wire.QueryReader, require_requester: Callable[[], None]) -> PaidAnswer:
        self.require_permission()  # both may have changed during the wait for rows, the turn and a thread
        require_requester()
        self.name_rows()
        try:
            return self.responder.make(position, query.query())
        finally:
            self.used()

    def _store(self, made: PaidAnswer) -> tuple[memoryview, pb.Receipt | None]:
        return wire.answer_content(self.responder.store(made)), self.receipt()

    def _done(self, leaving: "asyncio.Future[Any]") -> None:
        self._turn.release()
        retrieve_exception(leaving)


def retrieve_exception(work: "asyncio.Future[Any]") -> None:
    """Retrieve the error of a finished task, so that asyncio does not report it if no other task waits for it."""
    if not work.cancelled():
        work.exception()


@dataclass(frozen=True, slots=True)
class RowWait:
    """Waits for the rows of a query, if they arrive over time, before anything of the budget is spent.

    It waits as long as the analyst allowed for an answer, and no longer than the job is valid. A query whose rows are
    already there takes no place among the waiting ones.
    """

    rows: DataSet
    shard: Shard | MatrixShard
    seconds: int
    require_permission: Callable[[], None]
    room: WaitingQueries

    async def __call__(self, step: Step, size: int) -> None:
        if not isinstance(self.rows, Arrivals) or not isinstance(self.shard, Shard):
            return
        reach = self.shard.reach(step)
        try:
            with nullcontext() if self.rows.count >= reach else self.room.place(size):
                async with asyncio.timeout(self.seconds):
                    await self.rows.wait_for(reach, self.require_permission)
        except TimeoutError:
            what = f"The rows for '{step.name}' did not arrive within {self.seconds} seconds."
            raise RowsNotReadyError(what, "Set answer_seconds higher, or ask about fewer rows.") from None
