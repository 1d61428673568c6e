"""What a released matrix tells for free: its leading eigenvectors, and which of its rows stand out from noise.

Everything here is post-processing of released numbers, so it costs no budget. M is X^T X plus noise, made symmetric.
``off_std`` is the standard deviation of the noise off the diagonal of M. Its diagonal has sqrt(2) times as much: the
noise is that of the Gaussian orthogonal ensemble, the same in every direction of Frobenius norm.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.stats import chi2

from dpspca.common.arrays import FloatArray

from .eigen_noise import EigenNoise, eigen_noise

Columns = NDArray[np.intp]

FALSE_ROWS: Final = 0.1
"""Columns that pruning keeps by mistake, on average, where only noise is left."""
MOST_ROUNDS: Final = 8
"""Rounds in which pruning looks for a fixed point. Most end after three."""
DENSE_FRACTION: Final = 4
"""A support of more than a fourth of all columns is no sparse structure."""


@dataclass(frozen=True, slots=True)
class Released:
    """A released matrix, its noise off the diagonal, the number of rows that it is a sum over, and of providers."""

    matrix: FloatArray
    off_std: float
    rows: float
    parties: int = 1

    @property
    def diagonal(self) -> FloatArray:
        """Sums of squares of each column, without the negative ones that noise makes."""
        diagonal: FloatArray = np.maximum(np.diagonal(self.matrix), 0.0)
        return diagonal

    def block(self, columns: Columns) -> FloatArray:
        """Give the rows and columns of a support."""
        block: FloatArray = self.matrix[np.ix_(columns, columns)]
        return block

    def joined(self, other: "Released") -> "Released":
        """Average two releases of the same sum by inverse variance."""
        own, others = self.off_std**-2, other.off_std**-2
        matrix = (self.matrix * own + other.matrix * others) / (own + others)
        return Released(matrix, (own + others) ** -0.5, self.rows, min(self.parties, other.parties))


def leading(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Give the eigenvectors of the largest eigenvalues, as columns, the largest first, and these eigenvalues."""
    size = len(matrix)
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[size - count, size - 1])
    return vectors[:, ::-1], values[::-1]


def debiased(values: FloatArray, off_std: float, size: int) -> FloatArray:
    """Estimate the eigenvalues without noise; 0 for those that noise alone explains.

    Noise of the Gaussian orthogonal ensemble has its edge at 2 s sqrt(p), and lifts an eigenvalue l beyond it to
    l + s^2 p / l (Baik, Ben Arous & Peche 2005; Feral & Peche 2007). This solves for l.
    """
    noise = off_std**2 * size
    lifted = (values + np.sqrt(np.maximum(values**2 - 4 * noise, 0.0))) / 2
    found: FloatArray = np.where(values > 2.2 * np.sqrt(noise), lifted, 0.0)  # the edge, and a tenth
    return found


def strongest(scores: FloatArray, count: int) -> Columns:
    """Give the columns of the largest scores, in ascending order."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def standing_out(
    released: Released, columns: Columns, variances: FloatArray, components: int, level: float
) -> tuple[Columns, FloatArray]:
    """Find the rows of M that are tied to the leading eigenvectors of a block by more than noise and sampling.

    For an eigenvector v with eigenvalue w, entry j of M v has the noise s^2, and by sampling about w V_j / n, where V_j
    is the sum of squares of column j. Without a tie the k squared entries, each divided by its variance, follow a
    chi-square law with k degrees of freedom; ``level`` of them exceed the threshold.
    """
    vectors, values = leading(released.block(columns), components)
    products = released.matrix[:, columns] @ vectors
    sampling = variances[:, None] * np.maximum(values, 0.0)[None] / released.rows
    scores = (products**2 / (released.off_std**2 + sampling)).sum(axis=1)
    return np.flatnonzero(scores > chi2.isf(level, components)), scores


def pruned(released: Released, components: int, variances: FloatArray, start: Columns) -> Columns:
    """Keep the rows that stand out from noise, and repeat with these until nothing changes.

    At least as many as there are components stay. ``start`` is the support that the first round looks along.
    """
    size, kept = len(released.matrix), start
    for _ in range(MOST_ROUNDS):
        found, scores = standing_out(released, kept, variances, components, FALSE_ROWS / size)
        if found.size < components:
            found = strongest(scores, components)
        if np.array_equal(found, kept):
            break
        kept = found
    return kept


def first_guess(vectors: FloatArray) -> Columns:
    """Choose columns to start pruning from: those with the largest loadings."""
    size, components = vectors.shape
    return strongest(np.linalg.norm(vectors, axis=1), min(size, max(5 * components, int(np.sqrt(size)))))


def spread_over(size: int, columns: Columns, vectors: FloatArray) -> FloatArray:
    """Write vectors over a support as vectors over all columns."""
    whole = np.zeros((size, vectors.shape[1]))
    whole[columns] = vectors
    return whole


def largest_rows(vectors: FloatArray, values: FloatArray, most: int | None) -> Columns:
    """Give the rows in which eigenvectors explain the most, at most so many."""
    scores = np.square(vectors) @ np.maximum(values, 0.0)
    return np.arange(len(vectors)) if most is None else strongest(scores, min(most, len(vectors)))


def sparse_or_dense(released: Released, components: int, most: int | None = None) -> tuple[FloatArray, Columns]:
    """Give the components, as columns, and their support: sparse where few rows hold what the matrix shows.

    Sparse if pruning leaves at most a quarter of the columns, the last component on them is above the edge of noise
    there, and they hold more than half of what the dense components show. Dense otherwise. ``most`` limits the support
    in either case.
    """
    vectors, support = _sparse_or_dense(released, components)
    if most is None or support.size <= most:
        return vectors, support
    values = np.einsum("dk,de,ek->k", vectors, released.matrix, vectors)
    kept = largest_rows(vectors, values, most)
    return spread_over(len(released.matrix), kept, leading(released.block(kept), components)[0]), kept


def _sparse_or_dense(released: Released, components: int) -> tuple[FloatArray, Columns]:
    size = len(released.matrix)
    dense, _ = leading(released.matrix, components)
    everything = np.arange(size)
    support = pruned(released, components, released.diagonal, first_guess(dense))
    if not components <= support.size <= size // DENSE_FRACTION:
        return dense, everything
    block = released.block(support)
    vectors, values = leading(block, components)
    edge = 2 * released.off_std * np.sqrt(support.size) + np.median(np.diagonal(block))
    if values[-1] <= edge or values.sum() <= np.trace(dense.T @ released.matrix @ dense) / 2:
        return dense, everything
    return spread_over(size, support, vectors), support


def matrix_noise(released: Released, components: FloatArray) -> EigenNoise:
    """Tell how reliable components are that were read off a released matrix, or off a block of it."""
    columns = np.flatnonzero(components.any(axis=1))
    block, vectors = released.block(columns), components[columns]
    values = np.einsum("dk,de,ek->k", vectors, block, vectors)
    sure = eigen_noise(values, vectors, float(np.trace(block)), (released.off_std, released.off_std))
    return EigenNoise(sure.values, spread_over(len(components), columns, sure.loading_std))
