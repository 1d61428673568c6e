"""How far noise and sampling turn leading eigenvectors, by perturbation theory and its exact limits.

For eigenvalues L_i (leading) and l_j (others) of the mean over n rows, and symmetric noise of standard deviation s on
an entry of the sum, the squared sine of the angle of component i is

    (sum_j (s/n)^2 / (L_i - l_j)^2 + sum_j L_i l_j / (n (L_i - l_j)^2)) / (1 + sum_j l_j / (n (L_i - l_j)))

The first sum is exact for many columns and Gaussian noise alone (Benaych-Georges & Nadakuditi 2011), the rest for
sampling alone with equal l_j (Paul 2007). Where it reaches one, the eigenvalue drowns, and the error is at chance.
"""

import math

import numpy as np
from scipy.special import chdtri, gammainc

from dpspca.common.arrays import FloatArray

FALSE_ROWS = 0.1
"""Columns that pruning keeps by mistake, as in the methods themselves."""


def sines_of(
    leading: FloatArray, others: FloatArray, counts: FloatArray, rows: float, noise: float | FloatArray
) -> FloatArray:
    """Return the squared sines, at most one each.

    ``noise`` is the standard deviation s on an entry of the sum, for each component if it differs.
    """
    if not others.size:
        return np.zeros(len(leading))
    gaps = np.maximum(leading[:, None] - others[None], 1e-9 * leading[:, None])
    squares = np.square(np.broadcast_to(noise, leading.shape)[:, None] / rows)
    turned = (squares + leading[:, None] * others[None] / rows) / gaps**2
    lifted = 1 + (others[None] / gaps) @ counts / rows
    return np.asarray(np.minimum((turned @ counts) / lifted, 1.0))


def neighbours(leading: FloatArray, others: FloatArray, counts: FloatArray, sines: FloatArray) -> FloatArray:
    """Return the mean eigenvalue of the directions that each component is mixed with.

    Small errors mix a component with directions of nearly its own eigenvalue first. Where nothing is seen, it is
    mixed with all of them.
    """
    gaps = np.maximum(leading[:, None] - others[None], 1e-9 * leading[:, None])
    near = (others / gaps**2) @ counts / ((1 / gaps**2) @ counts)
    return np.asarray((1 - sines) * near + sines * (others @ counts) / counts.sum())


def part_missed(signals: FloatArray, columns: int, support: int, share: float = 1.0) -> float:
    """Return which part of the components' energy pruning misses, because rows do not stand out from the noise.

    ``signals`` are, for each component, the variances of a row's product with it, in units of those of noise and
    sampling; rows of the support have products that vary as much. A row without a part exceeds the threshold with
    probability ``FALSE_ROWS / columns``. ``share`` is the part of the components that the rows are compared with.
    """
    count = len(signals)
    threshold = float(chdtri(count, FALSE_ROWS / columns))
    widened = 1 + share * float(np.mean(signals))
    missed = support * float(gammainc(count / 2, threshold / widened / 2))  # rows, on average
    usual = max(0.0, 1 - math.log(2) / missed) if missed else 0.0  # none at all in most runs, if few on average
    return usual * float(gammainc(count / 2 + 1, threshold / widened / 2))


def joined(first: float, second: float) -> float:
    """Return the noise of the average of two releases by inverse variance."""
    return 1 / math.hypot(1 / first, 1 / second) if first and second else 0.0
