"""The part of HTTP/2 that is read in front of gRPC: where calls begin, and how to refuse one. Pure.

gRPC holds memory for every call from its first byte. It cannot limit how many calls a party begins in a second, and it
cannot close one connection. So a caller's bytes are split here at the frames that begin calls.
"""

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
"""The head of a frame: its length, kind and flags, and the number of its stream."""
HEADERS: Final = 1
SETTINGS: Final = 4
_LENGTH_BYTES: Final = 3
_END_OF_STREAM: Final = 1
_ACKNOWLEDGED: Final = 1
_END_OF_HEADERS: Final = 4
_STATUS_200: Final = b"\x88"
"""The eighth entry of HPACK's static table."""
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""Characters that are not escaped in the message of a status."""

SERVER_SETTINGS: Final = bytes(_LENGTH_BYTES) + bytes([SETTINGS]) + bytes(5)
"""The server's first frame: its settings, all with default values."""
SETTINGS_ACK: Final = bytes(_LENGTH_BYTES) + bytes([SETTINGS, _ACKNOWLEDGED]) + bytes(4)


class CallCutter:
    """Reads what one caller sends, in pieces of any size, and holds back calls that may not begin yet."""

    def __init__(self) -> None:
        self._left = len(PREFACE)
        """Bytes until the next frame begins."""

    def allowed_bytes(self, content: bytes, may_begin: Callable[[], bool]) -> int:
        """Return how many of these bytes may pass. Pass the rest in again, together with the bytes that follow.

        ``may_begin`` is called once for every call that begins. A frame with an incomplete head waits for its end.
        """
        at, size = 0, len(content)
        while at < size:
            if not self._left:
                if size - at < HEAD_BYTES:
                    break
                if content[at + _LENGTH_BYTES] == HEADERS and not may_begin():
                    break
                self._left = HEAD_BYTES + int.from_bytes(content[at : at + _LENGTH_BYTES])
            step = min(self._left, size - at)
            self._left -= step
            at += step
        return at


class OpenedStreams:
    """Reads what a refused caller sends, and keeps only the numbers of the streams that it opens."""

    def __init__(self) -> None:
        self._left = len(PREFACE)
        self._head = b""

    def read(self, content: bytes) -> Iterator[int]:
        """Yield the streams on which calls begin."""
        at = 0
        while at < len(content):
            if self._left:
                step = min(self._left, len(content) - at)
                self._left -= step
                at += step
                continue
            more = HEAD_BYTES - len(self._head)
            self._head += content[at : at + more]
            at += more
            if len(self._head) == HEAD_BYTES:
                head, self._head = self._head, b""
                self._left = int.from_bytes(head[:_LENGTH_BYTES])
                if head[_LENGTH_BYTES] == HEADERS:
                    yield int.from_bytes(head[-4:]) & 0x7FFFFFFF


def refusal(stream: int, status: int, message: str, **more: str) -> bytes:
    """Write the complete reply to a refused call: a status, a message and more header fields."""
    escaped = quote(message, safe=_PLAIN)
    fields = {"content-type": "application/grpc", "grpc-status": str(status), "grpc-message": escaped}
    named = fields | {name.replace("_", "-"): value for name, value in more.items()}
    block = _STATUS_200 + b"".join(map(_field, named, named.values()))
    head = len(block).to_bytes(_LENGTH_BYTES) + bytes([HEADERS, _END_OF_STREAM | _END_OF_HEADERS])
    return head + stream.to_bytes(4) + block


def _field(name: str, value: str) -> bytes:
    """Write a header field literally, so that no HPACK table stores it."""
    return b"\0" + _text(name.encode()) + _text(value.encode())


def _text(content: bytes) -> bytes:
    return _length(len(content)) + content


def _length(value: int) -> bytes:
    """Write a number in HPACK's form with a prefix of seven bits."""
    most = 0x7F
    if value < most:
        return bytes([value])
    digits, value = bytearray([most]), value - most
    while value > most:
        digits.append(value & most | 0x80)
        value >>= 7
    return bytes((*digits, value))
