"""One connection to a coordinator, from its greeting to its end: queries in, answers and refusals out.

The coordinator must prove that its certificate is valid before anything else is accepted. Because an answer can take
long, its certificate is checked again at every message, before rows are read, and before each piece of an answer is
sent. The text of a refusal does not depend on a row.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
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
from dpspca.provider.approval import AwaitingApprovalError
from dpspca.provider.jobs import JobRegistry, OpenJob, ProviderSetup, RetiredError, Statements
from dpspca.provider.ledger import QUARANTINE_REMEDY, Head

from .greeting import greeting

HEARTBEAT_SECONDS: Final = 20
"""The heartbeat interval until the coordinator states its own."""
MISSED: Final = 3
"""The number of heartbeat intervals without a message after which the connection counts as lost."""
SLOWEST_HEARTBEAT: Final = 300
MAX_RECEIPTS: Final = 4
DECISION_SECONDS: Final = 1.0
"""Seconds between two checks of whether a job still waits for approval."""
QUEUE: Final = 8
"""The most messages that wait to be sent."""

Stream: TypeAlias = AsyncIterator[pb.ToProvider]

_BY_COORDINATOR: Final = about(THE_COORDINATOR)

_log = logging.getLogger(__name__)


class _LostAuthorityError(Exception):
    """The requester is no longer a coordinator."""


@dataclass(frozen=True, slots=True)
class _Query:
    """A query whose frames are arriving."""

    message: pb.Query
    job: OpenJob
    reader: wire.QueryReader


class Conversation:
    """The messages of one connection. ``welcomed`` is set once the other side has proved to be a coordinator."""

    def __init__(self, settings: ProviderSetup, registry: JobRegistry, welcomed: asyncio.Event) -> None:
        self._settings = settings
        self._registry = registry
        self._statements = Statements(settings)
        self._welcomed = welcomed
        self._authority = settings.identity().authority_pem  # unlike keys and certificates, it is never replaced
        self._challenge = new_challenge()
        self._outbound: asyncio.Queue[pb.FromProvider] = asyncio.Queue(QUEUE)
        self.greeting = greeting(settings, self._challenge)
        self._outbound.put_nowait(pb.FromProvider(hello=self.greeting))
        self._query: _Query | None = None
        self._coordinator: pb.Welcome | None = None
        self._answers: dict[str, asyncio.Task[None]] = {}
        self._awaiting: dict[str, bytes] = {}
        """Signed jobs that wait for approval and whose coordinator waits for a reply on this connection."""
        self._timeout = MISSED * HEARTBEAT_SECONDS

    async def outbound(self) -> AsyncGenerator[pb.FromProvider]:
        """Yield the messages to send, for as long as the connection lasts."""
        while True:
            yield await self._outbound.get()

    async def handle(self, stream: Stream) -> None:
        """Handle messages until the coordinator ends the connection or stops sending. Then cancel all answers."""
        deciding = asyncio.create_task(self._reply_after_decisions())
        try:
            while True:
                async with asyncio.timeout(self._timeout):
                    message = await anext(stream, None)
                if message is None:
                    return
                await self._handle_message(message)
                if self._query and self._query.reader.complete:
                    await self._start_answer(self._query)
                    self._query = None
        finally:
            ending = [deciding, *self._answers.values()]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def _handle_message(self, message: pb.ToProvider) -> None:
        """Handle a message. A query's frames follow its announcement, and another announcement abandons the query."""
        kind = message.WhichOneof("message")
        if kind == "welcome":
            await self._handle_welcome(message.welcome)
            return
        self._require_coordinator()
        match kind:
            case "heartbeat":
                if not self._outbound.full():
                    self._outbound.put_nowait(pb.FromProvider(heartbeat=pb.Heartbeat()))
            case "admit":
                await self._admit(message.admit.signed_job)
            case "query":
                await self._start_query(message.query)
            case "frame" if self._query:
                await self._add_frame(self._query, message.frame.sequence, message.frame.content)
            case "farewell":
                await self._handle_farewell(message.farewell)
            case "returned_receipts":
                await asyncio.to_thread(self._check_receipts, message.returned_receipts.receipts[:MAX_RECEIPTS])
            case "statement_request":
                await self._state(message.statement_request.signed_request)
            case _:
                pass

    async def _state(self, request: bytes) -> None:
        """Reply to an analyst's request for a statement. If there is nothing to say, the reply has no content."""
        digest, statement = await asyncio.to_thread(self._statements.state, request)
        await self._outbound.put(
            pb.FromProvider(statement_reply=pb.StatementReply(request=digest, signed_statement=statement))
        )

    async def _handle_farewell(self, farewell: pb.Farewell) -> None:
        """Close a job and stop waiting for its rows. If the ledger cannot close it now, it ends when it expires."""
        self._awaiting.pop(farewell.job, None)
        answer = self._answers.get(farewell.job)
        if answer:
            answer.cancel()
        try:
            await asyncio.to_thread(self._registry.close, farewell.job, farewell.state)
            me = self._settings.identity().name
            await asyncio.to_thread(self._settings.peers.keep, farewell.receipts, me, self._authority)
        except DpspcaError as problem:
            _log.warning("Job %.12s was not closed: %s", farewell.job, problem, extra=_BY_COORDINATOR)

    async def _handle_welcome(self, welcome: pb.Welcome) -> None:
        """Verify the coordinator, and check its receipt of our ledger before anything is answered."""
        self._coordinator = welcome
        self._require_coordinator()
        verify_challenge(welcome.certificate, welcome.proof, self._challenge, self._settings.identity().name)
        if welcome.HasField("receipt"):
            await asyncio.to_thread(self._check_receipts, [welcome.receipt])
        self._timeout = MISSED * min(max(1, welcome.heartbeat_seconds), SLOWEST_HEARTBEAT)
        self._welcomed.set()
        _log.info("Connected to %s.", self._settings.address, extra=_BY_COORDINATOR)

    def _check_receipts(self, receipts: Iterable[pb.Receipt]) -> None:
        for receipt in receipts:
            self._check_receipt(receipt)

    def _check_receipt(self, receipt: pb.Receipt) -> None:
        """Compare our ledger with a receipt. A receipt that we did not sign changes nothing."""
        me = self._settings.identity()
        try:
            verify_receipt(receipt, me.name, me.authority_pem)
        except DpspcaError as problem:
            _log.warning("Ignored a receipt that is not ours: %s", problem, extra=_BY_COORDINATOR)
            return
        reason = self._settings.ledger.check_head(Head(receipt.ledger, receipt.entries, receipt.hash))
        if reason:
            _log.error(
                "The ledger is in quarantine, and every job is refused: %s %s",
                reason,
                QUARANTINE_REMEDY,
                extra=_BY_COORDINATOR,
            )

    def _require_coordinator(self) -> None:
        """End the connection if the other side has not proved to be a coordinator, or is no longer one."""
        if self._coordinator is None:
            raise NotTrustedError("The other side has not proved its identity.", "Check the coordinator's address.")
        shown, authority = self._coordinator.certificate, self._authority
        require_role(peer_of(shown, authority, self._settings.clock(), self._settings.revocations()), Role.COORDINATOR)

    def _require_requester(self) -> None:
        try:
            self._require_coordinator()
        except DpspcaError as problem:
            raise _LostAuthorityError from problem

    async def _admit(self, signed: bytes) -> None:
        """Open a job, which reserves its price if it keeps every rule and fits the budgets. Refuse it otherwise.

        If persons have to approve the job, say so. The reply follows when they have decided.
        """
        async with self._refusing(signed):
            try:
                job = await self._find_or_open(signed)
            except AwaitingApprovalError as waits:
                request = waits.request
                self._awaiting[request.job] = signed
                waiting = pb.AwaitingApproval(job=request.job, since=request.asked_at, until=request.lapses_at)
                await self._outbound.put(pb.FromProvider(awaiting_approval=waiting))
                return
            self._awaiting.pop(job.name, None)
            await self._outbound.put(pb.FromProvider(admitted=pb.Admitted(job=job.name)))

    async def _reply_after_decisions(self) -> None:
        """Reply about jobs that need not wait any more: admitted, or refused.

        What is in the queue decides, and not a signal that could be missed. If the coordinator lost its authority in
        the meantime, no reply is sent.
        """
        while approvals := self._settings.approvals:
            await asyncio.sleep(DECISION_SECONDS)
            waiting = await asyncio.to_thread(approvals.waiting) if self._awaiting else None
            for name in [] if waiting is None else [name for name in self._awaiting if name not in waiting]:
                signed = self._awaiting.pop(name)
                async with self._refusing(signed):
                    self._require_requester()
                    await self._admit(signed)

    async def _find_or_open(self, content: bytes) -> OpenJob:
        return await self._registry.find_or_open(SignedJob.from_bytes(content))

    async def _start_query(self, message: pb.Query) -> None:
        """Verify the job, and check the announcement against its plan, before any frame is kept."""
        self._query = None
        async with self._refusing(message.signed_job, message.position):
            self._query = _expected(message, await self._find_or_open(message.signed_job))
        if self._query and message.content:
            await self._add_frame(self._query, 0, message.content)

    async def _add_frame(self, query: _Query, sequence: int, content: bytes) -> None:
        self._query = None
        async with self._refusing(query.message.signed_job, query.message.position):
            query.reader.add(sequence, content)
            self._query = query

    async def _start_answer(self, query: _Query) -> None:
        """Answer one query of a job at a time, so that the jobs that analysts signed bound what waits to be sent."""
        name = query.job.name
        if name in self._answers:
            if self._answers[name].get_name() != str(query.message.position):
                problem = RefusedError("Another query of this job is being answered.", "Ask one query at a time.")
                await self._refuse(name, query.message.position, problem)
            return  # the answer in progress answers this query, too
        answer = asyncio.create_task(self._answer(query), name=str(query.message.position))
        self._answers[name] = answer
        answer.add_done_callback(lambda _: self._answers.pop(name))

    async def _answer(self, query: _Query) -> None:
        """Answer or refuse."""
        position = query.message.position
        async with self._refusing(query.message.signed_job, position):
            job, (answer, receipt) = await self._answered(query)
            facts = (position + 1, len(job.plan), job.name)
            _log.info("Answered query %d of %d of job %.12s.", *facts, extra=_BY_COORDINATOR)
            last = (len(answer) - 1) // wire.FRAME
            for sequence, frame in enumerate(wire.frames(answer)):
                message = pb.FromProvider()  # filled in place, because passing an answer to it would copy that
                piece = message.answer
                piece.job, piece.position, piece.sequence, piece.content = job.name, position, sequence, bytes(frame)
                if receipt and sequence == last:
                    piece.receipt.CopyFrom(receipt)
                job.require_permission()
                self._require_requester()
                await self._outbound.put(message)

    async def _answered(self, query: _Query) -> tuple[OpenJob, tuple[memoryview, pb.Receipt | None]]:
        """Have a query answered by its job, opened again if it was forgotten while the query arrived."""
        job = query.job
        while True:
            try:
                return job, await job.answer(query.message.position, query.reader, self._require_requester)
            except RetiredError:
                job = await self._find_or_open(query.message.signed_job)

    @asynccontextmanager
    async def _refusing(self, signed: bytes, position: int | None = None) -> AsyncIterator[None]:
        """Turn every error into a refusal, so that no query, however odd, ends the daemon.

        If the requester lost its authority, send no refusal, and close the stream at its next message. The same
        coordinator may return with a new certificate, and a refusal would end our part in the job.
        """
        try:
            yield
        except _LostAuthorityError as problem:
            asked = _description(_job_name(signed), position)
            _log.warning("No answer to %s: %s", asked, problem.__cause__, extra=_BY_COORDINATOR)
        except DpspcaError as problem:
            await self._refuse(_job_name(signed), position, problem)
        except Exception:  # noqa: BLE001  # whatever an odd query can set off
            asked = _description(_job_name(signed), position)
            _log.exception("Internal error while answering %s.", asked, extra=_BY_COORDINATOR)
            fault = RefusedError("The provider had an internal error.", "Ask the provider's operator to read its log.")
            await self._refuse(_job_name(signed), position, fault)

    async def _refuse(self, job: str, position: int | None, problem: DpspcaError) -> None:
        _log.warning("Refused %s: %s", _description(job, position), problem, extra=_BY_COORDINATOR)
        query = None if position is None else position + 1
        self._settings.events("refused", job=job, query=query, code=problem.code, reason=problem.what)
        what, remedy = (text.encode(errors="replace").decode() for text in (problem.what, problem.remedy))
        refusal = pb.Refusal(job=job, position=position, code=problem.code, what=what, remedy=remedy)
        await self._outbound.put(pb.FromProvider(refusal=refusal))


def _expected(message: pb.Query, job: OpenJob) -> _Query:
    """Check an announcement against the job's plan, and return the query whose frames follow."""
    if message.position >= len(job.plan):
        raise RefusedError(
            f"Query {message.position + 1} was asked, but this job has {len(job.plan)} queries.", "Sign a new job."
        )
    extent = Extent(message.dimension, message.columns, message.nonzero_rows, message.block, message.blocks)
    announced = Announcement(message.kind, extent, message.centred, message.threshold, message.power, message.scaled)
    return _Query(message, job, wire.QueryReader(announced, job.plan[message.position]))


def _description(job: str, position: int | None) -> str:
    """Describe what was asked: a query, or to take part in a job."""
    return f"job {job:.12}" if position is None else f"query {position + 1} of job {job:.12}"


def _job_name(signed: bytes) -> str:
    """Return the identifier of the job that a message claims to be about, or "" if it cannot be read."""
    try:
        return SignedJob.from_bytes(signed).job_id
    except DpspcaError:
        return ""
