"""Requests are read only of callers who were let in, a few at a time of each, and not for ever; nor are replies held.

gRPC's own way is to read a request whole, and then to ask whose it is. A request that never ends would hold memory and
one of the places for calls, whoever sent it: with a certificate that was revoked, too. So every call is served like one
whose requests are a stream, which gives the same bytes on the wire: the caller is judged by the connection, before
anything that it sends is read, then takes one of its own places, and has so long to send one message.

A reply that is never taken would hold as much, and gRPC has no way to end its call. So a place is held until the last
byte of a reply is gone, and what takes much of memory or of the processor is done for one party a few at a time.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import grpc
import grpc.aio

from dpspca.common.errors import RefusedError
from dpspca.common.transport import rpc
from dpspca.common.transport.names import PartyName

MAX_UNREAD: Final = 8
"""Requests of one party that are on their way at once; of the largest that gRPC takes here, 24 MiB."""
READING_SECONDS: Final = 60.0
"""For one request."""
MAX_OPEN: Final = 320
"""Calls of one party at once: all the watches that it may have, and as many more as one connection takes."""
AT_A_TIME: Final = MappingProxyType({"Submit": 2, "Get": 8, "Result": 8})
"""Calls of one party that are served at a time, where there is much to reckon or to send; its others wait, unread.

Never one alone: the call of a client whose link was cut lasts until that is noticed.
"""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Take: TypeAlias = Callable[[AsyncIterator[Any], Context], Awaitable[Any]]
"""Lets a caller in, and gives what its method is called with."""


if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]  # generic for whoever checks types alone
else:
    _Interceptor = grpc.aio.ServerInterceptor


class Receiving(_Interceptor):
    """Stands between the connection and all methods that take one request."""

    def __init__(self, door: rpc.Doorkeeper, name_of: Callable[[str], str], seconds: float = READING_SECONDS) -> None:
        """Take what judges callers, and what a method is called there, given its path."""
        self._door = door
        self._name_of = name_of
        self._seconds = seconds
        self._unread = rpc.Quota(MAX_UNREAD, "You are sending several requests and have finished none.")
        self._open = rpc.Quota(MAX_OPEN, "You have too many calls open.")
        self._turns = {method: rpc.Turns(most) for method, most in AT_A_TIME.items()}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Have a method's request read by us, and its replies sent within bounds."""
        handler = await continuation(handler_call_details)
        if not handler:
            return handler
        kinds = (handler.request_deserializer, handler.response_serializer)
        method = self._name_of(handler_call_details.method)
        if handler.request_streaming:
            carry = _streaming(cast("Callable[..., Any]", handler.stream_stream), partial(self._all, method))
            return grpc.stream_stream_rpc_method_handler(carry, *kinds)
        read = partial(self._one, method)
        if handler.response_streaming:
            streaming = _streaming(cast("Callable[..., Any]", handler.unary_stream), read)
            return grpc.stream_stream_rpc_method_handler(streaming, *kinds)
        single = _single(cast("Callable[..., Awaitable[Any]]", handler.unary_unary), read)
        return grpc.stream_unary_rpc_method_handler(single, *kinds)

    async def _let_in(self, method: str, context: Context) -> PartyName:
        """Judge a caller, and give it a place until all of the call is over."""
        caller = await self._door.admit(context, method)
        await self._open.until_over(caller, context)
        if method in self._turns:
            await self._turns[method].take(caller, context)
        return caller

    async def _all(self, method: str, requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        """Let a caller in whose messages the method reads itself."""
        await self._let_in(method, context)
        return requests

    async def _one(self, method: str, requests: AsyncIterator[Any], context: Context) -> Any:  # noqa: ANN401  # a message
        """Let a caller in, and read its one request."""
        caller = await self._let_in(method, context)
        async with self._unread.one_of(caller, context):
            try:
                async with asyncio.timeout(self._seconds):
                    async for request in requests:
                        return request
            except TimeoutError:
                await rpc.abort(context, RefusedError("Your request took too long to arrive.", "Send it again."))
        return await rpc.abort(context, RefusedError("A call without a request.", "Use a matching version."))


def _single(serve: Callable[[Any, Context], Awaitable[Any]], take: _Take) -> Callable[..., Awaitable[Any]]:
    """Serve a method that answers once."""

    async def answer(requests: AsyncIterator[Any], context: Context) -> Any:  # noqa: ANN401  # a message
        return await serve(await take(requests, context), context)

    return answer


def _streaming(serve: Callable[[Any, Context], Any], take: _Take) -> Callable[..., Any]:
    """Serve a method that answers with a stream: it gives its messages one by one, or writes them itself."""
    if not inspect.isasyncgenfunction(serve):
        return _single(serve, take)

    async def give(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async with aclosing(serve(await take(requests, context), context)) as answers:
            async for answer in answers:
                yield answer

    return give
