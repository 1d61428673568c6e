"""The scales of columns, found privately: columns of unknown or different units are divided by them.

There are three queries, whose prices are fixed in advance like all others. The first counts, for each column, entries
in ranges of a factor of 4. So one answer shows the rough size of every column, whatever its unit is. Then columns are
divided by their rough sizes, so that they are alike. A histogram shows how long rows are then, and the last query asks
for the sum of squares of each column. This sum divided by the number of rows is the mean square, and its root is the
scale.

Everything asked later is about columns divided by their scales. This is a public function of each row, so that nothing
else changes (``dpspca.common.queries.views``).
"""

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Final

import numpy as np

from dpspca.common.arrays import LARGEST_SCALE, FloatArray
from dpspca.common.checks import check
from dpspca.common.job import PRIVATE_BOUND, JobSpec, Scaling
from dpspca.common.plan import PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import LARGEST_SIZE, SIZES, ColumnSizes, Extent, NormHistogram, RowQuery, ViewSquares

from .view_steps import ReleasedFacts, ask_squares

SIZES_SHARE: Final = 0.04
"""Share of mu^2 for the rough sizes."""
NORMS_SHARE: Final = 0.01
SQUARES_SHARE: Final = 0.05
WIDEST: Final = 2**16
"""Columns of a job that scales them: 2^16 times 102 numbers are an answer of 53 MB."""
_MEAN_SQUARES: Final[FloatArray] = 15 / (2 * math.log(4)) * np.square(LARGEST_SIZE * 4.0 ** -np.arange(SIZES - 1))
"""Of entries in each range but the last, if their logarithms are spread evenly over it."""


def share_of_scales(spec: JobSpec) -> float:
    """Return the share of the budget that scales take."""
    return SIZES_SHARE + NORMS_SHARE + SQUARES_SHARE if spec.scaling is Scaling.PRIVATE else 0.0


def planned_sizes(spec: JobSpec, free: float) -> list[PlannedQuery]:
    """Plan the first query. It comes before a mean, which is taken of columns divided by their rough sizes."""
    if spec.scaling is not Scaling.PRIVATE:
        return []
    dimension = spec.schema.dimension
    check(
        dimension <= WIDEST,
        f"A job that scales columns privately may have at most {WIDEST}, not {dimension}.",
        "Leave the scaling out, and bring columns to one unit by public knowledge.",
    )
    return [PlannedQuery("sizes of columns", ColumnSizes, Extent(dimension), SIZES_SHARE * free)]


def planned_scales(spec: JobSpec, free: float) -> list[PlannedQuery]:
    """Plan the other two queries."""
    if spec.scaling is not Scaling.PRIVATE:
        return []
    whole = Extent(spec.schema.dimension, 0, spec.schema.dimension)
    return [
        PlannedQuery("norms to scale by", NormHistogram, whole, NORMS_SHARE * free),
        PlannedQuery("squares to scale by", ViewSquares, whole, SQUARES_SHARE * free),
    ]


def ask_sizes(spec: JobSpec) -> Generator[RowQuery, Aggregate, FloatArray | None]:
    """Ask for the rough size of each column."""
    if spec.scaling is not Scaling.PRIVATE:
        return None
    center = None if spec.public_mean is None else np.array(spec.public_mean)
    answer = yield ColumnSizes(spec.schema.dimension, center)
    return rough_sizes(answer.values, answer.noise_std)


def rough_sizes(counts: FloatArray, noise_std: float) -> FloatArray:
    """Read off the root mean square of each column, from those ranges that noise alone does not explain.

    Noise exceeds the limit in any range of any column in less than one of a thousand answers: one range that is far too
    large would spoil its column. A column that shows in no range is taken to be in the range where it has most entries;
    one that is all zeros has the size 1.
    """
    limit = noise_std * math.sqrt(2 * math.log(1000 * counts.size)) if noise_std else 0.5
    clear = np.where(counts > limit, counts, 0.0)
    rows = np.maximum(clear.sum(axis=1), 1.0)
    squares = clear[:, :-1] @ _MEAN_SQUARES / rows
    guesses = _MEAN_SQUARES[np.argmax(counts[:, :-1], axis=1)]
    silent = squares == 0
    squares[silent] = np.where(clear[silent, -1] > 0, 1.0, guesses[silent])
    sizes: FloatArray = np.sqrt(squares)
    return sizes


def ask_scales(facts: ReleasedFacts) -> Generator[RowQuery, Aggregate, FloatArray]:
    """Ask for the mean square of each column, about the centre. ``facts.scales`` are the rough sizes.

    A mean square below its noise is taken to be as large as that, so that a column that does not show is not blown up.
    """
    assert facts.scales is not None
    squares, noise_std = yield from ask_squares(facts)
    mean_squares = np.maximum(squares, noise_std) / (facts.rows * facts.gain**2)
    scales: FloatArray = np.clip(facts.scales * np.sqrt(mean_squares), 1 / LARGEST_SCALE, LARGEST_SCALE)
    return scales


def scaled_facts(facts: ReleasedFacts) -> ReleasedFacts:
    """Know where rows end that were scaled: a mean square of 1 in each column, and four times that length to spare."""
    if facts.spec.norm_bound != PRIVATE_BOUND:
        return facts
    return replace(facts, gain=PRIVATE_BOUND / (4 * math.sqrt(facts.dimension)))
