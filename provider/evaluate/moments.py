"""Exact second moments of integer rows, three ways to the same bits: dense rows, sparse rows, a cached Gram matrix.

How the work is divided follows from public numbers alone: the number of columns, the query, this machine's
processors. How many rows there are decides only how long a pass over them takes, never which code runs, on how many
threads, or how wide a number is kept: under add/remove a step in the time of an answer would give that number away.

Floating-point matrix products are used for their speed, on integers small enough for every partial sum to stay below
2^53, where float64 is exact; wider numbers are split into a high and a low part first. Hence neither the order of rows
nor the number of threads nor the linear-algebra library can change a bit. The widths, for rows of norm 2^17 and basis
columns of norm 2^20 (each product bounded by Cauchy and Schwarz, row by row):

    y = x q              2^37           whole in float64
    y = 2^19 high + low  2^18, 2^19     X^T high: 2^35 a row, X^T low: 2^36, low^T low: 2^38: 2^14 rows are exact
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add, iadd
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.privacy import BASIS_BITS, MAX_ROWS, MOMENT_BITS, ROW_BITS
from dpspca.common.queries import RowSparse

from .one_thread import one_thread

Parts: TypeAlias = list[list[tuple[int, int]]]
Exact: TypeAlias = NDArray[np.object_]
"""Python integers: a handful of numbers too wide for 64 bits."""

LOW_BITS: Final = 19
EXACT_ROWS: Final = 2**14
BLOCK_ENTRIES: Final = 3 * 2**15
"""A block of rows in float64 leaves room in a second-level cache of a megabyte, and its product with five columns is
small enough (below 10^6 multiplications, of ten columns after the split) for OpenBLAS not to copy it first."""

SPARSE_BLOCKS: Final = 16
"""Blocks in which sparse rows are added up at the most, those of narrow tables: what a block takes is given back."""
SPARSE_SUMS: Final = 2**20
"""Numbers that the sums of all these blocks hold together, where there is more than one: a wide table has one."""
SMALL_PRODUCT: Final = 10**7
"""Multiplications up to which several threads are slower than one, and much slower where a core is busy."""
MOST_SUMS: Final = 2**28
"""Numbers that all threads of one query add up at most, two gigabytes: of wide queries fewer are asked at once."""

PRODUCT_SHIFT: Final = 2 * ROW_BITS + BASIS_BITS - MOMENT_BITS
SQUARE_SHIFT: Final = 2 * ROW_BITS - MOMENT_BITS
COMPRESSED_SHIFT: Final = 2 * (ROW_BITS + BASIS_BITS) - MOMENT_BITS


@dataclass(frozen=True, slots=True)
class LatticeBasis:
    """A basis whose entries count for the nearest multiple of 2^-20: as integers, and made where they are needed."""

    given: RowSparse

    def whole(self) -> FloatArray:
        """Give every row."""
        return RowSparse(self.given.dimension, self.given.support, _to_lattice(self.given.rows)).dense()


Basis: TypeAlias = FloatArray | LatticeBasis


def whole(basis: Basis) -> FloatArray:
    """Write out every row of a basis."""
    return basis.whole() if isinstance(basis, LatticeBasis) else basis


class Moments(Protocol):
    """What a query about second moments needs to know; ``basis`` holds integers."""

    def product(self, basis: Basis) -> Integers:
        """Give floor(X^T X basis / 2^24)."""
        ...

    def compressed(self, basis: Basis) -> Exact:
        """Give basis^T X^T X basis, exactly."""
        ...

    def gram(self) -> Integers:
        """Give X^T X, exactly."""
        ...

    def squares(self) -> Integers:
        """Give the sum of squares of each column, exactly."""
        ...

    def trace(self) -> int:
        """Give the sum of squares of all entries, exactly."""
        ...


class Rows(Protocol):
    """Integer rows that can be had in blocks of float64."""

    count: int
    dimension: int
    block_rows: int

    @property
    def gain_by_threads(self) -> bool:
        """Tell whether several threads are quicker than one."""
        ...

    def parts(self, span: tuple[int, int], sums: int, tall: int) -> Parts:
        """Divide a thread's rows into blocks, for sums of so many numbers; of dense rows as tall as that at least.

        Lists of blocks whose sums are exact in the numbers that ``across`` gives: each list holds one block or more.
        """
        ...

    def across(self, block: Any, wide: FloatArray) -> Any:  # noqa: ANN401  # dense or sparse
        """Multiply the columns of a block with as many rows of integers."""
        ...

    def block(self, start: int, stop: int) -> Any:  # noqa: ANN401  # dense or sparse; both multiply
        """Give rows from ``start`` to ``stop`` as float64."""
        ...


class DenseRows:
    """Rows as 32-bit integers, widened a block at a time."""

    gain_by_threads = True

    def __init__(self, rows: NDArray[np.int32]) -> None:
        self.rows = rows
        self.count, self.dimension = rows.shape
        self.block_rows = self.rows_per_block(self.dimension)

    @staticmethod
    def rows_per_block(dimension: int) -> int:
        """Say how many rows go into a block."""
        return min(EXACT_ROWS, max(8, BLOCK_ENTRIES // dimension))

    def parts(self, span: tuple[int, int], sums: int, tall: int) -> Parts:
        return _stepped(span, max(self.block_rows, tall))

    @staticmethod
    def across(block: FloatArray, wide: FloatArray) -> FloatArray:
        product: FloatArray = np.dot(block.T, wide)
        return product

    def block(self, start: int, stop: int) -> FloatArray:
        return self.rows[start:stop].astype(np.float64)


class SparseRows:
    """Rows in CSR form, never widened: work goes with the stored entries, and with the columns that there are.

    Sums are as wide as the table, also where no row has an entry: which columns are used is said by the rows, and one
    row may use all of them. How many blocks there are follows from how wide sums are, whatever the number of rows: some
    may be empty. Sums are in 64-bit integers: 2^24 rows of 2^36 at most.

    One thread does it all: sparse products keep the interpreter's lock, for which others would only wait.
    """

    gain_by_threads = False

    def __init__(self, rows: scipy.sparse.csr_array) -> None:
        self.rows = rows
        self.count, self.dimension = rows.shape
        self.block_rows = EXACT_ROWS

    def parts(self, span: tuple[int, int], sums: int, tall: int) -> Parts:
        start, stop = span
        blocks = _spans(stop - start, max(1, min(SPARSE_BLOCKS, SPARSE_SUMS // sums)))
        return [[(start + first, start + last) for first, last in blocks]]

    @staticmethod
    def across(block: scipy.sparse.csr_array, wide: FloatArray) -> Integers:
        product: Integers = block.astype(np.int64).T @ wide.astype(np.int64)
        return product

    def block(self, start: int, stop: int) -> scipy.sparse.csr_array:
        starts = self.rows.indptr[start : stop + 1]
        held = slice(starts[0], starts[-1])
        parts = (self.rows.data[held], self.rows.indices[held], starts - starts[0])
        return scipy.sparse.csr_array(parts, shape=(stop - start, self.dimension))


class StreamedMoments:
    """Every query is one pass over the rows, in blocks, on all cores."""

    def __init__(self, rows: Rows, threads: int | None = None) -> None:
        self._rows = rows
        self._threads = (threads or os.cpu_count() or 1) if rows.gain_by_threads else 1

    def product(self, basis: Basis) -> Integers:
        written = whole(basis)

        def visit(block: Any) -> Any:  # noqa: ANN401
            return self._rows.across(block, np.hstack(_split(_times(block, written))))

        high, low = np.split(self._wide_total(visit, written.size), [written.shape[1]], axis=1)
        sums = low >> LOW_BITS
        sums += high
        sums >>= PRODUCT_SHIFT - LOW_BITS
        return sums

    def compressed(self, basis: Basis) -> Exact:
        written = whole(basis)

        def visit(block: Any) -> FloatArray:  # noqa: ANN401
            high, low = _split(_times(block, written))
            return np.stack([high.T @ high, high.T @ low, low.T @ low])

        threads = _threads(self._threads, written.size)
        high, mixed, low = self._total(visit, threads, lambda span: _stepped(span, self._rows.block_rows)).astype(
            object
        )
        return np.asarray((high << (2 * LOW_BITS)) + ((mixed + mixed.T) << LOW_BITS) + low)

    def gram(self) -> Integers:
        def visit(block: Any) -> Any:  # noqa: ANN401
            if isinstance(block, np.ndarray):
                return np.dot(block.T, block)
            whole = block.astype(np.int64)
            return (whole.T @ whole).toarray()

        # A block must be tall, or adding up the d x d results costs more than making them.
        tall = min(EXACT_ROWS, max(self._rows.block_rows, 2 * self._rows.dimension))
        return self._wide_total(visit, self._rows.dimension**2, tall)

    def squares(self) -> Integers:
        def visit(block: Any) -> Any:  # noqa: ANN401
            whole = block if isinstance(block, np.ndarray) else block.astype(np.int64)
            return (whole * whole).sum(axis=0)

        return self._wide_total(visit, self._rows.dimension)

    def trace(self) -> int:
        return int(self.squares().sum())

    def _wide_total(self, visit: Callable[[Any], Any], entries: int, tall: int = 0) -> Integers:
        """Add up sums that are as wide as rows are; of dense rows at least ``tall`` blocks."""
        threads = _threads(self._threads, entries)
        return self._total(visit, threads, lambda span: self._rows.parts(span, entries, tall))

    def _total(self, visit: Callable[[Any], Any], threads: int, parts: Callable[[tuple[int, int]], Parts]) -> Integers:
        """Add up a visit to every block; integers, so that the order does not matter.

        Each thread has its share of the rows, be it none.
        """
        spans = _spans(self._rows.count, threads)
        with one_thread, ThreadPoolExecutor(len(spans)) if len(spans) > 1 else nullcontext() as pool:
            totals = (pool.map if pool else map)(lambda span: self._span_total(visit, parts(span)), spans)
            return reduce(add, totals)

    def _span_total(self, visit: Callable[[Any], Any], parts: Parts) -> Integers:
        """Add up for as long as that is exact, then in 64-bit integers."""
        total: Any = 0
        for blocks in parts:
            visited = (visit(self._rows.block(first, last)) for first, last in blocks)
            total = total + reduce(iadd, visited).astype(np.int64)
        return total  # type: ignore[no-any-return]


def _stepped(span: tuple[int, int], step: int) -> Parts:
    """Divide rows into blocks of so many, of which as many go together as are exact; of no rows, an empty block."""
    start, stop = span
    return [
        [(at, min(at + step, last)) for at in range(first, max(last, first + 1), step)]
        for first in range(start, max(stop, start + 1), EXACT_ROWS)
        for last in (min(first + EXACT_ROWS, stop),)
    ]


def _threads(most: int, entries: int) -> int:
    """Choose a number of threads: one for queries of so few entries that even 2^14 rows are little work.

    More than one takes a fraction of a millisecond to start, whatever the number of rows.
    """
    return 1 if 3 * entries * EXACT_ROWS <= SMALL_PRODUCT else max(1, min(most, MOST_SUMS // (2 * entries)))


GRAM_BITS: Final = 2 * ROW_BITS + math.ceil(math.log2(MAX_ROWS + 1))
"""Bits of an entry for the most rows that a provider may have. For the rows that it does have they would be fewer, and
the number of digits, which shows in the time of an answer, would be a function of how many these are."""
MAX_GRAM_DIMENSION: Final = 2**14
"""Beyond this the matrix would fill gigabytes; beyond 2^16 a digit would be narrower than the shift."""


class GramMoments:
    """Answers from a Gram matrix computed once: O(k s d) a round for a basis with s non-zero rows.

    The matrix is held as float64 digits in base 2^p, all but the highest in [0, 2^p), with p such that a digit times
    the basis stays exact: a column of it has at most sqrt(d) 2^20 in L1. There are as many digits as any rows need.
    """

    def __init__(self, gram: Integers) -> None:
        dimension = len(gram)
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

    def gram(self) -> Integers:
        return self._gram

    def squares(self) -> Integers:
        return np.diagonal(self._gram)

    def trace(self) -> int:
        return int(np.trace(self._gram))

    def _digit_products(self, basis: FloatArray) -> list[Integers]:
        """Multiply by every digit, using only the rows of the basis that are not zero."""
        support = np.flatnonzero(basis.any(axis=1))
        full = len(support) == len(basis)  # nothing to leave out, so nothing to copy
        kept = basis.T if full else basis[support].T
        with one_thread if kept.size * len(basis) <= SMALL_PRODUCT else nullcontext():
            return [(kept @ (digit if full else digit[support])).T.astype(np.int64) for digit in self._digits]


def _times(left: Any, right: Any) -> Any:  # noqa: ANN401
    """Multiply. Where nothing is sparse by np.dot, for @ keeps the interpreter's lock when the result is small."""
    return left @ right if scipy.sparse.issparse(left) else np.dot(left, right)


def _to_lattice(rows: FloatArray) -> FloatArray:
    scaled = rows * 2.0**BASIS_BITS
    return np.rint(scaled, out=scaled)


def _split(wide: FloatArray) -> tuple[FloatArray, FloatArray]:
    high = np.floor(wide * 2.0**-LOW_BITS)
    return high, wide - high * 2.0**LOW_BITS


def _digits(matrix: Integers, bits: int, count: int) -> list[FloatArray]:
    """Write integers in base 2^bits; the highest digit keeps the sign."""
    digits = []
    for _ in range(count - 1):
        digits.append((matrix & (2**bits - 1)).astype(np.float64))
        matrix = matrix >> bits
    return [*digits, matrix.astype(np.float64)]


def _spans(rows: int, parts: int) -> list[tuple[int, int]]:
    edges = [rows * part // parts for part in range(parts + 1)]
    return list(pairwise(edges))
