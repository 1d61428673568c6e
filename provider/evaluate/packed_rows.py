"""Integer rows that are made a block at a time from genotypes or from rows in scratch, so that memory stays small."""

from collections.abc import Callable
from threading import local
from typing import TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.provider.data import BlockTable, ReusedMemory, StoredRows, stored_integers

from .integer_rows import IntegerRows
from .moments import DenseBlocks, DenseRows, SparseRows, rows_per_block


class PackedRows(DenseBlocks):
    """Rows that are made integers a block at a time, with the same bits as ``DenseRows`` of the same numbers.

    Every pass over them converts them again. That takes a few nanoseconds a cell.
    """

    def __init__(
        self, rows: BlockTable, dimension: int, convert: Callable[[FloatArray], IntegerRows | FloatArray]
    ) -> None:
        """``convert`` makes new integer rows of ``dimension`` columns, each from its own row alone."""
        super().__init__(rows.shape[0], dimension)
        self.made_columns = rows.shape[1]
        self.block_rows = rows_per_block(self.made_columns)
        self._rows = rows
        self._convert = convert
        self._memory = _ThreadMemory()

    def integers(self, start: int, stop: int) -> IntegerRows | FloatArray:
        rows = self._rows[start:stop]
        return self._convert(rows.toarray(self._memory.held) if isinstance(rows, StoredRows) else rows.toarray())

    def block(self, start: int, stop: int) -> FloatArray:
        whole = np.empty((stop - start, self.dimension))
        for first in range(start, stop, self.block_rows):  # a tall block is there once, and not in each of its forms
            last = min(first + self.block_rows, stop)
            whole[first - start : last - start] = self.integers(first, last)
        return whole

    def kept(self, threads: int) -> "PackedRows | KeptRows":
        """Return the same rows, with their integers written to scratch, so that later passes need not convert them."""
        if not isinstance(self._rows, StoredRows):
            return self
        shape = self.count, self.dimension
        kept = stored_integers(self._rows.scratch, shape, self.integers, threads)
        return KeptRows(kept)

    def sums(self) -> Integers:
        return _column_sums(self)


class KeptRows(DenseBlocks):
    """Integer rows in scratch."""

    def __init__(self, rows: StoredRows) -> None:
        super().__init__(*rows.shape)
        self._rows = rows
        self._memory = _ThreadMemory()

    def integers(self, start: int, stop: int) -> IntegerRows:
        """Return the rows from ``start`` to ``stop``. The next rows that this thread asks for overwrite them."""
        return self._rows[start:stop].stored(self._memory.held)

    def block(self, start: int, stop: int) -> FloatArray:
        return self.integers(start, stop).astype(np.float64)

    def sums(self) -> Integers:
        return _column_sums(self)


def _column_sums(rows: DenseBlocks) -> Integers:
    total = np.zeros(rows.dimension, dtype=np.int64)
    for start in range(0, rows.count, rows.block_rows):
        total += rows.block(start, min(start + rows.block_rows, rows.count)).sum(axis=0).astype(np.int64)
    return total


class _ThreadMemory(local):
    """Memory that each thread has for itself."""

    def __init__(self) -> None:
        self.held = ReusedMemory()


BlockRows: TypeAlias = DenseRows | KeptRows | PackedRows | SparseRows
"""Integer rows of any form, which are read in blocks."""
