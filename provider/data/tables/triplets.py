"""Builds sparse rows from triplets: a row, a column and a number for each line of a long table. Reads files.

Which rows and columns there are is declared, and never found in the triplets: otherwise a changed triplet could add or
remove a row or a column. A triplet with an unknown row or column is not used; only the steward learns how many there
are. Each triplet changes its own row alone.

The order of triplets does not count. Numbers of one row and column are sorted before they are added, because the last
bit of a sum depends on the order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.job import Schema
from dpspca.common.storage import UNUSABLE, Reading, Triplets

from .arrow_numbers import floats
from .memory_limit import TRIPLET, require_room
from .raw_table import Columns, RowSource
from .triplet_names import UNKNOWN, KnownNames, Places

Names: TypeAlias = Any
"""A list of texts or whole numbers, or a column of Arrow."""
Batch: TypeAlias = tuple[Names, Names, FloatArray | None]
"""Names of rows, names of columns, and numbers, for some triplets. Without numbers, each counts 1."""

BATCH_TRIPLETS: Final = 2**20
"""Triplets that a reader of Arrow gives together: for each batch, the declared names are looked up again."""


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

    def __init__(self, reading: Reading, room: int | None = None) -> None:
        """Take the rows and columns that are declared. Refuse more triplets than fit into ``room`` bytes."""
        self._room, self._used = room, 0
        assert reading.triplets is not None
        self._declared = reading.triplets
        self.columns = declared_columns(reading)
        self._rows, self._names = KnownNames(_row_names(self._declared.rows)), KnownNames(self.columns.names or ())
        self._cells = [(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))]
        self._numbers = [np.empty(0)]
        self._counts = np.zeros(3, dtype=np.int64)

    def add(self, batch: Batch) -> None:
        """Take some triplets."""
        rows, names, numbers = batch
        row, column = self._rows.find(rows), self._names.find(names)
        no_row, no_column = row == UNKNOWN, column == UNKNOWN
        self._counts += np.array([len(row), no_column.sum(), (no_row & ~no_column).sum()])
        is_known = ~no_row & ~no_column
        self._used += int(np.count_nonzero(is_known))
        require_room("triplets", self._used, TRIPLET, self._room)
        self._cells.append((row[is_known].astype(np.int32), column[is_known].astype(np.int32)))
        self._numbers.append(np.ones(np.count_nonzero(is_known)) if numbers is None else numbers[is_known])

    @property
    def facts(self) -> TripletFacts:
        """What was not used."""
        return TripletFacts(*map(int, self._counts))

    def matrix(self) -> scipy.sparse.csr_array:
        """Return the rows."""
        rows, columns = (np.concatenate(each) for each in zip(*self._cells, strict=True))
        made = _by_rows(rows, columns, np.concatenate(self._numbers), (self._rows.count, self._names.count))
        made.sort_indices()
        return _added_up(made, self._declared)


def arrow_batch(batch: Any, declared: Triplets | None) -> Batch:  # noqa: ANN401  # of pyarrow
    """Turn a batch of Arrow into names and numbers."""
    assert declared is not None
    value = None if declared.value is None else batch.column(declared.value)
    numbers = None if value is None else floats(value)
    return batch.column(declared.row), batch.column(declared.column), numbers


def triplet_columns(source: RowSource, there: Sequence[str]) -> list[str]:
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


def _by_rows(rows: Places, columns: Places, numbers: FloatArray, shape: tuple[int, int]) -> scipy.sparse.csr_array:
    """Put numbers into their rows, several of one cell beside each other."""
    cells = scipy.sparse.coo_array((numbers, (rows, columns)), shape=shape)
    cells.has_canonical_format = (
        True  # a choice, not a need: scipy would add up those of one cell in the order in which they came
    )
    return scipy.sparse.csr_array(cells)


def _added_up(table: scipy.sparse.csr_array, declared: Triplets) -> scipy.sparse.csr_array:
    """Add up numbers of one row and column, the smallest first."""
    is_first = np.diff(table.indices, prepend=-1) != 0
    is_first[table.indptr[:-1][np.diff(table.indptr) > 0]] = True
    if is_first.all():
        return table
    shared = ~is_first
    shared[:-1] |= shared[1:]  # with the first number of the cell
    cell, values = np.cumsum(is_first)[shared], table.data[shared]
    order = np.lexsort((values, cell))
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    sums = np.add.reduceat(values[order], starts)
    if declared.duplicates == UNUSABLE:
        sums[:] = np.inf
    numbers = table.data.copy()
    numbers[shared & is_first] = sums
    ends = np.append(0, np.cumsum(is_first))[table.indptr]
    return scipy.sparse.csr_array((numbers[is_first], table.indices[is_first], ends), shape=table.shape)
