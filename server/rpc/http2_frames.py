"""The little of HTTP/2 that is read in front of gRPC: where calls begin, and how to refuse one. Pure.

gRPC keeps memory for every call from its first byte, and can neither be told how many calls a party may begin in a
second, nor close one connection. So the bytes of a caller are cut here at the frames that begin calls.
"""

from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
"""Of every frame: its length, kind and flags, and the number of its stream."""
HEADERS: Final = 1
SETTINGS: Final = 4
_LENGTH_BYTES: Final = 3
_END_OF_STREAM: Final = 1
_ACKNOWLEDGED: Final = 1
_END_OF_HEADERS: Final = 4
_STATUS_200: Final = b"\x88"
"""The eighth entry of the static table of HPACK."""
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""Letters that stand for themselves in the message of a status."""

GREETING: Final = bytes(_LENGTH_BYTES) + bytes([SETTINGS]) + bytes(5)
"""What a server says first: its settings, all of them the usual ones."""
ACKNOWLEDGEMENT: Final = bytes(_LENGTH_BYTES) + bytes([SETTINGS, _ACKNOWLEDGED]) + bytes(4)


class Cutter:
    """Reads what one caller sends, in pieces of any size, and stops at calls that may not begin yet."""

    def __init__(self) -> None:
        self._left = len(PREFACE)
        """Bytes until the next frame begins."""

    def most(self, content: bytes, may_begin: Callable[[], bool]) -> int:
        """Say how many of these bytes may go on; what is left has to be shown again, with what follows.

        ``may_begin`` is asked once for every call that begins. A frame whose head is not there yet waits for it.
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


class Calls:
    """Reads what a refused caller sends and keeps nothing of it but the numbers of the streams that it opens."""

    def __init__(self) -> None:
        self._left = len(PREFACE)
        self._head = b""

    def opened(self, content: bytes) -> Iterator[int]:
        """Give the streams on which calls begin."""
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


def refusal(stream: int, status: int, words: str, **more: str) -> bytes:
    """Write the whole reply to a call that is refused: a status, and words for people."""
    fields = {"content-type": "application/grpc", "grpc-status": str(status), "grpc-message": quote(words, safe=_PLAIN)}
    named = fields | {name.replace("_", "-"): value for name, value in more.items()}
    block = _STATUS_200 + b"".join(map(_field, named, named.values()))
    head = len(block).to_bytes(_LENGTH_BYTES) + bytes([HEADERS, _END_OF_STREAM | _END_OF_HEADERS])
    return head + stream.to_bytes(4) + block


def _field(name: str, value: str) -> bytes:
    """Write a header field literally, which no table remembers."""
    return b"\0" + _text(name.encode()) + _text(value.encode())


def _text(content: bytes) -> bytes:
    return _length(len(content)) + content


def _length(value: int) -> bytes:
    """Write a number that begins in seven bits, as HPACK does."""
    most = 0x7F
    if value < most:
        return bytes([value])
    digits, value = bytearray([most]), value - most
    while value > most:
        digits.append(value & most | 0x80)
        value >>= 7
    return bytes((*digits, value))
