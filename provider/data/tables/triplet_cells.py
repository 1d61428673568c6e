"""Builds some sparse rows from their triplets: several numbers of one cell become one. Pure.

The order of triplets does not count. Numbers of one row and column are sorted before they are added, because the last
bit of a sum depends on the order.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import NO_CELL

from .triplet_names import Places
from .triplet_ranges import RowRange

Mask: TypeAlias = NDArray[np.bool_]
_WORTH: Final = 0.9
"""If less than this part of the memory is used, the rest is given back."""


class Several(NamedTuple):
    """The facts about cells that had several numbers, if missing ones are left out."""

    cells: int
    columns: Places


def rows_of(
    parts: Sequence[RowRange],
    shape: tuple[int, int],
    is_missing: Callable[[scipy.sparse.csr_array], Mask] | None,
    *,
    are_added: bool,
) -> tuple[scipy.sparse.csr_array, Several]:
    """Build rows from the triplets of parts, one after the other, on all processors.

    Without ``is_missing`` no number is missing. Several numbers of one cell are added up, or become ``NO_CELL``.
    """
    most = parts[-1].place.stop
    numbers, columns = np.empty(most), np.empty(most, dtype=np.int32)
    lengths = np.zeros(shape[0] + 1, dtype=np.int64)

    def build(part: RowRange) -> Several:
        made = _sorted_by_cells(part, shape[1])
        if is_missing is not None:
            made = _without_missing(made, is_missing(made))
        is_first = _first_of_cells(made)
        several = np.count_nonzero(is_first & ~np.append(is_first[1:], True))
        found = Several(int(several), np.unique(made.indices[~is_first]))
        whole = _added_up(made, is_first, are_added=are_added)
        numbers[part.place][: whole.nnz], columns[part.place][: whole.nnz] = whole.data, whole.indices
        lengths[1:][part.rows] = np.diff(whole.indptr)
        return found

    with ThreadPoolExecutor() as threads:
        found = list(threads.map(build, parts))
    ends = np.cumsum(lengths)
    for part in parts:
        _move_down(numbers, part, ends)
        _move_down(columns, part, ends)
    several = Several(sum(each.cells for each in found), np.unique(np.concatenate([each.columns for each in found])))
    return _csr(numbers, columns, ends, shape), several


def _move_down(values: NDArray[Any], part: RowRange, ends: Places) -> None:
    """Close the gap before a part, which others left that became shorter."""
    start, stop = ends[part.rows.start], ends[part.rows.stop]
    if start < part.place.start:
        values[start:stop] = values[part.place.start : part.place.start + stop - start]


def _csr(numbers: FloatArray, columns: Places, ends: Places, shape: tuple[int, int]) -> scipy.sparse.csr_array:
    count = int(ends[-1])
    if count < _WORTH * len(numbers):
        numbers, columns = numbers[:count].copy(), columns[:count].copy()
    index = np.int32 if max(count, *shape) <= np.iinfo(np.int32).max else np.int64
    indices = columns[:count].astype(index, copy=False)
    return scipy.sparse.csr_array((numbers[:count], indices, ends.astype(index)), shape=shape)


def _sorted_by_cells(part: RowRange, width: int) -> scipy.sparse.csr_array:
    """Put numbers into their rows, several of one cell beside each other."""
    places, columns, numbers = (np.concatenate(each) for each in zip(*part.triplets, strict=True))
    shape = part.rows.stop - part.rows.start, width
    cells = scipy.sparse.coo_array((numbers, (places - part.rows.start, columns)), shape=shape)
    cells.has_canonical_format = (
        True  # a choice, not a need: scipy would add up those of one cell in the order in which they came
    )
    table = scipy.sparse.csr_array(cells)
    table.sort_indices()
    return table


def _first_of_cells(table: scipy.sparse.csr_array) -> Mask:
    """Tell which numbers are the first ones of their row and column."""
    is_first: Mask = np.diff(table.indices, prepend=table.indices.dtype.type(-1)) != 0
    is_first[table.indptr[:-1][np.diff(table.indptr) > 0]] = True
    return is_first


def _without_missing(table: scipy.sparse.csr_array, is_missing: Mask) -> scipy.sparse.csr_array:
    """Leave out missing values where their row and column have a number. If they have none, one missing value stays.

    Otherwise an empty value would spoil a measurement, and a code would be added to it.
    """
    if not is_missing.any():
        return table
    is_first = _first_of_cells(table)
    if is_first.all():
        return table
    has_number = np.logical_or.reduceat(~is_missing, np.flatnonzero(is_first))
    return _kept(table, table.data, ~is_missing | (is_first & ~has_number[np.cumsum(is_first) - 1]))


def _added_up(table: scipy.sparse.csr_array, is_first: Mask, *, are_added: bool) -> scipy.sparse.csr_array:
    """Add up numbers of one row and column, the smallest first. Or let them make their row unusable."""
    if is_first.all():
        return table
    shared = ~is_first
    shared[:-1] |= shared[1:]  # with the first number of the cell
    cell, values = np.cumsum(is_first)[shared], table.data[shared]
    order = np.lexsort((values, cell))
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    sums = np.add.reduceat(values[order], starts)
    if not are_added:
        sums[:] = NO_CELL
    numbers = table.data.copy()
    numbers[shared & is_first] = sums
    return _kept(table, numbers, is_first)


def _kept(table: scipy.sparse.csr_array, numbers: FloatArray, stays: Mask) -> scipy.sparse.csr_array:
    """Leave out what does not stay."""
    ends = np.append(0, np.cumsum(stays, dtype=table.indptr.dtype))[table.indptr].astype(table.indptr.dtype)
    return scipy.sparse.csr_array((numbers[stays], table.indices[stays], ends), shape=table.shape)
