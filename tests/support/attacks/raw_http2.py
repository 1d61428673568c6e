"""HTTP/2 over mutual TLS, frame by frame, for callers that leave requests unfinished as no library would."""

import asyncio
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dpspca.common.names import COORDINATOR_HOST
from dpspca.common.trust.identity import Identity

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, AWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
ACKNOWLEDGED = END_OF_STREAM = 1
END_OF_HEADERS = 4
INITIAL_WINDOW = 4
"""Identifier of the setting for how much may be sent on a new stream before the receiver allows more."""
LARGEST_FRAME = 16_384


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content


def header(name: bytes, value: bytes) -> bytes:
    """Return the bytes of a literal header. Name and value must be short."""
    assert max(len(name), len(value)) < 127  # the length fits into seven bits
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def headers(path: str) -> bytes:
    named = {
        b":method": b"POST",
        b":scheme": b"https",
        b":path": path.encode(),
        b":authority": COORDINATOR_HOST.encode(),
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    return b"".join(header(name, value) for name, value in named.items())


@dataclass
class RawConnection:
    """One connection that respects the flow control windows of the other side."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    window: int = 65_535
    initial: int = 65_535
    windows: dict[int, int] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)

    def hang_up(self) -> None:
        """Close the connection at once. gRPC ignores the closing message of TLS and waits for that of TCP."""
        self.writer.close()
        self.writer.transport.abort()

    async def listen(self) -> None:
        """Read frames until the other side closes the connection."""
        try:
            while True:
                head = await self.reader.readexactly(9)
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:])
                self._hear(kind, flags, stream, await self.reader.readexactly(int.from_bytes(head[:3])))
        except (asyncio.IncompleteReadError, OSError):
            self.ended.update(self.windows)

    def _hear(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == WINDOW and stream == 0:
            self.window += int.from_bytes(content)
        elif kind == WINDOW and stream in self.windows:
            self.windows[stream] += int.from_bytes(content)
        elif kind == SETTINGS and not flags & ACKNOWLEDGED:
            for at in range(0, len(content), 6):
                name, value = struct.unpack(">HI", content[at : at + 6])
                if name == INITIAL_WINDOW:
                    self.windows = {each: left + value - self.initial for each, left in self.windows.items()}
                    self.initial = value
            self.writer.write(frame(SETTINGS, ACKNOWLEDGED, 0))
        elif kind == PING and not flags & ACKNOWLEDGED:
            self.writer.write(frame(PING, ACKNOWLEDGED, 0, content))
        elif kind == RESET or (kind == HEADERS and flags & END_OF_STREAM):
            self.ended.add(stream)

    async def begin(self, path: str, calls: int, size: int, seconds: float) -> None:
        """Begin ``calls`` calls. In each send a message of ``size`` bytes but its end, within flow control."""
        left = {}
        for number in range(calls):
            stream = 1 + 2 * number
            self.windows[stream], left[stream] = self.initial, struct.pack(">BI", 0, size) + bytes(size - 1)
            self.writer.write(frame(HEADERS, END_OF_HEADERS, stream, headers(path)))
        until = asyncio.get_running_loop().time() + seconds
        while any(left.values()) and asyncio.get_running_loop().time() < until:
            for stream, content in left.items():
                most = 0 if stream in self.ended else min(LARGEST_FRAME, self.window, self.windows[stream])
                if most > 0 and content:
                    self.writer.write(frame(DATA, 0, stream, content[:most]))
                    left[stream] = content[most:]
                    self.window -= len(content[:most])
                    self.windows[stream] -= len(content[:most])
            await self.writer.drain()
            await asyncio.sleep(0.005)

    def ask(self, path: str, calls: int, content: bytes) -> None:
        """Make ``calls`` complete calls. With the settings ``DEAF`` their replies cannot be sent."""
        for number in range(calls):
            stream = 1 + 2 * number
            message = struct.pack(">BI", 0, len(content)) + content
            self.writer.write(frame(HEADERS, END_OF_HEADERS, stream, headers(path)))
            self.writer.write(frame(DATA, END_OF_STREAM, stream, message))

    async def pour(self, content: Callable[[int], bytes], seconds: float) -> None:
        """Write content again and again, for ``seconds`` seconds or until the other side closes the connection."""
        until, number = asyncio.get_running_loop().time() + seconds, 0
        with suppress(OSError):
            while asyncio.get_running_loop().time() < until and not self.reader.at_eof():
                self.writer.write(content(number))
                await self.writer.drain()
                await asyncio.sleep(0.002)  # let honest parties in this process run
                number += 1


def pings(_: int) -> bytes:
    return frame(PING, 0, 0, b"anything") * 500


def settings(_: int) -> bytes:
    return frame(SETTINGS, 0, 0) * 500


def begun_and_cancelled(number: int) -> bytes:
    """Return the bytes that begin a hundred calls and cancel each at once."""
    streams = range(200 * number + 1, 200 * number + 200, 2)
    path = headers("/dpspca.v1.AnalystService/List")
    given_up = (8).to_bytes(4)
    return b"".join(frame(HEADERS, END_OF_HEADERS, each, path) + frame(RESET, 0, each, given_up) for each in streams)


NO_REPLIES_ALLOWED = struct.pack(">HI", INITIAL_WINDOW, 0)
"""Settings that allow not a single byte of any reply."""


async def open_connection(address: str, identity: Identity, folder: Path, own: bytes = b"") -> RawConnection:
    """Open a connection with the settings ``own``."""
    (folder / "raw.pem").write_bytes(identity.key_pem + identity.certificate_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=identity.authority_pem.decode())
    context.load_cert_chain(folder / "raw.pem")
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=COORDINATOR_HOST)
    writer.write(PREFACE + frame(SETTINGS, 0, 0, own))
    return RawConnection(reader, writer)
