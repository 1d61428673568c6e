"""A picture of the rows for which no row's scores leave: how many fall into each cell of a plane of two components.

The components were released before, so the question is about public axes: ``ScoreHistogram`` has its sensitivity
whatever they are, and its share of the budget is fixed in the plan. The cells' edges follow from released variances.
"""

import math
from collections.abc import Generator
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.plan import PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import SCORES, Extent, RowQuery, ScoreHistogram, View
from dpspca.common.score_map import ScoreMap

from .view_steps import ReleasedFacts

PICTURE: Final = 0.10
"""Of the budget."""
_DEVIATIONS: Final = 3.0
"""How far the cells reach, in root mean squares of the scores."""
_LONG_ROW: Final = 4.0
"""Rows this many times longer than the root mean square are shortened, so that the others stay precise."""
_LEAST: Final = 2.0**-20
"""Part of the largest variance below which a component's cells do not shrink: its variance may be nothing but noise."""


def planned_picture(dimension: int, columns: int, share: float) -> PlannedQuery:
    """Plan a picture on components that at most so many columns take part in."""
    return PlannedQuery("picture of scores", ScoreHistogram, Extent(dimension, SCORES, columns), share)


def ask_picture(
    facts: ReleasedFacts, components: FloatArray, explained: FloatArray, total: float
) -> Generator[RowQuery, Aggregate, ScoreMap]:
    """Ask how many rows have scores in each cell. Components are columns; variances are sums over viewed rows."""
    columns = np.flatnonzero(components[:, :SCORES].any(axis=1))
    reach = _reach(facts, explained[:SCORES], total)
    factor = facts.spec.norm_bound / float(reach.min())
    axes = components[columns, :SCORES] * (reach.min() / reach)
    shortened = facts.gain * max(1.0, 1 / (_LONG_ROW * _root_mean_square(facts, total)))
    view = View(facts.dimension, columns, min(shortened, factor), np.clip(axes, -1, 1), factor)
    answer = yield ScoreHistogram(view, facts.center, facts.scales)
    return ScoreMap(answer.values, reach, answer.noise_std)


def _reach(facts: ReleasedFacts, explained: FloatArray, total: float) -> FloatArray:
    """Say how far the cells reach along each component, in units of the data: at most to the norm bound."""
    largest = max(float(explained.max()), total * _LEAST, facts.rows * facts.spec.norm_bound**2 * _LEAST**2)
    squares = np.maximum(explained, largest * _LEAST) / (facts.rows * facts.gain**2)
    return np.minimum(_DEVIATIONS * np.sqrt(squares), facts.spec.norm_bound)


def _root_mean_square(facts: ReleasedFacts, total: float) -> float:
    """Estimate the length of a usual row times the gain, as a part of the norm bound."""
    return max(_LEAST, math.sqrt(max(total, 0.0) / facts.rows) / facts.spec.norm_bound)
