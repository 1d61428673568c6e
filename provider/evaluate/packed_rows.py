"""Integer rows that are made from genotypes a block at a time, so that these stay small in memory."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.provider.data import Genotypes

from .integer_rows import IntegerRows
from .moments import DenseRows, SparseRows


class PackedRows:
    """Genotypes, made integers a block at a time, with the same bits as ``DenseRows`` of the same numbers.

    Every pass over them converts them again. That takes a few nanoseconds a cell, and they stay small in memory.
    """

    gain_by_threads = True
    parts = DenseRows.parts
    across = staticmethod(DenseRows.across)

    def __init__(self, rows: Genotypes, dimension: int, convert: Callable[[FloatArray], IntegerRows]) -> None:
        """``convert`` makes integer rows of ``dimension`` columns, each from its own row alone."""
        self._rows = rows
        self._convert = convert
        self.count, self.dimension = rows.shape[0], dimension
        self.block_rows = DenseRows.rows_per_block(rows.shape[1])

    def block(self, start: int, stop: int) -> FloatArray:
        return self._convert(self._rows[start:stop].toarray()).astype(np.float64)

    def sums(self) -> Integers:
        total = np.zeros(self.dimension, dtype=np.int64)
        for start in range(0, self.count, self.block_rows):
            total += self.block(start, min(start + self.block_rows, self.count)).sum(axis=0).astype(np.int64)
        return total


BlockRows: TypeAlias = DenseRows | PackedRows | SparseRows
"""Integer rows of any form, which are read in blocks."""
