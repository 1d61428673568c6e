"""An open job: its queries are answered one after the other, and its answers leave on a schedule."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from dpspca.common.errors import AskAgainError, JobEndedError, RowsNotReadyError
from dpspca.common.plan import Plan, Step
from dpspca.common.transport import wire
from dpspca.common.trust import JobEnvelope, SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data import Arrivals, DataSet, WaitingQueries
from dpspca.provider.evaluate import MatrixShard, Shard
from dpspca.provider.release import PaidAnswer, PaidQuery, Responder, Schedule

from .row_places import RowPlaces


class RetiredError(AskAgainError):
    """A job was forgotten between two messages. It has to be opened again."""


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
    """Notes that a query is answered from rows now (``last_prepared.py``)."""
    done: Callable[..., None] = lambda **_: None
    """Called when the answer leaves, or failed. ``is_over`` says whether the job has ended."""
    places: RowPlaces = field(default_factory=RowPlaces)
    """Where answers are made."""
    memory_of: Callable[[Step], int] = lambda _: 0
    """Returns how many bytes an answer takes while it is made."""
    name: str = field(init=False)
    """The job's identifier."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asking: int = 0
    """How many queries wait for rows or for their turn."""
    _paid: tuple[PaidQuery, Callable[[], None]] | None = None
    """The query that waits for a place, and the check of its requester."""
    _withdraw: Callable[[], object] | None = None
    """Removes that query from those that wait. Callable from any thread."""
    _retiring: Lock = field(default_factory=Lock)
    _is_retired: bool = False

    def __post_init__(self) -> None:
        self.name = self.signed.job_id

    async def answer(
        self, position: int, query: wire.QueryReader, require_requester: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        """Answer a query in a thread once its rows are there. Return it with a receipt of the ledger that stores it.

        ``require_requester`` refuses if the requester has lost its authority. The answer is stored and returned, or the
        refusal raised, at a moment of the schedule. Until then the job answers nothing else, and the ledger has no
        answer. So a requester that reconnects, ends the job or reads others' receipts does not learn sooner whether the
        answer was made. A job that was forgotten in the meantime answers nothing: open it again.
        """
        with self._retiring:
            is_retired = self._is_retired
            self._asking += not is_retired
        if is_retired:
            self.require_permission()
            raise RetiredError("The job was forgotten before its query arrived.", "Ask again.")
        try:
            await self.wait_for_rows(self.plan[position], query.size)
            await self._turn.acquire()
        finally:
            self._asking -= 1
        leaving = asyncio.create_task(self._answer_on_schedule(position, query, require_requester))
        leaving.add_done_callback(self._done)
        return await asyncio.shield(leaving)

    def retire(self) -> bool:
        """Let the job be forgotten, unless it is busy. Once it is forgotten, it answers nothing.

        If a busy job were opened again, it would make the same answer once more, and so show twice how long that takes.
        """
        with self._retiring:
            self._is_retired = not self.is_busy
            return self._is_retired

    @property
    def is_busy(self) -> bool:
        """Tell whether a query waits, or an answer is being made or waits to leave."""
        return self._asking > 0 or self._turn.locked()  # in this order: a query has its turn before it stops asking

    def stop(self) -> None:
        """Answer nothing from now on, because the job is over. A query that waits for a place is dropped."""
        with self._retiring:
            self._is_retired, self._paid = True, None
            if self._withdraw:
                self._withdraw()

    async def _answer_on_schedule(
        self, position: int, query: wire.QueryReader, require_requester: Callable[[], None]
    ) -> tuple[memoryview, pb.Receipt | None]:
        """Pay for an answer, and make it in a place for work on rows. What needs no such work waits for none."""
        begun = asyncio.get_running_loop().time()
        paying: asyncio.Task[Any] = asyncio.create_task(
            asyncio.to_thread(self._pay, position, query, require_requester)
        )
        await asyncio.wait([paying])
        asked = None if paying.exception() else paying.result()
        if isinstance(asked, PaidQuery):
            with self._retiring:
                self._paid = None if self._is_retired else (asked, require_requester)
            query.drop()  # so that nothing holds the content of a query whose job ends
            del asked, paying
            made = await self._make_in_place(position, begun)
        else:
            made = await self.schedule.delay_result(paying, position, begun)
        return await asyncio.to_thread(self._store, made)

    async def _make_in_place(self, position: int, begun: float) -> PaidAnswer:
        """Make the answer that was paid for, and keep the place until it leaves. Its schedule begins with the place."""
        async with self._taken_place(self.plan[position]) as at_once:
            self.used()
            try:
                making = self.places.start(self._evaluate)
                making.add_done_callback(retrieve_exception)
                return await self.schedule.delay_result(making, position, begun if at_once else None)
            finally:
                # When the answer leaves: what is freed when it is made would show that to the next query.
                self.done(is_over=self._is_retired)

    @asynccontextmanager
    async def _taken_place(self, step: Step) -> AsyncIterator[bool]:
        """Wait for a place, unless the job ends, and keep it. Tell whether it was there at once."""
        loop = asyncio.get_running_loop()
        request = self.places.ask(self.envelope.analyst, self.memory_of(step))
        with self._retiring:
            self._withdraw = lambda: loop.call_soon_threadsafe(request.withdraw, _job_ended())
            if self._paid is None:
                request.withdraw(_job_ended())
        try:
            async with self.places.taken(request):
                if self._paid is None:
                    raise _job_ended()
                yield request.at_once
        finally:
            self._withdraw = None

    def _pay(
        self, position: int, query: wire.QueryReader, require_requester: Callable[[], None]
    ) -> PaidQuery | PaidAnswer:
        self._require_both(require_requester)
        self.name_rows()
        return self.responder.pay(position, query.query())

    def _require_both(self, require_requester: Callable[[], None]) -> None:
        """Refuse if the job is no longer allowed, or its requester has lost its authority, since the last wait."""
        self.require_permission()
        require_requester()

    def _evaluate(self) -> PaidAnswer:
        with self._retiring:
            paid, self._paid = self._paid, None
        if paid is None:
            raise _job_ended()
        asked, require_requester = paid
        del paid
        self._require_both(require_requester)
        return self.responder.evaluate(asked)

    def _store(self, made: PaidAnswer) -> tuple[memoryview, pb.Receipt | None]:
        return wire.answer_content(self.responder.store(made)), self.receipt()

    def _done(self, leaving: "asyncio.Future[Any]") -> None:
        self._turn.release()
        retrieve_exception(leaving)


def _job_ended() -> JobEndedError:
    return JobEndedError("The job ended before this query was evaluated.", "Sign a new job.")


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
    analyst: str
    seconds: int
    require_permission: Callable[[], None]
    room: WaitingQueries

    async def __call__(self, step: Step, size: int) -> None:
        if not isinstance(self.rows, Arrivals) or not isinstance(self.shard, Shard):
            return
        reach = self.shard.reach(step)
        try:
            with nullcontext() if self.rows.count >= reach else self.room.place(self.analyst, size):
                async with asyncio.timeout(self.seconds):
                    await self.rows.wait_for(reach, self.require_permission)
        except TimeoutError:
            what = f"The rows for '{step.name}' did not arrive within {self.seconds} seconds."
            raise RowsNotReadyError(what, "Set answer_seconds higher, or ask about fewer rows.") from None
