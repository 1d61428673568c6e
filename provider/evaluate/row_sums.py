"""Exact sums over the rows of a data set, from which answers are made. They must not leave without noise.

Every query about rows is answered from sums over rows, and exact sums have the same bits whatever the blocks, their
order, and who adds them up. So rows may be anywhere: here, where threads of this process read them (``LocalSums``), or
with the workers of a cluster, which send sums alone (``dpspca.provider.engines``).
"""

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidParameterError, InvalidQueryError
from dpspca.common.queries import (
    ColumnSizes,
    ColumnSums,
    CompressedCovariance,
    Covariance,
    CovarianceProduct,
    GroupedScores,
    NormHistogram,
    NormRange,
    RowQuery,
    RowSparse,
    ScoreHistogram,
    SignPairs,
    TiedColumns,
    ViewQuery,
)
from dpspca.provider.data import BlockTable, Genotypes, UsableRows, blocks_of, zero_row

from .block_sums import LocalThreads
from .genotype_rows import GenotypeRows
from .groups import groups_of
from .integer_rows import integer_columns, integer_csr, integer_csr_columns, integer_rows, placed, row_norms
from .moments import Basis, DenseRows, LatticeBasis, Moments, SparseRows, StreamedMoments, floor_product, joined_square
from .packed_rows import BlockRows, PackedRows
from .summed_moments import SummedMoments
from .views import answer_view, group_cells, ranges_of, sign_scores, sizes_of, tied_scores
from .wide_integers import Exact, WideIntegers

Sums: TypeAlias = tuple[Integers | WideIntegers, ...]
"""Sums over some rows. Those over other rows are added to them, array by array."""

ALL: Final = slice(None)
_TINY: Final = 2.0**-100
"""A bound that all rows but zeros exceed. Where only signs count, each row is rounded at its own length."""


class RowSums(Protocol):
    """Exact sums over the rows of a data set, wherever they are."""

    def of(self, query: RowQuery, rows: slice = ALL) -> Sums:
        """Return the sums from which a query is answered, over some of the rows. Second moments are wide."""
        ...

    def moments(self, center: FloatArray | None, *, once: bool = False) -> Moments:
        """Return an object that computes second moments of all rows around a centre, for one query or for several."""
        ...


class LocalSums:
    """Sums over rows that this process reads."""

    def __init__(  # the rows, and how a job prepares them
        self,
        rows: UsableRows,
        norm_bound: float,
        mean_bound: float | None = None,
        *,
        engine: LocalThreads | None = None,
        keeps: bool = False,
    ) -> None:
        """Take rows. ``keeps`` says whether integers go to scratch, so that passes need not compute them again."""
        self._rows = rows
        self._norm_bound = norm_bound
        self._mean_bound = mean_bound
        self._evaluator = engine or LocalThreads()
        self._keeps = keeps

    def of(self, query: RowQuery, rows: slice = ALL) -> Sums:  # noqa: PLR0911  # one return for each query
        match query:
            case ColumnSums():
                return (self._column_sums(query),)
            case CovarianceProduct(kept=kept, center=center):
                return (self._streamed(rows, center).halves(LatticeBasis(kept)),)
            case CompressedCovariance(kept=kept, center=center):
                moments = self._streamed(rows, center)
                return moments.squares(LatticeBasis(kept)), moments.column_squares()
            case Covariance(center=center):
                return (self._streamed(rows, center).gram(),)
            case TiedColumns():
                return (np.asarray(sum(tied_scores(each, query.view) for each in self._of_signs(query))),)
            case ViewQuery():
                return (self._viewed(query),)
            case NormRange(center=center):
                return (np.asarray(sum(ranges_of(row_norms(each)) for each in self._unclipped(center))),)
            case ColumnSizes(center=center):
                return (self._sizes(center),)
            case SignPairs():
                return (np.asarray(sum(sign_scores(each, query.among) for each in self._of_signs(query))),)
            case _:
                raise InvalidQueryError(f"Rows cannot answer '{query.kind}'.", "Ask a query over rows.")

    def moments(self, center: FloatArray | None, *, once: bool = False) -> Moments:
        if self._rows.pieces is not None:
            return SummedMoments(partial(self._in_pieces, self._rows.pieces, center))
        rows = self.integers(self._norm_bound, center)
        if self._keeps and not once and isinstance(rows, PackedRows):
            rows = rows.kept(self._evaluator.threads)
        return StreamedMoments(rows, engine=self._evaluator)

    def integers(
        self, bound: float, center: FloatArray | None = None, part: slice = ALL, scales: FloatArray | None = None
    ) -> BlockRows:
        """Clip rows to a bound, and make integers of them."""
        matrix, center = self._centred(part, center)
        if isinstance(matrix, np.ndarray):
            return DenseRows(integer_rows(matrix, bound, center, scales))
        if isinstance(matrix, Genotypes):
            return GenotypeRows(matrix, bound, center, scales)
        if isinstance(matrix, BlockTable):
            convert = partial(integer_rows, norm_bound=bound, center=center, scales=scales)
            return PackedRows(matrix, matrix.shape[1], convert)
        return SparseRows(integer_csr(_scaled(matrix, scales), bound))

    def _streamed(self, part: slice, center: FloatArray | None) -> StreamedMoments:
        return StreamedMoments(self.integers(self._norm_bound, center, part), engine=self._evaluator)

    def _in_pieces(self, pieces: Sequence[slice], center: FloatArray | None) -> Iterator[Moments]:
        """Prepare rows piece by piece, because they are not in memory together."""
        return (self._streamed(piece, center) for piece in pieces)

    @property
    def _pieces(self) -> Sequence[slice]:
        return self._rows.pieces or (ALL,)

    def _of_signs(self, query: SignPairs | TiedColumns) -> Iterator[BlockRows]:
        return (self.integers(_TINY, query.center, piece, query.scales) for piece in self._pieces)

    def _viewed(self, query: ViewQuery) -> Integers | WideIntegers:
        """Answer a query about a view. Rows that are not in memory together are read piece by piece."""
        total: Any = reduce(add, (self._viewed_part(query, each) for each in self._pieces))
        if isinstance(query, NormHistogram | ScoreHistogram | GroupedScores):
            total *= self._rows.count > 0  # the row of zeros that stands for no rows is not counted
        return total  # type: ignore[no-any-return]

    def _viewed_part(self, query: ViewQuery, part: slice) -> Any:  # noqa: ANN401  # integers, or wide ones
        rows = self._columns(query, part)
        if isinstance(query, GroupedScores):
            return group_cells(query, rows, groups_of(blocks_of(self._centred(part, None)[0]), query.group_columns))
        return answer_view(query, rows, self._evaluator)

    def _columns(self, query: ViewQuery, part: slice) -> BlockRows:
        """Clip rows to the bound, keep the columns of a view, and make integers of them."""
        (matrix, center), columns = self._centred(part, query.center), query.view.columns
        bounds = self._norm_bound, self._norm_bound / query.lift
        if isinstance(matrix, np.ndarray):
            return DenseRows(integer_columns(matrix, columns, bounds, center, query.scales))
        if isinstance(matrix, BlockTable):
            convert = partial(integer_columns, columns=columns, bounds=bounds, center=center, scales=query.scales)
            return PackedRows(matrix, len(columns), convert)
        return SparseRows(integer_csr_columns(_scaled(matrix, query.scales), columns, bounds))

    def _centred(self, part: slice, center: FloatArray | None) -> tuple[Any, FloatArray | None]:
        """Return some of the rows, and the centre to subtract from them.

        If there are no rows, return one row of zeros and no centre. Such a row adds nothing to a sum, but a centred one
        would.
        """
        matrix = self._rows.part(part)
        if center is not None and scipy.sparse.issparse(matrix):
            raise dense_when_centred()
        return (matrix, center) if matrix.shape[0] else (zero_row(matrix), None)

    def _column_sums(self, query: ColumnSums) -> Integers:
        if self._mean_bound is None:
            raise InvalidQueryError("This job sets no mean_bound.", "Sign a job with the centering private.")
        return self.integers(self._mean_bound, query.center, scales=query.scales).sums()

    def _sizes(self, center: FloatArray | None) -> Integers:
        """Count, for each column, the entries of each size, without any bound."""
        total: Any = 0
        for rows in self._blocks():
            _require_dense(rows, center)
            total = total + sizes_of(rows, center)
        return np.asarray(total)

    def _unclipped(self, center: FloatArray | None) -> Iterator[Any]:
        """Give all rows around a centre without the bound of the job, which may be far too large."""
        for rows in self._blocks():
            _require_dense(rows, center)
            yield rows if center is None else rows - center

    def _blocks(self) -> Iterator[FloatArray | scipy.sparse.csr_array]:
        """Give all rows, piece by piece where they are not in memory as numbers. Of no rows, give an empty block."""
        for piece in self._pieces:
            yield from blocks_of(self._rows.part(piece))


class QueriedMoments:
    """Second moments of rows that are elsewhere: each is one pass over the rows there."""

    def __init__(self, sums: RowSums, dimension: int, center: FloatArray | None) -> None:
        self._sums = sums
        self._dimension = dimension
        self._center = center
        self._column_squares: Integers | WideIntegers | None = None

    def product(self, basis: Basis) -> Integers:
        (halves,) = self._sums.of(CovarianceProduct(_given(basis), self._center))
        return floor_product(_wide(halves))

    def compressed(self, basis: Basis) -> Exact:
        """Return basis^T X^T X basis, and remember the sums of squares of columns, which the same pass gives."""
        squares, self._column_squares = self._sums.of(CompressedCovariance(_given(basis), self._center))
        return joined_square(_wide(squares))

    def gram(self) -> WideIntegers:
        (gram,) = self._sums.of(Covariance(self._dimension, self._center))
        return _wide(gram)

    def trace(self) -> int:
        known = self._column_squares
        return int((self.gram().diagonal() if known is None else _wide(known)).exact().sum())


def _given(basis: Basis) -> RowSparse:
    assert isinstance(basis, LatticeBasis)  # what a query was made of
    return basis.given


def _wide(sums: Integers | WideIntegers) -> WideIntegers:
    assert isinstance(sums, WideIntegers)
    return sums


def _require_dense(rows: Any, center: FloatArray | None) -> None:  # noqa: ANN401  # dense or sparse
    if center is not None and not isinstance(rows, np.ndarray):
        raise dense_when_centred()


def _scaled(matrix: Any, scales: FloatArray | None) -> Any:  # noqa: ANN401  # sparse rows
    """Divide the columns of sparse rows, which keeps zeros."""
    if scales is None:
        return matrix
    data = placed(matrix.data, None, scales[matrix.indices])
    return type(matrix)((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def dense_when_centred() -> InvalidParameterError:
    """Say that sparse rows cannot be centred."""
    return InvalidParameterError(
        "Centring sparse rows would make them dense.",
        "Use the centering none or pairs, not auto, which may not know that rows are sparse; or give dense rows.",
    )
