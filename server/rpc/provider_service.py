"""The service for providers: one stream for each, which carries queries out and answers in.

The coordinator checks a provider's certificate when it connects and, because streams last for weeks, again at every
heartbeat. A certificate that was revoked or has expired ends the stream, and so does a silence of three heartbeats.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, Self

import grpc.aio

from dpspca.common.dictionary import PinnedDictionary
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.job import Schema
from dpspca.common.log_context import about
from dpspca.common.names import PartyName, Role, check_name
from dpspca.common.storage import MAX_DATA_SETS
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity, sign_challenge, verify_receipt
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.jobs import Link, Roster

HEARTBEAT_SECONDS: Final = 20
MAX_MISSED_HEARTBEATS: Final = 3
"""Heartbeats without a message after which the provider counts as lost."""
MAX_OPEN_JOBS: Final = 256
MAX_HELD_RECEIPTS: Final = 256
"""Receipts of others that are read from one provider."""
MAX_STREAMS_WITHOUT_HELLO: Final = 8
"""Streams of one provider that have not sent a hello yet."""
SOFTWARE: Final = "dpspca"

_log = logging.getLogger(__name__)


async def _no_known_job(_job: str, _provider: str) -> None:
    """Report that no job has ended."""


class ProviderService(pb_grpc.ProviderServiceServicer):
    """Serves one stream for every provider."""

    def __init__(
        self,
        door: rpc.CallerCheck,
        roster: Roster,
        identity: Callable[[], Identity],
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
        final_state: Callable[[str, str], Awaitable[str | None]] = _no_known_job,
    ) -> None:
        """``final_state`` returns how a job ended, for a provider that took part in it, or None."""
        self._door = door
        self._identity = identity
        self._final_state = final_state
        self._roster = roster
        self._heartbeat = heartbeat_seconds
        self._waiting = rpc.CallLimit(
            MAX_STREAMS_WITHOUT_HELLO, f"You have {MAX_STREAMS_WITHOUT_HELLO} streams that did not send a hello."
        )

    async def Connect(  # noqa: N802  # the name of the rpc
        self,
        request_iterator: AsyncIterator[pb.FromProvider],
        context: grpc.aio.ServicerContext[pb.FromProvider, pb.ToProvider],
    ) -> AsyncIterator[pb.ToProvider]:
        """Welcome a provider, then carry queries out and answers in until either side ends."""
        name = await self._door.admit(context, "Connect")
        try:
            async with self._waiting.counted(name, context), asyncio.timeout(MAX_MISSED_HEARTBEATS * self._heartbeat):
                hello = await _read_hello(request_iterator)
                link = _make_link(name, hello, self._door.certificate(context))
                welcome = self._welcome(name, hello.challenge)
        except TimeoutError:
            await rpc.abort(context, _no_hello_error())
        except DpspcaError as problem:
            await rpc.abort(context, problem)
        yield pb.ToProvider(welcome=welcome)
        for job in hello.open_jobs[:MAX_OPEN_JOBS]:
            if state := await self._final_state(job, name.name):
                yield pb.ToProvider(farewell=pb.Farewell(job=job, state=state))
        self._roster.join(link)
        offered = ", ".join(sorted(link.data_sets)) or "no data sets"
        _log.info("%s connected and offers %s.", link.name, offered, extra=about(name))
        self._roster.events("connected", party=name.uri, data_sets=sorted(link.data_sets))
        await self._exchange_held_receipts(link, name, hello.held[:MAX_HELD_RECEIPTS])
        reading, checking = self._read(name, link, request_iterator), self._check_regularly(link, context)
        async with _BackgroundTasks(reading, checking) as tasks:
            try:
                async for message in _outbound(link, self._heartbeat):
                    yield message
            finally:
                self._roster.leave(link)
                tasks.stop()
                _log.info(
                    "%s disconnected%s", link.name, f": {link.ended_by}" if link.ended_by else ".", extra=about(name)
                )
                self._roster.events("disconnected", party=name.uri, reason=str(link.ended_by or "") or None)
        if link.ended_by:
            await rpc.abort(context, link.ended_by)

    async def _exchange_held_receipts(self, link: Link, name: PartyName, held: Sequence[pb.HeldReceipt]) -> None:
        """Send this provider its receipts that others hold, and send others their receipts that it holds."""
        link.send_returned_receipts(self._roster.held_receipts.get(name.name, {}).values())
        for each in held:
            try:
                signer = PartyName(name.federation, Role.PROVIDER, each.provider)
                await asyncio.to_thread(verify_receipt, each.receipt, signer, self._door.authority_pem)
            except DpspcaError as problem:
                _log.warning(
                    "A receipt that %s holds for another is invalid: %s", name.name, problem, extra=about(name)
                )
                continue
            there = self._roster.link_of(each.provider)
            if self._roster.keep_held_receipt(each) and there:
                there.send_returned_receipts([each.receipt])

    def _welcome(self, name: PartyName, challenge: bytes) -> pb.Welcome:
        """Welcome a provider, and prove the coordinator's identity."""
        me = rpc.read_own(self._identity)
        return pb.Welcome(
            software=SOFTWARE,
            heartbeat_seconds=self._heartbeat,
            certificate=me.certificate_pem,
            proof=sign_challenge(me, challenge, name),
            receipt=self._roster.receipts.get(name.name),
        )

    async def _read(self, name: PartyName, link: Link, messages: AsyncIterator[pb.FromProvider]) -> None:
        """Read messages until the provider closes the stream or sends one that cannot be read."""
        ended = None
        try:
            async for message in messages:
                self._receive(name, link, message)
        except DpspcaError as problem:
            ended = problem
        link.close(ended)

    def _receive(self, name: PartyName, link: Link, message: pb.FromProvider) -> None:
        link.note_activity()
        match message.WhichOneof("message"):
            case "answer":
                self._keep_receipt(name, link, link.take_receipt(message.answer))
                link.receive_answer(message.answer)
            case "refusal":
                link.receive_refusal(message.refusal)
            case "admitted":
                link.receive_admission(message.admitted)
            case "statement_reply":
                link.receive_statement(message.statement_reply)
            case "awaiting_approval":
                link.receive_wait(message.awaiting_approval)
            case _:
                pass

    def _keep_receipt(self, name: PartyName, link: Link, receipt: pb.Receipt | None) -> None:
        """Keep a valid receipt, so that its provider can be sent it again."""
        if receipt is None:
            return
        try:
            verify_receipt(receipt, name, self._door.authority_pem)
        except DpspcaError as problem:
            _log.warning("A receipt from %s is not kept: %s", name.name, problem, extra=about(name))
        else:
            self._roster.keep_receipt(link, receipt)

    async def _check_regularly(self, link: Link, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """At every heartbeat, check the certificate and how long the provider has been silent."""
        while True:
            await asyncio.sleep(self._heartbeat)
            if problem := self._reason_to_end(link, context):
                link.close(problem)
                return

    def _reason_to_end(self, link: Link, context: grpc.aio.ServicerContext[Any, Any]) -> DpspcaError | None:
        """Return why a stream must end, or None. A bug here is a reason, because the checks end with it."""
        try:
            self._door.identify(context, "Connect")
        except DpspcaError as problem:
            return problem
        except Exception:  # noqa: BLE001  # any bug
            _log.exception("Checking the stream of %s failed because of a bug.", link.name, extra=about(link.name))
            return RefusedError("The coordinator has a bug.", "Connect again.")
        limit = MAX_MISSED_HEARTBEATS * self._heartbeat
        if asyncio.get_running_loop().time() - link.last_activity > limit:
            return RefusedError(f"The provider sent nothing for {limit} seconds.", "Connect again.")
        return None


class _BackgroundTasks:
    """Tasks that run beside a stream and end with it."""

    def __init__(self, *work: Any) -> None:  # noqa: ANN401  # coroutines
        self._tasks = [asyncio.ensure_future(each) for each in work]

    def stop(self) -> None:
        """Cancel the tasks."""
        for task in self._tasks:
            task.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _read_hello(messages: AsyncIterator[pb.FromProvider]) -> pb.Hello:
    """Read a provider's first message, which must be a hello."""
    async for message in messages:
        if message.WhichOneof("message") != "hello" or len(message.hello.data_sets) > MAX_DATA_SETS:
            break
        return message.hello
    raise _no_hello_error()


def _make_link(name: PartyName, hello: pb.Hello, certificate: bytes) -> Link:
    schemas = {check_name("a data set", each.name): _schema(each) for each in hello.data_sets}
    described = [each for each in hello.data_sets if each.dictionary]
    pinned = {each.name: PinnedDictionary(each.dictionary, each.dictionary_title) for each in described}
    sparse = [each.name for each in hello.data_sets if each.sparse]
    return Link(name.name, schemas, pinned, certificate, sparse)


def _schema(offered: pb.DataSet) -> Schema:
    return Schema(offered.dimension, tuple(offered.columns) or None)


def _no_hello_error() -> RefusedError:
    return RefusedError(
        f"A provider's first message must be a hello with at most {MAX_DATA_SETS} data sets.", "Use a matching version."
    )


async def _outbound(link: Link, heartbeat_seconds: float) -> AsyncIterator[pb.ToProvider]:
    """Yield messages to send, or a heartbeat if there are none in time, until the link is closed."""
    while not link.closed:
        message = await link.next_message(heartbeat_seconds)
        if message is not None:
            yield message
        elif not link.closed:
            yield pb.ToProvider(heartbeat=pb.Heartbeat())
