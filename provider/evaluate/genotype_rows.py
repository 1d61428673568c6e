"""Exact passes over genotypes that stay packed in two bits a cell. Pure.

An integer row is its numbers times one factor, rounded to nearest (``integer_rows.py``). So eight bytes a row are
enough to make its integers again in every pass, a tile at a time, in a cache. The factors are computed once, by the
code that makes integer rows, so the bits are those of a dense table of the same numbers.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.provider.data import CELLS_A_BYTE, Genotypes, Lookup, pair_table

from .block_sums import spans_of
from .integer_rows import integer_rows, placed, row_factors, without_specks
from .packed_rows import PackedRows
from .products import Division, RowBlock, SharedSums, Widen, add_shared, split

DIVISION: Final = Division(2**12, 192, 256)
"""Tables for a tile's columns are made once a block. They take 24 kilobytes, so that a first-level cache holds them."""
PREPARED_AT_ONCE: Final = 2**18
"""The most numbers that a thread makes together to compute factors: 2 megabytes, if a row has no more."""


class GenotypeRows(PackedRows):
    """Genotypes that are made integers a block at a time."""

    def __init__(
        self, rows: Genotypes, norm_bound: float, center: FloatArray | None = None, scales: FloatArray | None = None
    ) -> None:
        """Centre, scale, clip to the bound, and round, as ``integer_rows`` does."""
        convert = partial(integer_rows, norm_bound=norm_bound, center=center, scales=scales)
        super().__init__(rows, rows.shape[1], convert)
        self._genotypes = rows
        self._norm_bound, self._center, self._scales = norm_bound, center, scales

    def kept(self, threads: int) -> "FactoredGenotypes":
        """Return the same rows with a factor for each, so that later passes need not compute them.

        As integers, they would take eight to sixteen times as much room.
        """
        values = without_specks(placed(self._genotypes.values, self._center, self._scales), self._norm_bound)
        table = pair_table(values, self._genotypes.packed.shape[1])
        with ThreadPoolExecutor(threads) as pool:
            spans = spans_of(self.count, threads)
            factors = partial(_factors, values=values, table=table, norm_bound=self._norm_bound)
            found = pool.map(lambda span: factors(self._genotypes[slice(*span)]), spans)
            return FactoredGenotypes(self, values, np.concatenate(list(found)))

    def zeros(self) -> FloatArray:
        """Return the integers of a row of zeros, which are zeros unless a centre is taken off."""
        return self._convert(np.zeros((1, self.dimension))).astype(np.float64)


def _factors(rows: Genotypes, values: FloatArray, table: FloatArray, norm_bound: float) -> FloatArray:
    """Compute the factors of rows, some at a time. Those of blank rows are zero."""
    step = max(1, PREPARED_AT_ONCE // rows.shape[1])
    lookup = Lookup(rows.packed, values, step, table)
    starts = range(0, len(rows.packed), step)
    found = [row_factors(lookup(slice(at, at + step)), norm_bound) for at in starts]
    return np.where(rows.blank[:, None], 0.0, np.concatenate([np.empty((0, 1)), *found]))


class FactoredGenotypes(GenotypeRows):
    """Genotypes with a factor for each row. A pass makes at most as many integers at once as a tile has.

    Rows that count as zeros have the factor zero. If a centre is taken off, they are all the same row, whose products
    are counted as often as there are such rows. That takes the same time for any number of them.
    """

    def __init__(self, rows: GenotypeRows, values: FloatArray, factors: FloatArray) -> None:
        """``values`` has the number that is multiplied, for each code and column."""
        super().__init__(rows._genotypes, rows._norm_bound, rows._center, rows._scales)  # noqa: SLF001  # of this module
        self._values = np.where(np.isfinite(values), values, 0.0)  # the factor of a row with others is zero
        self._factors = factors

    def opened(self, start: int, stop: int) -> RowBlock:
        part = slice(start, stop)
        return _PackedBlock(self._genotypes[part], self._values, self._factors[part])

    def products(self, span: tuple[int, int], basis: FloatArray) -> Integers:
        sums = self.no_sums(basis)
        self.add_products(span, basis, sums)
        return sums.whole

    def no_sums(self, basis: FloatArray) -> SharedSums:
        dimension, columns = basis.shape
        return SharedSums(dimension, columns, DIVISION.width)

    def add_products(self, span: tuple[int, int], basis: FloatArray, sums: SharedSums) -> None:
        add_shared(self, span, basis, DIVISION, sums)
        if self._center is None:
            return
        zeros = self.zeros()
        halves = np.hstack(list(split(zeros @ basis))).astype(np.int64)
        halves *= np.count_nonzero(self._genotypes.blank[slice(*span)])
        for tile in sums.tiles:  # a product of all columns would be as large as the sums
            sums.add(tile, zeros.T[tile].astype(np.int64) * halves)

    def kept(self, threads: int) -> "FactoredGenotypes":
        """Return the same rows."""
        return self


class _PackedBlock:
    """Some rows, with their factors."""

    def __init__(self, rows: Genotypes, values: FloatArray, factors: FloatArray) -> None:
        self._rows, self._values, self._factors = rows, values, factors

    def __len__(self) -> int:
        return len(self._factors)

    def columns(self, which: slice) -> Widen:
        """Return a function that makes the integers of some columns. The first of them must begin a byte."""
        packed = self._rows.packed[:, which.start // CELLS_A_BYTE : -(-which.stop // CELLS_A_BYTE)]
        lookup = Lookup(packed, self._values[:, which], DIVISION.height or DIVISION.rows)

        return lambda rows, _: lookup.rounded(rows, self._factors[rows])
