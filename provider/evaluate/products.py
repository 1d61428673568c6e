"""Multiplies dense integer rows with a basis and back, X^T (X Q), exactly, for tables of any shape. Pure.

Rows are taken some at a time, as a *block*, and widened to float64 as many at a time as a cache holds, as a *tile*. A
block of a narrow table is one tile, so it is widened once. A block of a wide table has many tiles, so it is widened
twice: for the products X Q, and for what they are multiplied with. Otherwise it would have so few rows that most of the
time went into adding up sums, which are as wide as the table.

The division follows from the number of columns, of the table and of the basis, alone. It changes no bit, because every
number is an integer below 2^53, where float64 is exact. The widths, for rows of norm 2^17 and columns of a basis of
norm 2^20 (1 + 2^-8), which holds beyond a million columns (``basis_gain``); c is that last factor:

    y = x q                 2^37 c     by Cauchy and Schwarz, for any part of the columns too
    y = 2^19 high + low     high 2^18 c + 1, low at most 2^18, because it is rounded to nearest
    X^T high, X^T low       2^35 c + 2^17 a row, 2^35 a row: below 2^50 for 2^14 rows

So sums are exact in float64 over ``EXACT_ROWS`` rows, and then in 64-bit integers over 2^27 rows. ``block_sums.py``
adds up sums over at most 2^24 rows each, in wider integers.
"""

from collections.abc import Callable, Iterator
from functools import reduce
from itertools import pairwise
from operator import iadd
from threading import Lock
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers

from . import exact_rows

LOW_BITS: Final = 19
EXACT_ROWS: Final = exact_rows.IN_FLOATS

CACHED: Final = 3 * 2**15
"""Numbers of a tile that fit, in float64, into a second-level cache of a megabyte with room to spare. The product of so
many with five columns has fewer than 10^6 multiplications, so OpenBLAS does not copy it first on some processors."""
CACHED_FOR_ONE: Final = 2**18
"""The same where a product has one column, and calls cost more than the cache saves."""
MOST_AT_ONCE: Final = 2**19
"""The most numbers of a block of a wide table that are still worth widening together."""
TILE_ROWS: Final = 256
TILE_COLUMNS: Final = 256
"""Rows and columns of a tile of a wide table: half a megabyte in float64. With smaller ones, threads wait for each
other more than they compute."""
TALL: Final = 2**12
"""Rows of a block of a wide table. Its products with forty columns fit into a third-level cache."""
UNCOPIED: Final = 10**6
"""Multiplications of a product before which OpenBLAS does not copy its factors, on some processors."""
MADE_TOGETHER: Final = 2**17
"""Entries of rows that are made integers together. With fewer, threads wait for each other more than they compute."""
MADE_AT_ONCE: Final = 2**21
"""The most numbers of a block that are made for it: 16 megabytes in float64."""


class Division(NamedTuple):
    """How a table is divided into blocks of rows, and these into tiles."""

    rows: int
    width: int
    """Columns of a tile."""
    height: int | None = None
    """Rows of a tile, if it has fewer than a block."""

    @classmethod
    def of(cls, dimension: int, columns: int, most: int | None = None) -> "Division":
        """Divide a table of this many columns for its product with a basis, into blocks of at most this many numbers.

        Sums are added up once for each block, so a block has more rows for a basis of more columns. The numbers were
        measured (``bench/shapes.py``).
        """
        cached = max(CACHED, CACHED_FOR_ONE // columns) // (dimension + 2 * columns)
        rows = max(8, cached, min(3 * columns + 8, MOST_AT_ONCE // dimension))
        divided = cls(TALL, TILE_COLUMNS, TILE_ROWS) if rows < 2 * columns else cls(min(EXACT_ROWS, rows), dimension)
        return divided if most is None else divided._replace(rows=min(divided.rows, max(8, most // dimension)))


Widen: TypeAlias = Callable[[slice, FloatArray], FloatArray]
"""Returns some rows of a tile in float64: in the memory that it is given, or in its own until the next call."""


class RowBlock(Protocol):
    """Some rows."""

    def __len__(self) -> int:
        """Return how many they are."""
        ...

    def columns(self, which: slice) -> Widen:
        """Return a function that widens some of the columns."""
        ...


class IntegerSource(Protocol):
    """Dense rows that can be read some at a time."""

    dimension: int

    def opened(self, start: int, stop: int) -> RowBlock:
        """Return the rows from ``start`` to ``stop``."""
        ...


class ArrayBlock:
    """Rows that are in an array, of any type that holds their integers."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def columns(self, which: slice) -> Widen:
        chosen = self._rows[:, which]

        def widen(rows: slice, into: FloatArray) -> FloatArray:
            np.copyto(into, chosen[rows])
            return into

        return widen


def split(image: FloatArray, into: FloatArray | None = None) -> FloatArray:
    """Return the high and the low part of integers: image = 2^19 high + low, with low at most 2^18."""
    halves = np.empty((2, *image.shape)) if into is None else into
    high, low = halves
    np.copyto(low, image)
    np.rint(np.multiply(low, 2.0**-LOW_BITS, out=high), out=high)
    low -= high * 2.0**LOW_BITS
    return halves


def product_sums(
    source: IntegerSource, span: tuple[int, int], basis: FloatArray, division: Division
) -> Iterator[Integers]:
    """Give X^T high beside X^T low, for X basis = 2^19 high + low, over at most ``EXACT_ROWS`` rows each time.

    Of no rows, give zeros.
    """
    start, stop = span
    work = _Work(basis, division)
    for first in range(start, max(stop, start + 1), EXACT_ROWS):
        last = min(first + EXACT_ROWS, stop)
        sums = work.no_sums()
        for at in range(first, max(last, first + 1), division.rows):
            block = source.opened(at, min(at + division.rows, last))
            work.add(block, sums, is_first=at == first, is_last=at + division.rows >= last)
        yield sums.view(np.int64)


def integer_sums(source: IntegerSource, span: tuple[int, int], basis: FloatArray, division: Division) -> Integers:
    """Return these sums over all rows of a span, of at most 2^24 rows."""
    return reduce(iadd, product_sums(source, span, basis, division))


class SharedSums:
    """X^T high beside X^T low, over at most 2^24 rows, to which several threads add some columns of rows at a time.

    Where sums are large beside the rows, memory for one for each thread would be most of what a pass needs. Threads
    seldom wait for each other: to add a tile's product takes a fraction of the time to make it.
    """

    def __init__(self, dimension: int, columns: int, width: int) -> None:
        """``width`` is how many columns of the rows a tile has."""
        self.whole: Final[Integers] = np.zeros((dimension, 2 * columns), dtype=np.int64)
        self.tiles: Final = [slice(at, min(at + width, dimension)) for at in range(0, dimension, width)]
        self._width, self._locks = width, [Lock() for _ in self.tiles]

    def add(self, tile: slice, product: NDArray[Any]) -> None:
        """Add whole numbers for the columns of a tile."""
        numbers = product.astype(np.int64, copy=False)
        with self._locks[tile.start // self._width]:
            self.whole[tile] += numbers


def add_shared(
    source: IntegerSource, span: tuple[int, int], basis: FloatArray, division: Division, sums: SharedSums
) -> None:
    """Add the sums over the rows of a span."""
    work, total = _Work(basis, division), np.empty((division.width, 2 * basis.shape[1]))
    for at in range(*span, division.rows):
        work.add_shared(source.opened(at, min(at + division.rows, span[1])), total, sums)


def _parts(numbers: int, columns: int) -> list[slice]:
    """Say which columns of high beside low a tile of this many numbers is multiplied with at once.

    BLAS multiplies with one column at a time twice as fast as with two. With more columns, it does both together,
    unless only products with one of them are small.
    """
    is_apart = columns == 1 or numbers * columns <= UNCOPIED < 2 * numbers * columns
    return [slice(0, columns), slice(columns, 2 * columns)] if is_apart else [slice(0, 2 * columns)]


class _Work:
    """Memory that one thread uses again for each block, and what it does with it."""

    def __init__(self, basis: FloatArray, division: Division) -> None:
        dimension, columns = basis.shape
        width, self._height = min(dimension, division.width), min(division.height or division.rows, division.rows)
        edges = [*range(0, dimension, width), dimension]
        self._tiles = [slice(*edge) for edge in pairwise(edges)]
        self._basis = np.ascontiguousarray(basis)
        self._parts = _parts(self._height * width, columns)
        self._tile = self._last = np.empty(self._height * width)
        self._is_widened_once = len(self._tiles) == 1 and self._height == division.rows
        self._images = np.empty((division.rows, columns))
        self._more = np.empty((self._height, columns))
        self._halves = np.empty(2 * columns * division.rows)
        self._product = np.empty((width, self._parts[0].stop))

    def no_sums(self) -> FloatArray:
        """Return new memory for sums, which the first block fills."""
        dimension, columns = self._basis.shape
        # Columns of high and low are contiguous if there is one of each: then it is most of the work to add them up.
        return np.empty((2, dimension)).T if columns == 1 else np.empty((dimension, 2 * columns))

    def add(self, block: RowBlock, sums: FloatArray, *, is_first: bool, is_last: bool) -> None:
        """Add the sums over a block of rows. After the last, the same memory has 64-bit integers."""
        halves = self._multiplied(block)
        for tile in self._tiles:
            widen = block.columns(tile)
            for rows, both in halves:
                widened = self._widened(widen, rows, tile, again=True)
                self._add_product(widened, both, sums[tile], is_new=is_first and rows.start == 0)
            if is_last:
                sums[tile].view(np.int64)[...] = sums[tile].astype(np.int64)

    def add_shared(self, block: RowBlock, memory: FloatArray, sums: SharedSums) -> None:
        """Add the sums over a block of rows. The memory is for one tile's."""
        halves = self._multiplied(block)
        for tile in self._tiles:
            widen, total = block.columns(tile), memory[: tile.stop - tile.start]
            for rows, both in halves:
                self._add_product(self._widened(widen, rows, tile, again=True), both, total, is_new=rows.start == 0)
            sums.add(tile, total)

    def _add_product(self, widened: FloatArray, both: FloatArray, sums: FloatArray, *, is_new: bool) -> None:
        for part in self._parts:
            total = sums[:, part]
            is_direct = is_new and total.flags.c_contiguous
            product = np.dot(widened.T, both[part].T, out=total if is_direct else self._product[: len(total)])
            if is_new and not is_direct:
                np.copyto(total, product)
            elif not is_new:
                np.add(total, product, out=total)

    def _multiplied(self, block: RowBlock) -> list[tuple[slice, FloatArray]]:
        """Multiply with the basis. Return the high and the low part of the product, for the rows of each tile."""
        stretches = [slice(at, min(at + self._height, len(block))) for at in range(0, max(1, len(block)), self._height)]
        for tile in self._tiles:
            widen = block.columns(tile)
            for rows in stretches:
                widened, image = self._widened(widen, rows, tile), self._images[rows]
                product = np.dot(widened, self._basis[tile], out=self._more[: len(image)] if tile.start else image)
                if tile.start:
                    np.add(image, product, out=image)
        return [(rows, self._split(rows)) for rows in stretches]

    def _split(self, rows: slice) -> FloatArray:
        image = self._images[rows].T
        start, size = 2 * len(image) * rows.start, 2 * image.size
        halves = split(image, self._halves[start : start + size].reshape(2, *image.shape))
        return halves.reshape(2 * len(image), image.shape[1])

    def _widened(self, widen: Widen, rows: slice, tile: slice, *, again: bool = False) -> FloatArray:
        """Return a tile in float64. If there is only one, it is still there when it is used again."""
        if not (again and self._is_widened_once):
            shape = rows.stop - rows.start, tile.stop - tile.start
            self._last = widen(rows, self._tile[: shape[0] * shape[1]].reshape(shape))
        return self._last
