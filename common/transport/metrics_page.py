"""Serves a program's metrics over plain HTTP: one page, /metrics, on an address of the operator's choice.

It has no TLS and no login, as Prometheus expects. So it belongs on an address that only the operator's own machines
reach, such as the loopback. There, it answers only callers that ask for the loopback: the name of a hostile web page
may be made to point to this machine, and a browser here would then read the page of metrics for it. It reads at most a
few kilobytes from a caller and waits a few seconds.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from .mailbox import is_loopback

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
        self._is_local = True
        self._server: asyncio.Server | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        """Listen. Port 0 picks a free port."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST)
        bound = self._server.sockets[0].getsockname()
        self._is_local = ip_address(bound[0]).is_loopback
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"

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
        first, *lines = request.decode("latin-1").split("\r\n")
        words = first.split()
        if self._is_local and not _asks_for_loopback(lines):
            status, kind, text = "421 Misdirected Request", "text/plain", "This name is not served here.\n"
        elif len(words) > 1 and words[0] == "GET" and words[1].split("?")[0] == "/metrics":
            status, kind, text = "200 OK", _TYPE, self._text()
        else:
            status, kind, text = "404 Not Found", "text/plain", "Ask for /metrics.\n"
        body = text.encode()
        heading = (
            f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return heading.encode() + body


def _asks_for_loopback(lines: list[str]) -> bool:
    """Whether every Host header names this machine itself. A caller without one is not a browser."""
    fields = (line.partition(":") for line in lines)
    return all(is_loopback(_host(value.strip())) for name, _, value in fields if name.strip().lower() == "host")


def _host(authority: str) -> str:
    """Return the host without the port, or nothing if it cannot be told."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""
