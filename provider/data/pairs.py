"""Differences of pairs of rows, in place of the rows (``dpspca.common.centering`` says why they are as private)."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from dpspca.common.centering import pairs_of
from dpspca.common.errors import InvalidParameterError

from .preparation import CheckedRows, UsableRows


def differences(rows: UsableRows, seed: int) -> CheckedRows:
    """Return (x - y) / sqrt(2) for each pair. Entries were checked to be far below the largest number."""
    if not isinstance(rows, CheckedRows) or not isinstance(rows.matrix, np.ndarray | scipy.sparse.csr_array):
        raise InvalidParameterError(
            "Differences of pairs need rows that are in memory as numbers, and these are not.",
            "Use another centring. Genotypes have a public centre in a dictionary.",
        )
    first, second = pairs_of(rows.count, seed)
    matrix: Any = rows.matrix
    return replace(rows, matrix=(matrix[first] - matrix[second]) * math.sqrt(0.5), persons=None, unusable=None)
