"""Adds up hashes of rows with compiled kernels, on all processors. Sums are modulo 2^64, so no order counts."""

from collections.abc import Callable
from functools import reduce
from typing import Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.provider.data.memory import ReusedMemory, StoredRows, Words, on_all_processors

_CELLS: Final = 2**18
"""Numbers that a thread gives to a kernel together: two megabytes."""
_LEAST: Final = 16
"""Rows of wide tables that it gives together, because each call also reads the labels of all columns."""
_MOST_CELLS: Final = 2**21
"""The most numbers of these rows: 16 megabytes."""


def compiled_sums(table: FloatArray | StoredRows, add: Callable[..., None], labels: Words, entries: int) -> Words:
    """Return ``entries`` sums over all dense rows. ``add`` adds those of some rows (``provider/kernels/words.py``)."""
    columns = table.shape[1]
    step = max(1, _CELLS // columns, min(_LEAST, _MOST_CELLS // columns))

    def add_share(start: int, stop: int, sums: Words) -> None:
        memory = ReusedMemory()
        for at in range(start, stop, step):
            numbers, blank = _read(table[at : min(at + step, stop)], memory)
            add(np.require(numbers, np.float64, ("C", "W")), blank, labels, sums)

    return _added(add_share, table.shape[0], entries)


def compiled_sparse_sums(table: scipy.sparse.csr_array, add: Callable[..., None], labels: Words, entries: int) -> Words:
    """Return ``entries`` sums over all sparse rows."""
    data = np.require(table.data, np.float64, ("C", "W"))
    columns, starts = (np.require(each, table.indptr.dtype, ("C", "W")) for each in (table.indices, table.indptr))
    return _added(
        lambda start, stop, sums: add(data, columns, starts, start, stop, labels, sums), table.shape[0], entries
    )


def _added(add_share: Callable[[int, int, Words], None], rows: int, entries: int) -> Words:
    """Add up the sums of each thread's share of the rows."""

    def sums_of(start: int, stop: int) -> Words:
        sums = np.zeros(entries, dtype=np.uint64)
        add_share(start, stop, sums)
        return sums

    return reduce(np.add, on_all_processors(sums_of, rows))


def _read(block: FloatArray | StoredRows, memory: ReusedMemory) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return numbers, and which rows count as rows of zeros."""
    if isinstance(block, StoredRows):
        return block.entries(memory), block.marks()
    return block, np.zeros(len(block), dtype=np.bool_)
