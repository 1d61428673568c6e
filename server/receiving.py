"""Requests are read only of callers who were let in, a few at a time of each, and not for ever.

gRPC's own way is to read a request whole, and then to ask whose it is. A request that never ends would hold memory and
one of the places for calls, whoever sent it: with a certificate that was revoked, too. So every call is served like one
whose requests are a stream, which gives the same bytes on the wire: the caller is judged by the connection, before
anything that it sends is read, then takes one of its own places, and has so long to send one message.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import grpc
import grpc.aio

from dpspca.common.errors import RefusedError
from dpspca.common.transport import rpc

MAX_UNREAD: Final = 8
"""Requests of one party that are on their way at once; of the largest that gRPC takes here, 24 MiB."""
READING_SECONDS: Final = 60.0
"""For one request."""

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


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

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """Have a method's request read by us."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        read = self._reading(self._name_of(handler_call_details.method))
        kinds = (handler.request_deserializer, handler.response_serializer)
        if handler.response_streaming:
            streaming = _streaming(cast("Callable[..., Any]", handler.unary_stream), read)
            return grpc.stream_stream_rpc_method_handler(streaming, *kinds)
        single = _single(cast("Callable[..., Awaitable[Any]]", handler.unary_unary), read)
        return grpc.stream_unary_rpc_method_handler(single, *kinds)

    def _reading(self, method: str) -> "_Read":
        async def read(requests: AsyncIterator[Any], context: Context) -> Any:  # noqa: ANN401  # a message
            caller = await self._door.admit(context, method)
            async with self._unread.one_of(caller, context):
                try:
                    async with asyncio.timeout(self._seconds):
                        async for request in requests:
                            return request
                except TimeoutError:
                    await rpc.abort(context, RefusedError("Your request took too long to arrive.", "Send it again."))
            return await rpc.abort(context, RefusedError("A call without a request.", "Use a matching version."))

        return read


_Read: TypeAlias = Callable[[AsyncIterator[Any], Context], Awaitable[Any]]


def _single(serve: Callable[[Any, Context], Awaitable[Any]], read: _Read) -> Callable[..., Awaitable[Any]]:
    async def answer(requests: AsyncIterator[Any], context: Context) -> Any:  # noqa: ANN401  # a message
        return await serve(await read(requests, context), context)

    return answer


def _streaming(serve: Callable[[Any, Context], Any], read: _Read) -> Callable[..., Any]:
    """Serve a method that answers with a stream: it gives its messages one by one, or writes them itself."""
    if inspect.isasyncgenfunction(serve):

        async def give(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            async for answer in serve(await read(requests, context), context):
                yield answer

        return give

    async def write(requests: AsyncIterator[Any], context: Context) -> None:
        await serve(await read(requests, context), context)

    return write
