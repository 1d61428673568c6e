"""Counts the parts of a message before protobuf parses it.

An empty part takes two bytes on the wire but fifty times as much memory when parsed, so a message of 3 MB would take
more than 100 MB. So the reader of an untrusted message states how many parts it may have.
"""

from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_WIDTHS: Final = {_FIXED_64: 8, _FIXED_32: 4}
_MAX_DEPTH: Final = 16
"""Deepest nesting that is accepted. Our own messages nest four deep."""
_MAX_VARINT_BYTES: Final = 10

Kind: TypeAlias = Any
"""A message's descriptor. The pure-Python and the native one have no type in common."""


class TooManyPartsError(Exception):
    """A message has more parts than are allowed."""


def count(content: bytes, of: Kind, most: int) -> int:
    """Count the parts of a message and of its nested messages. Raise at the first part beyond ``most``."""
    return _Counter(content, most).count(of, 0, len(content))


class _Counter:
    def __init__(self, content: bytes, most: int) -> None:
        self._content = content
        self._most = most
        self._parts = 0

    def count(self, of: Kind, at: int, end: int, depth: int = 0) -> int:
        """Count the parts from ``at`` to ``end``, which hold a message of this kind."""
        if depth > _MAX_DEPTH:
            raise TooManyPartsError
        while at < end:
            self._parts += 1
            if self._parts > self._most:
                raise TooManyPartsError
            tag, at = self._varint(at, end)
            size, at = self._size(tag & 7, at, end)
            field = of.fields_by_number.get(tag >> 3)
            if tag & 7 == _DELIMITED and field is not None and field.message_type is not None:
                self.count(field.message_type, at, at + size, depth + 1)
            at += size
        return self._parts

    def _size(self, kind: int, at: int, end: int) -> tuple[int, int]:
        """Return the length of a part's content, and where it begins."""
        if kind == _VARINT:
            return 0, self._varint(at, end)[1]
        size, at = self._varint(at, end) if kind == _DELIMITED else (_WIDTHS.get(kind, end), at)
        if size > end - at:
            raise DecodeError("A part is longer than its message, or of an unknown wire type.")
        return size, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for place in range(_MAX_VARINT_BYTES):
            if at + place >= end:
                break
            digit = self._content[at + place]
            value |= (digit & 0x7F) << 7 * place
            if digit < 1 << 7:
                return value, at + place + 1
        raise DecodeError("A number has no end.")
