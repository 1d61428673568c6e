"""Builds sparse rows from triplets: a row, a column and a number for each line of a long table. Reads files.

Which rows and columns there are is declared, and never found in the triplets: otherwise a changed triplet could add or
remove a row or a column. A triplet with an unknown row or column is not used; only the steward learns how many there
are. Each triplet changes its own row alone.

The order of triplets does not count. Numbers of one row and column are sorted before they are added, because the last
bit of a sum depends on the order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.frames import number_in
from dpspca.common.job import Schema
from dpspca.common.storage import UNUSABLE, Reading, Triplets
from dpspca.common.text import composed

from .arrow_numbers import floats
from .memory_limit import TRIPLET, require_room
from .raw_table import Columns, RowSource, cell_number, code_numbers
from .triplet_names import UNKNOWN, KnownNames, Places

Names: TypeAlias = Any
"""A list of texts or whole numbers, or a column of Arrow."""
BATCH_TRIPLETS: Final = 2**20
"""Triplets that a reader of Arrow gives together: for each batch, the declared names are looked up again."""


class TripletBatch(NamedTuple):
    """Some triplets, and the lines among them that hold none."""

    rows: Names
    columns: Names
    numbers: FloatArray | None
    """Without numbers, each triplet counts 1."""
    lines: Sequence[int] | None = None
    """Of text, the line of each triplet."""
    broken: int = 0
    """Number of lines of text with too few or too many cells."""
    first_broken: str | None = None
    """The fault of the first of them."""


@dataclass(frozen=True, slots=True)
class TripletFacts:
    """Facts for the steward about triplets that were not used, or added up."""

    triplets: int
    unknown_columns: int
    """Number of triplets whose column is not declared."""
    unknown_rows: int
    """Number of triplets of a declared column whose row is not declared."""
    broken: int = 0
    """Number of lines of text with too few or too many cells. They are not among the triplets."""
    first_broken: str | None = None
    """The file and line of the first of them, and what is wrong with it."""
    several: int = 0
    """Number of pairs of a row and a column that have several numbers, if triplets have numbers."""
    columns_with_several: tuple[str, ...] = ()
    rows_without: int = 0
    """Number of declared rows, blank ones left out, that have no triplet of a declared column."""
    first_without: str | None = None
    """The file and line that declare the first of them."""
    are_added: bool = True
    """Whether these numbers are added up. Otherwise they make their row unusable."""

    @property
    def used(self) -> int:
        """Number of triplets whose row and column are declared."""
        return self.triplets - self.unknown_columns - self.unknown_rows


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
        self._declared, self._reading = reading.triplets, reading
        self.columns = declared_columns(reading)
        declared_rows = row_names(self._declared.rows)
        self._rows, self._names = KnownNames(declared_rows), KnownNames(self.columns.names or ())
        self._lacks = np.array(list(map(bool, declared_rows)), dtype=np.bool_)
        self._cells = [(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))]
        self._numbers = [np.empty(0)]
        self._counts = np.zeros(4, dtype=np.int64)
        self._first_broken: str | None = None
        self._several: tuple[int, tuple[str, ...]] = 0, ()

    def find(self, batch: TripletBatch) -> tuple[Places, Places]:
        """Return the place of each triplet's row and column, or ``UNKNOWN``."""
        return self._rows.find(batch.rows), self._names.find(batch.columns)

    def add(self, batch: TripletBatch, file: Path | None = None) -> None:
        """Take some triplets of a file."""
        row, column = self.find(batch)
        numbers = batch.numbers
        if self._first_broken is None and batch.first_broken is not None:
            self._first_broken = f"{file}: {batch.first_broken}"
        no_row, no_column = row == UNKNOWN, column == UNKNOWN
        self._counts += np.array([len(row), no_column.sum(), (no_row & ~no_column).sum(), batch.broken])
        is_known = ~no_row & ~no_column
        self._used += int(np.count_nonzero(is_known))
        require_room("triplets", self._used, TRIPLET, self._room)
        self._lacks[row[is_known]] = False
        self._cells.append((row[is_known].astype(np.int32), column[is_known].astype(np.int32)))
        self._numbers.append(np.ones(np.count_nonzero(is_known)) if numbers is None else numbers[is_known])

    @property
    def facts(self) -> TripletFacts:
        """The triplets that were not used and, after the rows were built, those that were added up."""
        triplets, unknown_columns, unknown_rows, broken = map(int, self._counts)
        several, columns = self._several
        lacking = np.flatnonzero(self._lacks)
        return TripletFacts(
            triplets=triplets,
            unknown_columns=unknown_columns,
            unknown_rows=unknown_rows,
            broken=broken,
            first_broken=self._first_broken,
            several=several,
            columns_with_several=columns,
            rows_without=len(lacking),
            first_without=f"{self._declared.rows}, line {lacking[0] + 1}" if lacking.size else None,
            are_added=self._declared.duplicates != UNUSABLE,
        )

    def matrix(self) -> scipy.sparse.csr_array:
        """Return the rows."""
        rows, columns = (np.concatenate(each) for each in zip(*self._cells, strict=True))
        made = _by_rows(rows, columns, np.concatenate(self._numbers), (self._rows.count, self._names.count))
        made.sort_indices()
        if self._declared.value is not None:
            made = _without_missing(made, self._is_missing(made))
        is_first = _first_of_cells(made)
        if self._declared.value is not None or self._declared.duplicates == UNUSABLE:
            self._several = self._those_with_several(made, is_first)
        return _added_up(made, is_first, self._declared)

    def _is_missing(self, table: scipy.sparse.csr_array) -> NDArray[np.bool_]:
        """Tell which numbers are missing, or stand for a missing value in their column."""
        found: NDArray[np.bool_] = np.isnan(table.data)
        by_column = code_numbers(self._reading, self.columns.names or ())
        for codes in set(filter(None, by_column)):
            has_codes = np.array([each == codes for each in by_column])
            found |= has_codes[table.indices] & np.isin(table.data, codes)
        return found

    def _those_with_several(
        self, table: scipy.sparse.csr_array, is_first: NDArray[np.bool_]
    ) -> tuple[int, tuple[str, ...]]:
        """Count cells with several numbers, and name their columns."""
        others = table.indices[~is_first]
        cells = np.count_nonzero(is_first & ~np.append(is_first[1:], True))
        return int(cells), tuple((self.columns.names or ())[place] for place in np.unique(others))


def arrow_batch(batch: Any, declared: Triplets | None) -> TripletBatch:  # noqa: ANN401  # of pyarrow
    """Turn a batch of Arrow into names and numbers."""
    assert declared is not None
    value = None if declared.value is None else batch.column(declared.value)
    numbers = None if value is None else floats(value)
    return TripletBatch(batch.column(declared.row), batch.column(declared.column), numbers)


def value_reader(reading: Reading, parse: Callable[[str], float] = number_in) -> Callable[[str | None, str], float]:
    """Return a function from a triplet's column and the text of its value to a number: NaN if missing, or infinity.

    Texts for missing values may be declared by column, and are with a dictionary.
    """
    declared = reading.missing_codes
    by_column = {} if isinstance(declared, tuple) else {name: _texts(codes) for name, codes in declared.items()}
    everywhere = _texts(declared) if isinstance(declared, tuple) else frozenset[str]()

    def read(column: str | None, value: str) -> float:
        codes = by_column.get(composed((column or "").strip()), everywhere) if by_column else everywhere
        return cell_number(value, codes, parse)

    return read


def _texts(codes: Iterable[str | float]) -> frozenset[str]:
    return frozenset(composed(code) for code in codes if isinstance(code, str))


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


def row_names(path: Path) -> list[str]:
    """Read the names of all rows, in their order."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
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


def _first_of_cells(table: scipy.sparse.csr_array) -> NDArray[np.bool_]:
    """Tell which numbers are the first ones of their row and column."""
    is_first: NDArray[np.bool_] = np.diff(table.indices, prepend=-1) != 0
    is_first[table.indptr[:-1][np.diff(table.indptr) > 0]] = True
    return is_first


def _without_missing(table: scipy.sparse.csr_array, is_missing: NDArray[np.bool_]) -> scipy.sparse.csr_array:
    """Leave out missing values where their row and column have a number. If they have none, one missing value stays.

    Otherwise an empty value would spoil a measurement, and a code would be added to it.
    """
    is_first = _first_of_cells(table)
    if is_first.all() or not is_missing.any():
        return table
    has_number = np.logical_or.reduceat(~is_missing, np.flatnonzero(is_first))
    stays = ~is_missing | (is_first & ~has_number[np.cumsum(is_first) - 1])
    ends = np.append(0, np.cumsum(stays))[table.indptr]
    return scipy.sparse.csr_array((table.data[stays], table.indices[stays], ends), shape=table.shape)


def _added_up(table: scipy.sparse.csr_array, is_first: NDArray[np.bool_], declared: Triplets) -> scipy.sparse.csr_array:
    """Add up numbers of one row and column, the smallest first."""
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
