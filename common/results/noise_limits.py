"""How large a variance noise alone may look like. Pure."""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .decision import Decision, ReleasePath

_LIMIT: Final = 3
"""A variance of a single component below this many standard deviations of its noise counts as noise."""
_EDGE: Final = 1.1
"""An eigenvalue of a released matrix below the edge of noise, and a tenth, counts as noise."""


def within_noise(variances: FloatArray | None, noise_std: float | None, count: int, columns: int) -> NDArray[np.bool_]:
    """Mark the variances of ``count`` components that cannot be told apart from noise.

    The variances are eigenvalues of a k x k matrix. Noise alone gives the largest of them about sqrt(2k) standard
    deviations (the edge of Wigner's semicircle), so the limit grows with k. For one component it is three. Where the
    components were read off a released matrix of so many ``columns``, the variances are eigenvalues of that matrix, and
    noise alone gives about sqrt(2) standard deviations for the root of its number of columns.
    """
    if variances is None:
        return np.zeros(count, dtype=bool)
    limit = _LIMIT + math.sqrt(2 * count) - math.sqrt(2)
    if columns:
        limit = max(limit, _EDGE * math.sqrt(2 * columns))
    # Eigenvalues of a symmetric matrix may be negative, so the absolute value counts.
    marked: NDArray[np.bool_] = np.abs(variances) < limit * (noise_std or 0.0)
    return marked


def columns_read_off(decided: Decision | None, every: int, *, knows_loadings: bool) -> int:
    """Return how many columns the released matrix had that components were read off; 0 if they were found otherwise.

    It counts the columns that could have been kept, because keeping the largest entries of noise keeps most of it.
    """
    if decided is None:  # of methods that do not decide, those that release a matrix know the noise of loadings
        return every if knows_loadings else 0
    if decided.path is ReleasePath.PRODUCTS:
        return 0
    if decided.last is not None:
        return decided.last
    return every if decided.outstanding is None or decided.is_dense else decided.outstanding
