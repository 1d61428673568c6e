"""Holds triplets by ranges of rows while they are read. Pure.

Rows are built range by range: the triplets of one fit into a processor's cache, and several threads can work at once.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .triplet_names import Places

_RANGES_BITS: Final = 8
"""At most 2^8 ranges, whose numbers fit into one byte: sorting by a byte takes few passes."""
_SORTED_TOGETHER: Final = 2**18
_LEAST: Final = 2**17
"""Triplets of a part, unless there are fewer: fewer would take longer to call than to sort."""
_BLOCK: Final = 2**23
"""Triplets of the largest blocks of memory, which are so large that the system gets them back when they are freed."""


class HeldTriplets(NamedTuple):
    """Places of rows and columns, and numbers."""

    rows: Places
    columns: Places
    numbers: FloatArray

    def some(self, which: slice) -> "HeldTriplets":
        """Return some of the triplets, in the same memory."""
        return HeldTriplets(self.rows[which], self.columns[which], self.numbers[which])


class RowRange(NamedTuple):
    """Some rows, and their triplets."""

    rows: slice
    triplets: Sequence[HeldTriplets]
    """Their rows count from the start of all rows."""
    place: slice
    """Among all triplets in the order of rows."""


class _Sorted(NamedTuple):
    """Triplets in the order of their ranges, and where each range begins."""

    triplets: HeldTriplets
    starts: NDArray[np.int64]


class TripletRanges:
    """Triplets of a number of rows."""

    def __init__(self, rows: int) -> None:
        """Divide the rows into ranges."""
        self._count = rows
        self._shift = max(0, (rows - 1).bit_length() - _RANGES_BITS)
        self._ranges = max(1, -(-rows >> self._shift))
        self._pending = list[HeldTriplets]()
        self._waiting = 0
        self._block, self._filled, self._held = _new_block(0), 0, 0
        self._sorted = [_Sorted(self._block, np.zeros(self._ranges + 1, dtype=np.int64))]

    def add(self, triplets: HeldTriplets) -> None:
        """Take some triplets."""
        self._pending.append(triplets)
        self._waiting += len(triplets.rows)
        if self._waiting >= _SORTED_TOGETHER:
            self._sort()

    def parts(self) -> Iterator[RowRange]:
        """Divide the rows into parts with enough triplets each, but for the last one."""
        self._sort()
        sizes = np.diff(sum(each.starts for each in self._sorted))
        first = start = held = 0
        for each, size in enumerate(sizes.tolist(), start=1):
            held += size
            if held >= _LEAST or each == self._ranges:
                rows = slice(first << self._shift, min(each << self._shift, self._count))
                triplets = [found.triplets.some(slice(*found.starts[[first, each]])) for found in self._sorted]
                yield RowRange(rows, triplets, slice(start, start + held))
                first, start, held = each, start + held, 0

    def _sort(self) -> None:
        """Sort what is pending. The sort is stable, which no result depends on."""
        if not self._pending:
            return
        pending = HeldTriplets(*(np.concatenate(each) for each in zip(*self._pending, strict=True)))
        self._pending.clear()
        self._waiting = 0
        for start in range(0, len(pending.rows), _SORTED_TOGETHER):
            found = pending.some(slice(start, start + _SORTED_TOGETHER))
            ranges = (found.rows >> self._shift).astype(np.uint8)
            order = np.argsort(ranges, kind="stable")
            own = self._memory(len(order))
            for each, target in zip(found, own, strict=True):
                np.take(each, order, out=target, mode="clip")  # none is outside; otherwise numpy would use a buffer
            self._sorted.append(_Sorted(own, np.append(0, np.cumsum(np.bincount(ranges, minlength=self._ranges)))))

    def _memory(self, count: int) -> HeldTriplets:
        """Return memory for some triplets."""
        if self._filled + count > len(self._block.rows):
            self._block, self._filled = _new_block(max(count, min(self._held, _BLOCK))), 0
        self._held += count
        self._filled += count
        return self._block.some(slice(self._filled - count, self._filled))


def _new_block(count: int) -> HeldTriplets:
    return HeldTriplets(np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32), np.empty(count))
