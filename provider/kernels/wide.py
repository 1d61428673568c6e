"""Adds and divides arrays of wide integers, high 2^32 + low, in one loop each. Pure.

The steps for an entry are those of ``provider/evaluate/wide_integers.py``, so the bits are the same.
"""

from typing import Final

from dpspca.common.arrays import Integers

from .compiling import INTEGER, compiled, integers, read_integers

_BITS: Final = 32
_LOW: Final = 2**32 - 1


@compiled((read_integers(1), integers(1), read_integers(1), integers(1)))
def add(high: Integers, low: Integers, other_high: Integers, other_low: Integers) -> None:
    """Add another array. The low parts of the sum go to ``low``, and the high parts to ``other_low``."""
    for entry in range(len(low)):
        one, other = low[entry], other_low[entry]
        small = (one & _LOW) + (other & _LOW)
        large = high[entry] + other_high[entry]
        low[entry] = small & _LOW
        other_low[entry] = (one >> _BITS) + (other >> _BITS) + (small >> _BITS) + large


@compiled((read_integers(2), read_integers(2), INTEGER, INTEGER, integers(2)))
def floors(high: Integers, low: Integers, low_bits: int, shift: int, into: Integers) -> None:
    """Write floor((2^low_bits left + right) / 2^(low_bits + shift)) of the left and the right half of an array."""
    columns = into.shape[1]
    for row in range(into.shape[0]):
        for column in range(columns):
            left_high, left_low = high[row, column], low[row, column]
            right_high, right_low = high[row, columns + column], low[row, columns + column]
            below = (right_low >> low_bits) + ((right_high & ((1 << low_bits) - 1)) << (_BITS - low_bits))
            small = (left_low & _LOW) + (below & _LOW)
            large = (left_low >> _BITS) + (below >> _BITS) + (small >> _BITS) + left_high + (right_high >> low_bits)
            small = ((small & _LOW) >> shift) + ((large & ((1 << shift) - 1)) << (_BITS - shift))
            into[row, column] = ((large >> shift) << _BITS) | small
