"""Who is connected, and one link to each: queries go out over it, answers come back into a sum."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dpspca.common.errors import DpspcaError, InvalidAnswerError, RefusedError
from dpspca.common.spec import Schema
from dpspca.common.transport import AnswerReader
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .news import News

QUEUE = 8
"""Messages that wait for one provider's connection: eight frames, so that a stalled one holds a few megabytes."""
ADMISSION = -1
"""Where a query has its position, for what is asked before all queries."""

MOST_LEDGERS = 2
"""Of one provider of which others may bear witness."""
LONGEST_REASON = 300
"""Letters of a provider's reason that are passed on."""


class ProviderLostError(DpspcaError):
    """The connection ended before the answer; it may come back."""

    code = "provider-lost"


class ProviderRefusedError(RefusedError):
    """The provider will not answer, and said why."""

    code = "provider-refused"


@dataclass(slots=True)
class _Pending:
    reader: AnswerReader | None
    """What takes an answer in; None where there is nothing in it."""
    done: asyncio.Future[None]


class Link:
    """One provider's connection. Its messages are read and written by ``streams.py``."""

    def __init__(self, name: str, data_sets: Mapping[str, Schema]) -> None:
        self.name = name
        self.data_sets = dict(data_sets)
        self.ended_by: DpspcaError | None = None
        self._outbound: asyncio.Queue[pb.ToProvider | None] = asyncio.Queue(QUEUE)
        self._turn = asyncio.Lock()
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._receipts_due = 0
        self.receipted = 0
        """Entries in the newest receipt that came on this connection."""
        self.closed = False
        self.heard()

    def heard(self) -> None:
        """Note a sign of life."""
        self.heard_at = asyncio.get_running_loop().time()

    async def next_message(self, patience: float) -> pb.ToProvider | None:
        """Wait for something to send; None where nothing came in time, or the link was closed."""
        reminder = asyncio.get_running_loop().call_later(patience, self._rouse)
        try:
            return await self._outbound.get()
        finally:
            reminder.cancel()

    async def admit(self, signed: bytes, job: str) -> None:
        """Ask whether the provider takes part in a job, and wait until it says so."""

        def message() -> pb.ToProvider:
            return pb.ToProvider(admit=pb.Admit(signed_job=signed))

        await self._reply((job, ADMISSION), None, lambda: asyncio.ensure_future(self._send(message)))

    async def ask(self, query: pb.Ask, job: str, frames: Iterable[memoryview], reader: AnswerReader) -> None:
        """Send a query and wait until its answer is in the sum."""

        def send() -> "asyncio.Future[None] | None":
            reader.restart()
            self._receipts_due += 1
            if self._sent_at_once(query):
                return None
            return asyncio.ensure_future(self._send(lambda: pb.ToProvider(ask=query), frames))

        await self._reply((job, query.position), reader, send)

    async def _reply(
        self,
        key: tuple[str, int],
        reader: AnswerReader | None,
        send: "Callable[[], asyncio.Future[None] | None]",
    ) -> None:
        """Send, and wait for the reply, whatever becomes of the sending: a connection that ends takes nothing more."""
        if self.closed:
            raise _lost(self.name)
        pending = self._pending[key] = _Pending(reader, asyncio.get_running_loop().create_future())
        sending = send()
        try:
            await pending.done
        finally:
            if sending:
                sending.cancel()
            self._pending.pop(key, None)

    def receipt_in(self, frame: pb.AnswerFrame) -> pb.Receipt | None:
        """Take the receipt that comes with an answer, late or not; no more of them than queries were asked."""
        if self.closed or not self._receipts_due or not frame.HasField("receipt"):
            return None
        self._receipts_due -= 1
        return frame.receipt

    def receive_answer(self, frame: pb.AnswerFrame) -> None:
        """Add a frame to the sum it belongs to. An answer out of form ends its query, not the connection."""
        pending = self._pending.get((frame.job, frame.position))
        if pending is None or pending.reader is None or pending.done.done():
            return  # late: the query was given up, or cancelled
        try:
            pending.reader.add(frame.sequence, frame.content)
        except InvalidAnswerError as problem:
            pending.done.set_exception(problem)
        else:
            if pending.reader.complete:
                pending.done.set_result(None)

    def receive_admission(self, admitted: pb.Admitted) -> None:
        """Note that the provider takes part."""
        pending = self._pending.get((admitted.job, ADMISSION))
        if pending and not pending.done.done():
            pending.done.set_result(None)

    def receive_refusal(self, refusal: pb.Refusal) -> None:
        """End a query with the provider's own words, escaped and cut: they are a stranger's.

        Of a job that a provider is asked to take part in, it is asked nothing else.
        """
        admission, query = (refusal.job, ADMISSION), (refusal.job, refusal.position)
        pending = self._pending.get(admission) or self._pending.get(query)
        if pending and not pending.done.done():
            what, remedy = _quoted(refusal.what), _quoted(refusal.remedy)
            pending.done.set_exception(ProviderRefusedError(f"Refused: {what}", remedy or "Ask its operator."))

    def farewell(self, job: str, state: str, receipts: Iterable[pb.HeldReceipt] = ()) -> None:
        """Tell the provider that a job is over, if there is room to."""
        self._tell(pb.ToProvider(farewell=pb.Farewell(job=job, state=state, receipts=receipts)))

    def bear_witness(self, receipts: Iterable[pb.Receipt]) -> None:
        """Show the provider what others kept for it, if there is room to."""
        self._tell(pb.ToProvider(witness=pb.Witness(receipts=receipts)))

    def _tell(self, message: pb.ToProvider) -> None:
        if not self.closed and not self._outbound.full():
            self._outbound.put_nowait(message)

    def close(self, reason: DpspcaError | None = None) -> None:
        """End every open query: the connection is gone, or is to end for a reason that its provider is told."""
        self.ended_by = self.ended_by or (reason and reason.with_traceback(None))  # which leads to here
        self.closed = True
        for pending in self._pending.values():
            if not pending.done.done():
                pending.done.set_exception(_lost(self.name))
        while not self._outbound.empty():  # or a call on which nothing is taken any more would keep it
            self._outbound.get_nowait()
        self._rouse()

    def _rouse(self) -> None:
        """Let whoever waits for a message wait no longer."""
        if self._outbound.empty():
            self._outbound.put_nowait(None)

    def _sent_at_once(self, query: pb.Ask) -> bool:
        """Send a query that has no frames, if there is room and it comes between no other's."""
        if not query.content or self._turn.locked() or self._outbound.full():
            return False
        self._outbound.put_nowait(pb.ToProvider(ask=query))
        return True

    async def _send(self, first: Callable[[], pb.ToProvider], frames: Iterable[memoryview] = ()) -> None:
        """Send a message and frames. The message holds a whole job, and so it is made when its turn has come."""
        async with self._turn:  # the frames of one query follow each other
            await self._outbound.put(first())
            for sequence, frame in enumerate(frames):
                message = pb.ToProvider()
                message.frame.sequence = sequence
                message.frame.content = bytes(frame)  # in place: a frame that was made before would be copied
                await self._outbound.put(message)


class Roster:
    """Every provider that is connected now; somebody who joins again takes the place of the old connection."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._arrivals = News()
        self.receipts: dict[str, pb.Receipt] = {}
        """The last that each provider signed of its ledger, connected or not."""
        self.witnesses: dict[str, dict[str, pb.Receipt]] = {}
        """What providers kept for one another, by the provider that it is about and its ledger."""

    @property
    def links(self) -> tuple[Link, ...]:
        """Everybody connected: a link that was closed is none, though a call that takes no more may keep it here."""
        return tuple(link for link in self._links.values() if not link.closed)

    def link_of(self, name: str) -> Link | None:
        """Give the connection of a provider, if it is there."""
        link = self._links.get(name)
        return link if link and not link.closed else None

    def join(self, link: Link) -> None:
        """Add a provider."""
        old = self._links.get(link.name)
        if old:
            old.close(RefusedError("You connected again.", "Run one daemon for each identity."))
        self._links[link.name] = link
        self._arrivals.tell(link.name)

    def leave(self, link: Link) -> None:
        """Remove a provider, unless it has joined anew meanwhile."""
        link.close()
        if self._links.get(link.name) is link:
            del self._links[link.name]

    def keep_receipt(self, link: Link, receipt: pb.Receipt) -> None:
        """Keep a receipt that a provider signed, unless a later one came over the same connection.

        On another connection fewer entries are news: those of a ledger that its operator released.
        """
        if receipt.entries >= link.receipted:
            link.receipted = receipt.entries
            # A copy: as part of its frame, it would keep that in memory.
            self.receipts[link.name] = pb.Receipt.FromString(receipt.SerializeToString())

    def hear_witness(self, held: pb.HeldReceipt) -> bool:
        """Keep what one provider kept for another, once it was verified. Tell whether it is news."""
        known = self.witnesses.setdefault(held.provider, {})
        same = known.get(held.receipt.ledger)
        if same and same.entries >= held.receipt.entries:
            return False
        known.pop(held.receipt.ledger, None)  # the newest stands last
        known[held.receipt.ledger] = pb.Receipt.FromString(held.receipt.SerializeToString())
        while len(known) > MOST_LEDGERS:
            del known[next(iter(known))]
        return True

    def receipts_beside(self, name: str, names: Iterable[str]) -> list[pb.HeldReceipt]:
        """Give the receipts of all these providers but one."""
        others = (other for other in names if other != name and other in self.receipts)
        return [pb.HeldReceipt(provider=other, receipt=self.receipts[other]) for other in others]

    def receipts_of(self, names: Iterable[str]) -> dict[str, bytes]:
        """Give the receipts of providers, as they are recorded."""
        return {name: self.receipts[name].SerializeToString() for name in names if name in self.receipts}

    async def dismiss(self) -> None:
        """Close every link: the coordinator stops."""
        for link in self.links:
            link.close(RefusedError("The coordinator stops.", "Connect again when it is back."))

    def find(self, name: str, data_set: str, dimension: int) -> Link | None:
        """Give a provider's link if it offers the data set, in that width."""
        link = self.link_of(name)
        offered = link.data_sets.get(data_set) if link else None
        return link if offered and offered.dimension == dimension else None

    async def wait_for(self, name: str, data_set: str, dimension: int) -> Link:
        """Wait until a provider is there with the data set."""
        while (link := self.find(name, data_set, dimension)) is None:
            await self._arrivals.of([name])
        return link

    async def wait_for_all(self, absent: set[str], data_set: str, dimension: int) -> None:
        """Wait until each of these providers has been there with the data set, and take those that were from the set.

        This is one wait, however many names there are.
        """
        while True:
            absent -= {name for name in absent if self.find(name, data_set, dimension)}
            if not absent:
                return
            await self._arrivals.of(tuple(absent))


def _quoted(words: str) -> str:
    """Quote a stranger: one line of printable letters, not too long."""
    return "".join(letter if letter.isprintable() else "?" for letter in words[:LONGEST_REASON])


def _lost(name: str) -> ProviderLostError:
    return ProviderLostError(f"The connection to {name} ended.", "It is asked again when it comes back.")
