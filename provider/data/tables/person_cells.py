"""Reads the cells of a column that says whose each row is. Readers of files give numbers alone, so labels become such.

A label that is text is read as a number of its own, below all numbers that name persons. A number names a person by its
digits, and up to 2^52 only, because larger ones may be stored as their neighbours: two persons would become one.
"""

from collections.abc import Callable
from math import nan
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.text import composed

_LARGEST: Final = 2.0**52
_REPLACED: Final = "\ufffd"
"""In place of bytes that are not in a file's encoding. Names that differ only in them would be one."""


class PersonCells(dict[str, int]):
    """The labels of one column, and the place of each, in the order in which they were found.

    It stands where a category has its levels, and is filled while rows are read.
    """

    def __init__(self, label_of: Callable[[bytes], bytes]) -> None:
        """``label_of`` writes a label in the form that labels of a persons file have."""
        super().__init__()
        self._label_of = label_of
        self._labels: list[bytes] = []

    def __bool__(self) -> bool:
        """Tell that the column may hold text, also before any was read."""
        return True

    def read(self, cell: str) -> float:
        """Return the number of a cell's label. A cell that is empty, or not in the file's encoding, names nobody."""
        if _REPLACED in cell:
            return nan
        label = self._label_of(cell.encode("utf-8", "surrogateescape"))
        if not label:
            return nan
        text = composed(label.decode("utf-8", "surrogateescape"))
        if text not in self:
            self[text] = len(self._labels)
            self._labels.append(label)
        return -_LARGEST - self[text]

    def labels(self, numbers: FloatArray) -> list[bytes]:
        """Return the label of each number that was read: no bytes for a row of nobody."""
        different, places = np.unique(numbers, return_inverse=True)
        known = list(map(self._label, different.tolist()))
        return [known[place] for place in places.tolist()]

    def _label(self, number: float) -> bytes:
        if number <= -_LARGEST and number != -np.inf:
            place = int(-_LARGEST - number)
            return self._labels[place] if place < len(self._labels) else b""
        if not abs(number) < _LARGEST:
            return b""
        return str(int(number) if number.is_integer() else number).encode()
