"""Evaluates queries about a view of integer rows (``dpspca.common.queries.views``). Pure.

Each row of a view is a function of its own row alone, bit for bit: products with the axes are exact in integers, and
what follows is done entry by entry, or as a sum along one row that is contiguous in memory. So no other row, and no
place in memory, can change how a row is rounded. All bounds are checked in integers after rounding.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import InvalidQueryError
from dpspca.common.privacy import BASIS_BITS, MOMENT_BITS, ROW_BITS, ChoiceEvent, WordSource, pick_columns, pick_pairs
from dpspca.common.queries import (
    BINS,
    LARGEST_RANGE,
    LARGEST_SIZE,
    RANGES,
    SCORES,
    SIDE,
    SIZES,
    GroupedScores,
    NormHistogram,
    RowSparse,
    ScoreHistogram,
    SignPairs,
    View,
    ViewCovariance,
    ViewProduct,
    ViewQuery,
    ViewSquares,
)

from .block_sums import EXACT_ROWS, BlockEvaluator
from .groups import Groups
from .integer_rows import IntegerRows, integer_rows, row_sums
from .moments import SQUARE_SHIFT, DenseBlocks, LatticeBasis, SparseRows, StreamedMoments, floor_product
from .packed_rows import BlockRows
from .wide_integers import WideIntegers

_BOUND: Final = 2.0**ROW_BITS
_EDGES: Final = 2.0 ** (-np.arange(BINS - 1) / 2) * (1 - 2.0**-10)
"""The lower edges of all bins but the last, as multiples of the bound; see ``NormHistogram``."""
_SOME_ENTRIES: Final = 2**21
"""Entries of rows whose signs are added up together: few sums as wide as the table, and 16 MiB of memory."""
_LARGEST_SCORE: Final = 2**31 - 1
_SOME_SIZES: Final = 2**16
"""Entries whose sizes are counted together."""
_TOP: Final = int(np.log2(LARGEST_SIZE))
_RANGE_EDGES: Final[FloatArray] = np.ldexp(LARGEST_RANGE, -4 * np.arange(RANGES - 1))


class ViewedRows(DenseBlocks):
    """The rows of a view, clipped and rounded, made a block at a time from those that it is a view of."""

    def __init__(self, rows: BlockRows, view: View, lift: float = 1.0) -> None:
        """``rows`` have the columns of the view alone. They were multiplied by the lift, clipped and rounded."""
        super().__init__(rows.count, rows.dimension)
        self.block_rows = min(self.block_rows, rows.block_rows)
        self._rows = rows
        self._factors = view.factors[0] / lift, view.factors[1] / lift
        self._axes = np.rint(view.axes_matrix * 2.0**BASIS_BITS)

    @property
    def is_scaled_only(self) -> bool:
        """Tell whether all parts of a row have the same factor, as they have without axes."""
        return not self._axes.shape[1] or self._factors[0] == self._factors[1]

    def stored(self) -> Iterator[scipy.sparse.csr_array]:
        """Give the rows of a view that is only scaled as sparse ones, some at a time, before they are clipped."""
        for start in range(0, max(self.count, 1), EXACT_ROWS):
            block: Any = self._rows.block(start, min(start + EXACT_ROWS, self.count))
            yield scipy.sparse.csr_array((block.data * self._factors[0], block.indices, block.indptr), block.shape)

    def integers(self, start: int, stop: int) -> IntegerRows:
        """Give rows from ``start`` to ``stop`` as integers of norm at most 2^17."""
        return integer_rows(self.unclipped(start, stop), _BOUND)

    def unclipped(self, start: int, stop: int) -> FloatArray:
        """Give rows of the view before they are clipped.

        Exact: a row x has norm 2^17 at most and an axis entries of 2^20 at most, so a product of x with an axis is at
        most 2^37 sqrt(p) for p columns, which is 2^53 for p = 2^32. It is rounded to a multiple of 2^20. Then products
        of at most 2^17 sqrt(p) with 2^20, summed over a axes, are at most 2^37 a sqrt(p), which is 2^52 in a view.
        """
        block = self._rows.block(start, stop)
        if scipy.sparse.issparse(block):
            block = block.toarray()
        scale, along = self._factors
        viewed: FloatArray = block * scale
        if self._axes.shape[1] and along != scale:
            seen = np.rint(np.dot(block, self._axes) * 2.0**-BASIS_BITS)
            viewed += np.dot(seen, self._axes.T) * ((along - scale) * 2.0**-BASIS_BITS)
        return np.ascontiguousarray(viewed)

    def blocks(self) -> Iterator[FloatArray]:
        """Give all rows before they are clipped; of no rows, an empty block."""
        for start in range(0, max(self.count, 1), self.block_rows):
            yield self.unclipped(start, min(start + self.block_rows, self.count))


def answer_view(query: ViewQuery, rows: BlockRows, engine: BlockEvaluator | None = None) -> Integers | WideIntegers:
    """Answer exactly, but for the floor of second moments, which is taken of the whole sum (``floor_view``).

    ``rows`` have the columns of the view alone. They were multiplied by the query's lift, clipped and rounded.
    """
    if isinstance(query, ScoreHistogram):
        return _score_cells(query, rows)
    viewed = ViewedRows(rows, query.view, query.lift)
    summed = isinstance(query, ViewCovariance | ViewProduct)
    if isinstance(rows, SparseRows) and viewed.is_scaled_only and not summed:
        return _answer_sparse(query, viewed)
    match query:
        case ViewCovariance():
            return StreamedMoments(viewed, engine=engine).gram()
        case ViewProduct():
            return StreamedMoments(viewed, engine=engine).halves(LatticeBasis(RowSparse.of(query.basis)))
        case ViewSquares():
            return np.asarray(sum(_clipped_squares(block).sum(axis=0) for block in viewed.blocks()))
        case NormHistogram(power=power):
            return np.asarray(sum(_bins(block, power) for block in viewed.blocks()))
        case _:
            raise InvalidQueryError(f"A view cannot answer '{query.kind}'.", "Report this as a bug.")


def group_cells(query: GroupedScores, rows: BlockRows, groups: Groups) -> Integers:
    """Count the rows of each group by the cell that their scores fall into, and last those of no group.

    ``groups`` has the place of each row's group, which follows from its own row alone.
    """
    kinds = len(query.group_columns) + 1
    total, start = np.zeros(kinds * SIDE * SIDE, dtype=np.int64), 0
    for cells in _cells(query, rows, query.view.axes_matrix[:, :SCORES]):
        stop = start + len(cells)
        total += np.bincount(groups[start:stop].astype(np.int64) * (SIDE * SIDE) + cells, minlength=len(total))
        start = stop
    return total.reshape(kinds, SIDE, SIDE)


def _score_cells(query: ScoreHistogram, rows: BlockRows) -> Integers:
    """Count rows by the cell that their scores fall into."""
    total = np.zeros(SIDE * SIDE, dtype=np.int64)
    for cells in _cells(query, rows, query.view.axes_matrix):
        total += np.bincount(cells, minlength=SIDE * SIDE)
    return total.reshape(SIDE, SIDE)


def _cells(query: ViewQuery, rows: BlockRows, along: FloatArray) -> Iterator[NDArray[np.int64]]:
    """Give the cell that each row's scores fall into, some rows at a time.

    Each cell follows from its own row alone: the product with an axis is exact (``ViewedRows.unclipped`` says why), and
    the rest is done entry by entry. Whatever is not a number between -1 and 1 is put at an edge.
    """
    axes = np.rint(along * 2.0**BASIS_BITS)
    factor = query.view.factors[1] / query.lift * 2.0 ** -(BASIS_BITS + ROW_BITS)
    for block in _some(rows, EXACT_ROWS if isinstance(rows, SparseRows) else dense_step(rows.dimension)):
        scores = np.clip(np.asarray(block @ axes) * factor, -1.0, 1.0)
        places = np.minimum(np.floor((scores + 1) * (SIDE / 2)).astype(np.int64), SIDE - 1)
        yield places[:, 0] * SIDE + places[:, 1]


def floor_view(query: ViewQuery, total: Integers | WideIntegers) -> Integers:
    """Put the exact sum over all rows on the lattice. Only second moments are wider than it."""
    if not isinstance(total, WideIntegers):
        return total
    return floor_product(total) if isinstance(query, ViewProduct) else (total >> SQUARE_SHIFT).narrow()


def _answer_sparse(query: ViewQuery, viewed: ViewedRows) -> Integers:
    """Answer from stored entries alone. Each row is clipped and counted as a dense one is, but for its zeros."""
    total: Any = 0
    for block in viewed.stored():
        if isinstance(query, NormHistogram):
            powers = _powers(block.data, query.power)
            total = total + _binned(np.sqrt(row_sums(powers, block.indptr)), _EDGES)
        else:
            squares, lengths = np.square(block.data * 2.0**-ROW_BITS), np.diff(block.indptr)
            norms = np.sqrt(row_sums(np.square(squares), block.indptr))
            cut = np.trunc(squares * np.repeat(_shortening(norms), lengths))
            short = row_sums(np.square(cut), block.indptr) <= 2.0 ** (2 * MOMENT_BITS) * (1 - 2.0**-44)
            cut *= np.repeat(short, lengths)
            # Exact: 2^14 rows of 2^30.
            total = total + np.bincount(block.indices, cut, viewed.dimension).astype(np.int64)
    return np.asarray(total)


def _clipped_squares(rows: FloatArray) -> Integers:
    """Square every entry, clip each row's vector of squares to norm 2^30 units, and cut it to integers.

    The norm is then checked in integers: each is below 2^31, so that sums of squares stay below 2^63. A row that is too
    long even then counts as zeros. All of this is done to every row.
    """
    squares = np.square(rows * 2.0**-ROW_BITS)
    norms = np.sqrt(np.square(squares).sum(axis=1))
    cut = np.trunc(squares * _shortening(norms)[:, None]).astype(np.int64)
    short = np.square(cut).sum(axis=1) <= 2 ** (2 * MOMENT_BITS)
    kept: Integers = np.where(short[:, None], cut, 0)
    return kept


def _shortening(norms: FloatArray) -> FloatArray:
    """Return the factor for each row's squares: to units of 2^-30, and below the bound by more than rounding adds."""
    factor: FloatArray = (1 - 2.0**-40) * 2.0**MOMENT_BITS / np.maximum(norms, 1.0)
    return factor


def _bins(rows: FloatArray, power: int) -> Integers:
    """Count rows by their norm."""
    return _binned(np.sqrt(_powers(rows, power).sum(axis=1)), _EDGES)


def _powers(entries: FloatArray, power: int) -> FloatArray:
    powers = np.square(entries * 2.0**-ROW_BITS)
    return np.square(powers) if power == 2 else powers  # noqa: PLR2004  # of squared entries


def _binned(norms: FloatArray, edges: FloatArray) -> Integers:
    """Count norms by the bin that they fall into, the largest first."""
    places = np.count_nonzero(norms[:, None] < edges, axis=1)
    counts: Integers = np.bincount(places, minlength=len(edges) + 1).astype(np.int64)
    return counts


def ranges_of(norms: FloatArray) -> Integers:
    """Count rows by the range of their norm (``NormRange``)."""
    return _binned(norms, _RANGE_EDGES)


def sizes_of(rows: Any, center: FloatArray | None) -> Integers:  # noqa: ANN401  # dense or sparse
    """Count, for each column, entries by their size (``ColumnSizes``). Entries that are not stored are zeros.

    Each entry takes the same steps. Those below the last edge are zeros first, as the processor is slower on some.
    """
    count, dimension = rows.shape
    total: Integers = np.zeros(dimension * SIZES, dtype=np.int64)
    if not isinstance(rows, np.ndarray):
        total += np.bincount(rows.indices * SIZES + _sizes(rows.data), minlength=len(total))
        zeros = count - np.bincount(rows.indices, minlength=dimension)
        total[SIZES - 1 :: SIZES] += zeros
        return total.reshape(dimension, SIZES)
    step, starts = max(1, _SOME_SIZES // dimension), np.arange(dimension) * SIZES
    for start in range(0, count, step):
        block = rows[start : start + step] if center is None else rows[start : start + step] - center
        total += np.bincount((starts + _sizes(block)).ravel(), minlength=len(total))
    return total.reshape(dimension, SIZES)


def _sizes(entries: FloatArray) -> NDArray[np.int64]:
    """Return the range of each entry: |x| = m 2^e with m from 1/2 to 1, and edges are powers of 4."""
    sizes = np.abs(entries)
    exponents = np.frexp(np.where(sizes < LARGEST_SIZE * 4.0 ** (2 - SIZES), 0.0, sizes))[1].astype(np.int64) - 1
    places = np.clip((_TOP - exponents + 1) // 2, 0, SIZES - 2)
    return np.where(sizes < LARGEST_SIZE * 4.0 ** (2 - SIZES), SIZES - 1, places)


def sign_scores(rows: BlockRows, among: NDArray[np.intp] | None = None) -> Integers:
    """Add up sign(x_i) sign(x_j) for each pair of columns, or for the pairs of those ``among`` which are asked about.

    This is exact, because 2^14 rows of 1 stay whole in float32. Signs of many rows are multiplied together, because a
    sum for each pair takes as long to update as hundreds of rows take to multiply.
    """
    width, step = rows.dimension if among is None else len(among), dense_step(rows.dimension)
    total, signs, filled = np.zeros((width, width), dtype=np.int64), np.empty((dense_step(width), width), np.float32), 0
    for block in _some(rows, step):
        some = block if among is None else block[:, among]
        if filled + some.shape[0] > len(signs):
            np.add(total, np.dot(signs[:filled].T, signs[:filled]), out=total, casting="unsafe")
            filled = 0
        signs[filled : filled + some.shape[0]] = _signs(some if isinstance(some, np.ndarray) else some.toarray())
        filled += some.shape[0]
    np.add(total, np.dot(signs[:filled].T, signs[:filled]), out=total, casting="unsafe")
    return total


def _signs(block: Any) -> Any:  # noqa: ANN401  # dense or sparse
    if isinstance(block, np.ndarray):
        return np.sign(block).astype(np.float32)
    return scipy.sparse.csr_array((np.sign(block.data).astype(np.float32), block.indices, block.indptr), block.shape)


def dense_step(dimension: int) -> int:
    """Say how many rows to take at a time where they are made dense."""
    return min(EXACT_ROWS, max(1, _SOME_ENTRIES // dimension))


def _some(rows: BlockRows, step: int) -> Iterator[Any]:
    """Yield all rows, this many at a time."""
    for start in range(0, rows.count, step):
        yield rows.block(start, min(start + step, rows.count))


def tied_scores(rows: BlockRows, view: View) -> Integers:
    """Add up sign(x_j) sign(q . x_S) for each axis q and column j, exactly.

    Each sign follows from its own row alone: the product with an axis is exact (``ViewedRows.unclipped`` says why).
    """
    axes = np.rint(view.axes_matrix * 2.0**BASIS_BITS)
    total = np.zeros((axes.shape[1], rows.dimension), dtype=np.int64)
    for block in _some(rows, EXACT_ROWS if isinstance(rows, SparseRows) else dense_step(rows.dimension)):
        along = np.sign(np.asarray(block[:, view.columns] @ axes)).astype(np.float32)
        np.add(total, (_signs(block).T @ along).T, out=total, casting="unsafe")
    return total


def _scores(sums: Integers) -> NDArray[np.int32]:
    """Return the sizes of sums in 32 bits, and spoil the sums: as many copies of all pairs would not fit.

    The score of 2^31 rows which all agree is one less, which moves no score further apart.
    """
    scores = np.empty(sums.shape, np.int32)
    return np.minimum(np.abs(sums, out=sums), _LARGEST_SCORE, out=scores, casting="unsafe")


def release_columns(totals: Integers, view: View, event: ChoiceEvent, words: WordSource, rows: int) -> Integers:
    """Choose columns outside a view by their scores over this many rows, and mark them."""
    scores = _scores(totals).max(axis=0, initial=0)
    scores[view.columns] = -1
    chosen = pick_columns(scores, event.picks, event.scale, words, largest=rows)
    return np.bincount(np.array(chosen, dtype=np.intp), minlength=len(scores)).astype(np.int64)


def release_pairs(totals: Integers, query: SignPairs, event: ChoiceEvent, words: WordSource, rows: int) -> Integers:
    """Choose pairs of columns by their scores over this many rows, and count how often each column was chosen."""
    chosen = pick_pairs(_scores(totals), event.picks, event.scale, words, largest=rows)
    places = np.array(chosen, dtype=np.intp).reshape(-1)
    columns = places if query.among is None else query.among[places]
    return np.bincount(columns, minlength=query.dimension).astype(np.int64)
