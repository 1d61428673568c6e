"""Structure that a released matrix shows for free: leading eigenvectors, and rows that stand out from noise.

Everything here is post-processing of released numbers, so it costs no budget. M is X^T X plus noise, made symmetric.
``off_std`` is the standard deviation of the noise off the diagonal of M. On the diagonal it is sqrt(2) times larger:
the noise is that of the Gaussian orthogonal ensemble, equal in all directions of the Frobenius norm.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.special import chdtri

from dpspca.common.arrays import FloatArray
from dpspca.common.results import varimax

from .eigen_noise import EntryNoise, ways_to_choose

Columns = NDArray[np.intp]

FALSE_ROWS: Final = 0.1
"""Average number of columns that pruning keeps by mistake if there is only noise."""
MOST_ROUNDS: Final = 8
"""Largest number of pruning rounds. Most prunings end after three."""
ROTATIONS: Final = 30
"""Largest number of steps of a rotation that only has to choose a start."""
DENSE_FRACTION: Final = 4
"""A structure is sparse if its support has at most a quarter of the columns."""
PART: Final = 0.9
"""And if its components hold more than this part of what all columns hold. The largest loadings of a weak dense
component, chosen together with their noise, hold most of it, too."""


@dataclass(frozen=True, slots=True)
class ReleasedMatrix:
    """A released matrix, its noise off the diagonal, and the numbers of rows and of providers that it sums over.

    If the noise is not the same in all directions, ``noise`` describes it, and ``off_std`` is that beside the leading
    components.
    """

    matrix: FloatArray
    off_std: float
    rows: float
    parties: int = 1
    noise: EntryNoise | None = None
    _found: dict[int, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False, compare=False)

    def leading(self, count: int) -> tuple[FloatArray, FloatArray]:
        """Return the leading eigenvectors and eigenvalues, computed once: of thousands of columns they take minutes."""
        if count not in self._found:
            self._found[count] = leading(self.matrix, count)
        vectors, values = self._found[count]
        return vectors.copy(), values.copy()

    @property
    def diagonal(self) -> FloatArray:
        """The sum of squares of each column. Sums that noise made negative are 0."""
        diagonal: FloatArray = np.maximum(np.diagonal(self.matrix), 0.0)
        return diagonal

    def block(self, columns: Columns) -> FloatArray:
        """Return the submatrix of some columns."""
        block: FloatArray = self.matrix[np.ix_(columns, columns)]
        return block

    def of(self, columns: Columns) -> "ReleasedMatrix":
        """Return the same for some columns."""
        noise = self.noise and self.noise.on(columns)
        return ReleasedMatrix(self.block(columns), self.off_std, self.rows, self.parties, noise)

    def noise_beside(self, vectors: FloatArray) -> FloatArray:
        """Return the variance of the noise between each of these vectors and the directions beside them."""
        return (self.noise or EntryNoise.equal(len(self.matrix), self.off_std)).squares(vectors)[1]

    def joined(self, other: "ReleasedMatrix") -> "ReleasedMatrix":
        """Return the average of two releases of the same sum, weighted by inverse variance."""
        own, others = self.off_std**-2, other.off_std**-2
        matrix = (self.matrix * own + other.matrix * others) / (own + others)
        return ReleasedMatrix(matrix, (own + others) ** -0.5, self.rows, min(self.parties, other.parties))


def leading(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvectors of the largest eigenvalues as columns, the largest first, and these eigenvalues."""
    size = len(matrix)
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[size - count, size - 1])
    return vectors[:, ::-1], values[::-1]


def debiased(values: FloatArray, off_std: float, size: int, beside: FloatArray | None = None) -> FloatArray:
    """Estimate the eigenvalues of the matrix without noise. An eigenvalue that noise alone explains becomes 0.

    Noise of the Gaussian orthogonal ensemble has its edge at 2 s sqrt(p). It increases an eigenvalue l above the edge
    to l + s^2 p / l (Baik, Ben Arous & Peche 2005; Feral & Peche 2007). This function solves for l. If the variance of
    the noise beside a direction differs from that in the rest, it is in the place of s^2, but the edge is that of the
    rest.
    """
    noise = off_std**2 * size
    increase = noise if beside is None else beside * size
    lifted = (values + np.sqrt(np.maximum(values**2 - 4 * increase, 0.0))) / 2
    found: FloatArray = np.where(values > 2.2 * np.sqrt(noise), lifted, 0.0)  # the edge plus 10 percent
    return found


def strongest(scores: FloatArray, count: int) -> Columns:
    """Return the columns with the largest scores, in ascending order."""
    return np.sort(np.argsort(-scores, kind="stable")[:count])


def standing_out(
    released: ReleasedMatrix, columns: Columns, variances: FloatArray, components: int, level: float
) -> tuple[Columns, FloatArray]:
    """Find the rows of M that correlate with the leading eigenvectors of a block beyond noise and sampling error.

    For an eigenvector v with eigenvalue w, entry j of M v has variance s^2 from noise, and about w V_j / n from
    sampling, where V_j is the sum of squares of column j. If column j is not correlated, the sum of the k squared
    entries, each divided by its variance, has a chi-square distribution with k degrees of freedom. It exceeds the
    threshold with probability ``level``.
    """
    vectors, values = leading(released.block(columns), components)
    products = released.matrix[:, columns] @ vectors
    sampling = variances[:, None] * np.maximum(values, 0.0)[None] / released.rows
    noise = released.of(columns).noise_beside(vectors)
    scores = (products**2 / (noise + sampling)).sum(axis=1)
    return np.flatnonzero(scores > chdtri(components, level)), scores


def pruned(released: ReleasedMatrix, components: int, variances: FloatArray, start: Columns) -> Columns:
    """Keep the rows that stand out from noise, and repeat with these rows until nothing changes.

    At least as many rows as components are kept. ``start`` is the support in the first round.
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
    """Choose the columns from which pruning starts: those with the largest loadings on each component.

    Components are rotated first, so that each has few large loadings. Every component gets its share of the columns,
    because pruning finds only what correlates with its start: a component without a column there would be lost.
    """
    size, components = vectors.shape
    loadings = np.abs(vectors @ varimax(vectors.T, ROTATIONS))
    places = np.argsort(np.argsort(-loadings, axis=0, kind="stable"), axis=0, kind="stable").min(axis=1)
    return strongest(-places, min(size, max(5 * components, int(np.sqrt(size)))))


def spread_over(size: int, columns: Columns, vectors: FloatArray) -> FloatArray:
    """Return vectors over a support as vectors over all columns."""
    whole = np.zeros((size, vectors.shape[1]))
    whole[columns] = vectors
    return whole


def largest_rows(vectors: FloatArray, values: FloatArray, most: int | None) -> Columns:
    """Return the rows in which eigenvectors explain the most, at most ``most`` of them."""
    scores = np.square(vectors) @ np.maximum(values, 0.0)
    return np.arange(len(vectors)) if most is None else strongest(scores, min(most, len(vectors)))


def sparse_or_dense(released: ReleasedMatrix, components: int, most: int | None = None) -> tuple[FloatArray, Columns]:
    """Return the components, as columns, and their support, which is sparse if few columns explain the matrix.

    It is sparse if pruning keeps at most a quarter of the columns, no component on them is lost in the noise there, the
    first is above what chance finds (``_is_by_chance``), and they hold at least ``PART`` of what all columns hold.
    Otherwise it is dense. ``most`` limits the support in either case.
    """
    vectors, support = _sparse_or_dense(released, components)
    if most is None or support.size <= most:
        return vectors, support
    values = np.einsum("dk,de,ek->k", vectors, released.matrix, vectors)
    kept = largest_rows(vectors, values, most)
    return spread_over(len(released.matrix), kept, leading(released.block(kept), components)[0]), kept


def _sparse_or_dense(released: ReleasedMatrix, components: int) -> tuple[FloatArray, Columns]:
    size = len(released.matrix)
    dense, _ = released.leading(components)
    everything = np.arange(size)
    support = pruned(released, components, released.diagonal, first_guess(dense))
    if not components <= support.size <= size // DENSE_FRACTION:
        return dense, everything
    block = released.block(support)
    vectors, values = leading(block, components)
    least = 2 * released.off_std * np.sqrt(support.size) + np.median(np.diagonal(block))
    if values[-1] <= least or is_by_chance(released, support, 1):
        return dense, everything
    if _held(released, support, components) <= PART * _held(released, everything, components):
        return dense, everything
    return spread_over(size, support, vectors), support


def is_by_chance(released: ReleasedMatrix, columns: Columns, components: int) -> bool:
    """Tell whether a matrix of noise has a block of as many columns with as large an eigenvalue, if one looks for it.

    It is about the last of the components on these columns. The bulk is around the median of the block's diagonal.
    """
    block = released.block(columns)
    value = leading(block, components)[1][-1]
    return bool(value <= chance_edge(released, len(columns)) + np.median(np.diagonal(block)))


def chance_edge(released: ReleasedMatrix, size: int) -> float:
    """Return about the largest eigenvalue of the best block of so many columns, if the matrix is noise."""
    return 2 * released.off_std * math.sqrt(ways_to_choose(size, len(released.matrix)))


def _held(released: ReleasedMatrix, columns: Columns, components: int) -> float:
    """Estimate what components on some columns explain beyond an average column, without noise."""
    block = released.of(columns)
    vectors, values = block.leading(components)
    above = values - np.median(released.diagonal)
    return float(debiased(above, released.off_std, len(columns), block.noise_beside(vectors)).sum())
