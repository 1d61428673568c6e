"""A picture of the rows for which no row's scores leave: how many fall into each cell of a plane of two components.

The components were released before, so the query is about public axes: ``ScoreHistogram`` has its sensitivity
whatever they are, and its share of the budget is fixed in the plan. The cells' edges follow from released variances.
"""

import math
from collections import Counter
from collections.abc import Generator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.dictionary import feature_of, has_level
from dpspca.common.job import Centering, JobSpec
from dpspca.common.names import shortened
from dpspca.common.plan import PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import (
    MAX_TURNED,
    MOST_GROUPS,
    SCORES,
    Extent,
    GroupedScores,
    RowQuery,
    ScoreHistogram,
    View,
)
from dpspca.common.results import ScoreMap

from .view_steps import ReleasedFacts

PICTURE: Final = 0.10
"""Of the budget."""
_DEVIATIONS: Final = 3.0
"""How far the cells reach, in root mean squares of the scores."""
_LONG_ROW: Final = 4.0
"""Rows this many times longer than the root mean square are shortened, so that the others stay precise."""
_LEAST: Final = 2.0**-20
"""Part of the largest variance below which a component's cells do not shrink: its variance may be nothing but noise."""


def checked_group(spec: JobSpec, *, picture: bool, by: str | None) -> str | None:
    """Return the category of the picture's groups, or None; refuse a picture that the job cannot have."""
    check(
        not picture or spec.components >= SCORES,
        "A picture of scores needs two components, and the job asks for one.",
        "Ask for two components, or leave picture out.",
    )
    check(
        not picture or spec.centering is not Centering.PAIRS,
        "A picture of scores counts rows, and the job is about differences of pairs of rows.",
        "Leave picture out, or use another centring.",
    )
    check(
        picture or by is None,
        f"picture_by is {shortened(by)}, but no picture is asked for.",
        "Set picture = true, too.",
    )
    if by is not None:
        group_columns(spec, by)
    return by


def group_columns(spec: JobSpec, by: str) -> NDArray[np.intp]:
    """Return the columns of a category's levels, which are public: the dictionary declares them.

    Only a declared category makes groups, because others would be named by values of rows. A job keeps sums over its
    providers alone, so they make no groups.
    """
    names = spec.schema.names or ()
    kinds = {} if spec.dictionary is None else Counter(feature_of(name) for name in names if has_level(name))
    several = [name for name, levels in kinds.items() if levels <= MOST_GROUPS]
    check(
        by in several,
        f"picture_by is {shortened(by)}, which is not a category with at most {MOST_GROUPS} levels in the job's "
        "dictionary.",
        f"Available: {', '.join(several) or 'none'}. For a picture of one provider's rows, submit a job to that "
        "provider alone: a job keeps only sums over all its providers.",
    )
    check(
        (SCORES + kinds[by]) ** 2 * spec.schema.dimension <= MAX_TURNED**2,
        f"A picture by {by} of {spec.schema.dimension} columns is too large.",
        "Name fewer features, or leave picture_by out.",
    )
    return np.array([place for place, name in enumerate(names) if has_level(name) and feature_of(name) == by])


def planned_picture(spec: JobSpec, columns: int, share: float, by: str | None) -> PlannedQuery:
    """Plan a picture on components that use at most this many columns, for all rows or for each group.

    Groups change no price: all histograms together have the sensitivity of one (``GroupedScores``).
    """
    dimension = spec.schema.dimension
    if by is None:
        return PlannedQuery("picture of scores", ScoreHistogram, Extent(dimension, SCORES, columns), share)
    groups = len(group_columns(spec, by))
    extent = Extent(dimension, SCORES + groups, min(dimension, columns + groups))
    return PlannedQuery("picture of scores", GroupedScores, extent, share)


def ask_picture(
    facts: ReleasedFacts, components: FloatArray, explained: FloatArray, total: float, by: str | None
) -> Generator[RowQuery, Aggregate, ScoreMap]:
    """Ask how many rows have scores in each cell. Components are columns; variances are sums over viewed rows."""
    reach = _reach(facts, explained[:SCORES], total)
    factor = facts.spec.norm_bound / float(reach.min())
    axes = np.clip(components[:, :SCORES] * (reach.min() / reach), -1, 1)
    levels = np.arange(0) if by is None else group_columns(facts.spec, by)
    axes = np.hstack([axes, np.zeros((facts.dimension, len(levels)))])
    axes[levels, SCORES + np.arange(len(levels))] = 1.0
    columns = np.flatnonzero(axes.any(axis=1))
    shortened_at = facts.gain * max(1.0, 1 / (_LONG_ROW * _root_mean_square(facts, total)))
    view = View(facts.dimension, columns, min(shortened_at, factor), axes[columns], factor)
    kind = ScoreHistogram if by is None else GroupedScores
    answer = yield kind(view, facts.center, facts.scales)
    if by is None:
        return ScoreMap(answer.values, reach, answer.noise_std)
    names = (*(str((facts.spec.schema.names or ())[place]) for place in levels), None)
    parts = [
        ScoreMap(counts, reach, answer.noise_std, group=name) for name, counts in zip(names, answer.values, strict=True)
    ]
    return ScoreMap.of_groups(parts)


def _reach(facts: ReleasedFacts, explained: FloatArray, total: float) -> FloatArray:
    """Say how far the cells reach along each component, in units of the data: at most to the norm bound."""
    largest = max(float(explained.max()), total * _LEAST, facts.rows * facts.spec.norm_bound**2 * _LEAST**2)
    squares = np.maximum(explained, largest * _LEAST) / (facts.rows * facts.gain**2)
    return np.minimum(_DEVIATIONS * np.sqrt(squares), facts.spec.norm_bound)


def _root_mean_square(facts: ReleasedFacts, total: float) -> float:
    """Estimate the length of a usual row times the gain, as a part of the norm bound."""
    return max(_LEAST, math.sqrt(max(total, 0.0) / facts.rows) / facts.spec.norm_bound)
