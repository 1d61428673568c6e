"""Builds sparse rows from triplets: a row, a column and a number for each line of a long table. Reads files.

Which rows and columns there are is declared, and never found in the triplets: otherwise a changed triplet could add or
remove a row or a column. A triplet with an unknown row or column is not used, and only the steward is told how many
there are. Each triplet changes its own row alone.

The order of triplets does not count. Numbers of one row and column are sorted before they are added, because the last
bit of a sum depends on the order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.spec import Schema
from dpspca.common.storage import UNUSABLE, Reading, Triplets

from .tables import Columns, Source

Names: TypeAlias = Sequence[str | None]
Batch: TypeAlias = tuple[Names, Names, FloatArray | None]
"""Names of rows, names of columns, and numbers, for some triplets. Without numbers, each counts 1."""

_UNKNOWN: Final = -1
_LISTED: Final = 20


@dataclass(frozen=True, slots=True)
class TripletFacts:
    """What the steward should know about triplets that were not used."""

    triplets: int
    unknown_columns: int
    """Number of triplets whose column is not declared."""
    unknown_rows: int
    """Number of triplets of a declared column whose row is not declared."""


def declared_columns(reading: Reading) -> Columns:
    """Return the columns that are declared. They must be: which there are does not follow from the triplets."""
    if reading.columns is None:
        raise InvalidDataError(
            "triplets needs the list of columns.",
            'Declare columns under [reading]: a list of names, or a file with one name a line, as in "concepts.txt".',
        )
    return Columns(Schema.of(list(reading.columns)).names, None)


class TripletRows:
    """Rows that are built from batches of triplets."""

    def __init__(self, reading: Reading) -> None:
        """Take the rows and columns that are declared."""
        assert reading.triplets is not None
        self._declared = reading.triplets
        self.columns = declared_columns(reading)
        rows, names = _row_names(self._declared.rows), self.columns.names or ()
        self._shape = len(rows), len(names)
        self._rows, self._names = _places(rows), _places(names)
        self._cells = [np.empty(0, dtype=np.int64)]
        self._numbers = [np.empty(0)]
        self._counts = np.zeros(3, dtype=np.int64)

    def add(self, batch: Batch) -> None:
        """Take some triplets."""
        rows, names, numbers = batch
        row, column = _found(rows, self._rows), _found(names, self._names)
        no_row, no_column = row == _UNKNOWN, column == _UNKNOWN
        self._counts += np.array([len(row), no_column.sum(), (no_row & ~no_column).sum()])
        is_known = ~no_row & ~no_column
        self._cells.append((row * self._shape[1] + column)[is_known])
        self._numbers.append(np.ones(np.count_nonzero(is_known)) if numbers is None else numbers[is_known])

    @property
    def facts(self) -> TripletFacts:
        """What was not used."""
        return TripletFacts(*map(int, self._counts))

    def matrix(self) -> scipy.sparse.csr_array:
        """Return the rows."""
        return _csr(np.concatenate(self._cells), np.concatenate(self._numbers), self._shape, self._declared)


def arrow_batch(batch: Any, declared: Triplets | None) -> Batch:  # noqa: ANN401  # of pyarrow
    """Turn a batch of Arrow into names and numbers."""
    assert declared is not None
    value = None if declared.value is None else batch.column(declared.value)
    numbers = None if value is None else value.cast("float64", safe=False).to_numpy(zero_copy_only=False)
    return batch.column(declared.row).to_pylist(), batch.column(declared.column).to_pylist(), numbers


def triplet_columns(source: Source, there: Sequence[str]) -> list[str]:
    """Return the columns of a long table that are read. Refuse one that is not there."""
    declared = source.reading.triplets
    assert declared is not None
    wanted = [name for name in (declared.row, declared.column, declared.value) if name is not None]
    for name in wanted:
        if list(there).count(name) != 1:
            listed = ", ".join(f"{each!r:.60}" for each in there[:20])
            raise InvalidDataError(
                f"There is no column {name!r:.60} for triplets, or several.", f"There are: {listed}."
            )
    return wanted


def _row_names(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InvalidDataError(
            f"The list of rows, {path}, cannot be read.", "Write one name a line, in UTF-8."
        ) from None
    return [line.strip() for line in lines]


def _places(names: Sequence[str]) -> dict[str | None, int]:
    """Return the place of each name. A blank one is a row of nobody."""
    places: dict[str | None, int] = {name: place for place, name in enumerate(names) if name}
    if len(places) < len(names) - list(names).count(""):
        raise InvalidDataError("A row is named twice in the list of rows.", "Name each row once.")
    return places


def _found(names: Names, known: dict[str | None, int]) -> NDArray[np.int64]:
    return np.fromiter((known.get(_text(name), _UNKNOWN) for name in names), dtype=np.int64, count=len(names))


def _text(name: object) -> str | None:
    return name.strip() if isinstance(name, str) else None if name is None else str(name)


def _csr(
    cells: NDArray[np.int64], values: FloatArray, shape: tuple[int, int], declared: Triplets
) -> scipy.sparse.csr_array:
    """Put numbers into rows. ``cells`` are places in the table, counted row by row."""
    order = np.lexsort((values, cells))
    cells, values = cells[order], values[order]
    is_first = np.diff(cells, prepend=-1) != 0
    first = np.flatnonzero(is_first)
    sums = np.add.reduceat(values, first) if first.size else np.empty(0)
    if declared.duplicates == UNUSABLE:
        sums = np.where(np.diff(first, append=len(cells)) > 1, np.inf, sums)
    row, column = np.divmod(cells[first], shape[1])
    return scipy.sparse.csr_array(scipy.sparse.coo_array((sums, (row, column)), shape=shape))
