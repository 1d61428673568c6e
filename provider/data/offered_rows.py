"""Reads the rows that a provider offers. A row that cannot be used counts as a row of zeros (``sources.py`` says why).

Dense rows go into scratch while they are read, some at a time (``stored_rows.py``), so that memory does not grow with
them. While some are read, those before them are checked, hashed for their fingerprints, and written. They are finished
there: missing values are filled in or the dictionary is applied, unusable rows and those of nobody are marked, and only
the largest entries are kept. All of this depends on each row alone. Sparse rows, genotypes and triplets are held in
memory.

The source is read once. What happens to it later changes no answer: jobs are about the rows as they were read. If a
file changes while it is read, the provider refuses to start.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading

from .checked import (
    CheckedRows,
    UsableEntries,
    check_size,
    fingerprints,
    largest_entries_of,
    make_unusable,
    rows_or_zeros,
    unusable_rows,
    with_largest_entries,
    with_persons,
)
from .file_errors import file_errors
from .files import FolderForm
from .memory import BLOCK_CELLS, Genotypes, RowWriter, Scratch, StoredRows, stored_type
from .row_persons import RowPersons
from .sources import (
    RawTables,
    complete,
    held_by,
    joined,
    prepared_names,
    raw_tables,
    read_as_stored,
    unstored_parts,
    without_rows,
)
from .tables import RowBatches, without_codes
from .threads import OneBehind

_PLAIN: Final = Reading()

_log = logging.getLogger(__name__)


def read_offered(
    path: Path,
    reading: Reading = _PLAIN,
    *,
    persons: Path | None = None,
    row_entries: int | None = None,
    scratch: Scratch | None = None,
) -> CheckedRows:
    """Read a provider's file or folder. A row that cannot be used counts as a row of zeros.

    Whether the provider starts, and the form of everything that it sends, is the same for tables that differ in one
    row, whatever that row is. ``persons`` is a file with the person of each row: a line for each row, with any name or
    number. The reading may name a column instead (``row_persons.py``). A row of nobody counts as a row of zeros, too.
    ``row_entries`` is the number of entries of a row that count, the largest ones. By default all count. Without
    ``scratch``, rows are held in memory. With it, those that have to be in memory as a whole are refused if they take
    more than is left (``memory_limit.py``).
    """
    rows = _read(path, reading, persons, row_entries, scratch)
    if any(unstored_parts(path, reading)):  # not before ``trial_reading``: the file may be damaged
        _log.warning("%s lacks chunks, which count as the fill value. `dpspca data check` says how many.", path)
    return rows


def _read(
    path: Path, reading: Reading, persons: Path | None, row_entries: int | None, scratch: Scratch | None
) -> CheckedRows:
    """Read a provider's file or folder, held in memory or stored in scratch."""
    room = None if scratch is None else scratch.room
    whose = RowPersons.of(path, reading, persons, room)
    if reading.triplets is not None:
        return _held(_in_memory(path, read_as_stored(path, reading, room), reading, row_entries, whose), scratch)
    tables = _tables(path, reading, whose, None if scratch is None else scratch.cells, room)
    first = next(tables)
    if scratch is None or not isinstance(first[1].numbers, RowBatches):
        whole = joined(chain((first,), tables))
        return _held(_in_memory(path, whole, reading, row_entries, whose), scratch)
    used = _Storing(path, reading, scratch, row_entries, whose).all_of(chain((first,), tables))
    return _with_persons(used, whose)


def _tables(
    path: Path, reading: Reading, whose: RowPersons | None, cells: int | None = None, room: int | None = None
) -> RawTables:
    """Open each file of a data set, one after the other, perhaps with a column that says whose the rows are."""
    return raw_tables(path, reading, cells, room) if whose is None else whose.tables(cells, room)


def _held(rows: CheckedRows, scratch: Scratch | None) -> CheckedRows:
    """Count the memory that rows take, so that those of other data sets fit beside them."""
    matrix: Any = rows.matrix
    if scratch is not None:
        owner = matrix.data if rows.is_sparse else getattr(matrix, "packed", matrix)
        scratch.hold(owner, held_by(matrix))
    return rows


def read_arriving(
    path: Path, reading: Reading = _PLAIN, *, row_entries: int | None = None, scratch: Scratch | None = None
) -> tuple[CheckedRows, bool]:
    """Read a file that arrived while the provider runs, by the same rule.

    Also return whether it has rows that count as rows of zeros. A file may have no rows, for example if no patient came
    on that day.
    """
    if reading.triplets is not None:
        raise InvalidDataError(
            f"{path}: rows that arrive cannot be triplets, because one row's may be in several files.",
            "Name the folder under data_sets.",
        )
    if reading.person is not None:
        raise InvalidDataError(
            f"{path}: of rows that arrive, no column can say whose they are.", "Name the folder under data_sets."
        )
    rows = read_offered(path, reading, row_entries=row_entries, scratch=scratch)
    return rows, rows.unusable is not None


def _with_persons(used: CheckedRows, whose: RowPersons | None) -> CheckedRows:
    """Add the person of each row. A row without one counts as a separate person, so that none takes another's place."""
    if whose is None:
        return used
    labels = enumerate(whose.of_rows(used.count), start=1)
    return with_persons(used, [(each, 0 if each else place) for place, each in labels])


# --- In memory --------------------------------------------------------------------------------------------------------


def _in_memory(
    path: Path, table: CheckedRows, reading: Reading, row_entries: int | None, whose: RowPersons | None
) -> CheckedRows:
    """Fill in missing values, make unusable rows and rows without a person zeros, and keep the largest entries."""
    of_nobody = None
    if whose is not None:
        of_nobody = np.array([not each for each in whose.of_rows(table.count)], dtype=np.bool_)
    with file_errors(path):
        used = _usable(path, table, reading, row_entries, of_nobody)
    return _with_persons(used, whose)


def _usable(
    path: Path, table: CheckedRows, reading: Reading, row_entries: int | None, of_nobody: NDArray[np.bool_] | None
) -> CheckedRows:
    matrix = complete(table.matrix, table.names, reading)
    if of_nobody is not None:
        matrix = make_unusable(matrix, of_nobody)
    used = replace(_bounded(path, rows_or_zeros(matrix), row_entries), names=prepared_names(table.names, reading))
    if matrix is table.matrix:
        return used
    stored: Any = table.matrix
    if isinstance(stored, Genotypes):
        # Most samples lack some genotype. As rows of zeros, they would leave no content to recognise.
        counted = stored.as_counted()
        prints, ordered = fingerprints.with_order(counted)
        return replace(used, uncut=used.fingerprints() | prints, before=(ordered, *used.before))
    # Fingerprints include the rows as stored, so that another list of persons, or other numbers in place of missing
    # ones, do not give the rows a new budget. And they include the rows with zeros for each number that is missing or
    # cannot be used: if such a number made its row one of zeros, as it does where rows are used, then nothing would be
    # left to recognise of a table whose rows all lack some number.
    as_read = rows_or_zeros(stored)
    prints, ordered = fingerprints.with_order(as_read.matrix)
    coded = without_codes(stored, table.names, reading)
    lacking = _restored(as_read if coded is stored else rows_or_zeros(coded))
    del as_read, coded
    more, ordered_entries = fingerprints.with_order(lacking)
    before = (ordered, ordered_entries, *used.before)
    return replace(used, uncut=used.fingerprints() | prints | more, before=before)


def _restored(rows: CheckedRows) -> Any:  # noqa: ANN401  # dense or sparse
    """Put the usable numbers of unusable rows back where ``rows_or_zeros`` put zeros, in the memory that it made.

    This is done once, when a provider starts or rows arrive, and takes nanoseconds for each such number.
    """
    matrix: Any = rows.matrix
    if rows.unusable is not None:
        numbers = matrix.reshape(-1) if isinstance(matrix, np.ndarray) else matrix.data
        numbers[rows.unusable.places] = rows.unusable.entries
    return matrix


def _bounded(path: Path, rows: CheckedRows, row_entries: int | None) -> CheckedRows:
    """Keep the ``row_entries`` largest entries of each row. Log if that left any out."""
    if row_entries is None or row_entries >= rows.dimension:
        return rows
    kept = with_largest_entries(rows, row_entries)
    if kept.entries < rows.entries:
        _warn_of_cut_rows(path, row_entries)
    return kept


def _warn_of_cut_rows(path: Path, row_entries: int) -> None:
    _log.warning(
        "%s has rows with more than %d entries. Only the %d largest entries of each row count.",
        path,
        row_entries,
        row_entries,
    )


# --- In scratch -------------------------------------------------------------------------------------------------------


class _WiderError(Exception):
    """A file of a folder has numbers of a wider type than those before it."""

    def __init__(self, kind: "np.dtype[Any]") -> None:
        super().__init__()
        self.kind = kind


class _Storing:
    """Writes the rows of a data set into scratch, as they are read, and finishes them."""

    def __init__(
        self, path: Path, reading: Reading, scratch: Scratch, row_entries: int | None, whose: RowPersons | None
    ) -> None:
        self._path = path
        self._reading = reading
        self._scratch = scratch
        self._row_entries = row_entries
        self._whose = whose

    def all_of(self, tables: RawTables) -> CheckedRows:
        """Store the rows of all files. If a later file has wider numbers, start again with that type."""
        kind = None
        while True:
            try:
                return self._stored(tables, kind)
            except _WiderError as found:
                kind = found.kind
                tables = _tables(self._path, self._reading, self._whose, self._scratch.cells)

    def _stored(self, tables: RawTables, kind: "np.dtype[Any] | None") -> CheckedRows:
        form, stages = None, None
        for file, raw in tables:
            empty = without_rows(file, raw)
            form = form or FolderForm.of(file, empty)
            form.require(file, empty)
            kind = kind or stored_type(raw.numbers.kind)
            wider = np.result_type(kind, stored_type(raw.numbers.kind))
            if wider != kind:
                raise _WiderError(wider)
            with file_errors(file):
                stages = stages or self._stages(empty, kind)
                with OneBehind(stages.add) as storing:
                    for batch in raw.numbers.batches:
                        storing.put(batch)
        assert stages is not None  # there is at least one file
        assert form is not None
        if stages.has_cut and self._row_entries is not None:
            _warn_of_cut_rows(self._path, self._row_entries)
        with file_errors(self._path):
            return stages.rows(prepared_names(form.names, self._reading))

    def _stages(self, empty: CheckedRows, kind: "np.dtype[Any]") -> "_Stages":
        lines = None if self._whose is None else self._whose.lines
        return _Stages(empty, kind, self._reading, self._scratch, self._row_entries, lines)


class _Stages:
    """One data set's rows: as they were read, completed, and cut to their largest entries.

    Fingerprints are taken of the first two stages, so that another list of persons, other numbers in place of missing
    ones, or fewer entries do not give the rows a new budget. Of the first, they are taken again with zeros in place of
    single numbers (``_lacking`` says why). Only the last stage is kept.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # all that is declared
        self,
        empty: CheckedRows,
        kind: "np.dtype[Any]",
        reading: Reading,
        scratch: Scratch,
        row_entries: int | None,
        lines: Sequence[bytes] | None,
    ) -> None:
        self._names, self._reading, self._lines = empty.names, reading, lines
        completed = self._complete(empty.matrix)
        changes = completed is not empty.matrix
        width = completed.shape[1]
        check_size(0, width, least=0)
        final = np.dtype(np.float64) if changes else kind
        as_read = partial(RowWriter, scratch, empty.dimension, kind, with_first=True)
        self._read = as_read() if changes or lines is not None else None
        has_codes = self._without_codes(empty.matrix) is not empty.matrix
        self._lacking = as_read() if self._read is not None and has_codes else None
        self._completed = RowWriter(scratch, width, final, with_first=True)
        self._row_entries = None if row_entries is None or row_entries >= width else row_entries
        self._cut = None if self._row_entries is None else RowWriter(scratch, width, final)
        self._count = self._unusable = 0
        self._usable = UsableEntries()
        self.has_cut = False

    def add(self, batch: FloatArray) -> None:
        """Finish rows and write them, in parts that are small enough for a core's own cache."""
        if self._read is not None:
            for part in _parts(batch):
                self._read.add(*self._usable(part))
        if self._lacking is not None:
            for part in _parts(self._without_codes(batch)):
                numbers, blank = self._usable(part)
                self._lacking.add(numbers, np.zeros_like(blank))
        for part in _parts(self._complete(batch)):
            self._add_completed(part)

    def _add_completed(self, rows: FloatArray) -> None:
        numbers, blank = self._usable(rows)
        if self._lines is not None:
            of_nobody = [not line for line in self._lines[self._count : self._count + len(rows)]]
            blank[: len(of_nobody)] |= np.array(of_nobody, dtype=np.bool_)
        self._completed.add(numbers, blank)
        if self._cut is not None and self._row_entries is not None:
            whole = CheckedRows(np.where(blank[:, None], 0.0, numbers))
            kept = largest_entries_of(whole, self._row_entries)
            self.has_cut |= kept.entries < whole.entries
            self._cut.add(np.asarray(kept.matrix), blank)
        self._count += len(rows)
        self._unusable += int(np.count_nonzero(blank))

    def rows(self, names: tuple[str, ...] | None) -> CheckedRows:
        """Return the rows of the last stage."""
        check_size(self._count, 1, least=0)
        last = (self._completed if self._cut is None else self._cut).rows()
        whole = [*self._as_read(), self._completed.rows()]
        prints: frozenset[str] | None = None
        if self._read is not None or self._cut is not None:
            prints = frozenset().union(*map(fingerprints.of_table, whole))
        before = tuple(map(fingerprints.in_order, whole if self._cut is not None else whole[:-1]))
        return CheckedRows(last, names, unusable=unusable_rows(self._unusable), uncut=prints, before=before)

    def _as_read(self) -> list[StoredRows]:
        """Return the first stage: with rows of zeros, and with zeros in place of single numbers."""
        if self._read is None:
            return []
        read = self._read.rows()
        return [read, replace(read, blank=None, first=None) if self._lacking is None else self._lacking.rows()]

    def _complete(self, batch: Any) -> Any:  # noqa: ANN401
        return complete(batch, self._names, self._reading)

    def _without_codes(self, batch: Any) -> Any:  # noqa: ANN401
        return without_codes(batch, self._names, self._reading)


def _parts(rows: FloatArray) -> Iterator[FloatArray]:
    step = max(1, BLOCK_CELLS // rows.shape[1])
    return (rows[start : start + step] for start in range(0, len(rows), step))
