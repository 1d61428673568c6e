"""Exact second moments of integer rows, with the same bits from dense rows, sparse rows or a cached Gram matrix.

How the work is divided follows from public numbers alone: the number of columns, the query, and this machine's
processors. The number of rows decides only how long a pass over them takes, and never which code runs, on how many
threads, or how wide numbers are. Otherwise, under add/remove, a step in the time of an answer would reveal it.

Floating-point matrix products are used for their speed, on integers so small that every partial sum stays below 2^53,
where float64 is exact. Wider numbers are first split into a high and a low part (``products`` states the widths). So
neither the order of rows, nor the number of threads, nor the linear-algebra library can change a bit. Products of two
parts, high^T high, high^T low and low^T low, are at most 2^36 (1 + 2^-6) a row, so they are below 2^51 for 2^14 rows.

Sums over blocks are 64-bit integers for 2^24 rows, and wider beyond (``block_sums.py``, ``wide_integers.py``).
"""

import math
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain, starmap
from operator import iadd
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.privacy import BASIS_BITS, MAX_ROWS, MOMENT_BITS, ROW_BITS
from dpspca.common.queries import RowSparse
from dpspca.provider.kernels import kernels

from .block_sums import (
    EXACT_ROWS,
    SMALL_PRODUCT,
    BlockEvaluator,
    LocalThreads,
    Parts,
    Rows,
    Visit,
    chunks_of,
    spans_of,
    stepped,
)
from .compiled_products import compiled_sums
from .one_thread import one_thread
from .products import CACHED, LOW_BITS, MADE_AT_ONCE, ArrayBlock, Division, RowBlock, integer_sums, split
from .wide_integers import Exact, WideIntegers, parts_of

SPARSE_BLOCKS: Final = 16
"""The most blocks in which sparse rows are summed. Narrow tables use all, so that each block needs little memory."""
SPARSE_SUMS: Final = 2**20
"""The most numbers in the sums of all these blocks together, where there are more than the fewest."""
FEWEST_BLOCKS: Final = 4
"""For wide tables. More would cost time, because each has a sum as wide as the table. Fewer would take memory, for some
forms of a whole block and of its product."""

PRODUCT_SHIFT: Final = 2 * ROW_BITS + BASIS_BITS - MOMENT_BITS
SQUARE_SHIFT: Final = 2 * ROW_BITS - MOMENT_BITS
COMPRESSED_SHIFT: Final = 2 * (ROW_BITS + BASIS_BITS) - MOMENT_BITS


@dataclass(frozen=True, slots=True)
class LatticeBasis:
    """A basis whose entries are rounded to the nearest multiple of 2^-20, and made integers when they are needed."""

    given: RowSparse

    def whole(self) -> FloatArray:
        """Return every row."""
        return RowSparse(self.given.dimension, self.given.support, _to_lattice(self.given.rows)).dense()


Basis: TypeAlias = FloatArray | LatticeBasis


def whole(basis: Basis) -> FloatArray:
    """Return every row of a basis, as integers."""
    return basis.whole() if isinstance(basis, LatticeBasis) else basis


class Moments(Protocol):
    """The sums that queries about second moments need. ``basis`` holds integers."""

    def product(self, basis: Basis) -> Integers:
        """Return floor(X^T X basis / 2^24)."""
        ...

    def compressed(self, basis: Basis) -> Exact:
        """Return basis^T X^T X basis, exactly."""
        ...

    def gram(self) -> WideIntegers:
        """Return X^T X, exactly."""
        ...

    def trace(self) -> int:
        """Return the sum of squares of all entries, exactly."""
        ...


class DenseBlocks(ABC):
    """Dense integer rows that are read a block at a time."""

    gain_by_threads = True
    most_at_once: int | None = MADE_AT_ONCE
    """The most numbers of a block, if they are not in memory anyway."""

    def __init__(self, count: int, dimension: int) -> None:
        self.count, self.dimension = count, dimension
        self.block_rows = rows_per_block(dimension)
        self.made_columns = dimension
        """How many columns of a block are made, though fewer may be used."""

    @abstractmethod
    def integers(self, start: int, stop: int) -> NDArray[Any]:
        """Return the rows from ``start`` to ``stop``, in any type that holds them."""

    def block(self, start: int, stop: int) -> FloatArray:
        return self.integers(start, stop).astype(np.float64, copy=False)

    def parts(self, span: tuple[int, int], sums: int, tall: int) -> Parts:
        return stepped(span, max(self.block_rows, tall))

    def opened(self, start: int, stop: int) -> RowBlock:
        return ArrayBlock(self.integers(start, stop))

    def products(self, span: tuple[int, int], basis: FloatArray) -> Integers:
        division = Division.of(self.dimension, basis.shape[1], self.most_at_once)
        if self.most_at_once is not None:
            division = division._replace(rows=min(division.rows, max(8, self.most_at_once // self.made_columns)))
        if compiled := kernels("passes"):
            step = {} if self.most_at_once is None else {"step": division.rows}
            return compiled_sums(compiled, self.integers, span, basis, **step)
        return integer_sums(self, span, basis, division)


def rows_per_block(dimension: int) -> int:
    """Say how many rows fit into a cache."""
    return min(EXACT_ROWS, max(8, CACHED // dimension))


class DenseRows(DenseBlocks):
    """Rows as 32-bit integers."""

    most_at_once = None

    def __init__(self, rows: NDArray[np.int32]) -> None:
        super().__init__(*rows.shape)
        self.rows = rows

    def integers(self, start: int, stop: int) -> NDArray[np.int32]:
        return self.rows[start:stop]

    def sums(self) -> Integers:
        """Return the sum of each column, exactly."""
        return np.asarray(self.rows.sum(axis=0, dtype=np.int64))


class SparseRows:
    """Rows in CSR form, never made dense. Work grows with the stored entries and with the number of columns.

    Sums are as wide as the table, even in columns that no row uses, because which columns are used depends on the rows,
    and one row may use all of them. The number of blocks follows from the width of sums and not from the number of
    rows, so some blocks may be empty. Sums over at most 2^24 rows of 2^36 are in 64-bit integers.

    One thread does all the work, because sparse products hold the interpreter's lock.
    """

    gain_by_threads = False

    def __init__(self, rows: scipy.sparse.csr_array) -> None:
        self.rows = rows
        self.count, self.dimension = rows.shape
        self.block_rows = EXACT_ROWS

    def parts(self, span: tuple[int, int], sums: int, tall: int) -> Parts:
        count = max(FEWEST_BLOCKS, min(SPARSE_BLOCKS, SPARSE_SUMS // sums))
        parts = [(first, spans_of(last - first, count)) for first, last in chunks_of(span)]
        return [[(first + one, first + other) for one, other in blocks] for first, blocks in parts]

    def products(self, span: tuple[int, int], basis: FloatArray) -> Integers:
        """Return the sums of all blocks, which are exact in 64-bit integers."""
        blocks = chain.from_iterable(self.parts(span, basis.size, 0))
        return reduce(iadd, (self.across(block, basis) for block in starmap(self.block, blocks)))

    @staticmethod
    def across(block: scipy.sparse.csr_array, basis: FloatArray) -> Integers:
        """Multiply a block with a basis, and its transpose with both parts of the product."""
        columns = basis.shape[1]
        parts = np.empty((block.shape[0], 2 * columns), dtype=np.int64)
        parts[:, :columns], parts[:, columns:] = split(block @ basis)
        integers = scipy.sparse.csr_array((block.data.astype(np.int64), block.indices, block.indptr), shape=block.shape)
        product: Integers = integers.T @ parts
        return product

    def sums(self) -> Integers:
        return np.asarray(self.rows.sum(axis=0, dtype=np.int64))

    def block(self, start: int, stop: int) -> scipy.sparse.csr_array:
        starts = self.rows.indptr[start : stop + 1]
        held = slice(starts[0], starts[-1])
        parts = (self.rows.data[held], self.rows.indices[held], starts - starts[0])
        return scipy.sparse.csr_array(parts, shape=(stop - start, self.dimension))


class StreamedMoments:
    """Every query is one pass over the rows, in blocks, on all cores."""

    def __init__(self, rows: Rows, threads: int | None = None, engine: BlockEvaluator | None = None) -> None:
        self._rows = rows
        self._evaluator = engine or LocalThreads(threads)

    def product(self, basis: Basis) -> Integers:
        return floor_product(self.halves(basis))

    def halves(self, basis: Basis) -> WideIntegers:
        """Return X^T high and X^T low side by side. They add up over rows, and ``floor_product`` joins them."""
        return self._evaluator.products(self._rows, whole(basis))

    def compressed(self, basis: Basis) -> Exact:
        return joined_square(self.squares(basis))

    def squares(self, basis: Basis) -> WideIntegers:
        """Return high^T high, high^T low and low^T low for X basis = 2^19 high + low."""
        written = whole(basis)

        def visit(block: Any) -> FloatArray:  # noqa: ANN401
            high, low = split(_times(block, written))
            return np.stack([high.T @ high, high.T @ low, low.T @ low])

        parts = partial(stepped, step=self._rows.block_rows)
        return self._evaluator.total(self._rows, visit, written.size, parts)

    def gram(self) -> WideIntegers:
        def visit(block: Any) -> Any:  # noqa: ANN401
            if isinstance(block, np.ndarray):
                return np.dot(block.T, block)
            whole = block.astype(np.int64)
            return (whole.T @ whole).toarray()

        # A block must be tall, or adding up the d x d results costs more than making them.
        tall = min(EXACT_ROWS, max(self._rows.block_rows, 2 * self._rows.dimension))
        return self._total(visit, self._rows.dimension**2, tall)

    def trace(self) -> int:
        return int(self.column_squares().exact().sum())

    def column_squares(self) -> WideIntegers:
        """Return the sum of squares of each column."""

        def visit(block: Any) -> Any:  # noqa: ANN401
            whole = block if isinstance(block, np.ndarray) else block.astype(np.int64)
            return (whole * whole).sum(axis=0)

        return self._total(visit, self._rows.dimension)

    def _total(self, visit: Visit, entries: int, tall: int = 0) -> WideIntegers:
        """Add up sums of ``entries`` numbers. Blocks of dense rows have at least ``tall`` rows."""
        return self._evaluator.total(self._rows, visit, entries, partial(self._rows.parts, sums=entries, tall=tall))


def floor_product(halves: WideIntegers) -> Integers:
    """Return floor(X^T X basis / 2^24) from the two halves of the sum."""
    rows, columns = halves.shape[0], halves.shape[1] // 2
    floors = np.empty((rows, columns), dtype=np.int64)
    if compiled := kernels("wide"):
        compiled.floors(halves.high, halves.low, LOW_BITS, PRODUCT_SHIFT - LOW_BITS, floors)
        return floors
    for part in parts_of(halves.low):
        both = halves[part]
        sums = (both[:, columns:] >> LOW_BITS) + both[:, :columns]
        floors[part] = (sums >> (PRODUCT_SHIFT - LOW_BITS)).narrow()
    return floors


def joined_square(parts: WideIntegers) -> Exact:
    """Return basis^T X^T X basis from its three sums (``StreamedMoments.squares``)."""
    high, mixed, low = parts.exact()
    return np.asarray((high << (2 * LOW_BITS)) + ((mixed + mixed.T) << LOW_BITS) + low)


GRAM_BITS: Final = 2 * ROW_BITS + math.ceil(math.log2(MAX_ROWS + 1))
"""Bits of an entry for the most rows that a provider may have. Fewer bits would do for the actual rows, but then the
number of digits, which shows in the time of an answer, would depend on the number of rows."""
MAX_GRAM_DIMENSION: Final = 2**14
"""Beyond this the matrix would take gigabytes. Beyond 2^16 a digit would be narrower than the shift."""


class GramMoments:
    """Answers from a Gram matrix that is computed once: O(k s d) a round for a basis with s non-zero rows.

    The matrix is stored as float64 digits in base 2^p, all but the highest in [0, 2^p). p is such that a digit times
    the basis stays exact: a column of the basis has an L1 norm of at most sqrt(d) 2^20. The number of digits is enough
    for any rows.
    """

    def __init__(self, gram: WideIntegers) -> None:
        dimension = len(gram.low)
        self._gram = gram
        self._digit_bits = 53 - BASIS_BITS - 1 - math.ceil(math.log2(dimension) / 2)
        self._digits = _digits(gram, self._digit_bits, -(-GRAM_BITS // self._digit_bits))

    def product(self, basis: Basis) -> Integers:
        low, *higher = self._digit_products(whole(basis))
        total = low >> PRODUCT_SHIFT
        for place, product in enumerate(higher, start=1):
            total += product << (place * self._digit_bits - PRODUCT_SHIFT)
        return total

    def compressed(self, basis: Basis) -> Exact:
        integers = whole(basis)
        image = sum(
            product.astype(object) << (place * self._digit_bits)
            for place, product in enumerate(self._digit_products(integers))
        )
        return np.asarray(integers.astype(np.int64).astype(object).T @ image)

    def gram(self) -> WideIntegers:
        return self._gram

    def trace(self) -> int:
        return int(self._gram.diagonal().exact().sum())

    def _digit_products(self, basis: FloatArray) -> list[Integers]:
        """Multiply by every digit, using only the non-zero rows of the basis."""
        support = np.flatnonzero(basis.any(axis=1))
        full = len(support) == len(basis)  # nothing to leave out, so nothing to copy
        kept = basis.T if full else basis[support].T
        with one_thread if kept.size * len(basis) <= SMALL_PRODUCT else nullcontext():
            return [(kept @ (digit if full else digit[support])).T.astype(np.int64) for digit in self._digits]


def _times(left: Any, right: Any) -> Any:  # noqa: ANN401
    """Multiply. Dense factors use np.dot, because @ holds the interpreter's lock when the result is small."""
    return left @ right if scipy.sparse.issparse(left) else np.dot(left, right)


def _to_lattice(rows: FloatArray) -> FloatArray:
    scaled = rows * 2.0**BASIS_BITS
    return np.rint(scaled, out=scaled)


def _digits(matrix: WideIntegers, bits: int, count: int) -> list[FloatArray]:
    """Write integers in base 2^bits, with at most 32 bits. The highest digit keeps the sign."""
    digits = []
    for _ in range(count - 1):
        digits.append((matrix.low & (2**bits - 1)).astype(np.float64))
        matrix >>= bits
    return [*digits, matrix.narrow().astype(np.float64)]
