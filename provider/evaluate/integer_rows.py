"""From checked rows to integer rows of bounded norm: the bounds that every sensitivity relies on. Pure.

Each integer row is a function of its own row (and of a public centre) alone. The norm is checked in integers, after
rounding, so that no floating-point error can let a row be longer than the bound.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.privacy import ROW_BITS

IntegerRows: TypeAlias = NDArray[np.int32]

_SMALLEST: Final = 2.0**-200
"""Entries below this count as zero where norms are compared: their fourth powers would leave the range as well."""
_BOUND: Final = 2**ROW_BITS
_BLOCK_ENTRIES: Final = 2**14
"""Temporaries of 128 KiB: from larger ones the C library takes memory afresh for every block, five times slower."""


def integer_rows(rows: FloatArray, norm_bound: float, center: FloatArray | None = None) -> IntegerRows:
    """Centre, shorten to the bound, and round to integers of norm at most 2^17; in blocks, to spare memory."""
    whole = np.empty(rows.shape, dtype=np.int32)
    step = max(1, _BLOCK_ENTRIES // rows.shape[1])
    for start in range(0, len(rows), step):
        block = slice(start, start + step)
        whole[block] = _integer_block(rows[block] if center is None else rows[block] - center, norm_bound)
    return whole


def _integer_block(rows: FloatArray, norm_bound: float) -> FloatArray:
    """Round to nearest, which is unbiased but may lengthen a row beyond the bound.

    Those few are cut towards zero instead, which cannot, once they have been shortened by more than the error of the
    floating-point division. The bound rests on nothing outside these lines: a row that is too long even then, or is
    not finite after all, counts as a row of zeros. All of this is done to every row, so that it takes as long for any.
    """
    rows = _without_specks(rows, norm_bound)
    scaled = rows * (_BOUND / np.maximum(np.sqrt(_squared_norms(rows)), norm_bound))[:, None]
    whole = np.rint(scaled)
    whole = np.where(_is_short(whole), whole, np.trunc(scaled * (1 - 2.0**-30)))
    return np.where(_is_short(whole), whole, 0.0)


def _is_short(whole: FloatArray) -> NDArray[np.bool_]:
    """Mark the rows within the bound, in a column of their own; rows that are not finite are not."""
    short: NDArray[np.bool_] = _squared_norms(whole) <= _BOUND**2
    return short[:, None]


def integer_csr(rows: scipy.sparse.csr_array, norm_bound: float) -> scipy.sparse.csr_array:
    """Do the same to sparse rows, entry by entry of those that are stored. Centring would make them dense."""
    lengths = np.diff(rows.indptr)

    def too_long(values: FloatArray) -> NDArray[np.bool_]:
        return np.repeat(~(_row_sums(np.square(values), rows.indptr) <= _BOUND**2), lengths)

    data = _without_specks(rows.data, norm_bound)
    norms = np.sqrt(_row_sums(np.square(data), rows.indptr))
    scaled = data * np.repeat(_BOUND / np.maximum(norms, norm_bound), lengths)
    whole = np.rint(scaled)
    whole = np.where(too_long(whole), np.trunc(scaled * (1 - 2.0**-30)), whole)
    whole[too_long(whole)] = 0
    return scipy.sparse.csr_array((whole, rows.indices, rows.indptr), shape=rows.shape)


def _without_specks(values: FloatArray, norm_bound: float) -> FloatArray:
    """Set to zero what would be rounded to zero anyway: numbers too small for the processor's fast path take longer.

    A coordinator that chose a centre close to a value could otherwise tell from the time how often it occurs.
    """
    return np.where(np.abs(values) < norm_bound * 2.0**-40, 0.0, values)


def row_norms(rows: FloatArray | scipy.sparse.csr_array, *, squared: bool) -> FloatArray:
    """Give the norm of every row, or of its squared entries.

    Entries so small that their fourth power has no place among ordinary numbers count as zero, for they would take the
    processor longer. All that is done to an entry is the same for any other.
    """
    stored = rows if isinstance(rows, np.ndarray) else rows.data
    powers = np.square(np.where(np.abs(stored) < _SMALLEST, 0.0, stored))
    powers = np.square(powers) if squared else powers
    return np.sqrt(powers.sum(axis=1) if isinstance(rows, np.ndarray) else _row_sums(powers, rows.indptr))


def _squared_norms(rows: FloatArray) -> FloatArray:
    """Sum squares along each row: contiguous, so that the order of additions depends on the row's length alone.

    Were it to depend on where the row lies, removing one row could change how others are rounded.
    """
    squares: FloatArray = np.square(rows).sum(axis=1)
    return squares


def _row_sums(values: FloatArray, starts: NDArray[Any]) -> FloatArray:
    """Sum stored values row by row. Each sum sees its own row alone, whatever stands before it."""
    sums = np.zeros(len(starts) - 1)
    filled = np.flatnonzero(np.diff(starts))
    if filled.size:
        sums[filled] = np.add.reduceat(values, starts[filled])
    return sums
