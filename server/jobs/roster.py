"""The connected providers, with one link to each: it sends queries and adds the answers to a sum."""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from dpspca.common.dictionary import PinnedDictionary
from dpspca.common.errors import (
    AskAgainError,
    BusyError,
    DpspcaError,
    InvalidAnswerError,
    RefusedError,
    RowsNotReadyError,
    is_code,
)
from dpspca.common.job import Schema
from dpspca.common.storage import Emit, ignore
from dpspca.common.transport import AnswerReader
from dpspca.common.trust import MAX_STATEMENT_BYTES
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.metrics import CoordinatorMetrics

from .name_events import NameEvents
from .presence import PresenceLog

MAX_QUEUED = 8
"""Messages that wait for one provider's connection: eight frames, so that a stalled provider holds a few megabytes."""
ADMISSION = -1
"""Stands for a query's position while a provider is asked to admit a job, which happens before all queries."""

MAX_LEDGERS_PER_PROVIDER = 2
"""Ledgers of one provider for which the coordinator keeps receipts that other providers hold."""
MAX_REASON_LENGTH = 300
"""Characters of a provider's reason that are passed on."""

OnWait: TypeAlias = Callable[[float, float], None]
"""Called when a person has to approve a job: since when it waits, and until when, in seconds since 1970."""


class ProviderLostError(DpspcaError):
    """The connection ended before the answer; the provider may reconnect."""

    code = "provider-lost"


class ProviderRefusedError(RefusedError):
    """The provider refuses to answer, and gave a reason."""

    code = "provider-refused"


class ProviderNotReadyError(ProviderRefusedError):
    """The provider cannot answer now. The same query may be sent again."""

    code = "provider-not-ready"


_NOT_READY: Final = {BusyError.code, AskAgainError.code, RowsNotReadyError.code}


@dataclass(slots=True)
class _Pending:
    reader: AnswerReader | None
    """Adds the answer to the sum; None if the reply has no content."""
    done: asyncio.Future[None]
    on_wait: OnWait | None = None


class Link:
    """One provider's connection. ``ProviderService`` reads and writes its messages."""

    def __init__(
        self,
        name: str,
        data_sets: Mapping[str, Schema],
        dictionaries: Mapping[str, PinnedDictionary] | None = None,
        certificate: bytes = b"",
        sparse: Collection[str] = (),
    ) -> None:
        """``dictionaries`` names those of data sets that have one, and ``sparse`` those with sparse rows.

        Both are passed on, and decide nothing. ``certificate`` is the one that the provider showed.
        """
        self.name = name
        self.certificate = certificate
        self.data_sets = dict(data_sets)
        self.dictionaries = dict(dictionaries or {})
        self.sparse = frozenset(sparse)
        self.ended_by: DpspcaError | None = None
        self._outbound: asyncio.Queue[pb.ToProvider | None] = asyncio.Queue(MAX_QUEUED)
        self._frames_lock = asyncio.Lock()
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._inquiries: dict[str, asyncio.Future[bytes]] = {}
        """Requests for statements that wait for the provider's reply, by their digests."""
        self.metrics = CoordinatorMetrics()
        """Counts answers and refusals; replaced when the link joins a roster that is counted."""
        self._receipts_due = 0
        self.newest_entries = 0
        """Entries in the newest receipt that came on this connection."""
        self.closed = False
        self.note_activity()

    def offered(self) -> Iterator[pb.DataSet]:
        """Return the data sets in the form that analysts get."""
        for name, schema in self.data_sets.items():
            columns, sparse = schema.names or (), name in self.sparse
            offered = pb.DataSet(name=name, dimension=schema.dimension, columns=columns, sparse=sparse)
            if (pinned := self.dictionaries.get(name)) is not None:
                offered.dictionary, offered.dictionary_title = pinned.digest, pinned.title
            yield offered

    def note_activity(self) -> None:
        """Record that the provider is alive now."""
        self.last_activity = asyncio.get_running_loop().time()

    async def next_message(self, seconds: float) -> pb.ToProvider | None:
        """Wait for a message to send; return None after this number of seconds, or when the link was closed."""
        timer = asyncio.get_running_loop().call_later(seconds, self._wake)
        try:
            return await self._outbound.get()
        finally:
            timer.cancel()

    async def admit(self, signed: bytes, job: str, on_wait: OnWait) -> None:
        """Ask the provider to admit a job, and wait until it does, also if a person there has to approve it first."""

        def message() -> pb.ToProvider:
            return pb.ToProvider(admit=pb.Admit(signed_job=signed))

        await self._reply((job, ADMISSION), None, lambda: asyncio.ensure_future(self._send(message)), on_wait)

    async def ask(self, query: pb.Query, job: str, frames: Iterable[memoryview], reader: AnswerReader) -> None:
        """Send a query, and wait until its answer is in the sum."""

        def send() -> "asyncio.Future[None] | None":
            reader.restart()
            self._receipts_due += 1
            if self._sent_at_once(query):
                return None
            return asyncio.ensure_future(self._send(lambda: pb.ToProvider(query=query), frames))

        begun = asyncio.get_running_loop().time()
        await self._reply((job, query.position), reader, send)
        self.metrics.answered(asyncio.get_running_loop().time() - begun)

    async def inquire(self, request: bytes, digest: str) -> bytes:
        """Pass on a request for a statement, and wait for the reply. Equal requests wait for the same reply."""
        if self.closed:
            raise _lost_error(self.name)
        waiting = self._inquiries.get(digest)
        if waiting is None:
            waiting = self._inquiries[digest] = asyncio.get_running_loop().create_future()
            await self._send(lambda: pb.ToProvider(statement_request=pb.StatementRequest(signed_request=request)))
        try:
            return await asyncio.shield(waiting)
        finally:
            self._inquiries.pop(digest, None)

    def receive_statement(self, stated: pb.StatementReply) -> None:
        """Pass on the reply to a request. A reply that is too long, or for which no request waits, is dropped."""
        waiting = self._inquiries.get(stated.request)
        if waiting and not waiting.done() and len(stated.signed_statement) <= MAX_STATEMENT_BYTES:
            waiting.set_result(stated.signed_statement)

    async def _reply(
        self,
        key: tuple[str, int],
        reader: AnswerReader | None,
        send: "Callable[[], asyncio.Future[None] | None]",
        on_wait: OnWait | None = None,
    ) -> None:
        """Send, and wait for the reply rather than for the sending, which never ends if the connection was lost."""
        if self.closed:
            raise _lost_error(self.name)
        pending = self._pending[key] = _Pending(reader, asyncio.get_running_loop().create_future(), on_wait)
        sending = send()
        try:
            await pending.done
        finally:
            if sending:
                sending.cancel()
            self._pending.pop(key, None)

    def take_receipt(self, frame: pb.AnswerFrame) -> pb.Receipt | None:
        """Return the receipt that comes with an answer, even a late one; at most one for each query that was sent."""
        if self.closed or not self._receipts_due or not frame.HasField("receipt"):
            return None
        self._receipts_due -= 1
        return frame.receipt

    def receive_answer(self, frame: pb.AnswerFrame) -> None:
        """Add a frame to its sum. A malformed answer ends its query, not the connection."""
        pending = self._pending.get((frame.job, frame.position))
        if pending is None or pending.reader is None or pending.done.done():
            return  # late: the query timed out or was cancelled
        try:
            pending.reader.add(frame.sequence, frame.content)
        except InvalidAnswerError as problem:
            pending.done.set_exception(problem)
        else:
            if pending.reader.complete:
                pending.done.set_result(None)

    def receive_admission(self, admitted: pb.Admitted) -> None:
        """Record that the provider admitted the job."""
        pending = self._pending.get((admitted.job, ADMISSION))
        if pending and not pending.done.done():
            pending.done.set_result(None)

    def receive_wait(self, wait: pb.AwaitingApproval) -> None:
        """Record that a person at the provider has to approve the job. Ignore times that are not finite numbers."""
        pending = self._pending.get((wait.job, ADMISSION))
        if pending and pending.on_wait and math.isfinite(wait.since) and math.isfinite(wait.until):
            pending.on_wait(wait.since, wait.until)

    def receive_refusal(self, refusal: pb.Refusal) -> None:
        """End a query or an admission with the provider's reason, escaped and shortened because it is not trusted.

        While a provider is asked to admit a job, no query of that job is open.
        """
        admission, query = (refusal.job, ADMISSION), (refusal.job, refusal.position)
        pending = self._pending.get(admission) or self._pending.get(query)
        if pending and not pending.done.done():
            self.metrics.refused("provider", refusal.code)
            what, remedy = _escape(refusal.what), _escape(refusal.remedy)
            says_more = is_code(refusal.code) and refusal.code != RefusedError.code
            refused = f"Refused ({refusal.code})" if says_more else "Refused"
            kind = ProviderNotReadyError if refusal.code in _NOT_READY else ProviderRefusedError
            pending.done.set_exception(kind(f"{refused}: {what}", remedy or "Ask its operator."))

    def send_farewell(self, job: str, state: str, receipts: Iterable[pb.HeldReceipt] = ()) -> None:
        """Send the provider that a job has ended, if the queue has room."""
        self._send_if_room(pb.ToProvider(farewell=pb.Farewell(job=job, state=state, receipts=receipts)))

    def send_returned_receipts(self, receipts: Iterable[pb.Receipt]) -> None:
        """Send the provider its own receipts that others keep for it, if the queue has room."""
        self._send_if_room(pb.ToProvider(returned_receipts=pb.ReturnedReceipts(receipts=receipts)))

    def _send_if_room(self, message: pb.ToProvider) -> None:
        if not self.closed and not self._outbound.full():
            self._outbound.put_nowait(message)

    def close(self, reason: DpspcaError | None = None) -> None:
        """End every open query, because the connection was lost or for a reason that is sent to the provider."""
        self.ended_by = self.ended_by or (reason and reason.with_traceback(None))  # a traceback would keep this link
        self.closed = True
        for pending in self._pending.values():
            if not pending.done.done():
                pending.done.set_exception(_lost_error(self.name))
        for waiting in self._inquiries.values():
            if not waiting.done():
                waiting.set_result(b"")
        while not self._outbound.empty():  # otherwise a provider that reads nothing would keep the messages in memory
            self._outbound.get_nowait()
        self._wake()

    def _wake(self) -> None:
        """Wake the task that waits for a message, if there is no message."""
        if self._outbound.empty():
            self._outbound.put_nowait(None)

    def _sent_at_once(self, query: pb.Query) -> bool:
        """Send a query without frames at once, if the queue has room and no other query is sending frames."""
        if not query.content or self._frames_lock.locked() or self._outbound.full():
            return False
        self._outbound.put_nowait(pb.ToProvider(query=query))
        return True

    async def _send(self, first: Callable[[], pb.ToProvider], frames: Iterable[memoryview] = ()) -> None:
        """Send a message and its frames. The message holds a whole job, so it is created only when it is sent."""
        async with self._frames_lock:  # the frames of different queries must not mix
            await self._outbound.put(first())
            for sequence, frame in enumerate(frames):
                message = pb.ToProvider()
                message.frame.sequence = sequence
                message.frame.content = bytes(frame)  # set here, because a message field is copied
                await self._outbound.put(message)


class Roster:
    """Every connected provider. When a provider connects again, its new link replaces the old one."""

    def __init__(
        self, metrics: CoordinatorMetrics | None = None, events: Emit = ignore, presence: PresenceLog | None = None
    ) -> None:
        self._metrics = metrics or CoordinatorMetrics()
        self.presence = presence or PresenceLog(lambda: datetime.now(UTC))
        self.events = events
        self._links: dict[str, Link] = {}
        self._arrivals = NameEvents()
        self.receipts: dict[str, pb.Receipt] = {}
        """The last receipt of each provider, connected or not."""
        self.held_receipts: dict[str, dict[str, pb.Receipt]] = {}
        """Receipts that providers keep for each other, by the provider that signed them and its ledger."""

    @property
    def links(self) -> tuple[Link, ...]:
        """The open links. A closed link may stay in the roster while its provider reads nothing."""
        return tuple(link for link in self._links.values() if not link.closed)

    def link_of(self, name: str) -> Link | None:
        """Return a provider's open link, or None."""
        link = self._links.get(name)
        return link if link and not link.closed else None

    def join(self, link: Link) -> None:
        """Add a provider."""
        old = self._links.get(link.name)
        if old:
            old.close(
                RefusedError(f"Provider '{link.name}' connected a second time.", "Run one daemon for each identity.")
            )
        link.metrics = self._metrics
        self._links[link.name] = link
        self.presence.note_connected(link.name, link.certificate)
        self._arrivals.notify(link.name)

    def leave(self, link: Link) -> None:
        """Close a provider's link, and remove it unless a new link has replaced it."""
        link.close()
        if self._links.get(link.name) is link:
            del self._links[link.name]
            self.presence.note_disconnected(link.name)

    def keep_receipt(self, link: Link, receipt: pb.Receipt) -> None:
        """Keep a provider's receipt, unless a later one came on the same connection.

        On a new connection, fewer entries are valid: the quarantine of an older copy of the ledger may have ended.
        """
        if receipt.entries >= link.newest_entries:
            link.newest_entries = receipt.entries
            # Copied, because a part of a message keeps the whole message in memory.
            self.receipts[link.name] = pb.Receipt.FromString(receipt.SerializeToString())

    def keep_held_receipt(self, held: pb.HeldReceipt) -> bool:
        """Keep a verified receipt that one provider holds for another. Return whether it is new."""
        known = self.held_receipts.setdefault(held.provider, {})
        same = known.get(held.receipt.ledger)
        if same and same.entries >= held.receipt.entries:
            return False
        known.pop(held.receipt.ledger, None)  # the newest comes last
        known[held.receipt.ledger] = pb.Receipt.FromString(held.receipt.SerializeToString())
        while len(known) > MAX_LEDGERS_PER_PROVIDER:
            del known[next(iter(known))]
        return True

    def receipts_of_others(self, name: str, names: Iterable[str]) -> list[pb.HeldReceipt]:
        """Return the receipts of all these providers except one."""
        others = (other for other in names if other != name and other in self.receipts)
        return [pb.HeldReceipt(provider=other, receipt=self.receipts[other]) for other in others]

    def receipts_of(self, names: Iterable[str]) -> dict[str, bytes]:
        """Return the receipts of these providers, as the journal records them."""
        return {name: self.receipts[name].SerializeToString() for name in names if name in self.receipts}

    async def close_all(self) -> None:
        """Close every link because the coordinator stops."""
        for link in self.links:
            link.close(RefusedError("The coordinator is stopping.", "Connect again after it has restarted."))

    def find(self, name: str, data_set: str, dimension: int | None) -> Link | None:
        """Return a provider's link if it offers the data set with ``dimension`` columns, or with any number if None."""
        link = self.link_of(name)
        offered = link.data_sets.get(data_set) if link else None
        return link if offered and dimension in {None, offered.dimension} else None

    async def wait_for(self, name: str, data_set: str, dimension: int | None) -> Link:
        """Wait until a provider is connected. Refuse one that no longer offers the data set: its steward decided so."""
        while (link := self.link_of(name)) is None:
            await self._arrivals.wait_for([name])
        if self.find(name, data_set, dimension) is None:
            raise RefusedError(f"{name} no longer offers '{data_set}' with these columns.", "Ask its steward.")
        return link

    async def wait_for_all(self, absent: set[str], data_set: str, dimension: int | None) -> None:
        """Wait until each of these providers has offered the data set; remove it from the set when it does.

        This is one wait for all names.
        """
        while True:
            absent -= {name for name in absent if self.find(name, data_set, dimension)}
            if not absent:
                return
            await self._arrivals.wait_for(tuple(absent))


def _escape(text: str) -> str:
    """Return untrusted text as one short line of printable characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_REASON_LENGTH])


def _lost_error(name: str) -> ProviderLostError:
    return ProviderLostError(f"The connection to {name} ended.", "The query is sent again when it reconnects.")
