"""The release of few columns: their whole matrix, and then the last release, for what the first one shows.

If components leave no other directions, or are more than a view has axes, there is one release.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import Final

from dpspca.common.algorithms.steps import sparse_or_dense
from dpspca.common.job import JobSpec
from dpspca.common.plan import PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import MAX_AXES, MAX_TURNED, Extent, NormHistogram, RowQuery, ViewCovariance
from dpspca.common.results import Decision, ReleasePath

from .found import Found, found_in
from .last_release import end_with_last
from .view_steps import NORMS, SHORT, ReleasedFacts, ask_covariance, ask_reach

FIRST: Final = 0.4
"""Share of the first of two releases of all columns."""
LAST: Final = 1 - FIRST - 2 * NORMS


def planned_twice(spec: JobSpec, free: float) -> list[PlannedQuery]:
    """Plan two releases of all columns, or one if there are too many components, for the share ``free``."""
    dimension, count = spec.schema.dimension, spec.components
    whole, scaled = Extent(dimension, 0, dimension), Extent(dimension, count, dimension)
    again = [
        PlannedQuery("norms along components", NormHistogram, scaled, NORMS * free),
        PlannedQuery("scaled release", ViewCovariance, scaled, LAST * free),
    ]
    first = FIRST if _has_rest(spec) else 1 - NORMS
    return [
        PlannedQuery("norms", NormHistogram, whole, NORMS * free),
        PlannedQuery("whole matrix", ViewCovariance, whole, first * free),
        *(again if _has_rest(spec) else []),
    ]


def _has_rest(spec: JobSpec) -> bool:
    """Return whether components leave other directions, and are no more than the axes of a view."""
    dimension, count = spec.schema.dimension, spec.components
    return count < dimension and count <= MAX_AXES and count**2 * dimension <= MAX_TURNED**2


def in_two_releases(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, Found]:
    """Ask the queries that ``planned_twice`` planned."""
    view = facts.view()
    reach = yield from ask_reach(facts, view, SHORT)
    whole = yield from ask_covariance(facts, view, reach)
    decided = Decision(ReleasePath.WHOLE, facts.dimension)
    if _has_rest(facts.spec):
        return (yield from end_with_last(facts, whole, reach, (LAST / FIRST, LAST / NORMS), decided))
    components, support = sparse_or_dense(whole, facts.components, facts.sparsity)
    found = found_in(whole, components, replace(decided, columns=int(support.size)))
    return replace(found, decision=replace(found.decision, visible=found.shown), longest=reach.longest)
