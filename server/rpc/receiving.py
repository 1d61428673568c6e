"""Requests are read only of callers who were let in, a few at a time of each, and not for ever; nor are replies held.

gRPC's own way is to read a request whole, and then to ask whose it is. A request that never ends would hold memory and
one of the places for calls, whoever sent it: with a certificate that was revoked, too. So every call is served like one
whose requests are a stream, which gives the same bytes on the wire: the caller is judged by its certificate, before
anything that it sends is read, then takes one of its own places, and has so long to send one message.

A reply that is never taken would hold as much, and gRPC has no way to end its call. So replies, too, are sent from
here, and a place is held until the last of them is gone; what takes much of memory or of the processor is done for one
party a few at a time. gRPC could tell when a call is over, but then keeps the call in a circle of references, for
minutes: each caller would cost memory that nobody counts.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpspca.common.errors import DpspcaError, FaultError, InvalidDataError, RefusedError
from dpspca.common.names import PartyName
from dpspca.common.transport import rpc
from dpspca.server.journal import JournalError

MAX_UNREAD: Final = 8
"""Requests of one party that are read at once; of the largest that gRPC takes here, 24 MiB."""
MAX_LINES: Final = 32
"""Connections of one party with calls on them: of what nobody reads yet, gRPC takes eight megabytes on each."""
READING_SECONDS: Final = 60.0
"""For one request."""
MAX_OPEN: Final = 320
"""Calls of one party at once: all the watches that it may have, and as many more as one connection takes."""
AT_A_TIME: Final = MappingProxyType({"Submit": 2, "DataSets": 4, "Get": 8, "Result": 8})
"""Calls of one party that are served at a time, where there is much to reckon or to send; its others wait, unread.

Never one alone: the call of a client whose link was cut lasts until that is noticed.
"""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Requests: TypeAlias = AsyncGenerator[Any, None]
_Serve: TypeAlias = Callable[[Any, Context], Any]
_Carry: TypeAlias = Callable[[AsyncIterable[Any], Context], Awaitable[None]]

_MATCH: Final = "Use a matching version."

_log = logging.getLogger(__name__)


if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]  # generic for whoever checks types alone
else:
    _Interceptor = grpc.aio.ServerInterceptor


class Receiving(_Interceptor):
    """Stands between the connection and all methods."""

    def __init__(self, door: rpc.CallerCheck, name_of: Callable[[str], str], seconds: float = READING_SECONDS) -> None:
        """Take what judges callers, and what a method is called there, given its path."""
        self._door = door
        self._name_of = name_of
        self._seconds = seconds
        self._unread = rpc.CallLimit(MAX_UNREAD, "You are sending several requests and have finished none.")
        self._open = rpc.CallLimit(MAX_OPEN, "You have too many calls open.")
        self._lines = rpc.ConnectionLimit(MAX_LINES, "You have calls open over too many connections.")
        self._turns = {method: rpc.ConcurrencyLimit(most) for method, most in AT_A_TIME.items()}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Have a method's request read and its replies sent by us."""
        handler = await continuation(handler_call_details)
        if not handler:
            return handler
        carry = self._carry(self._name_of(handler_call_details.method), handler)
        read = _reader(cast("Callable[[bytes], Any]", handler.request_deserializer))
        return grpc.stream_stream_rpc_method_handler(carry, read, handler.response_serializer)

    def _carry(self, method: str, handler: Handler) -> _Carry:
        """Give what carries one call from its first judgement to the last byte of its last reply."""
        serve, send = _parts(handler)

        async def carry(arriving: AsyncIterable[Any], context: Context) -> None:
            requests = _messages(arriving)
            try:
                async with (
                    self._let_in(method, context) as caller,
                    aclosing(requests),
                    failure_told(method, context),
                ):
                    asked = requests if handler.request_streaming else await self._one(caller, requests, context)
                    await send(serve(asked, context), context)
            except grpc.aio.AbortError as ended:  # gRPC has it, and tells of it; it must not lead back to the call
                ended.__traceback__ = ended.__context__ = None

        return carry

    @asynccontextmanager
    async def _let_in(self, method: str, context: Context) -> AsyncIterator[PartyName]:
        """Judge a caller, and give it a place, and a turn where it has to take turns."""
        caller = await self._door.admit(context, method)
        turn = self._turns[method].slots(caller) if method in self._turns else nullcontext()
        async with self._lines.slot(caller, context), self._open.slot(caller, context), turn:
            yield caller

    async def _one(self, caller: PartyName, requests: _Requests, context: Context) -> Any:  # noqa: ANN401  # a message
        """Read the one request of a call."""
        async with self._unread.slot(caller, context):
            try:
                async with asyncio.timeout(self._seconds):
                    async for request in requests:
                        return request
            except TimeoutError:
                raise RefusedError("Your request took too long to arrive.", "Send it again.") from None
        raise RefusedError("A call without a request.", _MATCH)


def _reader(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Read a message, or nothing where it is none: gRPC would tell its caller what Python says of that."""

    def read_or_not(content: bytes) -> Any:  # noqa: ANN401  # a message
        try:
            return read(content)
        except DecodeError:
            return None

    return read_or_not


async def _messages(arriving: AsyncIterable[Any]) -> _Requests:
    """Give what was read. gRPC leaves its own iterator open, and that leads to the call; this one closes it."""
    async with aclosing(cast("_Requests", aiter(arriving))) as messages:
        async for message in messages:
            if message is None:
                raise InvalidDataError("What arrived is no message of this service.", _MATCH)
            yield message


@asynccontextmanager
async def failure_told(method: str, context: Context) -> AsyncIterator[None]:
    """End a call that fails with words that are for its caller; what is not is for the log."""
    try:
        yield
    except grpc.aio.BaseError:
        raise  # a call that was ended, or whose caller is gone
    except JournalError:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "The coordinator cannot use its journal, and stops.")
    except DpspcaError as problem:
        await rpc.abort(context, problem)
    except Exception:  # noqa: BLE001  # whatever it is
        _log.exception("A fault of this program's in a call of %s.", method)
        await rpc.abort(context, FaultError())


def _parts(handler: Handler) -> tuple[_Serve, Callable[[Any, Context], Awaitable[None]]]:
    """Give the method that serves a call, and what sends what it returns."""
    single = handler.stream_unary if handler.request_streaming else handler.unary_unary
    several = handler.stream_stream if handler.request_streaming else handler.unary_stream
    return (cast("_Serve", several), _send_all) if handler.response_streaming else (cast("_Serve", single), _send_one)


async def _send_one(reply: Awaitable[Any], context: Context) -> None:
    await context.write(await reply)


async def _send_all(replies: AsyncGenerator[Any, None], context: Context) -> None:
    async with aclosing(replies):
        async for reply in replies:
            await context.write(reply)
