"""One connection to a coordinator, from its greeting to its end: queries in, answers and refusals out.

The coordinator proves that its certificate still counts before it is listened to, and is judged again at everything
that it says, before a row is looked at, and before each piece of an answer goes out: what is asked for can take long.
A refusal is in words that do not depend on a row.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from dpspca.common.errors import DpspcaError, NotTrustedError, RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.names import Role
from dpspca.common.queries import Announcement, Extent
from dpspca.common.transport import wire
from dpspca.common.trust import SignedJob, new_challenge, peer_of, require_role, verify_challenge, verify_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.jobs import Docket, OpenJob, ProviderSetup
from dpspca.provider.ledger import QUARANTINE_REMEDY, Head

from .greeting import greeting

HEARTBEAT_SECONDS: Final = 20
"""Between words of the coordinator at most, until it says how often it speaks."""
MISSED: Final = 3
"""Heartbeats without a word after which the coordinator is taken for lost."""
SLOWEST_HEARTBEAT: Final = 300
MOST_WITNESSES: Final = 4
QUEUE: Final = 8
"""Messages that wait to be sent."""

Stream: TypeAlias = AsyncIterator[pb.ToProvider]

_ITS_DOING: Final = about(THE_COORDINATOR)

_log = logging.getLogger(__name__)


class _AsksNoLongerError(Exception):
    """Whoever asked is no coordinator any more."""


@dataclass(frozen=True, slots=True)
class _Query:
    """A query whose frames are arriving."""

    ask: pb.Ask
    job: OpenJob
    reader: wire.QueryReader


class Conversation:
    """What is said on one connection; ``welcomed`` is set once the other side has proved to be a coordinator."""

    def __init__(self, settings: ProviderSetup, docket: Docket, welcomed: asyncio.Event) -> None:
        self._settings = settings
        self._docket = docket
        self._welcomed = welcomed
        self._authority = settings.identity().authority_pem  # which is never exchanged, as keys and certificates are
        self._challenge = new_challenge()
        self._outbound: asyncio.Queue[pb.FromProvider] = asyncio.Queue(QUEUE)
        self.greeting = greeting(settings, self._challenge)
        self._outbound.put_nowait(pb.FromProvider(hello=self.greeting))
        self._query: _Query | None = None
        self._coordinator: pb.Welcome | None = None
        self._answers: dict[str, asyncio.Task[None]] = {}
        self._patience = MISSED * HEARTBEAT_SECONDS

    async def outbound(self) -> AsyncGenerator[pb.FromProvider]:
        """Give what is to be sent, for as long as the connection is held."""
        while True:
            yield await self._outbound.get()

    async def hear(self, stream: Stream) -> None:
        """Take messages in order until the coordinator ends the connection, or falls silent; no answer outlives it."""
        try:
            while True:
                async with asyncio.timeout(self._patience):
                    message = await anext(stream, None)
                if message is None:
                    return
                await self._take_in(message)
                if self._query and self._query.reader.complete:
                    await self._take_up(self._query)
                    self._query = None
        finally:
            for answer in self._answers.values():
                answer.cancel()
            await asyncio.gather(*self._answers.values(), return_exceptions=True)

    async def _take_in(self, message: pb.ToProvider) -> None:
        """Act on a message. A query's frames follow its announcement; another announcement abandons it."""
        kind = message.WhichOneof("message")
        if kind == "welcome":
            await self._enter(message.welcome)
            return
        self._judge()
        match kind:
            case "heartbeat":
                if not self._outbound.full():
                    self._outbound.put_nowait(pb.FromProvider(heartbeat=pb.Heartbeat()))
            case "admit":
                await self._admit(message.admit.signed_job)
            case "ask":
                await self._begin(message.ask)
            case "frame" if self._query:
                await self._add(self._query, message.frame.sequence, message.frame.content)
            case "farewell":
                await self._end(message.farewell)
            case "witness":
                for receipt in message.witness.receipts[:MOST_WITNESSES]:
                    await asyncio.to_thread(self._heed, receipt)
            case _:
                pass

    async def _end(self, farewell: pb.Farewell) -> None:
        """Close a job, and wait for its rows no longer; what a faulty ledger cannot close now ends when it expires."""
        answer = self._answers.get(farewell.job)
        if answer:
            answer.cancel()
        try:
            await asyncio.to_thread(self._docket.close, farewell.job, farewell.state)
            me = self._settings.identity().name
            await asyncio.to_thread(self._settings.peers.keep, farewell.receipts, me, self._authority)
        except DpspcaError as problem:
            _log.warning("Job %.12s was not closed: %s", farewell.job, problem, extra=_ITS_DOING)

    async def _enter(self, welcome: pb.Welcome) -> None:
        """Come in, and hear what the coordinator was told of our ledger before anything is answered."""
        self._coordinator = welcome
        self._judge()
        verify_challenge(welcome.certificate, welcome.proof, self._challenge, self._settings.identity().name)
        if welcome.HasField("receipt"):
            await asyncio.to_thread(self._heed, welcome.receipt)
        self._patience = MISSED * min(max(1, welcome.heartbeat_seconds), SLOWEST_HEARTBEAT)
        self._welcomed.set()
        _log.info("Connected to %s.", self._settings.address, extra=_ITS_DOING)

    def _heed(self, receipt: pb.Receipt) -> None:
        """Hold our ledger against a receipt of ours; what we have not signed changes nothing, whoever shows it."""
        me = self._settings.identity()
        try:
            verify_receipt(receipt, me.name, me.authority_pem)
        except DpspcaError as problem:
            _log.warning("A receipt that is shown is not ours: %s", problem, extra=_ITS_DOING)
            return
        reason = self._settings.ledger.check_head(Head(receipt.ledger, receipt.entries, receipt.hash))
        if reason:
            _log.error(
                "The ledger is in quarantine, and every job is refused: %s %s",
                reason,
                QUARANTINE_REMEDY,
                extra=_ITS_DOING,
            )

    def _judge(self) -> None:
        """End the connection of whoever has not proved to be a coordinator, or is one no longer."""
        if self._coordinator is None:
            raise NotTrustedError("The other side has not said who it is.", "Check the coordinator's address.")
        shown, authority = self._coordinator.certificate, self._authority
        require_role(peer_of(shown, authority, self._settings.clock(), self._settings.revocations()), Role.COORDINATOR)

    def _require_asker(self) -> None:
        try:
            self._judge()
        except DpspcaError as problem:
            raise _AsksNoLongerError from problem

    async def _admit(self, signed: bytes) -> None:
        """Say whether a job keeps every rule and fits the budgets; if it does, what it costs is promised to it."""
        async with self._refusing(signed):
            job = await self._opened(signed)
            await self._outbound.put(pb.FromProvider(admitted=pb.Admitted(job=job.name)))

    async def _opened(self, content: bytes) -> OpenJob:
        return await self._docket.opened(SignedJob.from_bytes(content))

    async def _begin(self, ask: pb.Ask) -> None:
        """Verify the job, and hold the announcement against its plan, before a frame is kept."""
        self._query = None
        async with self._refusing(ask.signed_job, ask.position):
            self._query = _expected(ask, await self._opened(ask.signed_job))
        if self._query and ask.content:
            await self._add(self._query, 0, ask.content)

    async def _add(self, query: _Query, sequence: int, content: bytes) -> None:
        self._query = None
        async with self._refusing(query.ask.signed_job, query.ask.position):
            query.reader.add(sequence, content)
            self._query = query

    async def _take_up(self, query: _Query) -> None:
        """Answer one query of a job at a time: what waits to be sent is bounded by the jobs that analysts signed."""
        name = query.job.name
        if name in self._answers:
            if self._answers[name].get_name() != str(query.ask.position):
                problem = RefusedError("A query is being answered.", "Ask one at a time.")
                await self._refuse(name, query.ask.position, problem)
            return  # the answer that is being made is the answer to this one as well
        answer = asyncio.create_task(self._answer(query), name=str(query.ask.position))
        self._answers[name] = answer
        answer.add_done_callback(lambda _: self._answers.pop(name))

    async def _answer(self, query: _Query) -> None:
        """Answer or refuse."""
        job, position = query.job, query.ask.position
        async with self._refusing(query.ask.signed_job, position):
            answer, receipt = await job.answer(position, query.reader, self._require_asker)
            told = (position + 1, len(job.plan), job.name)
            _log.info("Answered query %d of %d of job %.12s.", *told, extra=_ITS_DOING)
            last = (len(answer) - 1) // wire.FRAME
            for sequence, frame in enumerate(wire.frames(answer)):
                message = pb.FromProvider()  # filled in place: an answer that was made before would be copied
                piece = message.answer
                piece.job, piece.position, piece.sequence, piece.content = job.name, position, sequence, bytes(frame)
                if receipt and sequence == last:
                    piece.receipt.CopyFrom(receipt)
                job.still()
                self._require_asker()
                await self._outbound.put(message)

    @asynccontextmanager
    async def _refusing(self, signed: bytes, position: int | None = None) -> AsyncIterator[None]:
        """Turn whatever goes wrong into a refusal: nothing that is asked, however odd, ends the daemon.

        Who asks no longer is told nothing, and hung up on at its next word: the same coordinator may be back with a new
        certificate, and for it a refusal would end our part in the job.
        """
        try:
            yield
        except _AsksNoLongerError as problem:
            asked = _said_of(_job_name(signed), position)
            _log.warning("No answer to %s: %s", asked, problem.__cause__, extra=_ITS_DOING)
        except DpspcaError as problem:
            await self._refuse(_job_name(signed), position, problem)
        except Exception:  # noqa: BLE001  # whatever an odd query can set off
            asked = _said_of(_job_name(signed), position)
            _log.exception("A fault of this program's at %s.", asked, extra=_ITS_DOING)
            fault = RefusedError("The provider met a fault.", "Ask its operator to read its log.")
            await self._refuse(_job_name(signed), position, fault)

    async def _refuse(self, job: str, position: int | None, problem: DpspcaError) -> None:
        _log.warning("Refused %s: %s", _said_of(job, position), problem, extra=_ITS_DOING)
        what, remedy = (text.encode(errors="replace").decode() for text in (problem.what, problem.remedy))
        refusal = pb.Refusal(job=job, position=position, code=problem.code, what=what, remedy=remedy)
        await self._outbound.put(pb.FromProvider(refusal=refusal))


def _expected(ask: pb.Ask, job: OpenJob) -> _Query:
    """Hold an announcement against the job's plan."""
    if ask.position >= len(job.plan):
        raise RefusedError(f"This job has {len(job.plan)} queries.", "Sign a new job.")
    extent = Extent(ask.dimension, ask.columns, ask.nonzero_rows, ask.block, ask.blocks)
    announced = Announcement(ask.kind, extent, ask.centred, ask.threshold, ask.power)
    return _Query(ask, job, wire.QueryReader(announced, job.plan[ask.position]))


def _said_of(job: str, position: int | None) -> str:
    """Call by its name what was asked: a query, or to take part in a job."""
    return f"job {job:.12}" if position is None else f"query {position + 1} of job {job:.12}"


def _job_name(signed: bytes) -> str:
    """Name the job that something claims to be about, if it can be read at all."""
    try:
        return SignedJob.from_bytes(signed).job_id
    except DpspcaError:
        return ""
