"""The variance that components explain: second moments of the rows' scores, asked for once the components are known.

The releases from which components are found cannot say this. There, rows are clipped to need less noise, and nobody
knows how much of a component the clipped rows had. So a share of the budget goes to a separate query about the scores
alone. Where they are clipped is a compromise: a variance has noise in proportion to the square of that length,
and scores beyond it are missing. They are clipped at twice the longest length that a histogram clearly shows, or
further out where the noise allows it.

The components were released before, so both queries are about public axes. Their sensitivities hold whatever these are
(``dpspca.common.queries.views``), and their shares are fixed in the plan.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from dpspca.common.arrays import FloatArray
from dpspca.common.job import PRIVATE_BOUND, JobSpec
from dpspca.common.plan import EXPLAINING, PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import MAX_AXES, Extent, NormHistogram, RowQuery, View, ViewProduct

from .found import Found
from .view_steps import ReleasedFacts, length_beyond

_HISTOGRAM: Final = 0.2
"""The share of the two queries' budget that the histogram of lengths has."""
_CHEAP: Final = 0.05
"""Scores may be clipped further out while noise is at most this part of the least variance that the matrix shows."""
_FAR: Final = 16.0
"""How far the histogram reaches beyond a norm bound that was found privately: rows may be longer than that."""
_REST: Final = 2.0**-7
"""The factor of a row's part across the components, as a part of their own. At 0 the lattice would be too coarse for
rows far shorter than the norm bound. It makes a row longer where it is clipped, and changes the answer in no other way.
"""
_CLEARLY: Final = 3.0
"""Standard deviations of noise from which a difference of two variances, or a variance, counts as clear."""


@dataclass(frozen=True, eq=False, slots=True)
class ScoreVariances:
    """The sum of squared scores of each component, and the standard deviation of its noise.

    ``clipped`` is the length, as a multiple of the norm bound, to which the scores of a row were clipped, and at most
    ``longer`` rows are longer, as far as noisy counts show. Both are None where no query was about scores.
    """

    values: FloatArray
    noise_std: float
    parties: int
    clipped: float | None = None
    longer: float | None = None

    def order(self, kept: int) -> NDArray[np.intp]:
        """Return the order of the components, the ``kept`` ones first.

        The matrix that they were read off has less noise, so its order is changed only where it is clearly wrong.
        """
        clearly, order = _CLEARLY * math.sqrt(2) * self.noise_std, list[int]()
        for each in range(kept):
            place = len(order)
            while place and self.values[each] - self.values[order[place - 1]] > clearly:
                place -= 1
            order.insert(place, each)
        return np.array([*order, *range(kept, len(self.values))], dtype=np.intp)

    def in_order(self, kept: int) -> "ScoreVariances":
        """Put the variances in that order. Where noise makes later ones larger, they get their common mean."""
        values = self.values[self.order(kept)]
        values[:kept] = isotonic_regression(values[:kept], increasing=False).x
        return replace(self, values=values)

    def where_clear(self, otherwise: FloatArray) -> FloatArray:
        """Return the variances that are clear of noise, and other estimates of the others."""
        return np.where(self.values > _CLEARLY * self.noise_std, self.values, otherwise)


def explains_scores(spec: JobSpec) -> bool:
    """Return whether the plan asks about scores: a view has no more axes than ``MAX_AXES``."""
    return spec.explained_variance and spec.components <= MAX_AXES


def planned_variances(spec: JobSpec, columns: int, share: float) -> list[PlannedQuery]:
    """Plan both queries, for components that use at most this many columns."""
    extent = Extent(spec.schema.dimension, spec.components, columns)
    return [
        PlannedQuery("lengths of scores", NormHistogram, extent, _HISTOGRAM * share),
        PlannedQuery(EXPLAINING, ViewProduct, extent, (1 - _HISTOGRAM) * share),
    ]


def ask_variances(facts: ReleasedFacts, found: Found) -> Generator[RowQuery, Aggregate, ScoreVariances]:
    """Ask for the second moments of the scores on the components that were found.

    If noise hid how long rows are, each row is clipped to one length, and its scores are those of that.
    """
    columns = np.flatnonzero(found.components.any(axis=1))
    axes, across = np.clip(found.components[columns], -1, 1), 1.0 if facts.hidden else _REST
    far = _FAR if facts.spec.norm_bound == PRIVATE_BOUND and not facts.hidden else 1.0

    def view(length: float) -> View:
        return View(facts.dimension, columns, across * facts.gain / length, axes, facts.gain / length)

    histogram = yield NormHistogram(view(far), facts.center, facts.scales)
    length = 1.0 if facts.hidden else _length(facts, found, histogram, far)
    answer = yield ViewProduct(view(length), facts.center, facts.scales)
    values, noise_std = np.einsum("ij,ij->j", axes, answer.values) * length**2, answer.noise_std * length**2
    if facts.hidden:
        return ScoreVariances(values, noise_std, answer.parties)
    return ScoreVariances(values, noise_std, answer.parties, length, _longer(histogram, length / far))


def _length(facts: ReleasedFacts, found: Found, histogram: Aggregate, far: float) -> float:
    """Return where to clip, as a multiple of the norm bound. No score is longer than its row."""
    shown = length_beyond(histogram.values, histogram.noise_std)
    length = found.longest if shown is None else shown * far
    noise = histogram.noise_std * math.sqrt(_HISTOGRAM / (1 - _HISTOGRAM)) * facts.spec.norm_bound**2  # at length 1
    least = float(found.explained[max(min(found.shown, facts.components), 1) - 1])
    cheap = math.sqrt(_CHEAP * max(least, 0.0) / noise) if noise else far
    return min(max(length, cheap), far)


def _longer(histogram: Aggregate, length: float) -> float:
    """Return how many rows may be longer than a fraction of the longest length that the histogram counts.

    The count has noise, and is exceeded with a probability of about a thousandth.
    """
    bins = math.ceil(1 - 2 * math.log2(length)) if length < 1 else 0
    seen = float(histogram.values[:bins].sum())
    return max(0.0, seen + _CLEARLY * histogram.noise_std * math.sqrt(bins))
