"""Reads the cells of a column that says whose each row is. Readers of files give numbers alone, so labels become such.

A label that is text is read as a number of its own, below all numbers that name persons. A number names a person by its
digits, and up to 2^52 only, because larger ones may be stored as their neighbours: two persons would become one.
"""

from collections.abc import Callable
from math import nan
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidTypeError
from dpspca.common.storage import Codes

LARGEST: Final = 2.0**52
_REPLACED: Final = "\ufffd"
"""In place of bytes that are not in a file's encoding. Names that differ only in them would be one."""


class PersonCells(dict[str, int]):
    """The labels of one column, and the place of each, in the order in which they were found.

    It stands where a category has its levels, and is filled while rows are read.
    """

    def __init__(self, label_of: Callable[[bytes], bytes], codes: Codes = ()) -> None:
        """``label_of`` writes a label in the form that labels of a persons file have. ``codes`` stand for nobody."""
        super().__init__()
        self._label_of = label_of
        self._nobody = frozenset(label_of(_digits(code).encode("utf-8", "surrogateescape")) for code in codes)
        self._labels: list[bytes] = []

    def __bool__(self) -> bool:
        """Tell that the column may hold text, also before any was read."""
        return True

    def read(self, cell: str) -> float:
        """Return the number of a cell's label. A cell that is empty, or not in the file's encoding, names nobody."""
        if _REPLACED in cell or any(map(_is_surrogate, cell)):
            return nan
        label = self._label_of(cell.encode("utf-8", "surrogateescape"))
        if not label or label in self._nobody:
            return nan
        text = label.decode("utf-8", "surrogateescape")
        if text not in self:
            self[text] = len(self._labels)
            self._labels.append(label)
        return -LARGEST - self[text]

    def labels(self, numbers: FloatArray) -> list[bytes]:
        """Return the label of each number that was read: no bytes for a row of nobody."""
        different, places = np.unique(numbers, return_inverse=True)
        known = list(map(self._label, different.tolist()))
        return [known[place] for place in places.tolist()]

    def _label(self, number: float) -> bytes:
        if number <= -LARGEST and number != -np.inf:
            place = int(-LARGEST - number)
            return self._labels[place] if place < len(self._labels) else b""
        label = b"" if not abs(number) < LARGEST else _digits(number).encode()
        return b"" if label in self._nobody else label


def require_persons(name: str, kind: str, *, is_fit: bool) -> None:
    """Refuse a column whose type may hold one number for two persons, or whose values have no single form as text."""
    if not is_fit:
        raise InvalidTypeError(
            f"The column {name!r:.60}, which says whose each row is, holds {kind}.",
            "Write it as text or as whole numbers: in a database with CAST in a query.",
        )


def _digits(code: str | float) -> str:
    """Write a number by its digits, without a decimal if it is whole."""
    return code if isinstance(code, str) else str(int(code) if float(code).is_integer() else code)


def _is_surrogate(letter: str) -> bool:
    """Tell whether a letter stands for a byte that is not in a file's encoding."""
    return "\ud800" <= letter <= "\udfff"
