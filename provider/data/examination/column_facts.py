"""Facts for a steward about the columns of a file that no dictionary describes. Pure.

These are facts about rows, for the person who may see the rows. None of them may leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import LARGEST_ENTRY, FloatArray
from dpspca.common.storage import Reading
from dpspca.provider.data.memory import MISSING, Genotypes

from .unit_errors import SENTINELS

_FIRST_OF_INDEX: Final = (0, 1)
"""The possible first numbers of a column that numbers the rows."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column. Values that stand for a missing one count as missing."""

    name: str | None
    type: str
    """The type that the file states. For files without types, the kind of its numbers."""
    missing: int
    unusable: int
    """Number of values that are not a number, infinite or too large."""
    filled_with: float | None
    is_constant: bool
    is_index: bool
    """Whether the column numbers the rows."""
    codes: tuple[float, ...] = ()
    """Values apart from all others that often stand for a missing one."""
    suspicion: str | None = None
    """The likely meaning of its numbers, if they are not measurements: one of ``SUSPICIONS``."""

    holds: tuple[str, str] | None = None
    """Of a text file, what its first cell that is no number holds, among the first lines, and what to do about it."""

    @property
    def spoils(self) -> int:
        """Number of rows that count as zeros because of this column."""
        return self.unusable + (self.missing if self.filled_with is None else 0)


IDENTIFIERS, DATES, ROUNDED, THOUSANDS = "identifiers", "dates", "rounded", "thousands"
SUSPICIONS: Final = (IDENTIFIERS, DATES, ROUNDED, THOUSANDS)
"""Whole numbers that rise with every row; eight digits of a year, month and day; whole numbers too large to be exact;
numbers whose decimal mark may divide thousands."""
_FEWEST: Final = 10
"""Of fewer rows, nothing is suspected."""
_NEARLY_ALL: Final = 0.9
"""A column that numbers or names rows has a number in at least this share of them: there may be footnotes."""
_LARGEST_WHOLE: Final = 2.0**53
_YEARS: Final = (1800, 2200)
_MONTHS: Final = 12
_DAYS: Final = 31
_FAR: Final = 2.0
"""A usual code is suspected if its distance from all other values is more than this many times their range."""


class ColumnScan:
    """Gathers facts about all columns of dense rows that come some at a time."""

    def __init__(self, columns: int) -> None:
        self._rows = 0
        self._missing, self._usable = np.zeros(columns, dtype=np.int64), np.zeros(columns, dtype=np.int64)
        self._least, self._most = np.full(columns, np.nan), np.full(columns, np.nan)
        self._first, self._highest = np.full(columns, np.nan), np.full(columns, -np.inf)
        self._is_whole, self._is_bit, self._counts_up, self._rises, self._is_date = (
            np.ones(columns, dtype=np.bool_) for _ in range(5)
        )
        self._low, self._high = np.full(columns, np.nan), np.full(columns, np.nan)  # without usual codes
        self._has_code = np.zeros((len(SENTINELS), columns), dtype=np.bool_)

    def add(self, rows: FloatArray) -> None:
        """Take some rows, with NaN for missing values."""
        if not len(rows):
            return
        missing, usable = np.isnan(rows), np.abs(rows) <= LARGEST_ENTRY
        good = np.where(usable, rows, np.nan)
        self._missing += missing.sum(axis=0)
        self._usable += usable.sum(axis=0)
        least, most = np.fmin.reduce(good, axis=0), np.fmax.reduce(good, axis=0)
        self._least, self._most = np.fmin(self._least, least), np.fmax(self._most, most)
        self._add_codes(good, least, most)
        self._is_whole &= ((good == np.rint(good)) | ~usable).all(axis=0)
        self._is_bit &= ((good == 0) | (good == 1) | ~usable).all(axis=0)
        self._is_date &= (_is_date(good) | ~usable).all(axis=0)
        self._add_order(good, usable)
        self._rows += len(rows)

    def _add_order(self, good: FloatArray, usable: NDArray[np.bool_]) -> None:
        """Find columns that rise with every row, or count up. Cells that are no numbers are passed over.

        A column that rises is at its highest in its last row, so this is what the next number is compared with.
        """
        highest = np.maximum.accumulate(np.vstack([self._highest, np.where(usable, good, -np.inf)]), axis=0)
        before, self._highest = highest[:-1], highest[-1]
        self._rises &= ((good > before) | ~usable).all(axis=0)
        self._counts_up &= ((good == before + 1) | np.isinf(before) | ~usable).all(axis=0)
        unknown = np.isnan(self._first)
        self._first[unknown] = good[usable.argmax(axis=0)[unknown], unknown]

    def _add_codes(self, good: FloatArray, least: FloatArray, most: FloatArray) -> None:
        """Find usual codes, and the range of all other values. A code within that range is like any value."""
        for place in np.flatnonzero(np.isin(least, SENTINELS) | np.isin(most, SENTINELS)):
            column = good[:, place]
            is_code = np.isin(column, SENTINELS)
            self._has_code[:, place] |= np.isin(SENTINELS, column[is_code])
            others = np.where(is_code, np.nan, column)
            least[place], most[place] = np.fmin.reduce(others), np.fmax.reduce(others)
        self._low, self._high = np.fmin(self._low, least), np.fmax(self._high, most)

    def facts(
        self, names: Sequence[str] | None, types: Sequence[str] | None, reading: Reading
    ) -> tuple[ColumnFacts, ...]:
        """Return the facts that were gathered."""
        return tuple(
            self._of(place, None if names is None else names[place], None if types is None else types[place], reading)
            for place in range(len(self._missing))
        )

    def _of(self, place: int, name: str | None, stated: str | None, reading: Reading) -> ColumnFacts:
        usable, missing = int(self._usable[place]), int(self._missing[place])
        is_whole, is_bit = bool(self._is_whole[place]), bool(self._is_bit[place])
        is_one = bool(self._least[place] == self._most[place])  # False without usable values, which are NaN
        is_full = usable > 1 and usable >= _NEARLY_ALL * self._rows
        is_index = is_full and bool(self._counts_up[place]) and self._first[place] in _FIRST_OF_INDEX
        return ColumnFacts(
            name=name,
            type=stated or _kind(is_there=usable > 0, is_whole=is_whole, is_bit=is_bit),
            missing=missing,
            unusable=self._rows - missing - usable,
            filled_with=reading.fill_of(name or ""),
            is_constant=is_one and self._rows > 1,
            is_index=is_index,
            codes=self._codes(place),
            suspicion=None if is_index or usable < _FEWEST else self._suspicion(place),
        )

    def _codes(self, place: int) -> tuple[float, ...]:
        low, high = self._low[place], self._high[place]
        there = (code for code, has_code in zip(SENTINELS, self._has_code, strict=True) if has_code[place])
        return tuple(code for code in there if _is_apart(code, low, high))

    def _suspicion(self, place: int) -> str | None:
        if max(-self._least[place], self._most[place]) >= _LARGEST_WHOLE and self._is_whole[place]:
            return ROUNDED
        if self._is_date[place]:
            return DATES
        is_full = self._usable[place] >= _NEARLY_ALL * self._rows
        return IDENTIFIERS if is_full and self._rises[place] and self._is_whole[place] else None


def _is_apart(code: float, low: float, high: float) -> bool:
    """Tell whether a usual code is far from all other values, or the only negative one.

    A step of one below zero may be a value like any other.
    """
    is_only_negative = low >= 0 and low - code > 1
    return low < high and (max(code - high, low - code) > _FAR * (high - low) or (code < 0 and is_only_negative))


def _is_date(numbers: FloatArray) -> NDArray[np.bool_]:
    """Tell which numbers are a year, a month and a day, as 20260131."""
    year, day = np.divmod(numbers, 10_000)
    month, day = np.divmod(day, 100)
    is_in_year = (month >= 1) & (month <= _MONTHS) & (day >= 1) & (day <= _DAYS)
    found: NDArray[np.bool_] = (year >= _YEARS[0]) & (year < _YEARS[1]) & is_in_year & (numbers == np.rint(numbers))
    return found


def facts_of_columns(
    matrix: Any,  # noqa: ANN401  # sparse rows or genotypes
    names: tuple[str, ...] | None,
    types: tuple[str, ...] | None,
    reading: Reading,
) -> tuple[ColumnFacts, ...]:
    """Describe the columns of a table that is in memory."""
    if isinstance(matrix, Genotypes):
        return _variants(matrix, names or (), types or (), reading)
    by_column = scipy.sparse.csc_array(matrix)
    return tuple(
        _sparse_column(
            by_column.data[by_column.indptr[place] : by_column.indptr[place + 1]],
            matrix.shape[0],
            None if names is None else names[place],
            None if types is None else types[place],
            reading,
        )
        for place in range(matrix.shape[1])
    )


def _variants(
    matrix: Genotypes, names: Sequence[str], types: Sequence[str], reading: Reading
) -> tuple[ColumnFacts, ...]:
    counts, fills = matrix.counts(), matrix.values[MISSING]
    return tuple(
        ColumnFacts(
            name=name,
            type=stated,
            missing=int(counts[MISSING, place]),
            unusable=0,
            filled_with=float(fills[place]) if isfinite(fills[place]) else reading.fill_of(name),
            is_constant=bool(np.count_nonzero(counts[:MISSING, place]) == 1) and matrix.shape[0] > 1,
            is_index=False,
        )
        for place, (name, stated) in enumerate(zip(names, types, strict=True))
    )


def _sparse_column(
    stored: FloatArray, rows: int, name: str | None, stated: str | None, reading: Reading
) -> ColumnFacts:
    """Describe a column by its stored values. Where fewer than all rows are stored, the others are zeros."""
    scan = ColumnScan(1)
    scan.add(stored[:, None])
    absent = rows - len(stored)
    if absent:
        scan.add(np.zeros((min(absent, 2), 1)))
    (found,) = scan.facts((name or "",), None if stated is None else (stated,), reading)
    return ColumnFacts(
        name=name,
        type=found.type,
        missing=found.missing,
        unusable=found.unusable,
        filled_with=found.filled_with,
        is_constant=found.is_constant,
        is_index=found.is_index and not absent,
        codes=found.codes,
        suspicion=None if absent else found.suspicion,
    )


def _kind(*, is_there: bool, is_whole: bool, is_bit: bool) -> str:
    """Return the kind of numbers in a column whose file states no types."""
    if not is_there:
        return "no numbers"
    return "0 and 1" if is_bit else "whole numbers" if is_whole else "numbers"


def first_bad(cells: FloatArray, names: Sequence[str] | None, reading: Reading) -> int:
    """Return the place of the first cell that makes a row unusable."""

    def is_bad(place: int) -> bool:
        is_filled = reading.preparation is not None or reading.fill_of(names[place] if names else "") is not None
        return not is_filled if isnan(cells[place]) else not abs(cells[place]) <= LARGEST_ENTRY

    return next(filter(is_bad, range(len(cells))))


def fault_in(cells: FloatArray, names: Sequence[str] | None, reading: Reading) -> str:
    """Say which cell makes a row unusable, and why. ``cells`` are those of the row, with NaN for missing values."""
    place = first_bad(cells, names, reading)
    column = f"column {place + 1}" + (f" ({names[place]!r:.60})" if names else "")
    if isnan(cells[place]):
        return (
            f"{column} has no value. Declare a public number in place of missing ones as missing under [reading], or "
            "leave the column out."
        )
    if isfinite(cells[place]):
        kind, declare = f"a number above {LARGEST_ENTRY:.0e}", "declare it in missing_codes under [reading]"
    else:
        kind = "what is no number, or infinite"
        declare = "declare its text in missing_codes under [reading] (infinity cannot be declared)"
    return f"{column} holds {kind}. Correct it, {declare}, or leave the column out."
