"""Common steps of algorithms over rows: the number of rows, their mean, and the explained variance.

Each algorithm divides its budget with ``shares``, begins with ``opening``, ends with ``closing``, and has its own
queries in between. The budget of common queries that a job does not need goes to the algorithm's own.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_known, check_whole
from dpspca.common.errors import DpspcaError
from dpspca.common.job import MEAN_SHARE, Centering, JobSpec, Scalar
from dpspca.common.linalg import thin_qr
from dpspca.common.names import shortened
from dpspca.common.plan import EXPLAINING, Noise, PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import ColumnSums, CompressedCovariance, Count, Extent, RowQuery, RowSparse
from dpspca.common.results import Model, fix_signs

Auto: TypeAlias = Literal["auto"]
AUTO: Final[Auto] = "auto"
"""In place of a number: decide the number from released numbers."""
COUNT_SHARE: Final = 0.01
VARIANCE_SHARE: Final = 0.05
MOST_ROUNDS: Final = 1000
"""Largest number of rounds of one loop. ``plan.price`` also limits the number of queries of a whole plan."""


class PartiesChangedError(DpspcaError):
    """Two answers that must come from the same providers do not."""

    code = "parties-changed"


@dataclass(frozen=True, slots=True)
class RowTotals:
    """The answers to the opening queries, which an algorithm has before its own first query."""

    rows: Aggregate | None
    center: FloatArray | None
    noise: FloatArray | None = None
    """The standard deviation of the noise in each number of the centre, if it is a private mean."""


def known_options(spec: JobSpec, names: Iterable[str]) -> Mapping[str, Scalar]:
    """Return the spec's options. Refuse those that the algorithm does not have."""
    known = tuple(names)
    for name in sorted(spec.options):
        check_known("option", name, known, where=f" of the method {spec.method}")
    return spec.options


def given_rounds(spec: JobSpec) -> int | None:
    """Read the option ``rounds``. None if it is not given."""
    rounds = spec.options.get("rounds")
    return None if rounds is None else check_whole("the number of rounds", rounds, least=1, most=MOST_ROUNDS)


def given_sparsity(spec: JobSpec) -> int | Auto | None:
    """Read the option ``sparsity``: a number of columns, ``AUTO``, or None if it is not given."""
    given = spec.options.get("sparsity")
    if given is None or given == AUTO:
        return given
    check(not isinstance(given, str), f"sparsity is {shortened(given)}.", f"Give a number of columns, or {AUTO!r}.")
    name = "sparsity (from the number of components to that of columns)"
    return check_whole(name, given, least=spec.components, most=spec.schema.dimension)


def given_columns(spec: JobSpec) -> int | None:
    """Read the option ``columns``, the number of columns of a basis. None if it is not given."""
    columns = spec.options.get("columns")
    if columns is None:
        return None
    name = "columns (which cannot be below the number of components)"
    return check_whole(name, columns, least=spec.components, most=spec.schema.dimension)


def shares(spec: JobSpec) -> dict[str, float]:
    """Return each common query's share of the budget. "rest" is for the algorithm's own queries."""
    private = Count.person_factor(spec.unit, spec.rows_per_person) * Count.sensitivity_of(spec.unit, Extent(0)) > 0
    taken = {
        "count": COUNT_SHARE if needs_count(spec) and private else 0.0,
        "mean": MEAN_SHARE if spec.centering is Centering.PRIVATE else 0.0,
        EXPLAINING: VARIANCE_SHARE if spec.explained_variance else 0.0,
    }
    return taken | {"rest": 1 - sum(taken.values())}


def needs_count(spec: JobSpec) -> bool:
    """Return whether the job asks for the number of rows."""
    return spec.explained_variance or spec.centering is Centering.PRIVATE


def opening(spec: JobSpec, noise: Noise = Noise.GAUSSIAN) -> list[PlannedQuery]:
    """Plan the count and the mean, if they are needed."""
    divided, planned_queries = shares(spec), []
    if needs_count(spec):
        planned_queries.append(PlannedQuery("count", Count, Extent(0), divided["count"], noise=noise))
    if spec.centering is Centering.PRIVATE:
        extent = Extent(spec.schema.dimension)
        planned_queries.append(PlannedQuery("mean", ColumnSums, extent, divided["mean"], noise=noise))
    return planned_queries


def closing(spec: JobSpec, nonzero_rows: int, noise: Noise = Noise.GAUSSIAN) -> list[PlannedQuery]:
    """Plan the query for the explained variance, if the job wants it. ``nonzero_rows`` is the size of the support."""
    if not spec.explained_variance:
        return []
    extent = Extent(spec.schema.dimension, spec.components, nonzero_rows)
    return [PlannedQuery(EXPLAINING, CompressedCovariance, extent, shares(spec)[EXPLAINING], noise=noise)]


def ask_opening(spec: JobSpec) -> Generator[RowQuery, Aggregate, RowTotals]:
    """Ask the queries that ``opening`` planned."""
    rows = yield from ask_rows(spec)
    return (yield from ask_center(spec, rows))


def ask_rows(spec: JobSpec) -> Generator[RowQuery, Aggregate, Aggregate | None]:
    """Ask for the number of rows, if it is needed."""
    return (yield Count()) if needs_count(spec) else None


def ask_center(
    spec: JobSpec, rows: Aggregate | None, sizes: FloatArray | None = None, rough: FloatArray | None = None
) -> Generator[RowQuery, Aggregate, RowTotals]:
    """Ask for the mean, if it is private.

    Before rows are summed, a rough mean is subtracted from them, and columns are divided by sizes, if these are given.
    """
    if spec.centering is Centering.PUBLIC:
        return RowTotals(rows, np.array(spec.public_mean))
    if spec.centering is not Centering.PRIVATE or rows is None:
        return RowTotals(rows, None)
    sums = yield ColumnSums(spec.schema.dimension, sizes, rough)
    if sums.parties != rows.parties:
        raise PartiesChangedError(
            "A provider left between the count of the rows and their sums, so their mean is not known.",
            "Submit a new job.",
        )
    mean = sums.values / at_least_one(rows)
    each = np.ones(len(mean)) if sizes is None else sizes
    mean = mean if sizes is None else mean * sizes
    noise = sums.noise_std / at_least_one(rows) * each
    return RowTotals(rows, mean if rough is None else mean + rough, noise)


def ask_closing(
    spec: JobSpec, basis: RowSparse, opened: RowTotals, model: Model
) -> Generator[RowQuery, Aggregate, Model]:
    """Ask the query that ``closing`` planned, rotate the components to their axes, and add the explained variance."""
    if not spec.explained_variance:
        return replace(model, components=fix_signs(model.components))
    compressed = yield CompressedCovariance(basis, opened.center)
    return _explained(model, compressed, opened.rows)


def random_start(spec: JobSpec, columns: int) -> FloatArray:
    """Draw an orthonormal start from the public seed of the spec, so that a replay gives the same start."""
    generator = np.random.Generator(np.random.Philox(key=spec.seed))
    return thin_qr(generator.standard_normal((spec.schema.dimension, columns)))[0]


def _explained(model: Model, compressed: Aggregate, rows: Aggregate | None) -> Model:
    """Rotate the basis to the axes of V^T A V. This is post-processing.

    If a provider left after the rows were counted, there is no explained variance: a sum over fewer rows than were
    counted would look like a smaller variance.
    """
    columns = len(model.components)
    square = compressed.values[:-1].reshape(columns, columns)
    values, axes = np.linalg.eigh((square + square.T) / 2)
    order = np.argsort(values)[::-1]
    model = replace(model, components=fix_signs(axes[:, order].T @ model.components))
    if rows is None or rows.parties != compressed.parties:
        return model
    count = at_least_one(rows)
    total = float(values.sum() + compressed.values[-1])
    return with_variances(model, values[order] / count, total / count, compressed.noise_std / count)


def with_variances(model: Model, variances: FloatArray, total: float, noise_std: float) -> Model:
    """Add the explained variance and its share of the total to a model, limited to possible values.

    Rows are clipped to the norm bound C after the mean is subtracted. So the mean squared length of a row is at most
    C^2, and orthonormal components together cannot explain more. Larger values are noise. Limiting them is
    post-processing: the numbers were released, and C is public.
    """
    most = model.statement.norm_bound**2
    explained = nearest_possible(variances, most)
    # Noise can make the trace smaller than the sum of the components, but ratios must not add up to more than 1.
    whole = max(float(explained.sum()), min(total, most))
    return replace(
        model,
        explained_variance=explained,
        explained_variance_ratio=explained / whole if whole > 0 else explained,
        explained_variance_std=noise_std,
    )


def nearest_possible(variances: FloatArray, most: float) -> FloatArray:
    """Return the nearest numbers that are not negative and whose sum is at most ``most``.

    These numbers form a convex set that contains the true ones, so the result is never further from the truth than the
    input. The projection subtracts the same amount from each number, down to zero at least (Duchi et al. 2008).
    """
    cut: FloatArray = np.maximum(variances, 0.0)
    if cut.sum() <= most:
        return cut
    largest = np.sort(cut)[::-1]
    off = (np.cumsum(largest) - most) / np.arange(1, len(cut) + 1)
    nearest: FloatArray = np.maximum(cut - off[np.flatnonzero(largest > off)[-1]], 0.0)
    return nearest


def at_least_one(rows: Aggregate | None) -> float:
    """Return the number of rows for use as a divisor. Noise may have made it zero or negative."""
    return max(float(rows.values[0]), 1.0) if rows else 1.0
