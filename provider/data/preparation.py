"""Rows as they are, found usable once: checked, bounded in rows of a person and in entries of a row, and named.

What is done to a row follows from that row alone; what is made of them then is in ``integer_rows.py``.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from typing import Any, Final, Protocol

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import MATRIX, FloatArray, column_names
from dpspca.common.errors import InvalidDataError, InvalidParameterError, InvalidTypeError, RefusedError
from dpspca.common.privacy import MAX_ROWS, PrivacyUnit
from dpspca.common.spans import Span
from dpspca.common.spec import Schema

from . import fingerprints

LARGEST: Final = 2.0**100
"""Entries beyond this are refused: their squares would leave the range of floating point."""

_NOWHERE: Final = np.empty(0, dtype=np.intp)


class UsableRows(Protocol):
    """Rows that were found usable, wherever they are held."""

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
        """What the columns are called, where that is known."""
        ...

    @property
    def is_sparse(self) -> bool:
        """Tell whether the rows are in CSR form."""
        ...

    @property
    def pieces(self) -> Sequence[slice] | None:
        """Say in which parts, one after the other, all rows are had; None where they are in memory as it is."""
        ...

    def part(self, which: slice) -> FloatArray | scipy.sparse.csr_array:
        """Give some rows by their position."""
        ...


@dataclass(frozen=True, eq=False, slots=True)
class Unusable:
    """Rows that hold a number which is not finite or is too large, and therefore count as rows of zeros.

    A share of a symmetric matrix has no rows of its own: if a row were zero and its mirror image were not, the share
    would be refused, and one entry would show. So ``entries`` keeps what these rows hold, with zeros in the place of
    the unusable numbers alone, and ``CheckedRows.as_matrix`` puts that back.
    """

    count: int
    """Number of these rows."""
    places: NDArray[np.intp]
    """Where their numbers are stored, counted from the first stored number of all rows."""
    entries: FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class CheckedRows:
    """Rows that were found usable once, before any job: nothing about them can fail later."""

    matrix: FloatArray | scipy.sparse.csr_array
    names: tuple[str, ...] | None = None
    """What the columns are called, where that is known."""
    persons: NDArray[np.intp] | None = None
    """Whose each row is, as a number, where that is known."""
    span: Span | None = None
    """Of a share of a divided table: which of its rows are this provider's own (``matrix_shard.with_span``)."""
    unusable: Unusable | None = None
    """Rows that count as rows of zeros. How many there are is for the steward alone."""
    uncut: frozenset[str] | None = None
    """What names the rows as they were before any of them, or of their entries, was left out: they have one budget,
    however many count."""

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
        """Tell whether the rows are held in CSR form; they are never made dense."""
        return scipy.sparse.issparse(self.matrix)

    @property
    def entries(self) -> int:
        """Number of entries that are not zero."""
        return int(np.count_nonzero(self.matrix if isinstance(self.matrix, np.ndarray) else self.matrix.data))

    @property
    def pieces(self) -> None:
        """Nothing has to be read."""
        return

    def part(self, which: slice) -> FloatArray | scipy.sparse.csr_array:
        """Give some rows by their position."""
        return self.matrix[which]

    def digest(self) -> str:
        """Name these very rows, in the form that they have: a job that began over them must not go on over others."""
        matrix = self.matrix
        parts = [matrix] if isinstance(matrix, np.ndarray) else [matrix.indptr, matrix.indices, matrix.data]
        form = (matrix.shape, len(parts), [part.dtype.str for part in parts], self.names)
        found = sha256(repr(form if self.span is None else (*form, astuple(self.span))).encode())
        for part in parts if self.persons is None else [*parts, self.persons]:
            found.update(np.ascontiguousarray(part).reshape(-1).data)
        return found.hexdigest()

    def fingerprints(self) -> frozenset[str]:
        """Name what these rows say, however they are stored: for the same rows there is one budget."""
        return fingerprints.of_table(self.matrix) if self.uncut is None else self.uncut

    def bounded(self, rows_per_person: int) -> "CheckedRows":
        """Keep of each person the first so many rows, by position, before anything else is done with them.

        Which of one's rows stay depends on nobody else's, so a person who comes, leaves or changes moves a sum by no
        more than these rows of their own. It is no bound for a single row: without it the person's next row stays in
        its place, so that a sum moves as if one row were replaced, by up to twice what a removal may.
        """
        if self.persons is None:
            return self
        kept = _place_among_own(self.persons) < rows_per_person  # a copy in any case: the time tells of nobody's rows
        return replace(self, matrix=self.matrix[kept], persons=self.persons[kept], unusable=None)

    def first(self, rows: int | None) -> "CheckedRows":
        """Keep so many, from the first; or all of them, for None. Refuse if there are fewer."""
        if rows is None or rows == self.count:
            return self
        if rows > self.count:
            raise InvalidDataError(
                f"The job is about the first {rows} rows of each provider, and there are fewer.",
                "Take smaller or fewer blocks of rows, or wait until the rows are there.",
            )
        persons = None if self.persons is None else self.persons[:rows]
        return replace(self, matrix=self.matrix[:rows], persons=persons, unusable=None)

    def as_matrix(self) -> "CheckedRows":
        """Give the same numbers as entries of a matrix: an unusable one is zero, and leaves its row as it is.

        The copy is made in any case, so that the time does not say whether there is such an entry.
        """
        matrix = self.matrix.copy()
        if self.unusable is not None:
            stored = matrix.reshape(-1) if isinstance(matrix, np.ndarray) else matrix.data
            stored[self.unusable.places] = self.unusable.entries
        return replace(self, matrix=matrix, unusable=None)


def with_persons(rows: CheckedRows, whose: Any) -> CheckedRows:  # noqa: ANN401  # whatever was given
    """Say of each row whose it is: one name or number a row. What they are called is not kept, only how they sort.

    Labels are compared as they are, and not as an array holds them, which would lose zero bytes at their ends: two
    persons taken for one would leave each other rows.
    """
    try:
        labels = whose.tolist() if hasattr(whose, "tolist") else list(whose)
        missing = any(each is None or each == "" or each != each for each in labels)  # noqa: PLR0124  # NaN is not itself
        places = {label: place for place, label in enumerate(sorted(set(labels)))}
    except TypeError:
        raise InvalidTypeError(
            "The rows' persons are not all of one kind.", "Give text for each row, or a number for each: whose it is."
        ) from None
    if missing or len(labels) != rows.count:
        raise InvalidDataError(
            f"There are {len(labels)} persons for {rows.count} rows{', or one of them is missing' if missing else ''}.",
            "Give one name or number for each row: whose it is.",
        )
    return replace(rows, persons=np.fromiter(map(places.__getitem__, labels), dtype=np.intp, count=rows.count))


def require_unit(unit: PrivacyUnit, *, persons: bool, cut: bool = False) -> None:
    """Refuse a unit whose statement would be false of a data set that says, or does not say, whose its rows are.

    A person can be protected only where it is known whose each row is. Where it is known, of each person the first few
    rows are used, and for a unit of rows the statement would be false: see ``CheckedRows.bounded``. This follows from
    the provider's settings and the job alone, and from no row.
    """
    if unit.is_person and not persons:
        raise RefusedError(
            f"This data set does not say whose each row is, and the unit {unit} protects persons.",
            "Choose a unit of rows; or ask its steward to name a file of persons under [persons]. Where nobody has two "
            "rows, number them.",
        )
    if persons and not unit.is_person:
        raise RefusedError(
            f"Rows of this data set are persons', who may have several, and the unit {unit} protects no person.",
            f"Choose {PrivacyUnit.PERSON_ADD_REMOVE} or {PrivacyUnit.PERSON_REPLACE_ONE}.",
        )
    if cut and not unit.is_row:
        raise RefusedError(
            f"Entries of this data set's rows are left out (row_entries), and the unit {unit} is about a whole matrix.",
            "Choose a unit of rows; or ask its steward to take row_entries away.",
        )


def _place_among_own(persons: NDArray[np.intp]) -> NDArray[np.intp]:
    """Say of each row how many of the same person stand before it."""
    order = np.argsort(persons, kind="stable")
    starts = np.flatnonzero(np.diff(persons[order], prepend=-1))
    places = np.empty(len(persons), dtype=np.intp)
    places[order] = np.arange(len(persons)) - np.repeat(starts, np.diff(starts, append=len(persons)))
    return places


def check_rows(rows: Any, schema: Schema | None = None, *, least: int = 2) -> CheckedRows:  # noqa: ANN401
    """Refuse rows that are no finite real matrix of at least ``least`` rows with the schema's columns."""
    names = column_names(rows)
    if schema:
        check_names(names, schema)
    matrix = _csr(rows) if scipy.sparse.issparse(rows) else _dense(rows)
    if schema and matrix.shape[1] != schema.dimension:
        raise InvalidDataError(
            f"The rows have {matrix.shape[1]} columns; the schema has {schema.dimension}.",
            "Give the columns that the job names, in its order.",
        )
    check_size(*matrix.shape, least=least)
    values = matrix.data if scipy.sparse.issparse(matrix) else matrix
    if not np.isfinite(values).all():
        raise InvalidDataError("The rows contain NaN or infinity.", "Fill in or drop missing values first.")
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise InvalidDataError(f"An entry is larger than {LARGEST:.0e}.", "Rescale the columns.")
    return CheckedRows(matrix, names)


def numbers_of(rows: Any) -> FloatArray | scipy.sparse.csr_array:  # noqa: ANN401
    """Take a table over as numbers, checked for nothing but its form."""
    return _csr(rows, lenient=True) if scipy.sparse.issparse(rows) else _dense(rows)


def with_largest_entries(rows: CheckedRows, most: int) -> CheckedRows:
    """Keep of each row at most so many entries, the largest; of entries of one size, those of the first columns.

    How long a query about sparse rows takes goes with the number of their entries: a bound on it that is public
    bounds what one row can add. Which entries of a row stay depends on that row alone, so that no sensitivity changes.
    """
    matrix = rows.matrix.copy()
    unusable = rows.unusable and replace(
        rows.unusable, places=_NOWHERE, entries=np.empty(0)
    )  # of a matrix, not of rows
    if isinstance(matrix, np.ndarray):
        for place in np.flatnonzero(np.count_nonzero(matrix, axis=1) > most):
            matrix[place, _smaller_entries(matrix[place], most)] = 0.0
        return replace(rows, matrix=matrix, unusable=unusable, uncut=rows.fingerprints())
    for place in np.flatnonzero(np.diff(matrix.indptr) > most):
        stored = matrix.data[matrix.indptr[place] : matrix.indptr[place + 1]]
        stored[_smaller_entries(stored, most)] = 0.0
    matrix.eliminate_zeros()
    return replace(rows, matrix=matrix, unusable=unusable, uncut=rows.fingerprints())


def _smaller_entries(entries: FloatArray, most: int) -> NDArray[np.intp]:
    """Say where the entries are that do not belong to the largest; of equal ones the first do."""
    return np.argsort(-np.abs(entries), kind="stable")[most:]


def check_names(names: tuple[str, ...] | None, schema: Schema) -> None:
    """Refuse columns that are called otherwise, or stand in another order, than the schema says."""
    if schema.names and names and names != schema.names:
        raise InvalidDataError("The rows' columns are not those of the schema.", "Give them in the schema's order.")


def _dense(rows: Any) -> FloatArray:  # noqa: ANN401
    if np.ma.is_masked(rows):
        raise InvalidDataError("Some entries are masked: values are missing.", "Fill in or drop missing values first.")
    array = np.asarray(rows)
    if array.dtype.kind == "O" and column_names(rows):  # a frame whose columns differ in type, or may miss values
        array = numeric(rows)
    _check_kind(array.dtype)
    _check_two_dimensions(array.ndim)
    with np.errstate(all="ignore"):  # what does not fit becomes infinite, and is dealt with as that, without a warning
        return np.ascontiguousarray(array, dtype=np.float64)


def numeric(rows: Any) -> FloatArray:  # noqa: ANN401
    """Turn Python objects that are numbers into numbers; name the column that holds others."""
    try:
        return np.asarray(rows).astype(np.float64)
    except (TypeError, ValueError):
        bad = [name for name in column_names(rows) or () if not _is_numeric(rows[name])]
        where = f"Column {bad[0]!r} holds" if bad else "The rows hold"
        raise InvalidTypeError(
            f"{where} Python objects or missing values: every argument must be a string of digits or a real number.",
            "Convert every column to a number, and fill in or drop missing values, first.",
        ) from None


def _is_numeric(column: Any) -> bool:  # noqa: ANN401
    try:
        np.asarray(column).astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def _check_two_dimensions(dimensions: int) -> None:
    if dimensions != MATRIX:
        raise InvalidDataError(
            f"Expected 2D array, got {dimensions}D array instead.",
            "Reshape your data with reshape(-1, 1) for a single column or reshape(1, -1) for a single row.",
        )


def _csr(rows: Any, *, lenient: bool = False) -> scipy.sparse.csr_array:  # noqa: ANN401
    """Take sparse rows over in canonical CSR form: duplicates summed, so that a norm is a norm.

    A file may hold a number in a column that does not exist. That is refused; or, leniently, its row becomes unusable.
    """
    _check_kind(rows.dtype)
    _check_two_dimensions(rows.ndim)
    matrix = scipy.sparse.csr_array(rows, dtype=np.float64, copy=True)
    _check_row_ends(matrix)
    stray = (matrix.indices < 0) | (matrix.indices >= matrix.shape[1])
    if stray.any():
        if not lenient:
            raise InvalidDataError("A sparse row has a number in a column that does not exist.", "Write the file anew.")
        matrix.indices[stray], matrix.data[stray] = 0, np.nan
    matrix.sum_duplicates()
    return matrix


def _check_row_ends(matrix: scipy.sparse.csr_array) -> None:
    """Refuse sparse rows that do not follow one another: then nobody can tell which number is whose."""
    ends = matrix.indptr
    if ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > len(matrix.data):
        raise InvalidDataError("The sparse rows do not follow one another.", "Write the file anew.")
    matrix.prune()


def _check_kind(kind: np.dtype[Any]) -> None:
    if kind.kind == "O":
        raise InvalidTypeError("The rows hold Python objects, not numbers.", "Convert every column to a number first.")
    if kind.kind == "c":
        raise InvalidDataError("Complex data not supported.", "Give real numbers.")
    if kind.kind not in "fiub":
        raise InvalidTypeError(f"The rows have type {kind}, not numbers.", "Convert every column to a number first.")


def check_size(rows: int, columns: int, *, least: int) -> None:
    """Refuse a table without columns, with fewer rows than these, or with more than sums can hold."""
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
            f"There are {rows} rows; sums of more than {MAX_ROWS} could overflow.", "Split them over several providers."
        )
