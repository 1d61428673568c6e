"""Serves a program's metrics over plain HTTP: one page, /metrics, on an address of the operator's choice.

It has no TLS and asks nobody who they are, as Prometheus expects. So it belongs on an address that only the operator's
own machines reach, such as the loopback. It reads at most a few kilobytes from a caller and waits a few seconds.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

MAX_REQUEST: Final = 2**13
MAX_CALLERS: Final = 16
READ_SECONDS: Final = 5.0
_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """A listening page."""

    def __init__(self, text: Callable[[], str]) -> None:
        """``text`` is called for each request."""
        self._text = text
        self._callers = 0
        self._server: asyncio.Server | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        """Listen. Port 0 picks a free port."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST)
        bound = self._server.sockets[0].getsockname()
        self.address = f"{bound[0]}:{bound[1]}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._server:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._callers += 1
        try:
            if self._callers <= MAX_CALLERS:
                with suppress(
                    TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
                ):
                    async with asyncio.timeout(READ_SECONDS):
                        request = await reader.readuntil(b"\r\n\r\n")
                        writer.write(self._reply(request))
                        await writer.drain()
        finally:
            self._callers -= 1
            writer.close()

    def _reply(self, request: bytes) -> bytes:
        words = request.split(b"\r\n", 1)[0].split()
        found = len(words) > 1 and words[0] == b"GET" and words[1].split(b"?")[0] == b"/metrics"
        status, body = ("200 OK", self._text().encode()) if found else ("404 Not Found", b"Ask for /metrics.\n")
        kind = _TYPE if found else "text/plain"
        heading = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return heading.encode() + body
