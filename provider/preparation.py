"""From rows as they are to integer rows of bounded norm: the bounds that every sensitivity relies on.

Each integer row is a function of its own row (and of a public centre) alone. The norm is checked in integers, after
rounding, so that no floating-point error can let a row be longer than the bound.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import MATRIX, FloatArray, column_names
from dpspca.common.errors import InvalidDataError, InvalidParameterError, InvalidTypeError
from dpspca.common.privacy.lattice import MAX_ROWS, ROW_BITS
from dpspca.common.spans import Span
from dpspca.common.spec import Schema

IntegerRows: TypeAlias = NDArray[np.int32]

LARGEST: Final = 2.0**100
"""Entries beyond this are refused: their squares would leave the range of floating point."""

_BOUND: Final = 2**ROW_BITS
_BLOCK_ENTRIES: Final = 2**14
"""Temporaries of 128 KiB: from larger ones the C library takes memory afresh for every block, five times slower."""


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
class CheckedRows:
    """Rows that were found usable once, before any job: nothing about them can fail later."""

    matrix: FloatArray | scipy.sparse.csr_array
    names: tuple[str, ...] | None = None
    """What the columns are called, where that is known."""
    persons: NDArray[np.intp] | None = None
    """Whose each row is, as a number, where that is known."""
    span: Span | None = None
    """Of a share of a divided table: which of its rows are this provider's own (``matrix_shard.declared``)."""

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
    def pieces(self) -> None:
        """Nothing has to be read."""
        return

    def part(self, which: slice) -> FloatArray | scipy.sparse.csr_array:
        """Give some rows by their position."""
        return self.matrix[which]

    def digest(self) -> str:
        """Name these very rows: a job that began over them must not go on over others."""
        matrix = self.matrix
        parts = [matrix] if isinstance(matrix, np.ndarray) else [matrix.indptr, matrix.indices, matrix.data]
        form = (matrix.shape, len(parts), [part.dtype.str for part in parts], self.names)
        found = sha256(repr(form if self.span is None else (*form, astuple(self.span))).encode())
        for part in parts if self.persons is None else [*parts, self.persons]:
            found.update(np.ascontiguousarray(part).reshape(-1).data)
        return found.hexdigest()

    def bounded(self, rows_per_person: int) -> "CheckedRows":
        """Keep of each person the first so many rows, by position, before anything else is done with them.

        Which of one's rows stay depends on nobody else's: whoever comes, leaves or changes moves a sum by no more than
        these rows of one's own.
        """
        if self.persons is None:
            return self
        kept = _place_among_own(self.persons) < rows_per_person
        return self if kept.all() else replace(self, matrix=self.matrix[kept], persons=self.persons[kept])

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
        return replace(self, matrix=self.matrix[:rows], persons=persons)


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
    _check_size(*matrix.shape, least=least)
    values = matrix.data if scipy.sparse.issparse(matrix) else matrix
    if not np.isfinite(values).all():
        raise InvalidDataError("The rows contain NaN or infinity.", "Fill in or drop missing values first.")
    if np.abs(values).max(initial=0.0) > LARGEST:
        raise InvalidDataError(f"An entry is larger than {LARGEST:.0e}.", "Rescale the columns.")
    return CheckedRows(matrix, names)


def rows_or_zeros(rows: Any) -> tuple[CheckedRows, bool]:  # noqa: ANN401
    """Take rows whatever their numbers are, and as few as none: one that cannot be used counts as a row of zeros.

    That is one with an entry that is not finite, or too large; which it is follows from that row alone, so that no
    row has a part in whether others are answered about. Tell whether there was one.
    """
    matrix = _csr(rows) if scipy.sparse.issparse(rows) else _dense(rows)
    _check_size(*matrix.shape, least=0)
    if not isinstance(matrix, np.ndarray):
        good = np.abs(matrix.data) <= LARGEST  # which NaN is not
        if not good.all():
            whose = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
            matrix.data[np.isin(whose, whose[~good])] = 0  # in a copy that is nobody else's
        return CheckedRows(matrix), not good.all()
    usable: NDArray[np.bool_] = np.abs(matrix).max(axis=1) <= LARGEST
    return CheckedRows(matrix if usable.all() else np.where(usable[:, None], matrix, 0.0)), not usable.all()


def check_names(names: tuple[str, ...] | None, schema: Schema) -> None:
    """Refuse columns that are called otherwise, or stand in another order, than the schema says."""
    if schema.names and names and names != schema.names:
        raise InvalidDataError("The rows' columns are not those of the schema.", "Give them in the schema's order.")


def integer_rows(rows: FloatArray, norm_bound: float, center: FloatArray | None = None) -> IntegerRows:
    """Centre, shorten to the bound, and round to integers of norm at most 2^17; in blocks, to spare memory."""
    whole = np.empty(rows.shape, dtype=np.int32)
    step = max(1, _BLOCK_ENTRIES // rows.shape[1])
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        whole[block] = _integer_block(rows[block] if center is None else rows[block] - center, norm_bound)
    return whole


def _integer_block(rows: FloatArray, norm_bound: float) -> FloatArray:
    """Round to nearest, which is unbiased but may lengthen a row beyond the bound.

    Those few are cut towards zero instead, which cannot, once they have been shortened by more than the error of the
    floating-point division. The bound rests on nothing outside these lines: a row that is too long even then, or is
    not finite after all, counts as a row of zeros.
    """
    rows = _without_specks(rows, norm_bound)
    scaled = rows * (_BOUND / np.maximum(np.sqrt(_squared_norms(rows)), norm_bound))[:, None]
    whole = np.rint(scaled)
    too_long = ~(_squared_norms(whole) <= _BOUND**2)
    cut = np.trunc(scaled[too_long] * (1 - 2.0**-30))
    cut[~(_squared_norms(cut) <= _BOUND**2)] = 0
    whole[too_long] = cut
    return whole


def integer_csr(rows: scipy.sparse.csr_array, norm_bound: float) -> scipy.sparse.csr_array:
    """Do the same to sparse rows, entry by entry of those that are stored. Centring would make them dense."""
    lengths = np.diff(rows.indptr)

    def too_long(values: FloatArray) -> NDArray[np.bool_]:
        return np.repeat(~(_row_sums(np.square(values), rows.indptr) <= _BOUND**2), lengths)

    data = _without_specks(rows.data, norm_bound)
    norms = np.sqrt(_row_sums(np.square(data), rows.indptr))
    scaled = data * np.repeat(_BOUND / np.maximum(norms, norm_bound), lengths)
    whole = np.rint(scaled)
    whole = np.where(too_long(whole), np.trunc(scaled * (1 - 2.0**-30)), whole)
    whole[too_long(whole)] = 0
    return scipy.sparse.csr_array((whole, rows.indices, rows.indptr), shape=rows.shape)


def _without_specks(values: FloatArray, norm_bound: float) -> FloatArray:
    """Set to zero what would be rounded to zero anyway: numbers too small for the processor's fast path take longer.

    A coordinator that chose a centre close to a value could otherwise tell from the time how often it occurs.
    """
    return np.where(np.abs(values) < norm_bound * 2.0**-40, 0.0, values)


def _squared_norms(rows: FloatArray) -> FloatArray:
    """Sum squares along each row: contiguous, so that the order of additions depends on the row's length alone.

    Were it to depend on where the row lies, removing one row could change how others are rounded.
    """
    squares: FloatArray = np.square(rows).sum(axis=1)
    return squares


def _dense(rows: Any) -> FloatArray:  # noqa: ANN401
    if np.ma.is_masked(rows):
        raise InvalidDataError("Some entries are masked: values are missing.", "Fill in or drop missing values first.")
    array = np.asarray(rows)
    if array.dtype.kind == "O" and column_names(rows):  # a frame whose columns differ in type, or may miss values
        array = numeric(rows)
    _check_kind(array.dtype)
    _check_two_dimensions(array.ndim)
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


def _csr(rows: Any) -> scipy.sparse.csr_array:  # noqa: ANN401
    """Take sparse rows over in canonical CSR form: duplicates summed, so that a norm is a norm."""
    _check_kind(rows.dtype)
    _check_two_dimensions(rows.ndim)
    matrix = scipy.sparse.csr_array(rows, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    return matrix


def _check_kind(kind: np.dtype[Any]) -> None:
    if kind.kind == "O":
        raise InvalidTypeError("The rows hold Python objects, not numbers.", "Convert every column to a number first.")
    if kind.kind == "c":
        raise InvalidDataError("Complex data not supported.", "Give real numbers.")
    if kind.kind not in "fiub":
        raise InvalidTypeError(f"The rows have type {kind}, not numbers.", "Convert every column to a number first.")


def _check_size(rows: int, columns: int, *, least: int) -> None:
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


def _row_sums(values: FloatArray, starts: NDArray[Any]) -> FloatArray:
    """Sum stored values row by row. Each sum sees its own row alone, whatever stands before it."""
    sums = np.zeros(len(starts) - 1)
    filled = np.flatnonzero(np.diff(starts))
    if filled.size:
        sums[filled] = np.add.reduceat(values, starts[filled])
    return sums
