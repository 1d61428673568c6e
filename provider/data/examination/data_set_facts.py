"""Facts for a steward about a data set before its first job: columns, missing values, persons and memory.

These are facts about rows, for the person who may see the rows. None of them may leave.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import NO_CELL
from dpspca.common.storage import Reading
from dpspca.provider.data.checked import CheckedRows, Table, check_size, make_unusable, rows_or_zeros, usable_entries
from dpspca.provider.data.memory import (
    DEFAULT_MEMORY,
    MOST_CELLS,
    Genotypes,
    StoredRows,
    cells_in,
    entry_by_entry,
    stored_type,
)
from dpspca.provider.data.row_persons import RowPersons
from dpspca.provider.data.sources import (
    complete,
    dense_batches,
    fault_of_row,
    first_fault,
    index_columns,
    joined,
    kinds_of_cells,
    notes,
    packed_twins,
    raw_tables,
    suspected_thousands,
    types_in,
    undecoded_columns,
    unstored_parts,
)
from dpspca.provider.data.tables import RawTable, RowBatches, TripletFacts, without_codes
from dpspca.provider.data.triplet_rows import rows_of_triplets

from .alike_persons import PersonFacts, facts_of_persons
from .column_facts import THOUSANDS, ColumnFacts, ColumnScan, facts_of_columns, fault_in
from .equal_columns import EqualColumns
from .features import (
    FeatureFacts,
    FeatureScan,
    RowSample,
    facts_of_features,
    noting_texts,
    with_thousands,
    with_unknown_texts,
)
from .triplet_faults import fault_in_triplets

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of rows that were read."""

_PEAK: Final = 3.5
"""How many times the memory of the rows the provider takes while it reads them, at most (measured, for text)."""
_COPIES: Final = 6
"""How many times the numbers that are read together are in memory, at most."""
_INTEGER_BYTES: Final = 4
_NUMBER_BYTES: Final = 8
_MOST_GRAM_COLUMNS: Final = 4096
"""With more columns, no method asks for a square matrix of them by itself."""


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
    """The columns of the file, if no dictionary describes it."""
    features: tuple[FeatureFacts, ...]
    """The features of the file, in the terms of its dictionary."""
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
    """Of a long table, what was not used, and what was added up."""
    unstored: tuple[str, ...] = ()
    """Parts of the rows that the files do not contain, so that another number is used there."""
    notes: tuple[str, ...] = ()
    """Further remarks about how the rows are read."""
    index: tuple[str, ...] = ()
    """Columns that the file calls the index of its rows."""
    twins: tuple[str, ...] = ()
    """Files of a folder that are there packed and unpacked."""
    equal: tuple[tuple[str, ...], ...] = ()
    """Groups of columns that hold the same numbers in all rows, by name or number. Only of dense rows."""
    samples_without: int = 0
    """Number of samples that have no genotype of any variant that is used."""
    broken_rows: int = 0
    """Number of lines with too few or too many cells, if a dictionary describes the columns."""
    undecoded: tuple[str, ...] = ()
    """Columns of text, with values of no level, that have cells in another encoding than the file is read in."""


def examine_rows(  # noqa: PLR0913  # all that is declared
    path: Path,
    reading: Reading,
    persons: Path | None = None,
    *,
    memory: int = DEFAULT_MEMORY,
    square: Callable[[int], int] = lambda _: 0,
    progress: Progress = lambda _: None,
) -> DataSetFacts:
    """Read a file or folder as a provider does, and describe it. Refuse it if the provider would refuse it.

    Dense rows are read some at a time, within ``memory``. ``square`` returns the bytes that a square matrix of a given
    number of columns takes. ``progress`` is called with the number of rows that were read.
    """
    reading = noting_texts(reading)
    found = _examined(path, reading, persons, memory, square, progress)
    has_unknown = reading.triplets is None and any(each.unknown for each in found.features)
    undecoded = undecoded_columns(path, reading) if has_unknown else ()
    return replace(
        found,
        features=tuple(with_unknown_texts(each, reading) for each in found.features),
        unstored=tuple(unstored_parts(path, reading)),
        notes=tuple(notes(path, reading)),
        undecoded=undecoded,
        twins=packed_twins(path),
        index=index_columns(path, reading),
    )


def _examined(  # noqa: PLR0913, PLR0917  # all that is declared
    path: Path,
    reading: Reading,
    persons: Path | None,
    memory: int,
    square: Callable[[int], int],
    progress: Progress,
) -> DataSetFacts:
    whose = RowPersons.of(path, reading, persons, memory)
    if reading.triplets is not None:
        stored, triplets = rows_of_triplets(path, reading, memory)
        return replace(_in_memory(path, reading, stored, whose, square), triplets=triplets)
    cells = cells_in(memory)
    tables = raw_tables(path, reading, cells, memory) if whose is None else whose.tables(cells, memory)
    first = next(tables)
    if not isinstance(first[1].numbers, RowBatches):
        return _in_memory(path, reading, joined(chain((first,), tables)), whose, square)
    scan = _DenseScan(first[1], reading, None if whose is None else whose.lines, cells)
    for file, batch in dense_batches(chain((first,), tables)):
        scan.add(file, batch)
        progress(scan.rows)
    return scan.facts(_persons(whose, scan.rows), square)


def _persons(whose: RowPersons | None, rows: int) -> PersonFacts | None:
    if whose is None:
        return None
    found = facts_of_persons(whose.of_rows(rows))
    return replace(
        found,
        lacks_last_line=whose.lacks_last_line(rows),
        differing=whose.differing_samples(),
        of_column=whose.cells is not None,
    )


class _DenseScan:
    """Gathers facts about dense rows that come some at a time."""

    def __init__(self, raw: RawTable, reading: Reading, lines: Sequence[bytes] | None, cells: int) -> None:
        self._names, self._types, self._reading = raw.columns.names, raw.columns.kinds, reading
        self._lines, self._cells = lines, cells
        self._columns_read = raw.numbers.columns
        empty = np.empty((0, raw.numbers.columns))
        self._dimension = self._complete(empty).shape[1]
        check_size(0, self._dimension, least=0)
        self._is_changed = self._complete(empty) is not empty
        self._kind = raw.numbers.kind
        self._columns = ColumnScan(raw.numbers.columns) if reading.preparation is None else None
        self._features = [FeatureScan(each) for each in reading.preparation.mapped] if reading.preparation else []
        self._sample = RowSample(raw.numbers.columns, cells) if self._features else None
        self._equal = EqualColumns(raw.numbers.columns)
        self._places = {name: place for place, name in enumerate(self._names or ())}
        self._as_zeros = self._broken = 0
        self._fault: tuple[Path, int, FloatArray] | None = None
        self._file: tuple[Path | None, int] = None, 0
        self._thousands = set[str]()
        self._first: Path | None = None
        self.rows = 0

    def _complete(self, rows: FloatArray) -> FloatArray:
        made: FloatArray = complete(rows, self._names, self._reading)
        return made

    def add(self, file: Path, batch: FloatArray) -> None:
        """Take some rows of a file."""
        if file != self._file[0]:
            self._thousands |= set(suspected_thousands(file, self._reading))
            self._first = self._first or file
            self._file = file, self.rows
        coded = without_codes(batch, self._names, self._reading)
        _, blank = usable_entries(self._complete(coded))
        if self._fault is None and blank.any():
            place = int(np.argmax(blank))
            self._fault = file, self.rows - self._file[1] + place, coded[place].copy()
        if self._lines is not None:
            of_nobody = [not line for line in self._lines[self.rows : self.rows + len(batch)]]
            blank[: len(of_nobody)] |= np.array(of_nobody, dtype=np.bool_)
        self._as_zeros += int(np.count_nonzero(blank))
        self.rows += len(batch)
        self._describe(coded)

    def _describe(self, coded: FloatArray) -> None:
        self._equal.add(coded)
        if self._columns is not None:
            self._columns.add(coded)
        if self._sample is None:
            return
        is_broken = (coded == NO_CELL).all(axis=1)
        self._broken += int(np.count_nonzero(is_broken))
        whole = coded[~is_broken] if is_broken.any() else coded
        self._sample.add(whole)
        for scan in self._features:
            scan.add(whole[:, self._places[scan.column]])

    def facts(self, persons: PersonFacts | None, square: Callable[[int], int]) -> DataSetFacts:
        """Return the facts that were gathered."""
        check_size(self.rows, 1, least=0)
        prepared = self._reading.preparation
        return DataSetFacts(
            rows=self.rows,
            rows_as_zeros=self._as_zeros,
            columns=self._of_columns(),
            features=tuple(map(self._of_feature, self._features)),
            absent=() if prepared is None else prepared.absent,
            is_sparse=False,
            dimension=self._dimension,
            first_fault=self._first_fault(),
            persons=persons,
            equal=self._equal.groups(self._names or [str(place + 1) for place in range(self._columns_read)]),
            memory=self._memory(_gram(self._dimension, square), has_persons=persons is not None),
            broken_rows=self._broken,
        )

    def _of_columns(self) -> tuple[ColumnFacts, ...]:
        found = () if self._columns is None else self._columns.facts(self._names, self._types, self._reading)
        suspected = [replace(each, suspicion=THOUSANDS) if each.name in self._thousands else each for each in found]
        if self._first is None or not any(each.unusable for each in found):
            return tuple(suspected)
        kinds = kinds_of_cells(self._first, self._reading)
        return tuple(replace(each, holds=kinds.get(each.name or "")) for each in suspected)

    def _of_feature(self, scan: FeatureScan) -> FeatureFacts:
        assert self._sample is not None
        place = self._places[scan.column]
        stated, rows = None if self._types is None else self._types[place], self.rows - self._broken
        facts = scan.facts(stated, rows, self._sample.column(place))
        return with_thousands(facts) if scan.column in self._thousands else facts

    def _first_fault(self) -> str | None:
        if self._fault is None:
            return None
        file, row, cells = self._fault
        described = fault_of_row(file, self._reading, row)
        return described or f"{file}: Row {row + 1}, {fault_in(cells, self._names, self._reading)}"

    def _memory(self, gram: int, *, has_persons: bool) -> MemoryFacts:
        kind = np.dtype(np.float64) if self._is_changed else stored_type(self._kind)
        numbers = self.rows * self._dimension
        held = numbers * kind.itemsize + self.rows
        kept = held * (2 if has_persons else 1)  # those of each person that a job uses are copied
        batch = _NUMBER_BYTES * min(numbers, self._cells)
        return MemoryFacts(0, _COPIES * batch, batch + gram, held, kept + numbers * _INTEGER_BYTES)


def _in_memory(
    path: Path,
    reading: Reading,
    stored: CheckedRows,
    persons: RowPersons | None,
    square: Callable[[int], int],
) -> DataSetFacts:
    """Describe sparse rows or genotypes, which a provider holds in memory, too."""
    whose = None if persons is None else persons.of_rows(stored.count)
    coded = entry_by_entry(stored.matrix, lambda numbers: without_codes(numbers, stored.names, reading))
    used_rows = complete(coded, stored.names, reading)
    first = _fault_in_memory(path, reading, CheckedRows(coded, stored.names), used_rows)
    if whose is not None:
        used_rows = make_unusable(used_rows, np.array([not each for each in whose], dtype=np.bool_))
    used, prepared, types = rows_or_zeros(used_rows), reading.preparation, types_in(path, reading)
    return DataSetFacts(
        rows=stored.count,
        rows_as_zeros=0 if used.unusable is None else used.unusable.count,
        columns=facts_of_columns(coded, stored.names, types, reading) if prepared is None else (),
        features=() if prepared is None else facts_of_features(coded, stored.names or (), types, reading),
        absent=() if prepared is None else prepared.absent,
        is_sparse=stored.is_sparse,
        dimension=used.dimension,
        first_fault=first,
        persons=_persons(persons, stored.count),
        memory=_memory(used, _gram(used.dimension, square), has_persons=whose is not None),
        samples_without=int(coded.without_any().sum()) if isinstance(coded, Genotypes) else 0,
    )


def _fault_in_memory(path: Path, reading: Reading, coded: CheckedRows, used: Table) -> str | None:
    if reading.triplets is not None:
        return fault_in_triplets(path, reading, coded, used)
    return None if rows_or_zeros(used).unusable is None else first_fault(path, reading)


def _memory(rows: CheckedRows, gram: int, *, has_persons: bool) -> MemoryFacts:
    matrix = rows.matrix
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


def _gram(columns: int, square: Callable[[int], int]) -> int:
    return square(columns) if columns <= _MOST_GRAM_COLUMNS else 0
