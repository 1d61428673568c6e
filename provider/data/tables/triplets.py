"""Builds sparse rows from triplets: a row, a column and a number for each line of a long table. Reads files.

Which rows and columns there are is declared, and never found in the triplets: otherwise a changed triplet could add or
remove a row or a column. A triplet with an unknown row or column is not used; only the steward learns how many there
are. Each triplet changes its own row alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError, InvalidTypeError
from dpspca.common.frames import number_in
from dpspca.common.job import Schema
from dpspca.common.storage import UNUSABLE, Reading, Triplets
from dpspca.common.text import composed

from .arrow_numbers import floats
from .memory_limit import TRIPLET, require_room
from .raw_table import Columns, RowSource, cell_number, code_numbers
from .triplet_cells import Mask, rows_of
from .triplet_names import UNKNOWN, KnownNames, Places
from .triplet_ranges import HeldTriplets, TripletRanges

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


def require_triplet_numbers(column: str, kind: str, *, are_numbers: bool) -> None:
    """Refuse a column of triplets' numbers that holds none."""
    if not are_numbers:
        raise InvalidTypeError(
            f"The column {column!r:.60}, which holds the numbers of the triplets, is of type {kind}.",
            "Name a column of numbers as value in triplets, or leave value out: then each triplet counts 1. Or turn "
            "text into numbers: in a database with a query, as in CAST(... AS DOUBLE).",
        )


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
        self._held = TripletRanges(self._rows.count)
        self._counts = np.zeros(4, dtype=np.int64)
        self._first_broken: str | None = None
        self._several: tuple[int, tuple[str, ...]] = 0, ()

    def find(self, batch: TripletBatch) -> tuple[Places, Places]:
        """Return the place of each triplet's row and column, or ``UNKNOWN``."""
        return self._rows.find(batch.rows), self._names.find(batch.columns)

    def add(self, batch: TripletBatch, file: Path | None = None) -> None:
        """Take some triplets of a file."""
        row, column = self.find(batch)
        if self._first_broken is None and batch.first_broken is not None:
            self._first_broken = f"{file}: {batch.first_broken}"
        no_row, no_column = row == UNKNOWN, column == UNKNOWN
        is_known = ~(no_row | no_column)
        known = int(np.count_nonzero(is_known))
        self._counts += np.array([len(row), no_column.sum(), len(row) - known - no_column.sum(), batch.broken])
        self._used += known
        require_room("triplets", self._used, TRIPLET, self._room)
        numbers = np.ones(len(row)) if batch.numbers is None else batch.numbers
        if known < len(row):
            row, column, numbers = row[is_known], column[is_known], numbers[is_known]
        self._lacks[row] = False
        self._held.add(HeldTriplets(row.astype(np.int32), column.astype(np.int32), numbers))

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
        are_added = self._declared.duplicates != UNUSABLE
        shape = self._rows.count, self._names.count
        made, several = rows_of(list(self._held.parts()), shape, self._missing_numbers(), are_added=are_added)
        if self._declared.value is not None or not are_added:
            names = self.columns.names or ()
            self._several = several.cells, tuple(names[place] for place in several.columns)
        return made

    def _missing_numbers(self) -> Callable[[scipy.sparse.csr_array], Mask] | None:
        """Return what tells which numbers are missing, or stand for a missing value in their column."""
        if self._declared.value is None:
            return None
        by_column = code_numbers(self._reading, self.columns.names or ())
        those_with = [
            (codes, np.array([each == codes for each in by_column])) for codes in set(filter(None, by_column))
        ]

        def are_missing(table: scipy.sparse.csr_array) -> Mask:
            found: Mask = np.isnan(table.data)
            for codes, has_codes in those_with:
                found |= has_codes[table.indices] & np.isin(table.data, codes)
            return found

        return are_missing


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
    except FileNotFoundError:
        raise InvalidDataError(f"There is no list of rows, {path}.", "Check the name under triplets.") from None
    except (OSError, UnicodeDecodeError):
        raise InvalidDataError(
            f"The list of rows, {path}, cannot be read.", "Write one name a line, in UTF-8."
        ) from None
    return [line.strip() for line in lines]
