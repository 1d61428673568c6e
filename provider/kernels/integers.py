"""Makes integer rows of bounded norm, in one loop over each row. Pure.

The steps for a number are those of ``provider/evaluate/integer_rows.py``, in the same order, so the bits are the same.
The norm of a row is the only sum of rounded numbers: it is added up in the order in which numpy adds up a row.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .compiling import compiled, exact_part, part

_LANES: Final = 8
_AT_ONCE: Final = 128
"""A longer row is added up in two parts."""
_DEPTH: Final = 64
"""More divisions than a row of any length needs."""


@part
def _square(number: float) -> float:
    return number * number


@part
def _short_sum(numbers: FloatArray, start: int, count: int) -> float:
    """Add up the squares of at most 128 numbers: in eight sums, and then these."""
    whole = start + count - count % _LANES
    total = 0.0
    if start < whole:
        one, two = _square(numbers[start]), _square(numbers[start + 1])
        three, four = _square(numbers[start + 2]), _square(numbers[start + 3])
        five, six = _square(numbers[start + 4]), _square(numbers[start + 5])
        seven, eight = _square(numbers[start + 6]), _square(numbers[start + 7])
        for place in range(start + _LANES, whole, _LANES):
            one += _square(numbers[place])
            two += _square(numbers[place + 1])
            three += _square(numbers[place + 2])
            four += _square(numbers[place + 3])
            five += _square(numbers[place + 4])
            six += _square(numbers[place + 5])
            seven += _square(numbers[place + 6])
            eight += _square(numbers[place + 7])
        total = ((one + two) + (three + four)) + ((five + six) + (seven + eight))
    for place in range(whole, start + count):
        total += _square(numbers[place])
    return total


@part
def _sum_of_squares(numbers: FloatArray, later: NDArray[np.int64], lefts: FloatArray) -> float:
    """Add up squares in pairs, as numpy adds up numbers: a long row is divided into two, and these again.

    It does not call itself, because numba crashes when it loads such a function from its cache.

    ``later`` holds, for each division so far, where its second part starts and how long it is, or 0 if that part is
    being added up. Then ``lefts`` has the sum of the first part.
    """
    start, count, depth = 0, len(numbers), 0
    while True:
        while count > _AT_ONCE:
            half = count // 2
            half -= half % _LANES
            later[depth, 0], later[depth, 1] = start + half, count - half
            depth, count = depth + 1, half
        total = _short_sum(numbers, start, count)
        while depth and not later[depth - 1, 1]:
            depth -= 1
            total = lefts[depth] + total
        if not depth:
            return total
        start, count = later[depth - 1, 0], later[depth - 1, 1]
        later[depth - 1, 1], lefts[depth - 1] = 0, total


@exact_part
def _rounded(numbers: FloatArray, factor: float) -> float:
    """Return the sum of squares of numbers that are multiplied and rounded to nearest.

    It is exact up to the bound, and no order of additions makes a longer row look shorter than that.
    """
    total = 0.0
    for column in range(len(numbers)):
        whole = np.rint(numbers[column] * factor)
        total += whole * whole
    return total


@part
def _factor(
    numbers: FloatArray, bounds: tuple[float, float], shorter: float, later: NDArray[np.int64], lefts: FloatArray
) -> float:
    """Return a row's factor. It is zero if the row stays longer than the second bound."""
    norm_bound, bound = bounds
    factor = bound / max(np.sqrt(_sum_of_squares(numbers, later, lefts)), norm_bound)
    factor = factor if _rounded(numbers, factor) <= bound * bound else factor * shorter
    return factor if _rounded(numbers, factor) <= bound * bound else 0.0


@compiled("(float64[:, ::1], float64, float64, float64, int32[:, ::1])")
def write_integers(rows: FloatArray, norm_bound: float, bound: float, shorter: float, into: NDArray[np.int32]) -> None:
    """Clip rows to a bound, and round them to integers of norm at most ``bound``. A row that stays longer is zeros."""
    columns = rows.shape[1]
    speck = norm_bound * 2.0**-40
    numbers, later, lefts = np.empty(columns), np.empty((_DEPTH, 2), np.int64), np.empty(_DEPTH)
    for row in range(rows.shape[0]):
        for column in range(columns):
            number = rows[row, column]
            numbers[column] = 0.0 if abs(number) < speck else number
        factor = _factor(numbers, (norm_bound, bound), shorter, later, lefts)
        for column in range(columns):
            into[row, column] = np.int32(np.rint(numbers[column] * factor) if factor != 0.0 else 0.0)


@compiled("(float64[:, ::1], float64, float64, float64, float64[:, ::1])")
def write_factors(rows: FloatArray, norm_bound: float, bound: float, shorter: float, factors: FloatArray) -> None:
    """Write the factor of each row with which ``write_integers`` would make its integers, or zero."""
    later, lefts = np.empty((_DEPTH, 2), np.int64), np.empty(_DEPTH)
    for row in range(rows.shape[0]):
        factors[row, 0] = _factor(rows[row], (norm_bound, bound), shorter, later, lefts)
