"""Limits on calls: only admitted callers are read, each has a few places for calls, and requests have a time limit.

By itself, gRPC reads a whole request before it asks who sent it. A request that never ends would hold memory and a
place for calls, even if the sender's certificate is revoked. So every call is served as if its requests were a stream,
which gives the same bytes on the wire: the certificate is checked before anything is read, then the caller takes one of
its own places and has a limited time to send a message.

A reply that is never read would hold as much, and gRPC cannot end its call. So replies are also sent from here, and the
caller's place is free only after the last one. Calls that need much memory or computation run a few at a time for each
party. gRPC's own callback for the end of a call is not used: it keeps the call in a reference cycle for minutes, and
that memory would not be counted.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dpspca.common.errors import DpspcaError, FaultError, InvalidDataError, RefusedError
from dpspca.common.names import PartyName
from dpspca.common.transport import rpc
from dpspca.server.journal import JournalError
from dpspca.server.metrics import CoordinatorMetrics

MAX_UNREAD: Final = 8
"""Requests of one party that are read at once: at most 24 MiB of the largest that gRPC accepts here."""
MAX_CALL_CONNECTIONS: Final = 32
"""Connections of one party that have calls. On each, gRPC buffers up to eight megabytes of unread data."""
READ_SECONDS: Final = 60.0
"""Time limit for receiving one request."""
MAX_OPEN_CALLS: Final = 320
"""Calls of one party at once: all its watches, and as many more as one connection takes."""
CONCURRENT_CALLS: Final = MappingProxyType(
    {"Submit": 2, "DataSets": 4, "Get": 8, "Result": 8, "Statements": 2, "Parties": 2}
)
"""Calls of one party that are served at once, for methods that compute or send much; further calls wait unread.

Always more than one, because the call of a client that lost its connection lasts until the loss is noticed.
"""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Requests: TypeAlias = AsyncGenerator[Any, None]
_Serve: TypeAlias = Callable[[Any, Context], Any]
_ServeCall: TypeAlias = Callable[[AsyncIterable[Any], Context], Awaitable[None]]

_USE_MATCHING: Final = "Use a matching version."

_log = logging.getLogger(__name__)


if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]  # generic only for type checkers
else:
    _Interceptor = grpc.aio.ServerInterceptor


class CallInterceptor(_Interceptor):
    """Applies the limits to every call, before its method runs."""

    def __init__(
        self,
        door: rpc.CallerCheck,
        name_of: Callable[[str], str],
        seconds: float = READ_SECONDS,
        metrics: CoordinatorMetrics | None = None,
        on_refused: Callable[[str, str, str], None] = lambda *_: None,
    ) -> None:
        """Take the doorkeeper that admits callers, and the function that gives a method's name from its path.

        ``on_refused`` gets gRPC's name of the connection, the method and the code of every refused call.
        """
        self._on_refused = on_refused
        self._metrics = metrics or CoordinatorMetrics()
        self._door = door
        self._name_of = name_of
        self._seconds = seconds
        self._unread = rpc.CallLimit(MAX_UNREAD, f"You have {MAX_UNREAD} unfinished requests.")
        self._open = rpc.CallLimit(MAX_OPEN_CALLS, f"You have {MAX_OPEN_CALLS} open calls.")
        self._lines = rpc.ConnectionLimit(
            MAX_CALL_CONNECTIONS, f"You have open calls on {MAX_CALL_CONNECTIONS} connections."
        )
        self._turns = {method: rpc.ConcurrencyLimit(most) for method, most in CONCURRENT_CALLS.items()}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Return a handler that reads a method's request and sends its replies within the limits."""
        handler = await continuation(handler_call_details)
        if not handler:
            return handler
        serve_call = self._wrap(self._name_of(handler_call_details.method), handler)
        read = _reader(cast("Callable[[bytes], Any]", handler.request_deserializer))
        return grpc.stream_stream_rpc_method_handler(serve_call, read, handler.response_serializer)

    def _wrap(self, method: str, handler: Handler) -> _ServeCall:
        """Return the function that serves one call from admission to the last byte of its last reply."""
        serve, send = _parts(handler)

        async def serve_call(arriving: AsyncIterable[Any], context: Context) -> None:
            requests = _messages(arriving)
            rpc.on_refusal.set(partial(self._note_refusal, context.peer(), method))
            begun = time.monotonic()
            try:
                async with (
                    self._admit(method, context) as caller,
                    aclosing(requests),
                    report_failures(method, context),
                ):
                    streaming = handler.request_streaming
                    request = requests if streaming else await self._read_request(caller, requests, context)
                    await send(serve(request, context), context)
            except grpc.aio.AbortError as ended:  # gRPC reports it; without these, it would keep the call in memory
                ended.__traceback__ = ended.__context__ = None
            finally:
                self._metrics.call_ended(method, time.monotonic() - begun)

        return serve_call

    def _note_refusal(self, connection: str, method: str, code: str) -> None:
        self._metrics.refused("coordinator", code)
        self._on_refused(connection, method, code)

    @asynccontextmanager
    async def _admit(self, method: str, context: Context) -> AsyncIterator[PartyName]:
        """Admit a caller and take a place for it; wait for its turn if the method runs a few calls at once."""
        caller = await self._door.admit(context, method)
        turn = self._turns[method].permits(caller) if method in self._turns else nullcontext()
        async with self._lines.counted(caller, context), self._open.counted(caller, context), turn:
            yield caller

    async def _read_request(self, caller: PartyName, requests: _Requests, context: Context) -> Any:  # noqa: ANN401  # a message
        """Read the one request of a call."""
        async with self._unread.counted(caller, context):
            try:
                async with asyncio.timeout(self._seconds):
                    async for request in requests:
                        return request
            except TimeoutError:
                raise RefusedError(
                    f"Your request did not arrive within {self._seconds:g} seconds.", "Send it again."
                ) from None
        raise RefusedError("The call has no request.", _USE_MATCHING)


def _reader(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Read a message, or None if it cannot be read: gRPC would send Python's own error text to the caller."""

    def read_or_not(content: bytes) -> Any:  # noqa: ANN401  # a message
        try:
            return read(content)
        except DecodeError:
            return None

    return read_or_not


async def _messages(arriving: AsyncIterable[Any]) -> _Requests:
    """Yield the messages and close gRPC's iterator, which otherwise stays open and keeps the call in memory."""
    async with aclosing(cast("_Requests", aiter(arriving))) as messages:
        async for message in messages:
            if message is None:
                raise InvalidDataError("The request is not a message of this service.", _USE_MATCHING)
            yield message


@asynccontextmanager
async def report_failures(method: str, context: Context) -> AsyncIterator[None]:
    """End a failed call with an error that its caller may see. Details of bugs go only to the log."""
    try:
        yield
    except grpc.aio.BaseError:
        raise  # the call was ended, or its caller disconnected
    except JournalError:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "The coordinator cannot use its journal and is stopping.")
    except DpspcaError as problem:
        await rpc.abort(context, problem)
    except Exception:  # noqa: BLE001  # any bug
        _log.exception("A call of %s failed because of a bug.", method)
        await rpc.abort(context, FaultError())


def _parts(handler: Handler) -> tuple[_Serve, Callable[[Any, Context], Awaitable[None]]]:
    """Return the function that serves a call, and the one that sends its replies."""
    single = handler.stream_unary if handler.request_streaming else handler.unary_unary
    several = handler.stream_stream if handler.request_streaming else handler.unary_stream
    return (cast("_Serve", several), _send_all) if handler.response_streaming else (cast("_Serve", single), _send_one)


async def _send_one(reply: Awaitable[Any], context: Context) -> None:
    await context.write(await reply)


async def _send_all(replies: AsyncGenerator[Any, None], context: Context) -> None:
    async with aclosing(replies):
        async for reply in replies:
            await context.write(reply)
