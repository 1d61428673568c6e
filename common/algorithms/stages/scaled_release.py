"""The scaled release: the second moments of a block again, at the scale of the components found in it."""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from scipy.special import chdtri

from dpspca.common.algorithms.steps import FALSE_ROWS, Choice, Columns, EntryNoise, ReleasedMatrix, eigen_noise, leading
from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import NormHistogram, RowQuery, View, ViewCovariance

from .clip_choice import CHOICES, Clip, best_clip
from .view_steps import ReleasedFacts, clear_lengths, kept_part, quantile

SHORTEST_PART: Final = 2.0**-18
"""Least length of a part of the rows in the scaled release, as a multiple of the norm bound (lattice resolution)."""

_MOST_CORRECTED: Final = 4.0
"""Largest factor by which what clipping took is made up for."""
LEAST_REST: Final = 0.02
"""Least sum of squares of the rest of the rows, as a part of that along the components."""


@dataclass(frozen=True, eq=False, slots=True)
class KnownBlock:
    """Known facts about a block of columns before its scaled release.

    ``matrix`` holds the released second moments. ``axes`` is an orthogonal matrix; its first columns are the components
    that were found, with eigenvalues ``values``. ``stds`` is the standard deviation of the noise in each entry of the
    matrix in these axes. ``levels`` is, for each column, the probability of keeping it if it has no part in the
    components. ``chosen`` says from what these were chosen by the same numbers.
    """

    columns: Columns
    matrix: FloatArray
    axes: FloatArray
    values: FloatArray
    stds: FloatArray
    levels: FloatArray
    parties: int
    chosen: Choice | None = None

    @classmethod
    def of(cls, columns: Columns, block: ReleasedMatrix, components: int, chosen: Choice | None = None) -> Self:
        """Start from the components of a block whose entries all have the same noise."""
        vectors, values = block.leading(components)
        size = len(columns)
        stds, levels = np.full((size, size), block.off_std), np.full(size, FALSE_ROWS / size)
        return cls(columns, block.matrix, completed(vectors), values, stds, levels, block.parties, chosen)

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
        chosen = self.chosen and replace(self.chosen, count=self.chosen.count + new.size)
        return type(self)(columns, matrix, axes, self.values, stds, levels, self.parties, chosen)


@dataclass(frozen=True, slots=True)
class Stretch:
    """By what a view divides the two parts of a row: that along the first ``count`` axes, and the rest."""

    count: int
    along: float
    rest: float


@dataclass(frozen=True, eq=False, slots=True)
class Restored:
    """Second moments in given axes, and the noise of each entry, after the scaling of a view was undone."""

    matrix: FloatArray
    stds: FloatArray
    parties: int

    def calibrated(self, along: FloatArray, rest: float) -> "Restored":
        """Correct for what clipping took: it takes more from long directions than from others.

        ``along`` are the sums of squares along the first axes before rows were clipped, and ``rest`` is that in all
        others. An axis i that has to be turned towards a direction j shows this as the regression of j on i. Its
        coefficient, entry (i, j) over entry (i, i), is hardly changed by weights that depend on the part along i. So
        what scales entry (i, i) right also does so for all entries beside it.
        """
        count = len(along)
        shown = np.maximum(np.diagonal(self.matrix)[:count], along / _MOST_CORRECTED)
        parts, others = along / shown, max(float(np.trace(self.matrix[count:, count:])), rest / _MOST_CORRECTED)
        factor = np.full_like(self.matrix, rest / others)
        factor[:count, :count] = np.sqrt(np.outer(parts, parts))
        factor[:count, count:], factor[count:, :count] = parts[:, None], parts[None]
        return Restored(self.matrix * factor, self.stds * factor, self.parties)

    def joined(self, other: "Restored") -> "Restored":
        """Return the average of two releases in the same axes, weighted entry by entry by inverse variance."""
        own, others = self.stds**-2, other.stds**-2
        matrix = (own * self.matrix + others * other.matrix) / (own + others)
        return Restored(matrix, (own + others) ** -0.5, min(self.parties, other.parties))


@dataclass(frozen=True, eq=False, slots=True)
class ScaledView:
    """A view at the scale of components: ``axes`` is an orthogonal matrix whose first columns are these.

    Noise is the same in all directions of the Frobenius norm. So after the scaling is undone, entries between parts
    that were divided by a and b carry noise in proportion to a b.
    """

    facts: ReleasedFacts
    columns: Columns
    axes: FloatArray
    stretch: Stretch

    @property
    def unit(self) -> float:
        """Length of each part of a typical row after scaling, far below the norm bound."""
        return self.facts.spec.norm_bound / 4

    @property
    def view(self) -> View:
        scale = self.facts.gain * self.unit
        stretch = self.stretch
        axes = np.zeros((len(self.columns), self.facts.components))  # as many as planned; those of zeros do nothing
        axes[:, : stretch.count] = self.axes[:, : stretch.count]
        return View(self.facts.dimension, self.columns, scale / stretch.rest, axes, scale / stretch.along)

    def ask_clip(self, budget_ratio: float) -> Generator[RowQuery, Aggregate, Clip]:
        """Ask for a histogram of the scaled rows' lengths. Choose where to clip them; nowhere if noise hides lengths.

        ``budget_ratio`` is how many times the budget of the histogram the release has. So its noise is known.
        """
        facts, size = self.facts, len(self.columns)
        histogram = yield NormHistogram(self.view, facts.center, facts.scales)
        counts, noise_std = histogram.values, histogram.noise_std
        lengths = clear_lengths(counts, noise_std)
        if not lengths.rows @ lengths.squares:
            return Clip(1.0, 1.0, 1.0, math.inf)
        parts = self.stretch.count, max(size - self.stretch.count, 1)
        kept = {*CHOICES, kept_part(facts, size)}
        squares = [quantile(counts, noise_std, facts.rows, each) ** 2 for each in sorted(kept)]
        return best_clip(squares, lengths, parts, noise_std / math.sqrt(2 * budget_ratio))

    def back(self, clip: Clip) -> FloatArray:
        """Return the factor that undoes the scaling of each entry, and makes up for what clipping takes."""
        count = self.stretch.count
        lengths = np.full(len(self.columns), self.stretch.rest)
        lengths[:count] = self.stretch.along
        factor = np.outer(lengths, lengths) * clip.square / self.unit**2 / clip.left
        factor[:count, count:] /= clip.turn
        factor[count:, :count] /= clip.turn
        return factor

    def ask(self, clip: Clip) -> Generator[RowQuery, Aggregate, Restored]:
        """Ask for the second moments of the view, clipped there."""
        view, length = self.view, math.sqrt(clip.square)
        asked = replace(view, scale=view.scale / length, along=view.factors[1] / length)
        answer = yield ViewCovariance(asked, self.facts.center, self.facts.scales)
        released, back = (answer.values + answer.values.T) / 2, self.back(clip)
        return Restored(
            (self.axes.T @ released @ self.axes) * back, answer.noise_std / math.sqrt(2) * back, answer.parties
        )


@dataclass(frozen=True, eq=False, slots=True)
class ScaledBlock:
    """The result of a scaled release: components over the block's columns, and their noise.

    ``vectors`` are the components before columns were left out that noise and sampling explain.
    """

    components: FloatArray
    vectors: FloatArray
    values: FloatArray
    loading_std: FloatArray
    noise_std: float
    parties: int


def ask_scaled(
    facts: ReleasedFacts, known: KnownBlock, diagonal: FloatArray, budget_ratio: float
) -> Generator[RowQuery, Aggregate, ScaledBlock]:
    """Ask for the block again. The part along the components and the rest are each divided by their own length.

    The two releases are averaged entry by entry in these axes. ``budget_ratio`` is how many times the budget of a
    histogram of norms the second release has.
    """
    size, count = len(known.columns), facts.components
    unit = facts.spec.norm_bound / 4
    shortest = (unit * SHORTEST_PART) ** 2
    there = max(float(known.values.sum()) / facts.rows, shortest)
    rest = math.sqrt(max(float(np.trace(known.matrix)) / facts.rows - there, LEAST_REST * there, shortest))
    scaled = ScaledView(facts, known.columns, known.axes, Stretch(count, math.sqrt(there), rest))
    clip = yield from scaled.ask_clip(budget_ratio)
    second = yield from scaled.ask(clip)
    first = Restored(known.axes.T @ known.matrix @ known.axes, known.stds, known.parties)
    joined = first.joined(second)
    found, explained = leading(joined.matrix, count)
    vectors = known.axes @ found
    noise = EntryNoise(size, joined.stds, known.axes)
    reliability = eigen_noise(known.axes @ joined.matrix @ known.axes.T, vectors, noise, known.chosen)
    least = min(float(second.stds[0, -1]), float(known.stds[0, 0]))
    components = without_noise_rows(facts, known, vectors, explained, least, diagonal)
    inner = float(joined.stds[0, 0])
    return ScaledBlock(
        components, vectors, reliability.values, reliability.loading_std, math.sqrt(2) * inner, joined.parties
    )


def without_noise_rows(  # noqa: PLR0913, PLR0917  # numbers that belong together nowhere else
    facts: ReleasedFacts,
    known: KnownBlock,
    vectors: FloatArray,
    values: FloatArray,
    off_std: float | FloatArray,
    diagonal: FloatArray,
) -> FloatArray:
    """Set those rows of the components to zero that noise and sampling alone explain."""
    count = vectors.shape[1]
    rest = np.maximum(diagonal - np.square(vectors) @ values, 0.2 * np.median(np.maximum(diagonal, 0)))
    most = np.maximum(values, off_std)[None]
    variance = (np.square(off_std) + rest[:, None] * most / facts.rows) / most**2
    keep = np.flatnonzero((np.square(vectors) / variance).sum(axis=1) > chdtri(count, known.levels))
    if keep.size < count:
        return vectors
    cut = np.zeros_like(vectors)
    cut[keep] = thin_qr(vectors[keep])[0]
    return cut


def completed(vectors: FloatArray) -> FloatArray:
    """Complete orthonormal columns to a square orthogonal matrix."""
    left, _, _ = np.linalg.svd(vectors, full_matrices=True)
    left[:, : vectors.shape[1]] = vectors
    return left
