"""Rows that cannot be used count as rows of zeros. This depends on each row alone. Pure."""

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .preparation import LARGEST, CheckedRows, Unusable, check_size


def rows_or_zeros(matrix: FloatArray | scipy.sparse.csr_array) -> CheckedRows:
    """Accept the table that ``numbers_of`` returned, with any numbers, even one without rows.

    A row with a number that is not finite, too large, or in no column counts as a row of zeros. This depends on that
    row alone, so no row decides whether its provider starts, whether others are answered, or what a refusal says. A
    table is refused for its form alone: its type, its columns, or more rows than sums can hold.
    """
    check_size(*matrix.shape, least=0)
    stored: FloatArray = matrix.reshape(-1) if isinstance(matrix, np.ndarray) else matrix.data
    good = np.abs(stored) <= LARGEST  # False for NaN
    lengths = matrix.shape[1] if isinstance(matrix, np.ndarray) else np.diff(matrix.indptr)
    whose = np.repeat(np.arange(matrix.shape[0]), lengths)
    bad = np.bincount(whose, weights=~good, minlength=matrix.shape[0]) > 0
    spoilt = bad[whose]
    places = np.flatnonzero(spoilt)
    mended = np.where(spoilt, 0.0, stored)  # the same for all rows, so that the time does not reveal an odd one
    whole = mended.reshape(matrix.shape) if isinstance(matrix, np.ndarray) else _with(matrix, mended)
    if not places.size:
        return CheckedRows(whole)
    return CheckedRows(whole, unusable=Unusable(int(bad.sum()), places, np.where(good, stored, 0.0)[places]))


def _with(matrix: scipy.sparse.csr_array, data: FloatArray) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)


def make_unusable(matrix: FloatArray | scipy.sparse.csr_array, which: NDArray[np.bool_]) -> Any:  # noqa: ANN401  # as it came
    """Fill the marked rows with NaN, which makes them unusable."""
    if isinstance(matrix, np.ndarray):
        return np.where(which[:, None], np.nan, matrix)
    whose = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return _with(matrix, np.where(which[whose], np.nan, matrix.data))


def zero_row(like: FloatArray | scipy.sparse.csr_array) -> FloatArray | scipy.sparse.csr_array:
    """Return one row of zeros in the form and width of these rows."""
    shape = (1, like.shape[1])
    return np.zeros(shape) if isinstance(like, np.ndarray) else scipy.sparse.csr_array(shape)
