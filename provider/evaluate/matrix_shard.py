"""Evaluates queries over one provider's share of a symmetric matrix. Its answers must not leave without noise.

Entries become integers once, in units of C / 2^30 (``common/queries/matrix.py`` prices that), and all sums are exact.
Neither the order of entries, nor the number of threads, nor whether the matrix is dense or sparse can change a bit. An
entry is an integer of at most 2^50, and the L1 norm of a basis column is at most sqrt(d) times its L2 norm of 2^20. So
entries are split into digits, narrow enough that every partial sum stays below 2^53 in float64 (dense, multiplied by a
BLAS) or below 2^63 in 64-bit integers (sparse). Work and memory grow with the stored entries.

For the unit ``entry``, entries larger than ``largest_entry`` allows are cut to that. Each cut entry is a function of
that entry alone and brings no two values further apart, so sensitivities still hold. This is not so for spectral
norms. For the unit ``spectral``, every job is refused if an entry is too large for the least bound of the policy
(``SpectralCheck``). This is decided once, when the provider starts, and it is public. So the promise of this unit is
about neighbours that both pass or both fail, and the statement says so. The decision does not depend on a job, so
asking again with another bound reveals nothing more.

A share of a divided table may have a ``Span``. It is checked against the share once, before any job. If it fails, only
the steward is told, and the data set is not offered. This reveals nothing about a protected change: with a span,
neighbours are two shares of the same rows that differ in one entry of these (``entry``) or by a change of these that is
small in spectral norm (``spectral``). Both lie within the span, so both pass.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, ClassVar, Final, Protocol, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidDataError, InvalidParameterError, InvalidQueryError, RefusedError
from dpspca.common.job import JobSpec, Span
from dpspca.common.plan import Step
from dpspca.common.privacy import BASIS_BITS, Event, PrivacyUnit, WordSource
from dpspca.common.queries import (
    ENTRY_BITS,
    LARGEST_TOTAL,
    TOTAL_SHIFT,
    EntryTotal,
    MatrixProduct,
    RowQuery,
    largest_entry,
)
from dpspca.provider.data import CheckedRows, check_names

from .integer_rows import without_specks

SPARSE_DIGIT_BITS: Final = 25
"""2^25 times 2^20 sqrt(d) is at most 2^57."""
BLOCK_ENTRIES: Final = 2**18
"""Rows are split into digits this many entries at a time, which takes megabytes, and not a copy of the matrix."""
ENTRY_WIDTH: Final = 50
MATRIX_ENTRY_BYTES: Final = 26
"""For each entry of a dense matrix while the first query makes integers. 8 remain then."""
PRODUCT_BYTES: Final = 72
"""For each number of an answer: the basis, as it came and as integers, two partial products, noise and the answer."""
_CHECKING: Final = Lock()
"""Held while a copy of a matrix is checked. Opening a job is free, so dozens of copies might be there at once."""


class Matrix(Protocol):
    """A matrix of integers."""

    def product(self, basis: FloatArray) -> Integers:
        """Return floor(M basis / 2^20) for a basis of integers."""
        ...

    def total(self) -> int:
        """Sum the absolute values, each cut to whole units of 2^26."""
        ...


def with_span(share: CheckedRows, span: Span) -> CheckedRows:
    """Return a share with its span, or refuse it if it has entries outside. Done once, when a provider starts."""
    if share.persons is not None:
        raise InvalidDataError(
            "The data set has both a span and a file of persons.",
            "Remove the span, or the persons file: a matrix has no persons.",
        )
    entries = share.as_matrix()
    _check_symmetric(entries)
    columns = share.dimension - span.of
    if columns < 1:
        raise InvalidDataError(
            f"The matrix has {share.dimension} columns, too few for a span of {span.of} rows and at least one column.",
            "Give the dilation of the table, which has its rows first and then its columns, or correct the span.",
        )
    stored: Any = entries.matrix
    matrix: Any = scipy.sparse.coo_array(stored)
    row, column = (places[matrix.data != 0] for places in matrix.coords)
    if not (_is_within(span, row, column) | _is_within(span, column, row)).all():
        raise InvalidDataError(
            f"An entry of the matrix is outside its span: rows {span.start} to {span.start + span.rows - 1} and "
            f"{columns} columns.",
            "Correct the span, or make the share again with dpspca.client.matrices.dilation.",
        )
    return replace(share, span=span)


@dataclass(frozen=True, slots=True)
class SpectralCheck:
    """Whether no entry of a share is too large for the unit ``spectral``, decided once, when the provider starts."""

    least_bound: float
    """The least bound that the policy allowed a job at that time."""
    holds: bool

    @classmethod
    def of(cls, share: CheckedRows, least_bound: float) -> Self:
        """Check a share."""
        return cls(least_bound, _largest(share.as_matrix()) <= largest_entry(share.dimension) * least_bound)

    def require(self, least_bound: float) -> None:
        """Refuse every job if the check failed, or if the policy now allows smaller bounds than it did then."""
        if least_bound < self.least_bound:
            raise RefusedError(
                "The least norm_bound of the policy is smaller than when the provider started.",
                "The provider's operator must restart the provider.",
            )
        if not self.holds:
            raise RefusedError(
                "This matrix answers no job with the unit spectral. The provider checked this when it started.",
                "The steward must set a larger least norm_bound in the policy. Then the operator must restart the "
                "provider.",
            )


class MatrixShard:
    """One provider's share, prepared under the bound of a job.

    Until a query is asked, it takes no memory of its own: dozens of jobs may be open, at no price.
    """

    def __init__(
        self,
        share: CheckedRows,
        norm_bound: float,
        unit: PrivacyUnit,
        least_bound: float | None = None,
        memory: int | None = None,
    ) -> None:
        """Refuse a share that is not square or not symmetric. Neighbours are symmetric, so this reveals nothing.

        ``least_bound`` is the least bound that any job may have. By default it is this job's. ``memory`` is how many
        bytes a query may take.
        """
        with _CHECKING:
            entries = share.as_matrix()
            _check_symmetric(entries)
            if unit is PrivacyUnit.SPECTRAL:
                _check_largest(entries, norm_bound if least_bound is None else min(least_bound, norm_bound))
            del entries
        self._dimension = share.dimension
        self._names = share.names
        self._silent = None if share.span is None else share.span.rows_of_others(share.dimension)
        self._norm_bound = norm_bound
        self._unit = unit
        self._share = share
        self._made: Matrix | None = None
        self._making = Lock()
        self._memory = memory
        self.is_sparse = share.is_sparse

    makes_matrix: ClassVar[bool] = False
    """The matrix is the data, so the first query has nothing to compute in advance."""
    copied_columns: ClassVar[int] = 0
    kept_columns: ClassVar[int] = 0

    def fits(self, spec: JobSpec) -> bool:
        """Tell whether the share was prepared under this job's bound, for its unit."""
        return self._norm_bound == spec.norm_bound and self._unit is spec.unit

    def check(self, spec: JobSpec) -> None:
        """Refuse a job of another width or with another bound, before anything is paid for."""
        if not self.fits(spec):
            raise InvalidParameterError(
                f"The matrix was not prepared for the job's norm_bound and unit: {spec.norm_bound} and {spec.unit}.",
                "Prepare it for this job.",
            )
        if self._dimension != spec.schema.dimension:
            raise InvalidParameterError(
                f"The matrix has {self._dimension} columns, but the job has {spec.schema.dimension}.",
                "Give the columns that the job names, in its order.",
            )
        check_names(self._names, spec.schema)

    def memory_of(self, step: Step) -> int:
        """Return how many bytes an answer takes.

        A sparse matrix counts as all of the memory, because how many entries it has is private. An answer takes at most
        about as much as reading it did, which had to fit.
        """
        product = PRODUCT_BYTES * math.prod(step.shape)
        if self.is_sparse:
            return max(product, self._memory or 0)
        return MATRIX_ENTRY_BYTES * self._dimension**2 + product

    def require_memory(self, plan: Sequence[Step]) -> None:
        """Refuse a job with an answer that does not fit. How large a matrix and an answer are, is public."""
        if self._memory is not None and max(map(self.memory_of, plan), default=0) > self._memory:
            raise RefusedError(
                "This job takes more memory than the provider's settings allow.",
                "Ask for fewer components. Or ask the provider's operator to raise memory_mebibytes"
                + ("." if self.is_sparse else ", or to offer the matrix in sparse form."),
            )

    def evaluate(self, query: RowQuery) -> Integers:
        """Answer exactly, as integers on the public lattice."""
        match query:
            case MatrixProduct():
                return self._integers().product(np.rint(query.basis * 2.0**BASIS_BITS))
            case EntryTotal():
                return np.array([min(self._integers().total(), LARGEST_TOTAL)], dtype=np.int64)
            case _:
                raise InvalidQueryError(
                    f"A symmetric matrix cannot answer '{query.kind}'.", "Ask a query over matrices."
                )

    def forget(self) -> list[object]:
        """Drop the integers, and return them. They are made again for the next query."""
        gone, self._made = self._made, None
        return [gone]

    def _integers(self) -> Matrix:
        with self._making:
            made = self._made
            if made is None:
                made = self._made = _integers(self._share.as_matrix().matrix, self._norm_bound)
            return made

    def silent(self, query: RowQuery) -> NDArray[np.bool_] | None:
        """Mark the rows of an answer that are zero for every share of this span, its neighbours included.

        A row of M X is a sum over that row of M, so it is zero if that row is: rounding M and flooring the sum keep a
        zero. A total is over all entries, and is never silent.
        """
        return self._silent if isinstance(query, MatrixProduct) else None

    def release(self, query: RowQuery, event: Event | None, words: WordSource) -> Integers:
        """Refuse: no query about matrices is a private mechanism by itself."""
        raise InvalidQueryError(f"A symmetric matrix cannot answer '{query.kind}'.", "Ask for its products.")


class DenseEntries:
    """All entries, as 64-bit integers."""

    def __init__(self, entries: Integers) -> None:
        self._entries = entries
        dimension = len(entries)
        self._digit_bits = 53 - BASIS_BITS - 1 - math.ceil(math.log2(dimension) / 2)
        self._digits = -(-ENTRY_WIDTH // self._digit_bits)
        self._step = max(1, BLOCK_ENTRIES // dimension)

    def product(self, basis: FloatArray) -> Integers:
        whole = np.empty((len(self._entries), basis.shape[1]), dtype=np.int64)
        for start in range(0, len(whole), self._step):
            block = slice(start, start + self._step)
            whole[block] = self._block_product(self._entries[block], basis)
        return whole

    def total(self) -> int:
        return _total(self._entries)

    def _block_product(self, rows: Integers, basis: FloatArray) -> Integers:
        """Multiply digit by digit. All digits but the highest are in [0, 2^p), and the shift drops only lowest bits."""
        total = np.zeros((len(rows), basis.shape[1]), dtype=np.int64)
        for place in range(self._digits):
            digit = rows if place == self._digits - 1 else rows & (2**self._digit_bits - 1)
            part = (digit.astype(np.float64) @ basis).astype(np.int64)
            shift = place * self._digit_bits - BASIS_BITS
            total += part << shift if shift >= 0 else part >> -shift
            rows = rows >> self._digit_bits
        return total


class SparseEntries:
    """The stored entries, as two digits with the same positions."""

    def __init__(self, entries: scipy.sparse.csr_array) -> None:
        self._entries = entries
        self._high = self._with(entries.data >> SPARSE_DIGIT_BITS)
        self._low = self._with(entries.data & (2**SPARSE_DIGIT_BITS - 1))

    def product(self, basis: FloatArray) -> Integers:
        whole = basis.astype(np.int64)
        total: Integers = self._low @ whole
        total >>= BASIS_BITS
        total += (self._high @ whole) << (SPARSE_DIGIT_BITS - BASIS_BITS)
        return total

    def total(self) -> int:
        return _total(self._entries.data)

    def _with(self, data: Integers) -> scipy.sparse.csr_array:
        return scipy.sparse.csr_array((data, self._entries.indices, self._entries.indptr), shape=self._entries.shape)


def _is_within(span: Span, row: NDArray[Any], column: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell which entries of the dilation are in the span's rows of the table."""
    within: NDArray[np.bool_] = (span.start <= row) & (row < span.start + span.rows) & (span.of <= column)
    return within


def _check_largest(share: CheckedRows, least_bound: float) -> None:
    largest = largest_entry(share.dimension)
    if _largest(share) > largest * least_bound:
        raise InvalidDataError(
            f"An entry of the matrix is above {largest} times the least bound that jobs may have, so none is answered.",
            "The steward must set a larger least norm_bound in the policy.",
        )


def _largest(share: CheckedRows) -> float:
    matrix: Any = share.matrix
    entries = matrix if isinstance(matrix, np.ndarray) else matrix.data
    return float(max(entries.max(initial=0.0), -entries.min(initial=0.0)))


def _integers(matrix: Any, norm_bound: float) -> Matrix:  # noqa: ANN401  # dense or sparse
    """Round to the grid, after cutting to the limit that keeps every sum exact."""
    largest = largest_entry(matrix.shape[0])
    is_sparse = scipy.sparse.issparse(matrix)
    values = matrix.data if is_sparse else matrix
    limit = 2.0**ENTRY_BITS * largest
    scaled = without_specks(values, norm_bound)
    scaled *= 2.0**ENTRY_BITS / norm_bound
    whole = np.rint(np.clip(scaled, -limit, limit, out=scaled), out=scaled).astype(np.int64)
    if not is_sparse:
        return DenseEntries(whole)
    return SparseEntries(scipy.sparse.csr_array((whole, matrix.indices, matrix.indptr), shape=matrix.shape))


def _check_symmetric(share: CheckedRows) -> None:
    matrix: Any = share.matrix
    if share.count != share.dimension:
        raise InvalidDataError(
            f"The matrix has {share.count} rows and {share.dimension} columns.",
            "Give a square, symmetric one. For a rectangular table, make one with dpspca.client.matrices.dilation.",
        )
    if not (_is_symmetric(matrix) if isinstance(matrix, np.ndarray) else not (matrix - matrix.T).data.any()):
        raise InvalidDataError(
            "The matrix is not symmetric.",
            "Give every edge in both directions. If only rounding made the two differ, give (M + M.T) / 2.",
        )


def _is_symmetric(matrix: FloatArray) -> bool:
    """Compare a block of rows at a time with the same columns: opening a job is free, and must not take memory."""
    step = max(1, BLOCK_ENTRIES // len(matrix))
    blocks = (slice(start, start + step) for start in range(0, len(matrix), step))
    return all(np.array_equal(matrix[block], matrix[:, block].T) for block in blocks)


def _total(entries: Integers) -> int:
    return int((np.abs(entries) >> TOTAL_SHIFT).sum())
