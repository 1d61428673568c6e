"""A channel to the coordinator on which calls use the certificate that is on disk now."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import grpc.aio

from dpspca.common.errors import DpspcaError
from dpspca.common.storage import Route
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity


class RenewableChannel:
    """A channel that dials again for new calls when the party's certificate was renewed.

    gRPC cannot change the certificate of a channel. Calls that are open stay on the channel on which they began, until
    they end or this is closed.
    """

    def __init__(self, where: str | Route, read: Callable[[], Identity]) -> None:
        self._where = where
        self._read = read
        self._in_use = read()
        self._channels = [rpc.dial(where, self._in_use)]

    def identity(self) -> Identity:
        """Return the party's identity as it is now. While a renewal is half written, the one before stays in use."""
        with suppress(DpspcaError):
            found, before = self._read(), self._in_use
            same_party = (found.name, found.authority_pem) == (before.name, before.authority_pem)
            if same_party and found != before:
                self._channels.append(rpc.dial(self._where, found))
                self._in_use = found
        return self._in_use

    def unary_unary(self, path: str, **options: Any) -> Any:  # noqa: ANN401  # gRPC's
        """Return a callable for a method with one reply."""

        def call(*given: Any, **more: Any) -> Any:  # noqa: ANN401
            return self._newest().unary_unary(path, **options)(*given, **more)

        return call

    def unary_stream(self, path: str, **options: Any) -> Any:  # noqa: ANN401  # gRPC's
        """Return a callable for a method with any number of replies."""

        def call(*given: Any, **more: Any) -> Any:  # noqa: ANN401
            return self._newest().unary_stream(path, **options)(*given, **more)

        return call

    async def close(self) -> None:
        """Close all connections."""
        for each in self._channels:
            await each.close(None)

    def _newest(self) -> grpc.aio.Channel:
        self.identity()
        return self._channels[-1]
