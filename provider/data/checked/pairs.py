"""Differences of pairs of rows, in place of the rows (``dpspca.common.job.centering`` says why they are as private)."""

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import pairs_of
from dpspca.provider.data.memory import BLOCK_CELLS, RowWriter, StoredRows

from .preparation import CheckedRows, UsableRows

_SMALLEST: Final = 2.0**-200
"""Far below anything that counts for a job."""


def require_pairs(rows: UsableRows) -> CheckedRows:
    """Refuse rows that cannot be paired."""
    matrix: Any = rows.matrix if isinstance(rows, CheckedRows) else None
    if not isinstance(rows, CheckedRows) or not isinstance(matrix, np.ndarray | scipy.sparse.csr_array | StoredRows):
        raise InvalidParameterError(
            "Differences of pairs need rows of numbers, and these are packed genotypes or rows that arrive.",
            "Use another centring. Genotypes have a public centre in a dictionary.",
        )
    return rows


def differences(rows: UsableRows, seed: int) -> CheckedRows:
    """Return (x - y) / sqrt(2) for each pair. Entries were checked to be far below the largest number."""
    rows = require_pairs(rows)
    matrix: Any = rows.matrix
    first, second = pairs_of(rows.count, seed)
    if isinstance(matrix, StoredRows):
        made: Any = _stored_differences(matrix, first, second)
    else:
        made = _scaled(matrix[first] - matrix[second])
    return replace(rows, matrix=made, persons=None, unusable=None)


def _scaled(unscaled: Any) -> Any:  # noqa: ANN401  # dense or sparse
    """Divide by the root of two. Numbers next to zero are zeros first, as the processor is slower on some."""
    if isinstance(unscaled, np.ndarray):
        return _without_specks(unscaled) * math.sqrt(0.5)
    data = _without_specks(unscaled.data) * math.sqrt(0.5)
    return type(unscaled)((data, unscaled.indices, unscaled.indptr), shape=unscaled.shape)


def _without_specks(numbers: FloatArray) -> FloatArray:
    return np.where(np.abs(numbers) < _SMALLEST, 0.0, numbers)


def _stored_differences(rows: StoredRows, first: NDArray[np.intp], second: NDArray[np.intp]) -> StoredRows:
    """Write the differences of stored rows, some at a time. A pair's rows may stand anywhere in the file."""
    columns = rows.shape[1]
    writer, step = RowWriter(rows.scratch, columns, np.dtype(np.float64)), max(1, BLOCK_CELLS // columns)
    for start in range(0, len(first), step):
        one, other = (_rows_at(rows, places[start : start + step]) for places in (first, second))
        writer.add(_scaled(one - other), np.zeros(len(one), dtype=np.bool_))
    return writer.rows()


def _rows_at(rows: StoredRows, places: NDArray[np.intp]) -> FloatArray:
    return np.concatenate([rows[place : place + 1].toarray() for place in places.tolist()])
