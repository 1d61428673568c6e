"""Bounds the number of entries of a row: only the largest count. Pure."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .preparation import CheckedRows, not_genotypes

_NOWHERE: Final = np.empty(0, dtype=np.intp)


def with_largest_entries(rows: CheckedRows, most: int) -> CheckedRows:
    """Keep the ``most`` largest entries of each row, and the fingerprints of the rows with all of them."""
    kept = largest_entries_of(rows, most)
    return replace(kept, uncut=rows.fingerprints(), before=rows.fingerprints_in_order())


def largest_entries_of(rows: CheckedRows, most: int) -> CheckedRows:
    """Keep the ``most`` largest entries of each row. Of entries of equal size, those in the first columns are kept.

    The time of a query about sparse rows grows with the number of their entries, so a public bound on that number
    bounds the time that one row can add. Which entries are kept depends on their row alone, so no sensitivity changes.
    """
    matrix = not_genotypes(rows.matrix, "always take all their columns: remove row_entries").copy()
    unusable = rows.unusable and replace(
        rows.unusable, places=_NOWHERE, entries=np.empty(0)
    )  # of a matrix, not of rows
    if isinstance(matrix, np.ndarray):
        for place in np.flatnonzero(np.count_nonzero(matrix, axis=1) > most):
            matrix[place, _smaller_entries(matrix[place], most)] = 0.0
        return replace(rows, matrix=matrix, unusable=unusable)
    for place in np.flatnonzero(np.diff(matrix.indptr) > most):
        stored = matrix.data[matrix.indptr[place] : matrix.indptr[place + 1]]
        stored[_smaller_entries(stored, most)] = 0.0
    matrix.eliminate_zeros()
    return replace(rows, matrix=matrix, unusable=unusable)


def _smaller_entries(entries: FloatArray, most: int) -> NDArray[np.intp]:
    """Return the places of the entries that are not among the largest. Of equal ones, the first count as larger."""
    return np.argsort(-np.abs(entries), kind="stable")[most:]
