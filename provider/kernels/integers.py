"""Makes integer rows of bounded norm, in one loop over each row. Pure.

The steps for a number are those of ``provider/evaluate/integer_rows.py``, in the same order, so the bits are the same.
The norm of a row is the only sum of rounded numbers: it is added up in the order in which numpy adds up a row.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .compiling import compiled, part

_LANES: Final = 8
_AT_ONCE: Final = 128
"""A longer row is added up in two parts."""
_DEPTH: Final = 64
"""More divisions than a row of any length needs."""


@part
def _short_sum(numbers: FloatArray, start: int, count: int, lanes: FloatArray) -> float:
    """Add up at most 128 numbers: in eight sums, and then these."""
    whole = count - count % _LANES
    total = 0.0
    if whole:
        for lane in range(_LANES):
            lanes[lane] = numbers[start + lane]
        for place in range(start + _LANES, start + whole, _LANES):
            for lane in range(_LANES):
                lanes[lane] += numbers[place + lane]
        total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
    for place in range(start + whole, start + count):
        total += numbers[place]
    return total


@part
def _sum(numbers: FloatArray, lanes: FloatArray, later: NDArray[np.int64], lefts: FloatArray) -> float:
    """Add up numbers in pairs, as numpy does: a long row is divided into two, and these again.

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
        total = _short_sum(numbers, start, count, lanes)
        while depth and not later[depth - 1, 1]:
            depth -= 1
            total = lefts[depth] + total
        if not depth:
            return total
        start, count = later[depth - 1, 0], later[depth - 1, 1]
        later[depth - 1, 1], lefts[depth - 1] = 0, total


@part
def _rounded(numbers: FloatArray, factor: float, whole: FloatArray) -> float:
    """Multiply and round to nearest. Return the sum of squares, which is exact up to the bound in any order."""
    for column in range(len(numbers)):
        whole[column] = np.rint(numbers[column] * factor)
    total = 0.0
    for column in range(len(whole)):
        total += whole[column] * whole[column]
    return total


@part
def _factor(  # noqa: PLR0913, PLR0917
    numbers: FloatArray,
    bounds: tuple[float, float],
    shorter: float,
    whole: FloatArray,
    squares: FloatArray,
    lanes: FloatArray,
    later: NDArray[np.int64],
    lefts: FloatArray,
) -> float:
    """Return a row's factor, and write its integers. It is zero if the row stays longer than the second bound."""
    norm_bound, bound = bounds
    for column in range(len(numbers)):
        squares[column] = numbers[column] * numbers[column]
    factor = bound / max(np.sqrt(_sum(squares, lanes, later, lefts)), norm_bound)
    factor = factor if _rounded(numbers, factor, whole) <= bound * bound else factor * shorter
    return factor if _rounded(numbers, factor, whole) <= bound * bound else 0.0


@compiled("(float64[:, ::1], float64, float64, float64, int32[:, ::1])")
def write_integers(rows: FloatArray, norm_bound: float, bound: float, shorter: float, into: NDArray[np.int32]) -> None:
    """Clip rows to a bound, and round them to integers of norm at most ``bound``. A row that stays longer is zeros."""
    columns = rows.shape[1]
    speck = norm_bound * 2.0**-40
    numbers, squares, whole = np.empty(columns), np.empty(columns), np.empty(columns)
    lanes, later, lefts = np.empty(_LANES), np.empty((_DEPTH, 2), np.int64), np.empty(_DEPTH)
    for row in range(rows.shape[0]):
        for column in range(columns):
            number = rows[row, column]
            numbers[column] = 0.0 if abs(number) < speck else number
        factor = _factor(numbers, (norm_bound, bound), shorter, whole, squares, lanes, later, lefts)
        for column in range(columns):
            into[row, column] = np.int32(whole[column] if factor != 0.0 else 0.0)


@compiled("(float64[:, ::1], float64, float64, float64, float64[:, ::1])")
def write_factors(rows: FloatArray, norm_bound: float, bound: float, shorter: float, factors: FloatArray) -> None:
    """Write the factor of each row with which ``write_integers`` would make its integers, or zero."""
    squares, whole = np.empty(rows.shape[1]), np.empty(rows.shape[1])
    lanes, later, lefts = np.empty(_LANES), np.empty((_DEPTH, 2), np.int64), np.empty(_DEPTH)
    for row in range(rows.shape[0]):
        factors[row, 0] = _factor(rows[row], (norm_bound, bound), shorter, whole, squares, lanes, later, lefts)
