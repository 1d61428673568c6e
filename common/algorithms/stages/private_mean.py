"""A private mean where no bound for it is known: a rough mean first, then the mean of what is left.

Rows are long if their mean is far from zero, and noise is in proportion to the length at which rows are clipped. So the
mean is asked for twice. A histogram in ranges of a factor of 16, and one in bins of a factor of sqrt(2), show how long
rows are; clipped there, a small part of the budget gives a rough mean. A third histogram shows how long rows are about
the rough mean, which is often much less, and the sum of these differences gives the mean. The idea of clipping around
earlier estimates is that of CoinPress (Biswas, Dong, Kamath & Ullman 2020).

Where to clip: let rows longer than B be shortened to it. That moves the mean by at most E max(r - B, 0) for the length
r of a row. The noise of the mean is as long as B s, where s is its length for B = 1. The sum of both is least where a
share s of the rows is longer than B. Rows of about one length must not all be shortened, so B is the longer edge of the
bin where that share is reached.

Rows are divided by the length that was chosen, as columns are divided by their scales, and clipped at the job's
``mean_bound``, which is ``PRIVATE_BOUND``. So the divisor decides where they are clipped.

Privacy: the sensitivity of a sum of rows clipped to B is in proportion to B, and so is its unit. So the noise and the
price are the same for every B and every rough mean, and are fixed by the plan. Both are post-processing of released
numbers, from which later queries may follow (Smith & Thakurta 2022, as for all stages). ``ColumnSums`` and
``NormHistogram`` state their sensitivities: a centre and divisors are a public function of each row.
"""

import math
from collections.abc import Generator
from typing import Final

import numpy as np

from dpspca.common.algorithms.steps import RowTotals, ask_center, at_least_one
from dpspca.common.arrays import LARGEST_SCALE, FloatArray
from dpspca.common.job import PRIVATE_BOUND, JobSpec
from dpspca.common.plan import Plan, PlannedQuery
from dpspca.common.privacy import row_unit
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import ColumnSums, Extent, NormHistogram, NormRange, RowQuery, View

from .view_steps import CLEAR, NORMS, SHORTEST, longest

ROUGH_MEAN: Final = 0.02
"""Share of mu^2 for the rough mean."""
MOST_CLIPPED: Final = 0.5
"""No larger share of the rows is shortened, however much noise that would save."""
_MEAN: Final = "mean"


def share_of_rough_mean(spec: JobSpec) -> float:
    """Return the share of the budget that all but the mean itself take."""
    return 3 * NORMS + ROUGH_MEAN if spec.finds_mean_bound else 0.0


def planned_mean(spec: JobSpec, free: float, mean: list[PlannedQuery]) -> list[PlannedQuery]:
    """Plan what comes before the mean, for shares of ``free``, and the mean itself."""
    if not spec.finds_mean_bound:
        return mean
    columns = Extent(spec.schema.dimension)
    whole = Extent(spec.schema.dimension, 0, spec.schema.dimension)
    return [
        PlannedQuery("range of norms for the mean", NormRange, columns, NORMS * free),
        PlannedQuery("norms for the mean", NormHistogram, whole, NORMS * free),
        PlannedQuery("rough mean", ColumnSums, columns, ROUGH_MEAN * free),
        PlannedQuery("norms about the rough mean", NormHistogram, whole, NORMS * free),
        *mean,
    ]


def ask_mean(plan: Plan, rows: Aggregate) -> Generator[RowQuery, Aggregate, RowTotals]:
    """Ask the queries that ``planned_mean`` planned.

    If noise hides how long rows are, it would hide their mean, too. Then all rows are made very short, so that the mean
    is zero but for rounding.
    """
    spec = plan.spec
    if not spec.finds_mean_bound:
        return (yield from ask_center(spec, rows))
    ranges = yield NormRange(spec.schema.dimension)
    is_clear = bool((ranges.values > CLEAR * ranges.noise_std).any())
    length = longest(ranges.values, ranges.noise_std, at_least_one(rows)) if is_clear else SHORTEST
    length = yield from _reach(plan, rows, "rough mean", length, None)
    rough = yield from ask_center(spec, rows, _divisors(spec, length / PRIVATE_BOUND))
    length = yield from _reach(plan, rows, _MEAN, 2 * length, rough.center)
    return (yield from ask_center(spec, rows, _divisors(spec, length / PRIVATE_BOUND), rough.center))


def _reach(
    plan: Plan, rows: Aggregate, name: str, most: float, center: FloatArray | None
) -> Generator[RowQuery, Aggregate, float]:
    """Ask how long rows are about a centre, up to ``most``. Return where to clip them for the mean of this name."""
    dimension, bound = plan.spec.schema.dimension, plan.spec.norm_bound
    view, divisors = View(dimension, np.arange(dimension)), _divisors(plan.spec, most / bound)
    most = bound * float(divisors[0])  # which is not what was asked for where that is beyond what scales may be
    histogram = yield NormHistogram(view, center, divisors)
    beyond = min(_noise_of_mean(plan, name, rows), MOST_CLIPPED) * at_least_one(rows)
    clear = np.where(histogram.values > CLEAR * histogram.noise_std, histogram.values, 0.0)
    if not clear.any():
        return most
    place = int(np.argmax(np.cumsum(clear) > beyond)) if clear.sum() > beyond else int(np.flatnonzero(clear)[-1])
    return float(most * min(1.0, 2.0 ** ((1 - place) / 2)))


def _noise_of_mean(plan: Plan, name: str, rows: Aggregate) -> float:
    """Return how long the noise of a mean is, if rows are clipped to length one."""
    step = next(each for each in plan if each.name == name)
    entry = step.noise_std * math.sqrt(rows.parties) * row_unit(1.0)
    return entry * math.sqrt(plan.spec.schema.dimension) / at_least_one(rows)


def _divisors(spec: JobSpec, divisor: float) -> FloatArray:
    return np.full(spec.schema.dimension, min(max(divisor, 1 / LARGEST_SCALE), LARGEST_SCALE))
