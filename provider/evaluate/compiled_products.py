"""Multiplies dense integer rows with a basis and back by compiled kernels (``provider/kernels``). Pure.

The sums are those of ``products.py``, with the same bits. A kernel widens rows itself, so rows of any number can be
given to it at once, and a thread does not need Python's lock while it works.
"""

from collections.abc import Callable, Iterator
from functools import cache, reduce
from operator import iadd
from types import ModuleType
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from dpspca.common.arrays import FloatArray, Integers

from .products import EXACT_ROWS, UNCOPIED
from .wide_integers import parts_of

_TALLEST: Final = 512
"""The most rows of a tile."""
_FEWEST: Final = 32
"""Rows that a tile of all columns must have. Otherwise a block is divided into narrower tiles."""
_WIDE: Final = 1024
"""The most columns of a tile of all columns."""
_BLOCK, _HEIGHT, _WIDTHS = 256, 64, (128, 512)
"""Rows of a block of a wide table, rows of its tiles, and the fewest and the most columns of these."""
_COPIED: Final = 256
"""Rows and columns of these tiles where they are copied anyway. Then larger ones take less time."""
_UNCOPYING: Final = frozenset({"skylakex", "cooperlake", "sapphirerapids"})
"""OpenBLAS's names for processors with AVX-512, for which it multiplies small matrices without copying them."""


class Tiles(NamedTuple):
    """How a kernel divides rows."""

    block: int
    height: int
    width: int

    @classmethod
    def of(cls, dimension: int, columns: int, *, always_copied: bool | None = None) -> Self:
        """Choose tiles by the numbers of columns and the processor alone.

        They are so small that OpenBLAS does not copy what it multiplies, except those of a wide table if it copies
        always, or for more than sixty vectors. The numbers were measured (``bench/shapes.py``).
        """
        numbers = UNCOPIED // (2 * columns)
        height = min(_TALLEST, numbers // dimension)
        if dimension <= _WIDE and height >= _FEWEST:
            return cls(height, height, dimension)
        if blas_copies_always() if always_copied is None else always_copied:
            return cls(_BLOCK, _COPIED, _COPIED)
        fewest, most = _WIDTHS
        return cls(_BLOCK, _HEIGHT, min(most, max(fewest, numbers // _HEIGHT // 64 * 64)))


@cache
def blas_copies_always() -> bool:
    """Tell whether BLAS copies the factors of small products too."""
    return not any(str(each.get("architecture")).lower() in _UNCOPYING for each in threadpool_info())


def compiled_sums(
    kernels: ModuleType,
    integers: Callable[[int, int], NDArray[Any]],
    span: tuple[int, int],
    basis: FloatArray,
    step: int = EXACT_ROWS,
) -> Integers:
    """Return X^T high beside X^T low over a span of at most 2^24 rows. Of no rows, return zeros.

    ``integers`` gives rows from a start to a stop, at most ``step`` at a time.
    """
    start, stop = span
    add = _adder(kernels, np.require(basis, np.float64, ("C", "W")))

    def sums_of(first: int) -> Integers:
        last = min(first + EXACT_ROWS, stop)
        return add(
            np.require(integers(at, min(at + step, last)), np.int32, ("C", "W"))
            for at in range(first, max(last, first + 1), min(step, EXACT_ROWS))
        )

    return reduce(iadd, map(sums_of, range(start, max(stop, start + 1), EXACT_ROWS)))


def _adder(kernels: ModuleType, basis: FloatArray) -> Callable[[Iterator[NDArray[np.int32]]], Integers]:
    """Return a function that adds up the sums over blocks of rows, which are together at most ``EXACT_ROWS``."""
    dimension, columns = basis.shape
    tiles = Tiles.of(dimension, columns)

    def fitting(rows: NDArray[np.int32]) -> NDArray[np.int32]:
        if rows.shape[1] != dimension:
            raise ValueError(f"rows of {rows.shape[1]} columns and a basis of {dimension} rows")
        return rows

    def of_vector(blocks: Iterator[NDArray[np.int32]]) -> Integers:
        halves = np.zeros((2, dimension))
        for rows in map(fitting, blocks):
            kernels.add_vector_products(rows, basis[:, 0], *halves)
        return _whole(halves).T

    def of_all(blocks: Iterator[NDArray[np.int32]]) -> Integers:
        sums = np.zeros((dimension, 2 * columns))
        for rows in map(fitting, blocks):
            kernels.add_products(rows, basis, sums, *tiles)
        return _whole(sums)

    return of_vector if columns == 1 else of_all


def _whole(sums: FloatArray) -> Integers:
    """Write 64-bit integers into the memory of floating-point numbers that are whole."""
    whole = sums.view(np.int64)
    for part in parts_of(sums):
        whole[part] = sums[part].astype(np.int64)
    return whole
