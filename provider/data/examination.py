"""What a steward should know about a data set before its first job: columns, missing values, persons and memory.

These are facts about rows, for the person who may see the rows. None of them may leave.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.storage import Reading

from .features import FeatureFacts, examine_features
from .genotypes import Genotypes, entry_by_entry
from .odd_rows import make_unusable, rows_or_zeros
from .preparation import LARGEST, CheckedRows
from .scratch import MOST_CELLS
from .sources import complete, first_fault, read_as_stored, read_persons, triplets_in, types_in
from .stored_rows import StoredRows
from .tables import without_codes
from .triplets import TripletFacts
from .two_bits import MISSING

_PEAK: Final = 3.5
"""How many times the memory of the rows the provider takes while it reads them, at most (measured, for text)."""
_COPIES: Final = 6
"""How many times the numbers that are read together are in memory, at most."""
_INTEGER_BYTES: Final = 4
_NUMBER_BYTES: Final = 8
_GRAM_BYTES: Final = 120
"""For each number of a square matrix, on two cores."""
_MOST_GRAM_COLUMNS: Final = 4096
"""With more columns, no method asks for a square matrix of them by itself."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column. Values that stand for a missing one count as missing."""

    name: str | None
    type: str
    """The type that the file states. For files without types, the kind of its numbers."""
    missing: int
    unusable: int
    """Number of values that are no number, infinite or too large."""
    filled_with: float | None
    is_constant: bool
    is_index: bool
    """Whether it numbers the rows."""

    @property
    def spoils(self) -> int:
        """Number of rows that count as zeros because of this column."""
        return self.unusable + (self.missing if self.filled_with is None else 0)


@dataclass(frozen=True, slots=True)
class PersonFacts:
    """Whose the rows are."""

    persons: int
    most_rows: int
    """The most rows that one person has."""
    rows_of_nobody: int


@dataclass(frozen=True, slots=True)
class MemoryFacts:
    """Bytes that the provider takes, about."""

    rows: int
    """For the rows. Dense ones are not in memory, but in scratch."""
    start: int
    """The most while it reads the rows."""
    job: int
    """While one job runs, with the rows."""
    scratch: int = 0
    """On disk, as long as the provider runs."""
    scratch_job: int = 0
    """On disk while one job runs, with the rows: a job that asks several times about many columns keeps integers."""


@dataclass(frozen=True, slots=True)
class DataSetFacts:
    """One data set."""

    rows: int
    rows_as_zeros: int
    columns: tuple[ColumnFacts, ...]
    """What the file has, if no dictionary describes it."""
    features: tuple[FeatureFacts, ...]
    """What the file has in the terms of its dictionary."""
    absent: tuple[str, ...]
    """Features of the dictionary that this data set does not have."""
    is_sparse: bool
    dimension: int
    """Number of columns of prepared rows."""
    first_fault: str | None
    """Where the first unusable row is, and why it is unusable."""
    persons: PersonFacts | None
    memory: MemoryFacts
    triplets: TripletFacts | None = None
    """Of a long table, what was not used."""


def examine_rows(path: Path, reading: Reading, persons: Path | None = None) -> DataSetFacts:
    """Read a file or folder as a provider does, and describe it. Refuse it if the provider would refuse it."""
    stored = read_as_stored(path, reading)
    whose = None if persons is None else read_persons(persons, stored.count, reading)
    coded = entry_by_entry(stored.matrix, lambda numbers: without_codes(numbers, stored.names, reading))
    used_rows = complete(coded, stored.names, reading)
    is_whole = rows_or_zeros(used_rows).unusable is None
    if whose is not None:
        used_rows = make_unusable(used_rows, np.array([not each for each in whose], dtype=np.bool_))
    used, prepared, types = rows_or_zeros(used_rows), reading.preparation, types_in(path, reading)
    return DataSetFacts(
        rows=stored.count,
        rows_as_zeros=0 if used.unusable is None else used.unusable.count,
        columns=_columns(coded, stored.names, types, reading) if prepared is None else (),
        features=() if prepared is None else examine_features(coded, stored.names or (), types, reading),
        absent=() if prepared is None else prepared.absent,
        is_sparse=stored.is_sparse,
        dimension=used.dimension,
        first_fault=None if is_whole else first_fault(path, reading),
        persons=None if whose is None else _persons(whose),
        memory=_memory(used, has_persons=whose is not None),
        triplets=None if reading.triplets is None else triplets_in(path, reading),
    )


def _columns(
    matrix: Any,  # noqa: ANN401  # dense or sparse
    names: tuple[str, ...] | None,
    types: tuple[str, ...] | None,
    reading: Reading,
) -> tuple[ColumnFacts, ...]:
    if isinstance(matrix, Genotypes):
        return _variants(matrix, names or (), types or (), reading)
    by_column = matrix if isinstance(matrix, np.ndarray) else scipy.sparse.csc_array(matrix)
    return tuple(
        _column(
            _values(by_column, place),
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


def _values(by_column: Any, place: int) -> FloatArray:  # noqa: ANN401  # dense, or sparse by columns
    """Return the stored values of a column."""
    if isinstance(by_column, np.ndarray):
        return by_column[:, place]
    values: FloatArray = by_column.data[by_column.indptr[place] : by_column.indptr[place + 1]]
    return values


def _column(values: FloatArray, rows: int, name: str | None, stated: str | None, reading: Reading) -> ColumnFacts:
    """Describe a column by its stored values. Where fewer than all rows are stored, the others are zeros."""
    missing, usable = np.isnan(values), np.abs(values) <= LARGEST
    good = values[usable]
    distinct = np.unique(good if len(values) == rows else np.append(good, 0.0))
    return ColumnFacts(
        name=name,
        type=stated or _kind(distinct),
        missing=int(missing.sum()),
        unusable=int((~missing & ~usable).sum()),
        filled_with=reading.fill_of(name or ""),
        is_constant=len(distinct) == 1 and rows > 1,
        is_index=len(good) == rows > 1 and bool((np.diff(good) == 1).all()) and good[0] in {0, 1},
    )


def _kind(distinct: FloatArray) -> str:
    """Return the kind of numbers in a column whose file states no types."""
    if not len(distinct):
        return "no numbers"
    if np.isin(distinct, (0, 1)).all():
        return "0 and 1"
    return "whole numbers" if (distinct == np.rint(distinct)).all() else "numbers"


def _persons(whose: list[bytes]) -> PersonFacts:
    counts = Counter(filter(None, whose))
    return PersonFacts(len(counts), max(counts.values(), default=0), whose.count(b""))


def _memory(rows: CheckedRows, *, has_persons: bool) -> MemoryFacts:
    matrix, gram = rows.matrix, _gram(rows.dimension)
    if isinstance(matrix, Genotypes):
        return MemoryFacts(matrix.nbytes, 2 * matrix.nbytes, matrix.nbytes + gram)
    if isinstance(matrix, np.ndarray):
        held = matrix.nbytes + rows.count
        kept = held * (2 if has_persons else 1)  # those of each person that a job uses are copied
        batch = min(matrix.nbytes, _NUMBER_BYTES * MOST_CELLS)
        return MemoryFacts(0, _COPIES * batch, batch + gram, held, kept + matrix.size * _INTEGER_BYTES)
    assert not isinstance(matrix, StoredRows)
    held = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    return MemoryFacts(held, int(_PEAK * held), 2 * held)


def _gram(columns: int) -> int:
    return _GRAM_BYTES * columns**2 if columns <= _MOST_GRAM_COLUMNS else 0
