"""Counts the parts of a message before protobuf reads it.

An empty part is two bytes on the wire and fifty times as much where it is read: a message of three megabytes would
take more than a hundred. So whoever reads what a stranger sent says how many parts there may be.
"""

from typing import Any, Final, TypeAlias

from google.protobuf.message import DecodeError

_VARINT, _FIXED_64, _DELIMITED, _FIXED_32 = 0, 1, 2, 5
_WIDTHS: Final = {_FIXED_64: 8, _FIXED_32: 4}
_DEEPEST: Final = 16
"""Messages within messages: ours go four deep."""
_LONGEST_VARINT: Final = 10


Kind: TypeAlias = Any
"""A message's descriptor: Python's or that of protobuf's own library, which have no type in common."""


class TooManyPartsError(Exception):
    """A message has more parts than it may have."""


def count(content: bytes, of: Kind, most: int) -> int:
    """Count the parts of a message and of those within it; one too many raises, and nothing more is read."""
    return _Walk(content, most).through(of, 0, len(content))


class _Walk:
    def __init__(self, content: bytes, most: int) -> None:
        self._content = content
        self._most = most
        self._parts = 0

    def through(self, of: Kind, at: int, end: int, depth: int = 0) -> int:
        """Count the parts from ``at`` to ``end``, which are those of a message of this kind."""
        if depth > _DEEPEST:
            raise TooManyPartsError
        while at < end:
            self._parts += 1
            if self._parts > self._most:
                raise TooManyPartsError
            tag, at = self._varint(at, end)
            size, at = self._size(tag & 7, at, end)
            field = of.fields_by_number.get(tag >> 3)
            if tag & 7 == _DELIMITED and field is not None and field.message_type is not None:
                self.through(field.message_type, at, at + size, depth + 1)
            at += size
        return self._parts

    def _size(self, kind: int, at: int, end: int) -> tuple[int, int]:
        """Give how long a part's content is, and where it begins."""
        if kind == _VARINT:
            return 0, self._varint(at, end)[1]
        size, at = self._varint(at, end) if kind == _DELIMITED else (_WIDTHS.get(kind, end), at)
        if size > end - at:
            raise DecodeError("A part is longer than what it is in, or of no known kind.")
        return size, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for place in range(_LONGEST_VARINT):
            if at + place >= end:
                break
            digit = self._content[at + place]
            value |= (digit & 0x7F) << 7 * place
            if digit < 1 << 7:
                return value, at + place + 1
        raise DecodeError("A number ends nowhere.")
