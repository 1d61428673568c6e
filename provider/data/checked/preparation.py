"""Rows that were checked once: bounded in rows of a person and in entries of a row, and with fingerprints.

Each row is handled by itself, except for the bound on a person's rows. ``integer_rows.py`` turns rows into integers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import LARGEST_ENTRY, MATRIX, FloatArray
from dpspca.common.errors import InvalidDataError, InvalidParameterError, InvalidTypeError
from dpspca.common.frames import array_of, column_names, place_of_first
from dpspca.common.job import Schema, Span
from dpspca.common.privacy import MAX_ROWS
from dpspca.provider.data.memory import BlockTable, Genotypes, ReusedMemory, StoredRows

from .fingerprints import Fingerprint, in_order, of_table

Table: TypeAlias = FloatArray | scipy.sparse.csr_array | BlockTable
"""Rows: dense or sparse in memory, or in a form that becomes numbers a block at a time."""


class UsableRows(Protocol):
    """Rows that were checked, in memory or in files."""

    @property
    def count(self) -> int:
        """Number of rows."""
        ...

    @property
    def dimension(self) -> int:
        """Number of columns."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        ...

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        ...

    @property
    def pieces(self) -> Sequence[slice] | None:
        """The parts in which all rows are read one after the other, or None if they are in memory."""
        ...

    def part(self, which: slice) -> Table:
        """Return rows by their position."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Unusable:
    """Rows with a number that is not finite or too large, which therefore count as rows of zeros.

    In a share of a symmetric matrix, the unit is no row: if a row became zero and its mirror image did not, the share
    would be refused, and one entry would show. So ``entries`` keeps these rows' numbers, with zeros only in place of
    the unusable ones, and ``CheckedRows.as_matrix`` restores them.
    """

    count: int
    """Number of these rows."""
    places: NDArray[np.intp]
    """The places of their numbers, counted from the first stored number of all rows."""
    entries: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class CheckedRows:
    """Rows that were checked once, before any job, so that nothing about them can fail later."""

    matrix: Table
    names: tuple[str, ...] | None = None
    """The names of the columns, if they have names."""
    persons: NDArray[np.intp] | None = None
    """A number for each row that says whose it is, if this is known."""
    span: Span | None = None
    """For a share of a divided table, which of its rows are this provider's own (``matrix_shard.with_span``)."""
    unusable: Unusable | None = None
    """Rows that count as rows of zeros. Only the steward may know how many there are."""
    uncut: frozenset[str] | None = None
    """The fingerprints of the rows before any rows or entries were left out. They have one budget, however many
    count."""
    before: tuple[Fingerprint, ...] = ()
    """The fingerprints, with columns in their order, of the rows before each thing that settings change in them: as
    they were read, and before entries were left out. Of files that arrive, these are added up."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def dimension(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form. They are never made dense."""
        return scipy.sparse.issparse(self.matrix)

    @property
    def entries(self) -> int:
        """Number of entries that are not zero. Of genotypes and of rows in scratch, all are stored and count."""
        if isinstance(self.matrix, BlockTable):
            return self.count * self.dimension
        return int(np.count_nonzero(self.matrix if isinstance(self.matrix, np.ndarray) else self.matrix.data))

    @property
    def pieces(self) -> None:
        """None: all rows are in memory."""
        return

    def part(self, which: slice) -> Table:
        """Return rows by their position."""
        return self.matrix[which]

    def digest(self) -> str:
        """Return a hash of these rows in their form. A job that began over them must not continue over others."""
        matrix = self.matrix
        parts = _parts(matrix)
        form = (matrix.shape, len(parts), [kind.str for kind, _ in parts], self.names)
        found = sha256(repr(form if self.span is None else (*form, astuple(self.span))).encode())
        for _, blocks in parts:
            for block in blocks:
                found.update(np.ascontiguousarray(block).reshape(-1).data)
        if self.persons is not None:
            found.update(self.persons.data)
        return found.hexdigest()

    def fingerprints(self) -> frozenset[str]:
        """Return fingerprints of the rows' content, which do not depend on how they are stored."""
        return of_table(self.matrix) if self.uncut is None else self.uncut

    def fingerprints_in_order(self) -> tuple[Fingerprint, ...]:
        """Return fingerprints with columns in their order: before each thing that settings change, and after all."""
        return (*self.before, in_order(self.matrix))

    def bounded(self, rows_per_person: int) -> "CheckedRows":
        """Keep the first ``rows_per_person`` rows of each person, by position, before anything else is done with them.

        Which of a person's rows are kept does not depend on other persons. So a person who joins, leaves or changes
        moves a sum by at most these rows of their own. This does not bound the effect of a single row: if it is
        removed, the person's next row takes its place, so a sum moves as if one row were replaced, up to twice as far
        as by a removal.
        """
        if self.persons is None:
            return self
        kept = _place_among_own(self.persons) < rows_per_person  # always makes a copy, so the time reveals nothing
        return replace(self, matrix=self.matrix[kept], persons=self.persons[kept], unusable=None)

    def first(self, rows: int | None) -> "CheckedRows":
        """Keep the first ``rows`` rows, or all if None. Refuse if there are fewer."""
        if rows is None or rows == self.count:
            return self
        require_rows(rows, self.count)
        persons = None if self.persons is None else self.persons[:rows]
        return replace(self, matrix=self.matrix[:rows], persons=persons, unusable=None)

    def with_columns(self, names: Sequence[str] | None) -> "CheckedRows":
        """Keep the columns of these names, in this order, or all as they stand if None. The names must be there."""
        if names is None or tuple(names) == self.names:
            return self
        places = column_places(self.names or (), names)
        return replace(self, matrix=with_places(self.matrix, places), names=tuple(names), unusable=None)

    def as_matrix(self) -> "CheckedRows":
        """Return the same numbers as entries of a matrix. An unusable entry is zero, and does not affect its row.

        A copy is always made, so that the time does not reveal whether there is such an entry.
        """
        if isinstance(self.matrix, StoredRows):
            return replace(self, matrix=self.matrix.entries(), unusable=None)
        matrix = not_genotypes(self.matrix, "are rows, and no symmetric matrix")
        entries = (matrix if isinstance(matrix, np.ndarray) else matrix.data).copy()
        if self.unusable is not None:
            entries.reshape(-1)[self.unusable.places] = self.unusable.entries
        whole = entries if isinstance(matrix, np.ndarray) else with_entries(matrix, entries)
        return replace(self, matrix=whole, unusable=None)


def with_entries(matrix: scipy.sparse.csr_array, entries: FloatArray) -> scipy.sparse.csr_array:
    """Return sparse rows with other numbers in the same places, which both then share."""
    return scipy.sparse.csr_array((entries, matrix.indices, matrix.indptr), shape=matrix.shape)


def require_rows(rows: int | None, there: int) -> None:
    """Refuse a job about more rows, from the first, than there are."""
    if rows is not None and rows > there:
        raise InvalidDataError(
            f"The job is about the first {rows} rows of each provider, but this provider has fewer.",
            "Use smaller or fewer blocks of rows, or wait until the rows have arrived.",
        )


def with_places(matrix: Table, places: Sequence[int]) -> Table:
    """Keep the columns at these places, in this order."""
    if isinstance(matrix, BlockTable):
        return matrix.select(np.array(places, dtype=np.intp))
    chosen = matrix[:, places]
    return np.ascontiguousarray(chosen) if isinstance(chosen, np.ndarray) else chosen


def column_places(names: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Return where columns of these names stand."""
    places = {name: place for place, name in enumerate(names)}
    return [places[name] for name in wanted]


def _parts(matrix: Table) -> "list[tuple[np.dtype[Any], Iterable[NDArray[Any]]]]":
    """Return the arrays that make a table: the type of each, and its content some at a time."""
    if isinstance(matrix, StoredRows):  # the same as for a table in memory
        memory = ReusedMemory()
        return [(np.dtype(np.float64), (block.toarray(memory) for block in matrix.blocks()))]
    arrays: list[NDArray[Any]]
    if isinstance(matrix, Genotypes):
        arrays = [matrix.packed, matrix.values, matrix.blank]
    else:
        arrays = [matrix] if isinstance(matrix, np.ndarray) else [matrix.indptr, matrix.indices, matrix.data]
    return [(each.dtype, (each,)) for each in arrays]


def not_genotypes(matrix: Table, what: str) -> FloatArray | scipy.sparse.csr_array:
    """Refuse genotypes, and say why."""
    assert not isinstance(matrix, StoredRows)
    if isinstance(matrix, Genotypes):
        raise InvalidDataError(f"Genotypes {what}.", "Choose a unit of rows or persons, and no row_entries.")
    return matrix


def _place_among_own(persons: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return, for each row, how many rows of the same person come before it."""
    order = np.argsort(persons, kind="stable")
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    places = np.empty(len(persons), dtype=np.intp)
    places[order] = np.arange(len(persons)) - np.repeat(starts, np.diff(starts, append=len(persons)))
    return places


def check_rows(rows: Any, schema: Schema | None = None, *, least: int = 2) -> CheckedRows:  # noqa: ANN401
    """Refuse rows unless they are a finite real matrix with the schema's columns and at least ``least`` rows."""
    names = column_names(rows)
    if schema:
        check_names(names, schema)
    matrix = _csr(rows) if scipy.sparse.issparse(rows) else _dense(rows)
    if schema and matrix.shape[1] != schema.dimension:
        raise InvalidDataError(
            f"The rows have {matrix.shape[1]} columns, but the schema has {schema.dimension}.",
            "Give the columns that the job names, in its order.",
        )
    check_size(*matrix.shape, least=least)
    values = matrix.data if scipy.sparse.issparse(matrix) else matrix
    if not np.isfinite(values).all():
        place = place_of_first(matrix, ~np.isfinite(values), names)
        raise InvalidDataError(
            f"The rows contain NaN or infinity, first in {place}.", "Fill in or drop missing values first."
        )
    if np.abs(values).max(initial=0.0) > LARGEST_ENTRY:
        place = place_of_first(matrix, np.abs(values) > LARGEST_ENTRY, names)
        raise InvalidDataError(
            f"An entry is larger than {LARGEST_ENTRY:.0e}, first in {place}.", "Rescale the columns."
        )
    return CheckedRows(matrix, names)


def numbers_of(rows: Any, *, lenient: bool = True) -> Table:  # noqa: ANN401
    """Convert a table to numbers, and check its form alone. If not ``lenient``, also check where they are."""
    if isinstance(rows, BlockTable):
        return rows
    return _csr(rows, lenient=lenient) if scipy.sparse.issparse(rows) else _dense(rows)


def check_names(names: tuple[str, ...] | None, schema: Schema) -> None:
    """Refuse columns whose names or order differ from the schema's."""
    if schema.names and names and names != schema.names:
        pairs = enumerate(zip_longest(names, schema.names), 1)
        place = next(number for number, (own, asked) in pairs if own != asked)
        raise InvalidDataError(
            f"From column {place} on, the rows' columns are not those of the schema.",
            "Give the schema's columns in the schema's order.",
        )


def _dense(rows: Any) -> FloatArray:  # noqa: ANN401
    array = array_of(rows)
    _check_kind(array.dtype)
    _check_two_dimensions(array.ndim)
    with np.errstate(all="ignore"):  # a number that is too large becomes infinite, and is refused later
        return np.ascontiguousarray(array, dtype=np.float64)


def _check_two_dimensions(dimensions: int) -> None:
    if dimensions != MATRIX:
        raise InvalidDataError(
            f"Expected 2D array, got {dimensions}D array instead.",
            "Reshape your data with reshape(-1, 1) for a single column or reshape(1, -1) for a single row.",
        )


def _csr(rows: Any, *, lenient: bool = False) -> scipy.sparse.csr_array:  # noqa: ANN401
    """Convert sparse rows to canonical CSR form. Duplicates are summed, so that norms are right.

    A number in a column that does not exist is refused. If ``lenient``, it makes its row unusable instead.
    """
    _check_kind(rows.dtype)
    _check_two_dimensions(rows.ndim)
    # Numbers are converted first: a place that occurs twice is added up, which a small type cannot hold.
    matrix = scipy.sparse.csr_array(rows.astype(np.float64), copy=True)
    _check_row_ends(matrix)
    stray = (matrix.indices < 0) | (matrix.indices >= matrix.shape[1])
    if stray.any():
        if not lenient:
            raise stray_column(matrix.shape[1])
        matrix.indices[stray], matrix.data[stray] = 0, np.nan
    matrix.sum_duplicates()
    return matrix


def stray_column(columns: int) -> InvalidDataError:
    """Say that a number is in a column beyond the last."""
    return InvalidDataError(f"A sparse row has a number beyond its {columns} columns.", "Write the file again.")


def _check_row_ends(matrix: scipy.sparse.csr_array) -> None:
    """Refuse sparse rows that do not follow one another, because their numbers cannot be assigned to rows."""
    ends = matrix.indptr
    if ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > len(matrix.data):
        raise InvalidDataError("The sparse rows do not follow one another.", "Write the file again.")
    matrix.prune()


def _check_kind(kind: np.dtype[Any]) -> None:
    if kind.kind == "O":
        raise InvalidTypeError("The rows hold Python objects, not numbers.", "Convert every column to a number first.")
    if kind.kind == "c":
        raise InvalidDataError("Complex data not supported.", "Give real numbers.")
    if kind.kind not in "fiub":
        raise InvalidTypeError(f"The rows have type {kind}, not numbers.", "Convert every column to a number first.")


def check_size(rows: int, columns: int, *, least: int) -> None:
    """Refuse a table without columns, with fewer than ``least`` rows, or with more rows than sums can hold."""
    if columns == 0:
        raise InvalidDataError(
            f"Found array with 0 feature(s) (shape=({rows}, 0)) while a minimum of 1 is required.",
            "Give at least one column.",
        )
    if rows == 0 and least:
        raise InvalidDataError("Found array with 0 sample(s), no rows at all.", "Give at least two rows.")
    if rows < least:
        raise InvalidDataError("There is one row (n_samples = 1).", "Give at least two rows: one shows no variation.")
    if rows > MAX_ROWS:
        raise InvalidParameterError(
            f"There are {rows} rows, but sums over more than {MAX_ROWS} could overflow.",
            "Split them over several providers.",
        )
