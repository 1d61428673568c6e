"""The scaled release: the second moments of a block again, at the scale of the components found in it."""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from scipy.special import chdtri

from dpspca.common.algorithms.steps import FALSE_ROWS, Columns, ReleasedMatrix, eigen_noise, leading
from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import NormHistogram, RowQuery, View, ViewCovariance

from .clip_choice import CHOICES, Clip, best_clip
from .view_steps import ReleasedFacts, clear_lengths, kept_part, quantile

SHORTEST_PART: Final = 2.0**-18
"""Least length of a part of the rows in the scaled release, as a multiple of the norm bound (lattice resolution)."""


@dataclass(frozen=True, eq=False, slots=True)
class KnownBlock:
    """Known facts about a block of columns before its scaled release.

    ``matrix`` holds the released second moments. ``axes`` is an orthogonal matrix; its first columns are the components
    that were found, with eigenvalues ``values``. ``stds`` is the standard deviation of the noise in each entry of the
    matrix in these axes. ``levels`` is, for each column, the probability of keeping it if it has no part in the
    components.
    """

    columns: Columns
    matrix: FloatArray
    axes: FloatArray
    values: FloatArray
    stds: FloatArray
    levels: FloatArray
    parties: int

    @classmethod
    def of(cls, columns: Columns, block: ReleasedMatrix, components: int) -> Self:
        """Start from the components of a block whose entries all have the same noise."""
        vectors, values = leading(block.matrix, components)
        size = len(columns)
        stds, levels = np.full((size, size), block.off_std), np.full(size, FALSE_ROWS / size)
        return cls(columns, block.matrix, _completed(vectors), values, stds, levels, block.parties)

    def widened(self, added: Columns, whole: ReleasedMatrix | None, diagonal: FloatArray) -> Self:
        """Add columns, known only from the whole matrix or from the diagonal, as further axes."""
        columns = np.union1d(self.columns, added)
        if columns.size == self.columns.size:
            return self
        old, new = np.searchsorted(columns, self.columns), np.searchsorted(columns, np.setdiff1d(added, self.columns))
        size, inner = columns.size, self.columns.size
        matrix = np.diag(diagonal[columns]) if whole is None else whole.block(columns)
        axes, stds = np.zeros((size, size)), np.full((size, size), np.inf if whole is None else whole.off_std)
        matrix[np.ix_(old, old)] = self.matrix
        axes[old, :inner], axes[new, np.arange(inner, size)] = self.axes, 1.0
        stds[:inner, :inner] = self.stds
        levels = np.full(size, FALSE_ROWS / len(diagonal))
        levels[old] = self.levels
        return type(self)(columns, matrix, axes, self.values, stds, levels, self.parties)


@dataclass(frozen=True, eq=False, slots=True)
class ScaledBlock:
    """The result of a scaled release: components over the block's columns, and their noise."""

    components: FloatArray
    values: FloatArray
    loading_std: FloatArray
    noise_std: float
    parties: int


def ask_scaled(
    facts: ReleasedFacts, known: KnownBlock, diagonal: FloatArray, budget_ratio: float
) -> Generator[RowQuery, Aggregate, ScaledBlock]:
    """Ask for the block again. The part along the components and the rest are each divided by their own length.

    Noise is the same in all directions of the Frobenius norm. So after the scaling is undone, entries between parts of
    lengths a and b carry noise in proportion to a b. The two releases are averaged entry by entry in these axes.
    ``budget_ratio`` is how many times the budget of a histogram of norms the second release has. So its noise is known
    when rows are clipped for it.
    """
    size, count = len(known.columns), facts.components
    unit = facts.spec.norm_bound / 4  # length of each part of a typical row after scaling, far below the norm bound
    shortest = (unit * SHORTEST_PART) ** 2
    there = max(float(known.values.sum()) / facts.rows, shortest)
    along = math.sqrt(there)
    rest = math.sqrt(max(float(np.trace(known.matrix)) / facts.rows - there, 0.02 * there, shortest))
    factors = facts.gain * unit / rest, facts.gain * unit / along
    view = View(facts.dimension, known.columns, factors[0], known.axes[:, :count], factors[1])
    clip = yield from _ask_clip(facts, view, budget_ratio)
    length = math.sqrt(clip.square)
    asked = replace(view, scale=view.scale / length, along=view.factors[1] / length)
    answer = yield ViewCovariance(asked, facts.center, facts.scales)
    released = (answer.values + answer.values.T) / 2
    back = length / unit / math.sqrt(clip.left)
    lengths = np.concatenate([np.full(count, along), np.full(size - count, rest)]) * back
    scale = np.outer(lengths, lengths)
    scale[:count, count:] /= clip.turn
    scale[count:, :count] /= clip.turn
    second = (known.axes.T @ released @ known.axes) * scale
    second_std = answer.noise_std / math.sqrt(2) * scale
    first = known.axes.T @ known.matrix @ known.axes
    weight = second_std**-2 / (second_std**-2 + known.stds**-2)
    joined = weight * second + (1 - weight) * first
    found, explained = leading(joined, count)
    joined_std = (second_std**-2 + known.stds**-2) ** -0.5
    inner, outer = float(joined_std[0, 0]), float(joined_std[0, -1])
    vectors = known.axes @ found
    reliability = eigen_noise(known.axes @ joined @ known.axes.T, vectors, (inner, outer))
    least = min(float(second_std[0, -1]), float(known.stds[0, 0]))
    components = _without_noise_rows(facts, known, vectors, explained, least, diagonal)
    parties = min(answer.parties, known.parties)
    return ScaledBlock(components, reliability.values, reliability.loading_std, math.sqrt(2) * inner, parties)


def _ask_clip(facts: ReleasedFacts, view: View, budget_ratio: float) -> Generator[RowQuery, Aggregate, Clip]:
    """Ask for a histogram of the scaled rows' lengths. Choose where to clip them; nowhere if noise hides lengths."""
    histogram = yield NormHistogram(view, facts.center, facts.scales)
    counts, noise_std = histogram.values, histogram.noise_std
    lengths, size = clear_lengths(counts, noise_std), len(view.columns)
    if not lengths.rows @ lengths.squares:
        return Clip(1.0, 1.0, 1.0, math.inf)
    parts = facts.components, max(size - facts.components, 1)
    kept = {*CHOICES, kept_part(facts, size)}
    squares = [quantile(counts, noise_std, facts.rows, each) ** 2 for each in sorted(kept)]
    return best_clip(squares, lengths, parts, noise_std / math.sqrt(2 * budget_ratio))


def _without_noise_rows(  # noqa: PLR0913, PLR0917  # numbers that belong together nowhere else
    facts: ReleasedFacts,
    known: KnownBlock,
    vectors: FloatArray,
    values: FloatArray,
    off_std: float,
    diagonal: FloatArray,
) -> FloatArray:
    """Set those rows of the components to zero that noise and sampling alone explain."""
    count = vectors.shape[1]
    rest = np.maximum(diagonal - np.square(vectors) @ values, 0.2 * np.median(np.maximum(diagonal, 0)))
    most = np.maximum(values, off_std)[None]
    variance = (off_std**2 + rest[:, None] * most / facts.rows) / most**2
    keep = np.flatnonzero((np.square(vectors) / variance).sum(axis=1) > chdtri(count, known.levels))
    if keep.size < count:
        return vectors
    cut = np.zeros_like(vectors)
    cut[keep] = thin_qr(vectors[keep])[0]
    return cut


def _completed(vectors: FloatArray) -> FloatArray:
    """Complete orthonormal columns to a square orthogonal matrix."""
    left, _, _ = np.linalg.svd(vectors, full_matrices=True)
    left[:, : vectors.shape[1]] = vectors
    return left
