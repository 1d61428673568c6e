"""What components explain: the second moments of the rows' scores, asked for once the components are known.

The releases from which components are found cannot say this. There, rows are clipped to need less noise, and nobody
knows how much of a component the clipped rows had. So a share of the budget goes to a question of its own, about the
scores alone. They are clipped only at twice the longest length that a histogram of them clearly shows. An answer about
few numbers needs little noise, so there is room for that.

The components were released before, so both queries are about public axes. Their sensitivities hold whatever these are
(``dpspca.common.queries.views``), and their shares are fixed in the plan.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dpspca.common.algorithms.steps import EXPLAINING
from dpspca.common.arrays import FloatArray
from dpspca.common.job import JobSpec
from dpspca.common.plan import PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import MAX_AXES, Extent, NormHistogram, RowQuery, View, ViewProduct

from .view_steps import CLEAR, ReleasedFacts

_HISTOGRAM: Final = 0.2
"""The share of the two queries' budget that the histogram of lengths has."""
_BEYOND: Final = 2.0
"""Scores are clipped at this multiple of the longest length that is clear of noise. It hides few longer rows."""
_TOGETHER: Final = (1, 2, 3)
_REST: Final = 2.0**-7
"""The factor of a row's part across the components, as a part of their own. At 0 the lattice would be too coarse for
rows far shorter than the norm bound. The answer along the components does not depend on it."""


@dataclass(frozen=True, eq=False, slots=True)
class ScoreVariances:
    """The sum of squared scores of each component, and the standard deviation of its noise."""

    values: FloatArray
    noise_std: float
    parties: int

    def in_order(self, kept: int) -> "ScoreVariances":
        """Put the largest of the first ``kept`` first."""
        return replace(self, values=np.append(-np.sort(-self.values[:kept]), self.values[kept:]))


def explains_scores(spec: JobSpec) -> bool:
    """Return whether the plan asks about scores: a view has no more axes than ``MAX_AXES``."""
    return spec.explained_variance and spec.components <= MAX_AXES


def planned_variances(spec: JobSpec, columns: int, share: float) -> list[PlannedQuery]:
    """Plan both queries, for components that at most so many columns take part in."""
    extent = Extent(spec.schema.dimension, spec.components, columns)
    return [
        PlannedQuery("lengths of scores", NormHistogram, extent, _HISTOGRAM * share),
        PlannedQuery(EXPLAINING, ViewProduct, extent, (1 - _HISTOGRAM) * share),
    ]


def ask_variances(facts: ReleasedFacts, components: FloatArray) -> Generator[RowQuery, Aggregate, ScoreVariances]:
    """Ask for the second moments of the scores on components, given as columns.

    If noise hid how long rows are, each row is clipped to one length, and its scores are those of that.
    """
    columns = np.flatnonzero(components.any(axis=1))
    axes, across = components[columns], facts.gain * (1.0 if facts.hidden else _REST)
    view = View(facts.dimension, columns, across, axes, facts.gain)
    histogram = yield NormHistogram(view, facts.center, facts.scales)
    length = 1.0 if facts.hidden else length_beyond(histogram.values, histogram.noise_std)
    asked = View(facts.dimension, columns, across / length, axes, facts.gain / length)
    answer = yield ViewProduct(asked, facts.center, facts.scales)
    values = np.einsum("ij,ij->j", axes, answer.values) * length**2
    return ScoreVariances(values, answer.noise_std * length**2, answer.parties)


def length_beyond(counts: FloatArray, noise_std: float) -> float:
    """Return where to clip, as a multiple of the norm bound: the bound itself if noise hides all lengths.

    Long rows may be spread over several bins, none of which is clear. So bins also count together with the one or two
    for longer rows, which are still below twice the length at the longer edge of a bin.
    """
    clear = np.zeros(len(counts), dtype=bool)
    for together in _TOGETHER:
        sums = np.convolve(counts, np.ones(together))[: len(counts)]
        clear |= sums > CLEAR * noise_std * math.sqrt(together)
    longest = np.flatnonzero(clear)
    return float(min(1.0, _BEYOND * 2.0 ** ((1 - longest[0]) / 2))) if longest.size else 1.0
