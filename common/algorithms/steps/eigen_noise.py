"""How much noise of known size changes the eigenvalues and eigenvectors of a released matrix.

To first order in symmetric noise E (Kato 1966; for noisy matrices, Nadler 2008), with eigenvalues l and eigenvectors v
of the matrix without noise:

- an eigenvalue changes by v_j' E v_j, and increases by the sum over m of s^2 / (l_j - l_m);
- an eigenvector changes by the sum over m of v_m (v_m' E v_j) / (l_j - l_m),

where s is the standard deviation of the noise between the directions m and j. The noise of the Gaussian orthogonal
ensemble is the same in all directions. That of a scaled release is known in the axes that it was made in
(``EntryNoise``). Directions that stand out from the noise are taken one by one, whether they are
components or not: a component mixes with the next direction, too. All others are treated as one group, with their mean
eigenvalue. If an eigenvalue is no further above the rest than noise alone reaches (``reach_of_noise``), its eigenvector
says nothing about the data. Columns that were chosen by the same numbers are where noise happens to be large, so there
it reaches further (``ways_to_choose``). Everything here follows from released numbers and the plan: it costs nothing.
"""

import math
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

_LEAST: Final = 1e-140
"""Smaller gaps and standard deviations are raised to this, so that their squares do not underflow."""
_MOST_SINGLE: Final = 32
"""The most directions beside the components that are taken one by one."""
_REPELLED: Final = 8.0
"""By how many s^2 noise increases the square of the gap between two eigenvalues, on average: for two equal ones by
2 s^2 for each of two entries on the diagonal, and 4 s^2 for the entry off it."""
_UNCLEAR: Final = 16.0
"""Up to this many s^2, the square of a gap may well be that of equal eigenvalues: two equal ones are further apart once
in e^2 times. Then their directions may be turned into each other by any angle."""
_BEYOND_EDGE: Final = (3.3, 2.2)
"""How far beyond its edge noise reaches once in 1,000 times: (3.3 + 2.2 / sqrt(p)) s / p^(1/6). The first number is a
quantile of the Tracy-Widom distribution for real symmetric noise, and the second is fitted to draws with small p."""


@dataclass(frozen=True, eq=False, slots=True)
class EntryNoise:
    """Standard deviations of the noise in the entries of a symmetric matrix, independent of each other in these axes.

    ``axes`` are the columns of an orthogonal matrix, or of some of its rows for a block. Off the diagonal an entry of
    ``stds`` is the standard deviation itself; on it, that divided by sqrt(2). Without axes, the noise is the same in
    all directions, and ``stds`` is one number.
    """

    size: int
    stds: FloatArray
    axes: FloatArray | None = None

    @classmethod
    def equal(cls, size: int, std: float) -> Self:
        """Return noise of the Gaussian orthogonal ensemble."""
        return cls(size, np.array(std))

    def on(self, columns: NDArray[np.intp]) -> Self:
        """Return the noise of the block of these columns. Its mean in the rest is that over all columns."""
        if self.axes is None:
            return type(self)(len(columns), self.stds)
        return type(self)(self.size, self.stds, self.axes[columns])

    def squares(self, vectors: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Return the variance of the noise between vectors, between each and the rest, and in the rest, per direction.

        ``vectors`` are orthonormal columns, and the rest is the space orthogonal to them.
        """
        count = vectors.shape[1]
        if self.axes is None:
            square = float(self.stds) ** 2
            return np.full((count, count), square), np.full(count, square), square
        parts, variances = np.square(self.axes.T @ vectors), np.square(self.stds)
        image = parts.T @ variances
        between = image @ parts
        group = max(self.size - count, 1)
        outer = np.maximum(image.sum(axis=1) - between.sum(axis=1), 0.0) / group
        inside = float(variances.sum() - 2 * image.sum() + between.sum()) / group**2
        return between, outer, max(inside, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class EigenNoise:
    """Eigenvalues corrected for the increase that noise causes, and the standard deviation of each loading.

    ``loading_std`` has a row for each column of the data.
    """

    values: FloatArray
    loading_std: FloatArray


@dataclass(frozen=True, slots=True)
class Choice:
    """How columns were chosen by the same released numbers that their components are computed from.

    ``count`` is from how many columns, and ``usual`` is the sum of squares of a usual one.
    """

    count: int
    usual: float


def eigen_noise(matrix: FloatArray, vectors: FloatArray, noise: EntryNoise, chosen: Choice | None = None) -> EigenNoise:
    """Estimate the noise in the leading eigenvectors of a matrix, given as columns, and in their eigenvalues.

    ``chosen`` says from what the columns of the matrix were chosen, if they were. No standard deviation of a loading
    exceeds 1. Of a component that noise alone may have made, all are 1.
    """
    size, count = vectors.shape
    others, more = _outstanding(matrix, vectors, noise.squares(vectors)[2])
    every = np.hstack([vectors, more])
    values = np.concatenate([np.einsum("dk,de,ek->k", vectors, matrix, vectors), others])
    squares, outer, inside = noise.squares(every)
    group = size - len(values)
    rest = float(np.trace(matrix) - values.sum()) / max(group, 1)
    above = np.maximum(values - rest, 0.0)
    is_clear = values > (rest if group or chosen is None else chosen.usual) + _reach(outer, inside, group, size, chosen)
    is_apart = is_clear if group else above > 0  # from the rest, if there is any
    lifted = np.maximum(np.square(above) - 4 * outer * group, 0.0)
    alone = rest + (above + np.sqrt(lifted)) / 2  # solves l + s^2 p / (l - rest) = values
    between = alone[:, None] - alone[None]
    pushed = squares * between / np.maximum(np.square(between) + squares, _LEAST)
    true = np.where(is_apart, alone - pushed.sum(axis=1), alone)
    with np.errstate(divide="ignore"):
        far = np.where(is_apart, outer / np.square(np.maximum(alone - rest, _LEAST)), np.inf)
    variance = turned_variance(every, turns(np.square(between), squares))
    variance += _product(np.maximum(1 - np.square(every).sum(axis=1), 0.0), far)
    stds = np.where(is_clear, np.minimum(np.sqrt(variance), 1.0), 1.0)
    return EigenNoise(true[:count], stds[:, :count])


def _reach(outer: FloatArray, inside: float, group: int, size: int, chosen: Choice | None) -> FloatArray:
    """Return how far noise alone reaches. Where no column was chosen and none is left, there is no noise alone."""
    others = group if chosen is None else max(group, ways_to_choose(size, chosen.count))
    reach: FloatArray = reach_of_noise(np.maximum(outer, inside), others) if others else np.full(len(outer), -np.inf)
    return reach


def ways_to_choose(size: int, of: int) -> float:
    """Return about the logarithm of the number of ways to choose so many columns: (e p / s)^s for s of p.

    The largest eigenvalue of the best block of s columns of noise is about that of a whole matrix of so many. If all
    columns are taken, it is s.
    """
    return size * (1 + math.log(max(of, size) / size))


def reach_of_noise(variances: FloatArray | float, others: NDArray[np.intp] | float) -> FloatArray:
    """Return how far above the mean of the others noise alone lifts the largest eigenvalue, once in 1,000 times.

    That is beyond the edge of Wigner's semicircle, 2 s sqrt(p) for p others, by a few s / p^(1/6) (Tracy & Widom 1996).
    ``variances`` are s^2.
    """
    count = np.maximum(others, 1)
    always, few = _BEYOND_EDGE
    reach: FloatArray = np.sqrt(variances) * (2 * np.sqrt(count) + (always + few / np.sqrt(count)) / count ** (1 / 6))
    return reach


def turns(gaps: FloatArray, noise: FloatArray) -> FloatArray:
    """Return the expected square of the sine by which noise turns one direction towards another, at most 1.

    ``gaps`` are the squares of the differences between their eigenvalues as released, and ``noise`` the variance of the
    noise between them. No direction is turned towards itself.
    """
    true = np.where(gaps >= _UNCLEAR * noise, gaps - _REPELLED * noise, 0.0)
    turned: FloatArray = np.minimum(noise / np.maximum(true, np.maximum(noise, _LEAST)), 1.0)
    np.fill_diagonal(turned, 0.0)
    return turned


def turned_variance(vectors: FloatArray, turned: FloatArray) -> FloatArray:
    """Return the variance of each loading if its direction is turned towards the others, and so is shorter itself."""
    shares = np.square(vectors)
    found: FloatArray = shares @ turned.T + shares * np.square(np.minimum(turned.sum(axis=1), 1.0))
    return found


def _outstanding(matrix: FloatArray, vectors: FloatArray, noise: float) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues beside given eigenvectors, with their own, that are above the edge of the rest."""
    size, count = vectors.shape
    most = min(size - count, _MOST_SINGLE)
    if not most:
        return np.zeros(0), np.zeros((size, 0))
    image = matrix @ vectors
    inner = vectors.T @ image
    low = float(np.abs(matrix).sum(axis=1).max()) * 2 + 1  # more than any difference of two eigenvalues
    beside = matrix - vectors @ image.T - image @ vectors.T + vectors @ (inner - low * np.eye(count)) @ vectors.T
    values, more = scipy.linalg.eigh(beside, subset_by_index=[size - most, size - 1])
    values, more = values[::-1], more[:, ::-1]
    after = size - count - 1 - np.arange(most)
    rest = (float(np.trace(matrix) - np.trace(inner)) - np.cumsum(values)) / np.maximum(after, 1)
    is_above = values - rest > reach_of_noise(noise, after)
    number = most if is_above.all() else int(np.argmin(is_above))
    return values[:number], more[:, :number]


def _product(shares: FloatArray, turned: FloatArray) -> FloatArray:
    """Return shares times what they are turned by, with 0 times infinity taken as 0."""
    finite: FloatArray = shares[:, None] * np.minimum(turned, 1e12)[None]
    return finite
