"""The neighbours that change counts of rows most: the change is compared with the declared sensitivity, without noise.

The audit's other neighbours have rows along few axes. Such rows are the worst for sums of squares and products, but not
for counts: there, a row that is alike in most columns leaves most counts as they are. Also, a histogram has a small
share of the budget, and that number of runs cannot show that its noise is half of what it should be.

So for each query that counts rows, last rows of the data set are replaced by all kinds of extreme ones: without any
length, tiny and huge in every column, and along the axes of the view, with all signs. The exact answers are computed by
the provider's own code. Two of them must not be further apart than the sensitivity that the job is charged by.

These are neighbours by the unit of the job, so an honest sensitivity always passes: there is no false alarm. A search
finds no more than it tries. It shows by how much a sensitivity may be too small before this test fails.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from typing import Any, Final, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.job import JobSpec
from dpspca.common.plan import Step
from dpspca.common.privacy import AuditResult, GaussianEvent
from dpspca.common.privacy import audit as audits
from dpspca.common.queries import RowCountsQuery, RowQuery, ViewQuery
from dpspca.provider.release import Evaluator

MOST_AXES: Final = 4
"""Axes of a view whose signs are all tried together."""
TINY: Final = 2.0**-90
HUGE: Final = 2.0**90
Judge: TypeAlias = Callable[[float], AuditResult]


@dataclass(frozen=True, eq=False, slots=True)
class CommonRows:
    """The rows that both neighbours share, and the function that makes an evaluator of a table."""

    common: FloatArray
    evaluator: Callable[[FloatArray], Evaluator]


def reach_judges(spec: JobSpec, plan: Sequence[Step], queries: Sequence[RowQuery], rows: CommonRows) -> Iterator[Judge]:
    """List a test for each query that counts rows and whose noise is Gaussian."""
    for step, query in zip(plan, queries, strict=True):
        if isinstance(query, RowCountsQuery) and isinstance(step.event, GaussianEvent):
            moved = _furthest(spec, query, rows)
            yield partial(audits.reach, f"worst neighbours for '{step.name}'", moved, step.event.sensitivity)


def _furthest(spec: JobSpec, query: RowQuery, rows: CommonRows) -> float:
    """Return how far apart the exact answers over two of the neighbours are at most."""
    tables = [np.vstack([rows.common, np.tile(row, (spec.rows_per_person, 1))]) for row in extreme_rows(spec, query)]
    answers = [rows.evaluator(table).evaluate(query).astype(np.float64) for table in tables]
    if spec.unit.is_add_remove:
        without = rows.evaluator(rows.common).evaluate(query).astype(np.float64)
        return max(float(np.linalg.norm(each - without)) for each in answers)
    return max(float(np.linalg.norm(one - other)) for one, other in combinations(answers, 2))


def extreme_rows(spec: JobSpec, query: RowQuery) -> Iterator[FloatArray]:
    """List rows that are counted far apart, after a centre is subtracted and columns are scaled."""
    center: Any = getattr(query, "center", None)
    scales: Any = getattr(query, "scales", None)
    for placed in _placed(spec, query):
        row = np.clip(placed if scales is None else placed * scales, -HUGE, HUGE)
        yield row if center is None else row + center


def _placed(spec: JobSpec, query: RowQuery) -> Iterator[FloatArray]:
    dimension, bound = spec.schema.dimension, spec.norm_bound
    yield np.zeros(dimension)
    yield from (np.full(dimension, size) for size in (TINY, bound, HUGE))
    if not isinstance(query, ViewQuery):
        return
    axes = query.view.axes_matrix[:, :MOST_AXES]
    for signs in product((-1.0, 0.0, 1.0), repeat=axes.shape[1]):
        row = np.zeros(dimension)
        row[query.view.columns] = bound * (axes @ signs)
        yield row
