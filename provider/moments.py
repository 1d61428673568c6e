"""Exact second moments of integer rows, three ways to the same bits: dense rows, sparse rows, a cached Gram matrix.

Floating-point matrix products are used for their speed, on integers small enough for every partial sum to stay below
2^53, where float64 is exact; wider numbers are split into a high and a low part first. Hence neither the order of rows
nor the number of threads nor the linear-algebra library can change a bit. The widths, for rows of norm 2^17 and basis
columns of norm 2^20 (each product bounded by Cauchy and Schwarz, row by row):

    y = x q              2^37           whole in float64
    y = 2^19 high + low  2^18, 2^19     X^T high: 2^35 a row, X^T low: 2^36, low^T low: 2^38: 2^14 rows are exact
"""

import math
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise
from operator import add, iadd
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidQueryError
from dpspca.common.privacy.lattice import BASIS_BITS, MOMENT_BITS, ROW_BITS
from dpspca.common.question import RowSparse

Integers: TypeAlias = NDArray[np.int64]
Exact: TypeAlias = NDArray[np.object_]
"""Python integers: a handful of numbers too wide for 64 bits."""

LOW_BITS: Final = 19
EXACT_ROWS: Final = 2**14
BLOCK_ENTRIES: Final = 3 * 2**15
"""A block of rows in float64 leaves room in a second-level cache of a megabyte, and its product with five columns is
small enough (below 10^6 multiplications, of ten columns after the split) for OpenBLAS not to copy it first."""

SMALL_PRODUCT: Final = 10**7
"""Multiplications up to which several threads are slower than one, and much slower where a core is busy."""

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

    def at(self, columns: NDArray[np.intp]) -> FloatArray:
        """Give the rows that stand for these columns, which are in ascending order."""
        support, rows = self.given.support, self.given.rows
        if len(support) == self.given.dimension:
            return _to_lattice(rows.take(columns, axis=0))
        found = np.zeros((len(columns), rows.shape[1]))
        if len(columns):
            places = np.searchsorted(columns, support)
            met = columns.take(places, mode="clip") == support
            found[places[met]] = _to_lattice(rows[met])
        return found


Basis: TypeAlias = FloatArray | LatticeBasis


def whole(basis: Basis) -> FloatArray:
    """Write out every row of a basis."""
    return basis.whole() if isinstance(basis, LatticeBasis) else basis


class Moments(Protocol):
    """What a question about second moments needs to know; ``basis`` holds integers."""

    def product(self, basis: Basis) -> Integers:
        """Give floor(X^T X basis / 2^24)."""
        ...

    def compressed(self, basis: Basis) -> Exact:
        """Give basis^T X^T X basis, exactly."""
        ...

    def gram(self) -> Integers:
        """Give X^T X, exactly."""
        ...

    def trace(self) -> int:
        """Give the sum of squares of all entries, exactly."""
        ...


class Rows(Protocol):
    """Integer rows that can be had in blocks of float64, without the columns in which no row has an entry.

    There every second moment is zero, and so are its shifts: nothing has to be multiplied, added up or shifted.
    """

    count: int
    dimension: int
    block_rows: int

    def block(self, start: int, stop: int) -> Any:  # noqa: ANN401  # dense or sparse; both multiply
        """Give rows from ``start`` to ``stop`` as float64."""
        ...

    def narrow(self, basis: Basis) -> FloatArray:
        """Leave the rows of a basis that stand for columns in the blocks."""
        ...

    def spread(self, sums: Integers) -> Integers:
        """Undo ``narrow``: the rows for columns that are in no block are zero."""
        ...


class DenseRows:
    """Rows as 32-bit integers, widened a block at a time."""

    def __init__(self, rows: NDArray[np.int32]) -> None:
        self.rows = rows
        self.count, self.dimension = rows.shape
        self.block_rows = min(EXACT_ROWS, max(8, BLOCK_ENTRIES // self.dimension))

    def block(self, start: int, stop: int) -> FloatArray:
        return self.rows[start:stop].astype(np.float64)

    @staticmethod
    def narrow(basis: Basis) -> FloatArray:
        return whole(basis)

    @staticmethod
    def spread(sums: Integers) -> Integers:
        return sums


class SparseRows:
    """Rows in CSR form, never widened: work goes with the stored entries, and so does memory but for the answers."""

    def __init__(self, rows: scipy.sparse.csr_array) -> None:
        self.rows = rows
        self.count, self.dimension = rows.shape
        self.block_rows = EXACT_ROWS
        touched = np.zeros(self.dimension, dtype=np.bool_)
        touched[rows.indices] = True
        self._touched = np.flatnonzero(touched)
        places = np.cumsum(touched, dtype=rows.indices.dtype) - 1
        self._places = places[rows.indices]

    def block(self, start: int, stop: int) -> scipy.sparse.csr_array:
        starts = self.rows.indptr[start : stop + 1]
        held = slice(starts[0], starts[-1])
        parts = (self.rows.data[held], self._places[held], starts - starts[0])
        return scipy.sparse.csr_array(parts, shape=(stop - start, len(self._touched)))

    def narrow(self, basis: Basis) -> FloatArray:
        return basis.at(self._touched) if isinstance(basis, LatticeBasis) else basis.take(self._touched, axis=0)

    def spread(self, sums: Integers) -> Integers:
        spread = np.zeros((self.dimension, *sums.shape[1:]), dtype=np.int64)
        spread[self._touched] = sums
        return spread


class StreamedMoments:
    """Every question is one pass over the rows, in blocks, on all cores."""

    def __init__(self, rows: Rows, threads: int | None = None) -> None:
        self._rows = rows
        self._threads = threads or os.cpu_count() or 1

    def product(self, basis: Basis) -> Integers:
        met = self._rows.narrow(basis)

        def visit(block: Any) -> Any:  # noqa: ANN401
            return _times(block.T, np.hstack(_split(_times(block, met))))

        threads = 1 if 3 * met.size * self._rows.count <= SMALL_PRODUCT else self._threads
        high, low = np.split(self._total(visit, threads=threads), [met.shape[1]], axis=1)
        sums = low >> LOW_BITS
        sums += high
        sums >>= PRODUCT_SHIFT - LOW_BITS
        return self._rows.spread(sums)

    def compressed(self, basis: Basis) -> Exact:
        met = self._rows.narrow(basis)

        def visit(block: Any) -> FloatArray:  # noqa: ANN401
            high, low = _split(_times(block, met))
            return np.stack([high.T @ high, high.T @ low, low.T @ low])

        high, mixed, low = self._total(visit).astype(object)
        return np.asarray((high << (2 * LOW_BITS)) + ((mixed + mixed.T) << LOW_BITS) + low)

    def gram(self) -> Integers:
        def visit(block: Any) -> Any:  # noqa: ANN401
            square = _times(block.T, block)
            return square.toarray() if isinstance(square, scipy.sparse.csr_array | scipy.sparse.csc_array) else square

        # A block must be tall, or adding up the d x d results costs more than making them.
        square = self._total(visit, min(EXACT_ROWS, max(self._rows.block_rows, 2 * self._rows.dimension)))
        return self._rows.spread(self._rows.spread(square).T).T

    def trace(self) -> int:
        def visit(block: Any) -> FloatArray:  # noqa: ANN401
            stored = block.data if isinstance(block, scipy.sparse.csr_array) else block.ravel()
            return np.array([stored @ stored])

        return int(self._total(visit)[0])

    def _total(
        self, visit: Callable[[Any], Any], block_rows: int | None = None, *, threads: int | None = None
    ) -> Integers:
        """Add up a visit to every block; integers, so that the order does not matter."""
        step = block_rows or self._rows.block_rows
        spans = _spans(self._rows.count, min(threads or self._threads, -(-self._rows.count // step)))
        with _one_thread, ThreadPoolExecutor(len(spans)) if len(spans) > 1 else nullcontext() as pool:
            totals = (pool.map if pool else map)(lambda span: self._span_total(visit, *span, step=step), spans)
            return reduce(add, totals)

    def _span_total(self, visit: Callable[[Any], Any], start: int, stop: int, *, step: int) -> Integers:
        """Add up in float64 for as long as that is exact, then in 64-bit integers."""
        total: Any = 0
        for first in range(start, stop, EXACT_ROWS):
            last = min(first + EXACT_ROWS, stop)
            blocks = (self._rows.block(at, min(at + step, last)) for at in range(first, last, step))
            total = total + reduce(iadd, map(visit, blocks)).astype(np.int64)
        return total  # type: ignore[no-any-return]


MAX_GRAM_DIMENSION: Final = 2**14
"""Beyond this the matrix would fill gigabytes; beyond 2^16 a digit would be narrower than the shift."""


class GramMoments:
    """Answers from a Gram matrix computed once: O(k s d) a round for a basis with s non-zero rows.

    The matrix is held as float64 digits in base 2^p, all but the highest in [0, 2^p), with p such that a digit times
    the basis stays exact: a column of it has at most sqrt(d) 2^20 in L1.
    """

    def __init__(self, gram: Integers, rows: int) -> None:
        dimension = len(gram)
        self._gram = gram
        self._digit_bits = 53 - BASIS_BITS - 1 - math.ceil(math.log2(dimension) / 2)
        width = 2 * ROW_BITS + math.ceil(math.log2(rows + 1))
        self._digits = _digits(gram, self._digit_bits, -(-width // self._digit_bits))

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

    def trace(self) -> int:
        return int(np.trace(self._gram))

    def _digit_products(self, basis: FloatArray) -> list[Integers]:
        """Multiply by every digit, using only the rows of the basis that are not zero."""
        support = np.flatnonzero(basis.any(axis=1))
        full = len(support) == len(basis)  # nothing to leave out, so nothing to copy
        kept = basis.T if full else basis[support].T
        with _one_thread if kept.size * len(basis) <= SMALL_PRODUCT else nullcontext():
            return [(kept @ (digit if full else digit[support])).T.astype(np.int64) for digit in self._digits]


class SummedMoments:
    """Moments of rows that are had in pieces, one after the other: sums are exact, so that pieces change no bit."""

    def __init__(self, pieces: Callable[[], Iterable[Moments]]) -> None:
        self._pieces = pieces

    def product(self, basis: Basis) -> Integers:
        """Refuse: what is cut off at the end would have to be kept of each piece. Products are asked of blocks."""
        raise InvalidQueryError("These rows are had in pieces.", "Ask about blocks of them.")

    def compressed(self, basis: Basis) -> Exact:
        return reduce(add, (each.compressed(basis) for each in self._pieces()))

    def gram(self) -> Integers:
        return reduce(add, (each.gram() for each in self._pieces()))

    def trace(self) -> int:
        return sum(each.trace() for each in self._pieces())


class _OneThread:
    """Holds the BLAS to one thread while anybody is inside: its setting is the whole process's, not a thread's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                _take_control()
                self._limited = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _take_control()
                self._limited.restore_original_limits()


_one_thread: Final = _OneThread()


def _take_control() -> None:
    """Let this thread set the limit: it is left to the first that did, for as long as that lives, and to no other."""
    for library in _libraries().lib_controllers:
        if clear := getattr(library, "clear_controlling_thread", None):
            clear(force=True)


@cache
def _libraries() -> ThreadpoolController:
    """Look the loaded libraries up once."""
    return ThreadpoolController()


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
