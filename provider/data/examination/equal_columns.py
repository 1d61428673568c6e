"""Finds columns of dense rows that hold the same numbers in all rows, while the rows come some at a time. Pure."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray

_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_ODD: Final = np.uint64(1)
_SHIFT: Final = np.uint64(29)


class EqualColumns:
    """Adds up a hash of each column. By chance, two different columns of a table have one hash in 2^60 tables or so."""

    def __init__(self, columns: int) -> None:
        self._hashes = np.zeros(columns, dtype=np.uint64)
        self._first = np.full(columns, np.nan)
        self._is_constant = np.ones(columns, dtype=np.bool_)
        self._rows = 0

    def add(self, rows: FloatArray) -> None:
        """Take some rows."""
        if not len(rows):
            return
        if not self._rows:
            self._first = rows[0].copy()
        self._is_constant &= ((rows == self._first) | np.isnan(rows)).all(axis=0)
        places = np.arange(self._rows + 1, self._rows + 1 + len(rows), dtype=np.uint64)
        weights = (places * _SPREAD ^ places * _SPREAD >> _SHIFT) * _SPREAD | _ODD
        bits = (rows + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        mixed = (bits ^ bits >> _SHIFT) * _SPREAD
        self._hashes += ((mixed ^ mixed >> _SHIFT) * weights[:, None]).sum(axis=0, dtype=np.uint64)
        self._rows += len(rows)

    def groups(self, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """Name the columns that are equal, group by group. Those with one number in all rows are left out."""
        found = dict[int, list[str]]()
        for name, print_of, is_constant in zip(names, self._hashes.tolist(), self._is_constant.tolist(), strict=True):
            if not is_constant:
                found.setdefault(print_of, []).append(name)
        return tuple(tuple(group) for group in found.values() if len(group) > 1)
