"""How much noise of known size changes the eigenvalues and eigenvectors of a released matrix.

To first order in symmetric noise E (Kato 1966; for noisy matrices, Nadler 2008), with eigenvalues l and eigenvectors v
of the matrix without noise:

- an eigenvalue changes by v_j' E v_j, and increases by the sum over m of s^2 / (l_j - l_m);
- an eigenvector changes by the sum over m of v_m (v_m' E v_j) / (l_j - l_m),

where s is the standard deviation of the noise between the directions m and j. The noise of the Gaussian orthogonal
ensemble is the same in all directions. All directions other than the leading ones are treated as one group, with their
mean eigenvalue. If an eigenvalue is below the edge of the noise, 2 s sqrt(p) above the rest, its eigenvector says
nothing about the data. Everything here follows from released numbers and the plan, so it costs nothing.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray

_LEAST: Final = 1e-140
"""Smaller gaps and standard deviations are raised to this, so that their squares do not underflow."""


@dataclass(frozen=True, eq=False, slots=True)
class EigenNoise:
    """Eigenvalues corrected for the increase that noise causes, and the standard deviation of each loading.

    ``loading_std`` has a row for each column of the data.
    """

    values: FloatArray
    loading_std: FloatArray


def eigen_noise(values: FloatArray, vectors: FloatArray, trace: float, noise: tuple[float, float]) -> EigenNoise:
    """Estimate the noise in eigenvalues and in eigenvectors (as columns).

    ``noise`` is a pair: the standard deviation of the noise between two leading directions, and between a leading
    direction and the rest. No standard deviation of a loading exceeds 1.
    """
    size, count = vectors.shape
    inner, outer = noise[0] ** 2, noise[1] ** 2
    rest = (trace - float(values.sum())) / max(size - count, 1)
    above = np.maximum(values - rest, 0.0)
    beyond_edge = np.square(above) - 4 * outer * (size - count)
    alone = rest + (above + np.sqrt(np.maximum(beyond_edge, 0.0))) / 2  # solves l + s^2 (p - k) / (l - rest) = values
    between = alone[:, None] - alone[None]
    pushed = inner * between / np.maximum(np.square(between) + inner, _LEAST)
    true = np.where(beyond_edge > 0, alone - pushed.sum(axis=1), alone)
    np.fill_diagonal(between, np.inf)
    with np.errstate(divide="ignore"):
        shares, apart = np.square(vectors), 1 / np.square(between)
        far = np.where(beyond_edge > 0, 1 / np.square(np.maximum(alone - rest, _LEAST)), np.inf)
    others = np.maximum(1 - shares.sum(axis=1), 0.0)
    variance = _product(inner, shares, apart.T) + _product(outer, others[:, None], far[None])
    return EigenNoise(true, np.minimum(np.sqrt(variance), 1.0))


def _product(noise: float, shares: FloatArray, apart: FloatArray) -> FloatArray:
    """Return noise * (shares @ apart) with 0 times infinity taken as 0: without noise or share there is no change."""
    most = 1 / max(noise, _LEAST)
    finite: FloatArray = noise * (shares @ np.minimum(apart, 1e12 * most))
    return finite
