"""Exact sums that may be wider than 64 bits. Pure.

Second moments of 2^24 rows stay below 2^62, those of 2^31 rows below 2^69. So sums are taken in 64-bit integers over at
most 2^24 rows, and then carried into a second 64-bit integer. Every operation takes both, for any number of rows, so no
width follows from it.
"""

from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray, Integers
from dpspca.provider.kernels import kernels

Exact: TypeAlias = NDArray[np.object_]
"""Python integers, for a few numbers."""

LOW_BITS: Final = 32
_LOW: Final = 2**LOW_BITS - 1
_AT_ONCE: Final = 2**14
"""Numbers that are carried together."""


def parts_of(array: NDArray[Any]) -> list[slice]:
    """Divide an array into some rows at a time, so that intermediate arrays stay in the processor's cache."""
    width = max(1, array[:1].size)
    step = max(1, _AT_ONCE // width)
    return [slice(start, start + step) for start in range(0, len(array), step)]


@dataclass(frozen=True, eq=False, slots=True)
class WideIntegers:
    """An array of integers high 2^32 + low. Before anything is carried, high is zero and low any 64-bit integer."""

    high: Integers
    low: Integers

    @classmethod
    def of(cls, low: Integers, high: Integers | None = None) -> Self:
        """Take 64-bit integers, and what they are to be added to in units of 2^32. The arrays are used up.

        Without the latter, nothing is carried before it has to be, so that wide sums do not take twice the memory.
        """
        if high is None:
            return cls(np.broadcast_to(np.int64(0), low.shape), low)
        for part in parts_of(low):
            high[part] += low[part] >> LOW_BITS
            low[part] &= _LOW
        return cls(high, low)

    @property
    def shape(self) -> tuple[int, ...]:
        """Their shape."""
        return self.low.shape

    def __getitem__(self, which: Any) -> Self:  # noqa: ANN401  # an index of numpy
        """Return some of the integers."""
        return type(self)(self.high[which], self.low[which])

    def __add__(self, other: Self) -> Self:
        """Add two arrays."""
        total = type(self)(self.high, self.low.copy())
        total += type(self)(other.high, other.low.copy())
        return total

    def __iadd__(self, other: Self) -> Self:
        """Add another array, in the memory of both. The other is used up, so that wide sums need no third array."""
        high = other.low
        is_plain = self.low.flags.c_contiguous and high.flags.c_contiguous and self.shape == other.shape
        if is_plain and (compiled := kernels("wide")):
            compiled.add(*(each.reshape(-1) for each in (self.high, self.low, other.high, high)))
            return type(self)(high, self.low)
        for part in parts_of(self.low):
            low, more = self.low[part], other.low[part]
            carried = (low >> LOW_BITS) + (more >> LOW_BITS)
            low &= _LOW
            low += more & _LOW
            carried += low >> LOW_BITS
            low &= _LOW
            carried += self.high[part]
            np.add(carried, other.high[part], out=high[part])  # it was read above
        return type(self)(high, self.low)

    def __rshift__(self, bits: int) -> Self:
        """Divide by a power of two of at most 2^32, rounded down."""
        low = self.low >> bits
        low += (self.high & (2**bits - 1)) << (LOW_BITS - bits)
        return type(self)(self.high >> bits, low)

    def diagonal(self) -> Self:
        """Return the diagonal of a matrix."""
        return type(self)(self.high.diagonal(), self.low.diagonal())

    def narrow(self) -> Integers:
        """Return 64-bit integers. The caller knows that they fit."""
        return (self.high << LOW_BITS) | self.low

    def floats(self) -> FloatArray:
        """Return the nearest floating-point numbers. Both parts are exact, and only their sum is rounded."""
        numbers: FloatArray = np.ldexp(self.high.astype(np.float64), LOW_BITS)
        numbers += self.low
        return numbers

    def exact(self) -> Exact:
        """Return Python integers."""
        return np.asarray((self.high.astype(object) << LOW_BITS) + self.low.astype(object))


class RunningSum:
    """Adds 64-bit integers, each a sum over some rows, in place."""

    def __init__(self, most_rows: int) -> None:
        """``most_rows`` is how many rows may be added up in 64 bits."""
        self._most_rows = most_rows
        self._rows = 0
        self._low: Integers | None = None
        self._high: Integers | None = None

    def add(self, part: Integers, rows: int) -> None:
        """Add a sum over this many rows. The first array is used up."""
        if self._low is None:
            self._low = part
        else:
            if self._rows + rows > self._most_rows:
                self._carry(self._low)
            self._low += part
        self._rows += rows

    def _carry(self, low: Integers) -> None:
        wide = WideIntegers.of(low, np.zeros_like(low) if self._high is None else self._high)
        self._high, self._rows = wide.high, 0

    def total(self) -> WideIntegers:
        """Return the sum. It must not be added to any more."""
        assert self._low is not None  # there is at least one part, if only of no rows
        return WideIntegers.of(self._low, self._high)
