"""The providers' side of the coordinator: one stream for each, queries out, answers in, watched while it is open.

A certificate is judged when its party connects and, because streams last for weeks, again every few seconds: one that
was revoked or has run out meanwhile ends its stream, and so does a silence of three heartbeats.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Self

import grpc.aio

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.log_context import about
from dpspca.common.names import PartyName, Role, check_name
from dpspca.common.spec import Schema
from dpspca.common.storage import MAX_DATA_SETS
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity, sign_challenge, verify_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.jobs import Link, Roster

HEARTBEAT_SECONDS: Final = 20
MISSED: Final = 3
"""Heartbeats without a word after which the other side is taken for lost."""
MAX_OPEN_JOBS: Final = 256
MAX_WITNESSES: Final = 256
"""Receipts that one provider may show of others."""
MAX_UNGREETED: Final = 8
"""Streams of one provider that have not begun with a greeting yet."""
SOFTWARE: Final = "dpspca"

_log = logging.getLogger(__name__)


async def _nothing_ended(_job: str, _provider: str) -> None:
    """Know of no job."""


class ProviderService(pb_grpc.ProviderServiceServicer):
    """Holds one stream for every provider."""

    def __init__(
        self,
        door: rpc.CallerCheck,
        roster: Roster,
        identity: Callable[[], Identity],
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
        ended: Callable[[str, str], Awaitable[str | None]] = _nothing_ended,
    ) -> None:
        """Take what tells how a job that a provider took part in ``ended``, if it did."""
        self._door = door
        self._identity = identity
        self._ended = ended
        self._roster = roster
        self._heartbeat = heartbeat_seconds
        self._waiting = rpc.CallLimit(MAX_UNGREETED, "You have opened several streams without a greeting.")

    async def Connect(  # noqa: N802  # the name of the rpc
        self,
        request_iterator: AsyncIterator[pb.FromProvider],
        context: grpc.aio.ServicerContext[pb.FromProvider, pb.ToProvider],
    ) -> AsyncIterator[pb.ToProvider]:
        """Greet, then carry queries out and answers in until either side ends."""
        name = await self._door.admit(context, "Connect")
        try:
            async with self._waiting.slot(name, context), asyncio.timeout(MISSED * self._heartbeat):
                hello = await _greeting(request_iterator)
                link = _linked(name, hello)
                welcome = self._welcome(name, hello.challenge)
        except TimeoutError:
            await rpc.abort(context, _impolite())
        except DpspcaError as problem:
            await rpc.abort(context, problem)
        yield pb.ToProvider(welcome=welcome)
        for job in hello.open_jobs[:MAX_OPEN_JOBS]:
            if state := await self._ended(job, name.name):
                yield pb.ToProvider(farewell=pb.Farewell(job=job, state=state))
        self._roster.join(link)
        offered = ", ".join(sorted(link.data_sets)) or "no data sets"
        _log.info("%s connected, with %s.", link.name, offered, extra=about(name))
        await self._hear_witnesses(link, name, hello.held[:MAX_WITNESSES])
        async with _Company(self._read(name, link, request_iterator), self._patrol(link, context)) as watching:
            try:
                async for message in _outbound(link, self._heartbeat):
                    yield message
            finally:
                self._roster.leave(link)
                watching.stop()
                _log.info("%s left%s", link.name, f": {link.ended_by}" if link.ended_by else ".", extra=about(name))
        if link.ended_by:
            await rpc.abort(context, link.ended_by)

    async def _hear_witnesses(self, link: Link, name: PartyName, held: Sequence[pb.HeldReceipt]) -> None:
        """Show this provider what others kept for it, and others what it kept for them."""
        link.bear_witness(self._roster.witnesses.get(name.name, {}).values())
        for each in held:
            try:
                witnessed = PartyName(name.federation, Role.PROVIDER, each.provider)
                await asyncio.to_thread(verify_receipt, each.receipt, witnessed, self._door.authority_pem)
            except DpspcaError as problem:
                _log.warning("A receipt that %s keeps for another is none: %s", name.name, problem, extra=about(name))
                continue
            there = self._roster.link_of(each.provider)
            if self._roster.hear_witness(each) and there:
                there.bear_witness([each.receipt])

    def _welcome(self, name: PartyName, challenge: bytes) -> pb.Welcome:
        """Welcome a provider, and prove who we are."""
        me = rpc.read_own(self._identity)
        return pb.Welcome(
            software=SOFTWARE,
            heartbeat_seconds=self._heartbeat,
            certificate=me.certificate_pem,
            proof=sign_challenge(me, challenge, name),
            receipt=self._roster.receipts.get(name.name),
        )

    async def _read(self, name: PartyName, link: Link, messages: AsyncIterator[pb.FromProvider]) -> None:
        """Take in what comes, until the provider has said all, or something that cannot be read."""
        ended = None
        try:
            async for message in messages:
                self._hear(name, link, message)
        except DpspcaError as problem:
            ended = problem
        link.close(ended)

    def _hear(self, name: PartyName, link: Link, message: pb.FromProvider) -> None:
        link.heard()
        match message.WhichOneof("message"):
            case "answer":
                self._keep_receipt(name, link, link.receipt_in(message.answer))
                link.receive_answer(message.answer)
            case "refusal":
                link.receive_refusal(message.refusal)
            case "admitted":
                link.receive_admission(message.admitted)
            case _:
                pass

    def _keep_receipt(self, name: PartyName, link: Link, receipt: pb.Receipt | None) -> None:
        """Keep a receipt, to be shown to its provider again: if it is one, for nothing else would be believed."""
        if receipt is None:
            return
        try:
            verify_receipt(receipt, name, self._door.authority_pem)
        except DpspcaError as problem:
            _log.warning("A receipt from %s is not kept: %s", name.name, problem, extra=about(name))
        else:
            self._roster.keep_receipt(link, receipt)

    async def _patrol(self, link: Link, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Judge the certificate again and again, and listen for a sign of life."""
        while True:
            await asyncio.sleep(self._heartbeat)
            if problem := self._reason_to_end(link, context):
                link.close(problem)
                return

    def _reason_to_end(self, link: Link, context: grpc.aio.ServicerContext[Any, Any]) -> DpspcaError | None:
        """Say why a stream must not go on, if so; a fault of ours is a reason: nobody would watch it any more."""
        try:
            self._door.identify(context, "Connect")
        except DpspcaError as problem:
            return problem
        except Exception:  # noqa: BLE001  # whatever it is
            _log.exception("A fault of this program's while it watched %s.", link.name, extra=about(link.name))
            return RefusedError("The coordinator met a fault.", "Connect again.")
        if asyncio.get_running_loop().time() - link.heard_at > MISSED * self._heartbeat:
            return RefusedError(f"Nothing was heard for {MISSED * self._heartbeat} seconds.", "Connect again.")
        return None


class _Company:
    """Tasks that accompany a stream, and end with it."""

    def __init__(self, *work: Any) -> None:  # noqa: ANN401  # coroutines
        self._tasks = [asyncio.ensure_future(each) for each in work]

    def stop(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _greeting(messages: AsyncIterator[pb.FromProvider]) -> pb.Hello:
    """Take a provider's first message, which has to be its greeting."""
    async for message in messages:
        if message.WhichOneof("message") != "hello" or len(message.hello.data_sets) > MAX_DATA_SETS:
            break
        return message.hello
    raise _impolite()


def _linked(name: PartyName, hello: pb.Hello) -> Link:
    return Link(name.name, {check_name("a data set", each.name): _schema(each) for each in hello.data_sets})


def _schema(told: pb.DataSet) -> Schema:
    return Schema(told.dimension, tuple(told.columns) or None)


def _impolite() -> RefusedError:
    return RefusedError("A provider greets first, with the data sets it offers.", "Use a matching version.")


async def _outbound(link: Link, heartbeat_seconds: float) -> AsyncIterator[pb.ToProvider]:
    """Give what is to be sent, and a heartbeat where there is nothing, until the link is closed."""
    while not link.closed:
        message = await link.next_message(heartbeat_seconds)
        if message is not None:
            yield message
        elif not link.closed:
            yield pb.ToProvider(heartbeat=pb.Heartbeat())
