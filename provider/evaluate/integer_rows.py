"""Turns checked rows into integer rows of bounded norm, the bound that every sensitivity relies on. Pure.

Each integer row is a function of its own row and of a public centre alone. The norm is checked in integers, after
rounding, so that no floating-point error can make a row longer than the bound.
"""

import math
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.privacy import ROW_BITS
from dpspca.provider.kernels import kernels

from .block_sums import spans_of
from .products import MADE_TOGETHER

IntegerRows: TypeAlias = NDArray[np.int32]

_FARTHEST: Final = 2.0**240
_SMALLEST: Final = 2.0**-200
"""Entries below this count as zero when norms are compared, because their fourth powers would underflow."""
_BOUND: Final = 2**ROW_BITS
_FRACTIONS: Final = 8
"""Sparse rows become integers in this many parts, one after the other."""


def placed(rows: FloatArray, center: FloatArray | None, scales: FloatArray | None) -> FloatArray:
    """Take a centre off rows, and divide columns by scales, entry by entry.

    The result is cut to +-2^240, so that neither an entry nor its fourth power overflows, whatever was sent. What is
    below 2^-200 counts as zero before it is divided, because the processor is slower on subnormal numbers.
    """
    moved = rows if center is None else rows - center
    if scales is None:
        return moved
    moved = np.where(np.abs(moved) < _SMALLEST, 0.0, moved)
    with np.errstate(over="ignore"):
        return np.clip(moved / scales, -_FARTHEST, _FARTHEST)


def integer_rows(
    rows: FloatArray, norm_bound: float, center: FloatArray | None = None, scales: FloatArray | None = None
) -> IntegerRows:
    """Centre, scale, clip to the bound, and round to integers of norm at most 2^17. Works in blocks to save memory."""
    whole = np.empty(rows.shape, dtype=np.int32)
    step = max(1, MADE_TOGETHER // rows.shape[1])
    memory = np.empty((min(step, len(rows)), rows.shape[1]))
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        _write_integers(whole[block], placed(rows[block], center, scales), norm_bound, memory)
    return whole


def integer_columns(
    rows: FloatArray,
    columns: NDArray[np.intp],
    bounds: tuple[float, float],
    center: FloatArray | None = None,
    scales: FloatArray | None = None,
) -> IntegerRows:
    """Clip rows to the first bound, keep some columns, clip these to the second bound, and round to norm 2^17."""
    whole = np.empty((len(rows), len(columns)), dtype=np.int32)
    step = max(1, MADE_TOGETHER // rows.shape[1])
    memory = np.empty((min(step, len(rows)), len(columns)))
    for start in range(0, len(rows), step):
        block = without_specks(placed(rows[start : start + step], center, scales), bounds[1])
        kept = np.ascontiguousarray((block * _shortening(_squared_norms(block), bounds[0])[:, None])[:, columns])
        _write_integers(whole[start : start + step], kept, bounds[1], memory)
    return whole


def _shortening(squared_norms: FloatArray, norm_bound: float) -> FloatArray:
    """Return the factor that brings each row to the bound, or 1."""
    factor: FloatArray = norm_bound / np.maximum(np.sqrt(squared_norms), norm_bound)
    return factor


def row_factors(rows: FloatArray, norm_bound: float) -> FloatArray:
    """Return, as a column, the factor of each row: its integers are its numbers times that, rounded to nearest.

    It is zero where a row counts as a row of zeros. The rows are placed, and have no specks.
    """
    if compiled := kernels("integers"):
        factors = np.empty((len(rows), 1))
        numbers = np.require(rows, np.float64, ("C", "W"))
        compiled.write_factors(numbers, float(norm_bound), float(_BOUND), _shorter(rows.shape[1]), factors)
        return factors
    step = max(1, MADE_TOGETHER // rows.shape[1])
    memory = np.empty((min(step, len(rows)), rows.shape[1]))
    found = [_rounded(rows[at : at + step], norm_bound, memory) for at in range(0, len(rows), step)]
    return np.concatenate([np.where(is_short, factors, 0.0) for factors, is_short in found])


def _write_integers(whole: IntegerRows, rows: FloatArray, norm_bound: float, memory: FloatArray) -> None:
    """Write integers of rows that are placed."""
    if compiled := kernels("integers"):
        numbers = np.require(rows, np.float64, ("C", "W"))
        compiled.write_integers(numbers, float(norm_bound), float(_BOUND), _shorter(rows.shape[1]), whole)
        return
    rows = without_specks(rows, norm_bound)
    _, is_short = _rounded(rows, norm_bound, memory)
    with np.errstate(invalid="ignore"):  # a row that is not finite is not short
        np.copyto(whole, memory[: len(rows)], casting="unsafe")
    whole &= -is_short.astype(np.int32)


def _rounded(rows: FloatArray, norm_bound: float, into: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Round to nearest, which is unbiased but may lengthen a row beyond the bound.

    Returns, as columns, each row's factor, and whether it is within the bound. The few rows that become too long are
    shortened before they are rounded, by so much that rounding cannot bring them back to the bound (``_shorter``). The
    bound relies on nothing but this check and what it marks: a row that is still too long, or is not finite, counts as
    a row of zeros. All rows take the same steps and so the same time.
    """
    whole = into[: len(rows)]
    factors = (_BOUND / np.maximum(np.sqrt(_squared_norms(rows)), norm_bound))[:, None]
    np.rint(np.multiply(rows, factors, out=whole), out=whole)
    factors = np.where(_is_short(whole), factors, factors * _shorter(rows.shape[1]))
    np.rint(np.multiply(rows, factors, out=whole), out=whole)
    return factors, _is_short(whole)


def _shorter(columns: int) -> float:
    """Return a factor for rows of the bound's length that are to stay within it when they are rounded to nearest.

    Rounding moves each entry by at most 1/2, and so lengthens a row by at most sqrt(columns) / 2. The rest is for the
    error of the floating-point division.
    """
    return 1 - 2.0**-30 - math.sqrt(columns) / (2 * _BOUND)


def _is_short(whole: FloatArray) -> NDArray[np.bool_]:
    """Mark the rows within the bound, as a column. A row that is not finite is not marked.

    Sums of squares up to the bound are exact in any order, and no order makes a longer row look shorter than it.
    """
    short: NDArray[np.bool_] = np.einsum("ij,ij->i", whole, whole) <= _BOUND**2
    return short[:, None]


def integer_csr(rows: scipy.sparse.csr_array, norm_bound: float) -> scipy.sparse.csr_array:
    """Do the same for sparse rows, on their stored entries alone, without a centre, which would make them dense.

    A fraction of the rows at a time, because the way takes six times the memory of the result.
    """
    whole, shorter = np.empty(len(rows.data)), _shorter(rows.shape[1])
    for first, last in spans_of(rows.shape[0], _FRACTIONS):
        starts = rows.indptr[first : last + 1]
        held = slice(starts[0], starts[-1])
        whole[held] = _integer_entries(rows.data[held], starts - starts[0], norm_bound, shorter)
    return scipy.sparse.csr_array((whole, rows.indices, rows.indptr), shape=rows.shape)


def _integer_entries(data: FloatArray, starts: NDArray[Any], norm_bound: float, shorter: float) -> FloatArray:
    lengths = np.diff(starts)

    def too_long(values: FloatArray) -> NDArray[np.bool_]:
        return np.repeat(~(row_sums(np.square(values), starts) <= _BOUND**2), lengths)

    data = without_specks(data, norm_bound)
    norms = np.sqrt(row_sums(np.square(data), starts))
    factors = _BOUND / np.maximum(norms, norm_bound)
    whole = np.rint(data * np.repeat(factors, lengths))
    whole = np.where(too_long(whole), np.rint(data * np.repeat(factors * shorter, lengths)), whole)
    whole[too_long(whole)] = 0
    return whole


def integer_csr_columns(
    rows: scipy.sparse.csr_array, columns: NDArray[np.intp], bounds: tuple[float, float]
) -> scipy.sparse.csr_array:
    """Do the same as ``integer_columns`` for sparse rows."""
    spans = spans_of(rows.shape[0], _FRACTIONS)
    parts = [_integer_csr_columns(rows[first:last], columns, bounds) for first, last in spans]
    return scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))


def _integer_csr_columns(
    rows: scipy.sparse.csr_array, columns: NDArray[np.intp], bounds: tuple[float, float]
) -> scipy.sparse.csr_array:
    stored = without_specks(rows.data, bounds[1])
    factors = _shortening(row_sums(np.square(stored), rows.indptr), bounds[0])
    data = stored * np.repeat(factors, np.diff(rows.indptr))
    shortened = scipy.sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
    return integer_csr(shortened if len(columns) == rows.shape[1] else shortened[:, columns], bounds[1])


def without_specks(values: FloatArray, norm_bound: float) -> FloatArray:
    """Set entries to zero that would be rounded to zero anyway, because the processor is slower on subnormal numbers.

    Otherwise a coordinator that chose a centre close to a value could tell from the time how often it occurs.
    """
    return np.where(np.abs(values) < norm_bound * 2.0**-40, 0.0, values)


def row_norms(rows: FloatArray | scipy.sparse.csr_array) -> FloatArray:
    """Return the norm of every row.

    Entries whose fourth power would be subnormal count as zero, because the processor is slower on those. Every entry
    takes the same steps.
    """
    stored = rows if isinstance(rows, np.ndarray) else rows.data
    powers = np.square(np.where(np.abs(stored) < _SMALLEST, 0.0, stored))
    return np.sqrt(powers.sum(axis=1) if isinstance(rows, np.ndarray) else row_sums(powers, rows.indptr))


def _squared_norms(rows: FloatArray) -> FloatArray:
    """Sum squares along each contiguous row, so that the order of additions depends on the row's length alone.

    If it depended on the row's place, removing one row could change how others are rounded.
    """
    squares: FloatArray = np.square(rows).sum(axis=1)
    return squares


def row_sums(values: FloatArray, starts: NDArray[Any]) -> FloatArray:
    """Sum stored values row by row. Each sum depends on its own row alone, and not on rows before it."""
    sums = np.zeros(len(starts) - 1)
    filled = np.flatnonzero(np.diff(starts))
    if filled.size:
        sums[filled] = np.add.reduceat(values, starts[filled])
    return sums
