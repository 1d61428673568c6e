"""Queries about views: histograms of the lengths of rows, and second moments of rows clipped at a private bound."""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dpspca.common.algorithms.steps import Columns, ReleasedMatrix
from dpspca.common.arrays import FloatArray
from dpspca.common.job import JobSpec
from dpspca.common.privacy import usable_mu
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import LARGEST_RANGE, NormHistogram, NormRange, RowQuery, View, ViewCovariance, ViewSquares

from .clip_choice import Lengths

NORMS: Final = 0.01
"""Share of mu^2 for each histogram of norms."""
CLEAR: Final = 4
"""Times its noise, from which a bin shows rows: noise alone is so large in one histogram of a thousand."""
TOGETHER: Final = (1, 2, 3)
"""Bins that count together where the longest rows are looked for."""
SHORTEST: Final = 2.0**-60
"""Shorter than any row worth looking at, in any units."""
LEAST_KEPT: Final = 0.05
_KEPT: Final = ((0.1, 0.95), (0.3, 0.75), (1.0, 0.5), (math.inf, LEAST_KEPT))
"""The share of rows that are not clipped, up to each strain: fitted on five tables, and checked on others."""


@dataclass(frozen=True, slots=True)
class ReleasedFacts:
    """Public facts and released numbers that every stage needs."""

    spec: JobSpec
    center: FloatArray | None
    rows: float
    sparsity: int | None
    scales: FloatArray | None = None
    """The scales by which columns are divided."""
    gain: float = 1.0
    """Factor that rows are multiplied by, so that they are not much shorter than the norm bound."""
    hidden: bool = False
    """Whether noise hid how long rows are where no bound is known, so that all are clipped to one length."""

    def view(self, columns: Columns | None = None) -> View:
        """Return the view of some columns, or of all, scaled by the gain."""
        return View(self.dimension, np.arange(self.dimension) if columns is None else columns, self.gain)

    @property
    def components(self) -> int:
        return self.spec.components

    @property
    def dimension(self) -> int:
        return self.spec.schema.dimension


@dataclass(frozen=True, slots=True)
class Reach:
    """Where rows are clipped, as a multiple of the norm bound, and which part of their second moments that leaves.

    As far as noisy counts show, hardly any row is longer than ``longest``.
    """

    length: float
    left: float = 1.0
    longest: float = 1.0


SHORT: Final = Reach(2.0**-6, 2 * 2.0**-12)
"""For when noise hides how long rows are. Then it rules all else, too, and each row should count as much as it can.

So nearly all rows are clipped, to one length. How long they were before is not known: second moments are given as if
rows had half the squared length of the bound.
"""


def ask_reach(
    facts: ReleasedFacts,
    view: View,
    hidden: Reach = Reach(1.0),  # it cannot be changed
) -> Generator[RowQuery, Aggregate, Reach]:
    """Ask for a histogram of the lengths of a view's rows. Return where to clip; ``hidden`` if noise hides them."""
    histogram = yield NormHistogram(view, facts.center, facts.scales)
    counts, noise_std = histogram.values, histogram.noise_std
    if not (counts > CLEAR * noise_std).any():
        return hidden
    length = quantile(counts, noise_std, facts.rows, kept_part(facts, len(view.columns)))
    return Reach(length, part_left(counts, noise_std, length), length_beyond(counts, noise_std) or 1.0)


def length_beyond(counts: FloatArray, noise_std: float) -> float | None:
    """Return twice the longest length that is clear of noise, as a multiple of the norm bound, or None if none is.

    Long rows may be spread over several bins, so that no bin is clear. So bins also count together with the one or two
    for longer rows, which are still below twice the length at the longer edge of a bin.
    """
    clear = np.zeros(len(counts), dtype=bool)
    for together in TOGETHER:
        sums = np.convolve(counts, np.ones(together))[: len(counts)]
        clear |= sums > CLEAR * noise_std * math.sqrt(together)
    longest = np.flatnonzero(clear)
    return float(min(1.0, 2 * 2.0 ** ((1 - longest[0]) / 2))) if longest.size else None


def part_left(counts: FloatArray, noise_std: float, length: float) -> float:
    """Return which part of the sum of squares is left if rows are clipped to this multiple of the norm bound."""
    return clear_lengths(counts, noise_std).left(length**2)


def clear_lengths(counts: FloatArray, noise_std: float) -> Lengths:
    """Return the lengths of the rows in those bins that noise alone does not explain."""
    return Lengths.in_bins(np.where(counts > CLEAR * noise_std, counts, 0.0))


def kept_part(facts: ReleasedFacts, columns: int) -> float:
    """Choose the share of rows that is not clipped. A tighter bound loses some signal, but saves more noise.

    The rule depends on d^1.5 / (mu n) for d columns, the size of the noise relative to a typical row. If noise rules,
    nearly all rows are clipped to one length. Then a short row counts as much as a long one, for the same noise.
    """
    mu = usable_mu(facts.spec.budget.epsilon, facts.spec.budget.delta)
    strain = columns**1.5 / (mu * facts.rows)
    return next(keep for most, keep in _KEPT if strain < most)


def quantile(counts: FloatArray, noise_std: float, rows: float, keep: float) -> float:
    """Return the norm that a share ``keep`` of the rows does not exceed, from a histogram, as a multiple of C.

    Bins are summed from the largest norm down, beginning with the first bin that noise alone does not explain. If there
    is none, or if rows exceed the norm bound, the result is the norm bound itself.
    """
    clear = np.flatnonzero(counts > 3 * noise_std)
    if not clear.size:
        return 1.0
    beyond, target = 0.0, (1 - keep) * rows
    for place in range(int(clear[0]), len(counts)):
        here = max(float(counts[place]), 0.0)
        if beyond + here >= target:
            part = (target - beyond) / here if here else 0.0
            return float(min(1.0, 2.0 ** ((1 - place - part) / 2)))
        beyond += here
    return float(2.0 ** (-(len(counts) - 2) / 2))


def ask_gain(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, ReleasedFacts]:
    """Ask for the range of lengths if no bound is known. Choose the gain that brings 98 percent of rows below it.

    If noise hides them, choose a gain that makes every row longer than the bound, so that all are clipped to it.
    """
    answer = yield NormRange(facts.dimension, facts.center)
    if not (answer.values > CLEAR * answer.noise_std).any():
        return replace(facts, gain=facts.spec.norm_bound / SHORTEST, hidden=True)
    return replace(facts, gain=facts.spec.norm_bound / longest(answer.values, answer.noise_std, facts.rows))


def longest(counts: FloatArray, noise_std: float, rows: float) -> float:
    """Return a length that at most 2 percent of the rows exceed, from a range of norms, to a factor of 16."""
    clear = np.flatnonzero(counts > CLEAR * noise_std)
    first = int(clear[0]) if clear.size else int(np.argmax(counts))
    beyond = np.cumsum(np.maximum(counts[first:], 0.0))
    place = first + int(np.argmax(beyond >= min(rows / 50, beyond[-1])))
    return float(LARGEST_RANGE * 16.0 ** (1 - max(place, 1)))


def ask_covariance(facts: ReleasedFacts, view: View, reach: Reach) -> Generator[RowQuery, Aggregate, ReleasedMatrix]:
    """Ask for the second moments of a clipped view. Return them unscaled, as they were before rows were clipped."""
    asked = replace(view, scale=view.scale / reach.length, along=view.factors[1] / reach.length)
    answer = yield ViewCovariance(asked, facts.center, facts.scales)
    unit = reach.length**2 / reach.left
    matrix = (answer.values + answer.values.T) * (unit / 2)
    return ReleasedMatrix(matrix, answer.noise_std * unit / math.sqrt(2), facts.rows, answer.parties)


def ask_diagonal(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, FloatArray]:
    """Ask for the sum of squares of every column."""
    return (yield from ask_squares(facts))[0]


def ask_squares(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, tuple[FloatArray, float]]:
    """Ask for the sum of squares of every column; give the noise of each sum, too."""
    view = facts.view()
    norms = yield NormHistogram(view, facts.center, facts.scales, 2)
    reach = quantile(norms.values, norms.noise_std, facts.rows, 0.95)
    asked = replace(view, scale=view.scale * reach**-0.5, along=None)
    answer = yield ViewSquares(asked, facts.center, facts.scales)
    return answer.values * reach, answer.noise_std * reach
