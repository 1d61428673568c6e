"""Integer rows that are made a block at a time from genotypes or from rows in scratch, so that memory stays small."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.provider.data import BlockTable, StoredRows, stored_integers

from .integer_rows import IntegerRows
from .moments import DenseBlocks, DenseRows, SparseRows, rows_per_block


class PackedRows(DenseBlocks):
    """Rows that are made integers a block at a time, with the same bits as ``DenseRows`` of the same numbers.

    Every pass over them converts them again. That takes a few nanoseconds a cell.
    """

    def __init__(
        self, rows: BlockTable, dimension: int, convert: Callable[[FloatArray], IntegerRows | FloatArray]
    ) -> None:
        """``convert`` makes integer rows of ``dimension`` columns, each from its own row alone."""
        super().__init__(rows.shape[0], dimension)
        self.block_rows = rows_per_block(rows.shape[1])  # of a block, all columns are made
        self._rows = rows
        self._convert = convert

    def integers(self, start: int, stop: int) -> IntegerRows | FloatArray:
        return self._convert(self._rows[start:stop].toarray())

    def block(self, start: int, stop: int) -> FloatArray:
        whole = np.empty((stop - start, self.dimension))
        for first in range(start, stop, self.block_rows):  # a tall block is there once, and not in each of its forms
            last = min(first + self.block_rows, stop)
            whole[first - start : last - start] = self.integers(first, last)
        return whole

    def kept(self, threads: int) -> "PackedRows":
        """Return the same rows, with their integers written to scratch, so that later passes need not convert them."""
        if not isinstance(self._rows, StoredRows):
            return self
        shape = self.count, self.dimension
        kept = stored_integers(self._rows.scratch, shape, self.integers, threads)
        return PackedRows(kept, self.dimension, _unchanged)

    def sums(self) -> Integers:
        total = np.zeros(self.dimension, dtype=np.int64)
        for start in range(0, self.count, self.block_rows):
            total += self.block(start, min(start + self.block_rows, self.count)).sum(axis=0).astype(np.int64)
        return total


def _unchanged(rows: FloatArray) -> FloatArray:
    return rows


BlockRows: TypeAlias = DenseRows | PackedRows | SparseRows
"""Integer rows of any form, which are read in blocks."""
