"""What algorithms over rows have in common: the number of rows, their mean, and what the components explain.

Each algorithm divides its budget by ``shares``, opens with ``opening``, ends with ``closing``, and asks about the rest
itself. What is not asked for is left to the algorithm's own queries.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.errors import DpspcaError
from dpspca.common.linalg import thin_qr
from dpspca.common.model import Model, fix_signs
from dpspca.common.names import shortened
from dpspca.common.plan import Noise, PlannedQuery
from dpspca.common.protocol import Aggregate
from dpspca.common.queries import ColumnSums, CompressedCovariance, Count, Extent, RowQuery, RowSparse
from dpspca.common.spec import Centering, JobSpec, Scalar

Auto: TypeAlias = Literal["auto"]
AUTO: Final[Auto] = "auto"
"""In place of a number: decide it from what is released."""
COUNT_SHARE: Final = 0.01
MEAN_SHARE: Final = 0.10
VARIANCE_SHARE: Final = 0.05
MOST_ROUNDS: Final = 1000
"""Of one loop; a loop for each component multiplies, so that a plan as a whole is counted too (``plan.price``)."""


class PartiesChangedError(DpspcaError):
    """Two answers that belong together are not of the same providers."""

    code = "parties-changed"


@dataclass(frozen=True, slots=True)
class RowTotals:
    """What an algorithm knows before its own first query."""

    rows: Aggregate | None
    center: FloatArray | None


def known_options(spec: JobSpec, names: Iterable[str]) -> Mapping[str, Scalar]:
    """Give the spec's options, or refuse those that the algorithm does not have."""
    known = tuple(names)
    unknown = sorted(set(spec.options) - set(known))
    check(
        not unknown,
        f"{spec.method} has no options {', '.join(unknown)}.",
        f"It has: {', '.join(known)}." if known else "It has none.",
    )
    return spec.options


def given_rounds(spec: JobSpec) -> int | None:
    """Read the option of how many rounds there are, if it is given."""
    rounds = spec.options.get("rounds")
    return None if rounds is None else check_whole("the number of rounds", rounds, least=1, most=MOST_ROUNDS)


def given_sparsity(spec: JobSpec) -> int | Auto | None:
    """Read the option of how many columns may take part: a number, ``AUTO``, or None if it is not given."""
    given = spec.options.get("sparsity")
    if given is None or given == AUTO:
        return given
    check(not isinstance(given, str), f"sparsity is {shortened(given)}.", f"Give a number of columns, or {AUTO!r}.")
    name = "sparsity (from the number of components to that of columns)"
    return check_whole(name, given, least=spec.components, most=spec.schema.dimension)


def given_columns(spec: JobSpec) -> int | None:
    """Read the option of how many columns a basis has, if it is given."""
    columns = spec.options.get("columns")
    if columns is None:
        return None
    name = "columns (which cannot be below the number of components)"
    return check_whole(name, columns, least=spec.components, most=spec.schema.dimension)


def shares(spec: JobSpec) -> dict[str, float]:
    """Divide the budget; the rest is the algorithm's own."""
    private = Count.person_factor(spec.unit, spec.rows_per_person) * Count.sensitivity_of(spec.unit, Extent(0)) > 0
    taken = {
        "count": COUNT_SHARE if needs_count(spec) and private else 0.0,
        "mean": MEAN_SHARE if spec.centering is Centering.PRIVATE else 0.0,
        "explained variance": VARIANCE_SHARE if spec.explained_variance else 0.0,
    }
    return taken | {"rest": 1 - sum(taken.values())}


def needs_count(spec: JobSpec) -> bool:
    """Tell whether the number of rows is asked for."""
    return spec.explained_variance or spec.centering is Centering.PRIVATE


def opening(spec: JobSpec, noise: Noise = Noise.GAUSSIAN) -> list[PlannedQuery]:
    """Plan the count and the mean, where they are needed."""
    divided, planned_queries = shares(spec), []
    if needs_count(spec):
        planned_queries.append(PlannedQuery("count", Count, Extent(0), divided["count"], noise=noise))
    if spec.centering is Centering.PRIVATE:
        extent = Extent(spec.schema.dimension)
        planned_queries.append(PlannedQuery("mean", ColumnSums, extent, divided["mean"], noise=noise))
    return planned_queries


def closing(spec: JobSpec, nonzero_rows: int, noise: Noise = Noise.GAUSSIAN) -> list[PlannedQuery]:
    """Plan the query about what is explained by components over so many features, if it is wanted."""
    if not spec.explained_variance:
        return []
    extent = Extent(spec.schema.dimension, spec.components, nonzero_rows)
    name = "explained variance"
    return [PlannedQuery(name, CompressedCovariance, extent, shares(spec)[name], noise=noise)]


def ask_opening(spec: JobSpec) -> Generator[RowQuery, Aggregate, RowTotals]:
    """Ask what ``opening`` planned."""
    rows = (yield Count()) if needs_count(spec) else None
    if spec.centering is Centering.PUBLIC:
        return RowTotals(rows, np.array(spec.public_mean))
    if spec.centering is Centering.NONE or rows is None:
        return RowTotals(rows, None)
    sums = yield ColumnSums(spec.schema.dimension)
    if sums.parties != rows.parties:
        raise PartiesChangedError(
            "A provider left between the count of the rows and their sums, so their mean is not known.",
            "Submit a new job.",
        )
    return RowTotals(rows, sums.values / at_least_one(rows))


def ask_closing(
    spec: JobSpec, basis: RowSparse, opened: RowTotals, model: Model
) -> Generator[RowQuery, Aggregate, Model]:
    """Ask what ``closing`` planned, turn the components to their axes, and say what each explains."""
    if not spec.explained_variance:
        return replace(model, components=fix_signs(model.components))
    compressed = yield CompressedCovariance(basis, opened.center)
    return _explained(model, compressed, opened.rows)


def random_start(spec: JobSpec, columns: int) -> FloatArray:
    """Draw an orthonormal start from the spec's seed: public, and the same for whoever replays the job."""
    generator = np.random.Generator(np.random.Philox(key=spec.seed))
    return thin_qr(generator.standard_normal((spec.schema.dimension, columns)))[0]


def _explained(model: Model, compressed: Aggregate, rows: Aggregate | None) -> Model:
    """Turn the basis to the axes of V^T A V. All of it is computed from what was already released.

    What the axes explain is left out where a provider left after the rows were counted: a sum over fewer rows than
    the count says would look like a smaller variance.
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
    """Say what components explain of rows, and which share of the total, cut to what can be.

    Rows are shortened to the norm bound C after any mean is taken off them, so the mean squared length of a row is at
    most C^2, and orthonormal components can explain no more of it together. What noise puts beyond is not to be
    believed, and cutting it is free: the numbers were released, and C is public.
    """
    most = model.statement.norm_bound**2
    explained = nearest_possible(variances, most)
    # Where noise swamps the rest of the trace, the parts must still not exceed the whole.
    whole = max(float(explained.sum()), min(total, most))
    return replace(
        model,
        explained_variance=explained,
        explained_variance_ratio=explained / whole if whole > 0 else explained,
        explained_variance_std=noise_std,
    )


def nearest_possible(variances: FloatArray, most: float) -> FloatArray:
    """Give the nearest numbers that are not negative and whose sum is at most ``most``.

    Such numbers are a convex set with the truth in it, so the nearest of them is no further from the truth than what
    was given. It takes the same off each, and leaves zero where that is too much (Duchi et al. 2008).
    """
    cut: FloatArray = np.maximum(variances, 0.0)
    if cut.sum() <= most:
        return cut
    largest = np.sort(cut)[::-1]
    off = (np.cumsum(largest) - most) / np.arange(1, len(cut) + 1)
    nearest: FloatArray = np.maximum(cut - off[np.flatnonzero(largest > off)[-1]], 0.0)
    return nearest


def at_least_one(rows: Aggregate | None) -> float:
    """Divide by a count that noise may have driven to nothing."""
    return max(float(rows.values[0]), 1.0) if rows else 1.0
