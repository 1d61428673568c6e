"""Adds up hashes of rows with compiled kernels, on all processors. Sums are modulo 2^64, so no order counts."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.provider.data.memory import ReusedMemory, StoredRows, Words

_CELLS: Final = 2**18
"""Numbers that a thread gives to a kernel together: two megabytes."""


def compiled_sums(table: FloatArray | StoredRows, add: Callable[..., None], labels: Words, entries: int) -> Words:
    """Return ``entries`` sums over all dense rows. ``add`` adds those of some rows (``provider/kernels/words.py``)."""
    count, threads = table.shape[0], os.cpu_count() or 1
    step = max(1, _CELLS // table.shape[1])

    def of_span(edges: tuple[int, int]) -> Words:
        sums, memory = np.zeros(entries, dtype=np.uint64), ReusedMemory()
        for start in range(*edges, step):
            numbers, blank = _read(table[start : min(start + step, edges[1])], memory)
            add(np.require(numbers, np.float64, ("C", "W")), blank, labels, sums)
        return sums

    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(of_span, pairwise(count * place // threads for place in range(threads + 1)))
        return sum(found, np.zeros(entries, dtype=np.uint64))


def _read(block: FloatArray | StoredRows, memory: ReusedMemory) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return numbers, and which rows count as rows of zeros."""
    if isinstance(block, StoredRows):
        return block.entries(memory), block.marks()
    return block, np.zeros(len(block), dtype=np.bool_)


def compiled_sparse_sums(add: Callable[..., None], labels: Words, entries: int, rows: scipy.sparse.csr_array) -> Words:
    """Return ``entries`` sums over some sparse rows, with a kernel that adds those."""
    sums = np.zeros(entries, dtype=np.uint64)
    data = np.require(rows.data, np.float64, ("C", "W"))
    columns, starts = (np.require(each, np.int64, ("C", "W")) for each in (rows.indices, rows.indptr))
    add(data, columns, starts, labels, sums)
    return sums
