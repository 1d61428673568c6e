"""Attackers in separate processes: callers with a valid certificate that use up a coordinator's time and memory.

Run as a program with these arguments: the address, a folder with the identity, the attack, and its duration in seconds.
It ends by itself. It speaks plain HTTP/2 over blocking sockets, as fast as one processor can.
"""

import json
import math
import socket
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from raw_http2 import (
    ACKNOWLEDGED,
    DATA,
    END_OF_HEADERS,
    END_OF_STREAM,
    HEADERS,
    PREFACE,
    RESET,
    SETTINGS,
    frame,
    header,
    headers,
)

SUBMIT = "/dpspca.v1.AnalystService/Submit"
LIST = "/dpspca.v1.AnalystService/List"
SMALL = bytes(800)
CALLS = 30
"""Calls on one connection."""
SECONDS = 60.0
"""Timeout of a socket."""


class Attacker:
    """The attacks of one process, with counts of what it did."""

    def __init__(self, address: str, folder: Path) -> None:
        host, _, port = address.rpartition(":")
        self._where = (host, int(port))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname = False
        self._context.verify_mode = ssl.CERT_NONE
        self._context.load_cert_chain(folder / "raw.pem")
        self._context.set_alpn_protocols(["h2"])
        self.connections = self.calls = 0
        self.until = math.inf

    @contextmanager
    def connected(self) -> Iterator[ssl.SSLSocket]:
        """Open a connection, and close it at the end of the block."""
        left = max(0.1, min(SECONDS, self.until - time.monotonic()))
        with socket.create_connection(self._where, left) as plain, self._context.wrap_socket(plain) as connection:
            self.connections += 1
            connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
            yield connection

    def dropped(self, path: str = SUBMIT, content: bytes = SMALL, more: bytes = b"") -> None:
        """Make some calls and hang up before they can be answered."""
        calls = b"".join(call(1 + 2 * number, path, content, more) for number in range(CALLS))
        with self.connected() as connection:
            connection.sendall(calls)
            self.calls += CALLS

    def hammered(self, path: str = LIST, content: bytes = b"", more: bytes = b"") -> None:
        """Make calls on one connection as fast as they are answered, and as long as it lasts."""
        with self.connected() as connection:
            stream, at_once = 1, 20
            while time.monotonic() < self.until:
                batch = b"".join(call(stream + 2 * number, path, content, more) for number in range(at_once))
                connection.sendall(batch)
                stream += 2 * at_once
                self.calls += at_once
                ended = 0
                while ended < at_once:
                    ended += _ends(connection)

    def half_open(self) -> None:
        """Open a hundred connections at a time and send nothing."""
        with ExitStack() as held:
            for _ in range(100):
                held.enter_context(socket.create_connection(self._where, SECONDS))
                self.connections += 1

    def unanswered(self, path: str = SUBMIT, content: bytes = SMALL) -> None:
        """Make calls on one connection and cancel each at once."""
        with self.connected() as connection:
            for stream in range(1, 2**20, 2):
                if time.monotonic() > self.until:
                    return
                connection.sendall(call(stream, path, content) + frame(RESET, 0, stream, (8).to_bytes(4)))
                self.calls += 1


def call(stream: int, path: str, content: bytes, more: bytes = b"") -> bytes:
    """Return the bytes of a complete call."""
    message = struct.pack(">BI", 0, len(content)) + content
    begun = frame(HEADERS, END_OF_HEADERS, stream, headers(path) + more)
    return begun + frame(DATA, END_OF_STREAM, stream, message)


def _ends(connection: ssl.SSLSocket) -> int:
    """Read one frame. Return 1 if it ends a call, else 0."""
    head = _exactly(connection, 9)
    _exactly(connection, int.from_bytes(head[:3]))
    if head[3] == SETTINGS and not head[4] & ACKNOWLEDGED:
        connection.sendall(frame(SETTINGS, ACKNOWLEDGED, 0))
    return int((head[3] == HEADERS and head[4] & END_OF_STREAM) or head[3] == RESET)


def _exactly(connection: ssl.SSLSocket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        piece = connection.recv(size - len(content))
        if not piece:
            raise ConnectionResetError
        content += piece
    return content


LARGE_METADATA = b"".join(header(b"x-%d" % number, b"v" * 120) for number in range(50))

ATTACKS: dict[str, Callable[[Attacker], None]] = {
    "dropped": Attacker.dropped,
    "hammered": Attacker.hammered,
    "unanswered": Attacker.unanswered,
    "half open": Attacker.half_open,
    "unknown": lambda attacker: attacker.hammered("/dpspca.v1.Nothing/AtAll"),
    "metadata": lambda attacker: attacker.dropped(more=LARGE_METADATA),
}


def main(address: str, folder: str, attack: str, seconds: str) -> None:
    """Attack for ``seconds`` seconds, and print how often."""
    attacker = Attacker(address, Path(folder))
    attacker.until = time.monotonic() + float(seconds)
    failed = 0
    while time.monotonic() < attacker.until:
        try:
            ATTACKS[attack](attacker)
        except OSError:
            failed += 1
            time.sleep(0.001)
    told = {"connections": attacker.connections, "calls": attacker.calls, "failed": failed}
    sys.stdout.write(f"{json.dumps(told)}\n")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
