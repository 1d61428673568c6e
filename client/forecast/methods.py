"""Forecast one method's job: error, captured variance, noise, answers, bytes and time."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from dpspca.client import component_count
from dpspca.common.algorithms import AUTO, catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.job import JobSpec, Scalar
from dpspca.common.plan import NUMBER_BYTES, Plan, Step
from dpspca.common.queries import SignPairs, ViewCovariance, ViewQuery
from dpspca.provider.release import Schedule

from .local import of_drawn, of_perturbed, of_range
from .loops import Loop, of_deflation, of_loop, products_of
from .population import Hints, Population
from .spectra import neighbours
from .staged_release import of_automatic, of_improved
from .whole_matrix import Outlook, limit_of, of_matrix, within

AT_CHANCE: Final = 0.8
"""An error above this part of that of random directions says as good as nothing, unless half of the variance beyond
theirs is captured: then components are mixed with directions that are hard to tell from them, and matter as much."""
_HALF: Final = 0.5
_FRAME_BYTES: Final = 1_000
"""Bytes of an answer beside its numbers: signatures, digests and protocols (``bench/forecast.py --costs``)."""
_PER_JOB: Final = 0.2
_PER_ANSWER: Final = 0.008
_PER_TABLE: Final = 0.03
_PER_SENT_NUMBER: Final = 2e-7
_PER_NUMBER: Final = 5e-9
_PER_VIEWED_NUMBER: Final = 1.5e-8
_PER_PRODUCT: Final = 1.6e-10
_PER_SQUARE: Final = 1.1e-11
_PER_EIGENVECTORS: Final = 1.5e-10
_PER_PAIR: Final = 2e-11
"""Seconds, roughly, if every party has a core or two (``bench/forecast.py --costs``): to sign, check and plan a job, to
commit and carry an answer, to make the tables of one width of noise, to draw and carry one number, to make an integer
of one number of a row, to do so for another view of it, to multiply a row's number by one column, for a product of two
of a row's numbers, for eigenvectors (of d^3), and for a row's part in the score of one pair of columns."""


@dataclass(frozen=True, slots=True)
class MethodForecast:
    """The forecast for one method. Errors are ||sin Theta||_F against the population's own components.

    ``captured`` is the part of the variance that the true components would capture. ``noise_std`` is the standard
    deviation of the noise on one entry of the second moments, divided by the number of rows, in squared units of the
    data: a variance per row. It is None where no noise is added to such an entry. ``bytes`` are those that each
    provider sends, about. ``columns`` are expected to take part in the components.
    """

    method: str
    options: Mapping[str, Scalar]
    error: float
    captured: float
    at_chance: bool
    noise_std: float | None
    columns: int
    answers: int
    bytes: int
    seconds: float
    norm_bound: float | None = None
    """The norm bound that this forecast takes to be known, because the method cannot find one as the job asks."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"label": self.label, **asdict(replace(self, options=dict(self.options)))}

    @property
    def label(self) -> str:
        """Name the method, and its sparsity if that is set."""
        return label_of(self.method, self.options)


def label_of(method: str, options: Mapping[str, Scalar]) -> str:
    """Name a method, and its sparsity if that is set."""
    limit = options.get("sparsity")
    decides = limit is None or (limit == AUTO and method == "auto")
    return method if decides else f"{method}, sparsity {limit}"


def chance(spec: JobSpec) -> float:
    """Return the error of components that are drawn at random."""
    count, dimension = spec.components, spec.schema.dimension
    return math.sqrt(count * (1 - count / dimension))


def about(job: JobSpec | Plan, hints: Hints) -> JobSpec | Plan:
    """Return the job with as many components as its forecast is about; the job itself if these are all.

    As many components as there are columns span everything, whatever they are. So a forecast is about half of them. And
    if the method decides how many to keep, it is not about more than there are columns in the components.
    """
    spec = job.spec if isinstance(job, Plan) else job
    count, dimension = spec.components, spec.schema.dimension
    if spec.options.get(component_count.OPTION) and hints.support:
        count = min(count, hints.support)
    if count == dimension:
        count = max(1, dimension // 2)
    return job if count == spec.components else replace(spec, components=count)


def of_job(job: JobSpec | Plan, hints: Hints) -> MethodForecast:
    """Forecast a job by its own method. The job may be planned already."""
    job = about(job, hints)
    plan = job if isinstance(job, Plan) else catalogue.plan(job)
    hints = hints.used(plan.spec)
    spec, population = plan.spec, Population.of(plan.spec, hints)
    outlook = outlook_of(plan, population)
    sines = np.minimum(outlook.sines, 1 - spec.components / spec.schema.dimension)
    error = math.sqrt(float(sines.sum()))
    captured = _captured(population, sines, dense=outlook.columns == population.dimension)
    by_chance = _captured(population, np.full(spec.components, 1 - spec.components / spec.schema.dimension), dense=True)
    steps = _expected(plan, outlook)
    return MethodForecast(
        method=spec.method,
        options=dict(spec.options),
        error=error,
        captured=captured,
        at_chance=error > AT_CHANCE * chance(spec) and captured - by_chance <= _HALF * (1 - by_chance),
        noise_std=None if math.isnan(outlook.noise) else outlook.noise / hints.rows * population.row_length**2,
        columns=outlook.columns,
        answers=len(plan),
        bytes=sum(NUMBER_BYTES * math.prod(step.shape) + _FRAME_BYTES for step in steps),
        seconds=_seconds(steps, population),
    )


def outlook_of(plan: Plan, population: Population) -> Outlook:
    """Expect what the job's method shows."""
    if any(step.name == "covariance" for step in plan):
        return _of_matrix(plan, population)
    if plan.spec.method == "dps-pca" and any(step.name == "scaled release" for step in plan):
        return of_improved(plan, population)
    return _OWN.get(plan.spec.method, _of_power)(plan, population)


_OWN: Final[Mapping[str, Callable[[Plan, Population], Outlook]]] = {
    "auto": of_automatic,
    "power-iteration": of_deflation,
    "range-projection": of_range,
    "output-perturbation": of_perturbed,
    "ppca": of_drawn,
}
"""Methods that do not release a matrix and are not a single power loop."""


def _of_matrix(plan: Plan, population: Population) -> Outlook:
    """Expect one release of the matrix. Of a square the two halves are averaged, but for sulq's dense components."""
    prunes = plan.spec.options.get("sparsity") is not None
    step = next(step for step in plan if step.name == "covariance")
    averaged = len(step.shape) > 1 and (prunes or plan.spec.method != "sulq")
    return of_matrix(plan, population, step, averaged=averaged, prunes=prunes)


def _of_power(plan: Plan, population: Population) -> Outlook:
    """Follow a power loop over all rows or, if each round is about a block, over that part of them."""
    options, products = plan.spec.options, products_of(plan)
    last, limit = products[-1].extent, limit_of(plan)
    prunes = options.get("sparsity") is not None and plan.spec.method != "dps-pca"
    kept = last.nonzero_rows if limit is None or prunes else limit
    block = options.get("block_rows")
    part = 1 / max(1, last.blocks)
    if isinstance(block, int):
        part = min(1.0, block * population.providers / population.rows)
    outlook = of_loop(plan, population, Loop(last.columns, kept, part, prunes))
    if prunes:
        return within(outlook, population, limit)
    if options.get("start") != "published":
        return outlook
    reached = min(1.0, kept / population.dimension)  # rows that are zero in the start stay so
    return replace(outlook, sines=1 - (1 - outlook.sines) * reached)


def _expected(plan: Plan, outlook: Outlook) -> list[Step]:
    """Return the steps, those about candidates alone with as many columns as are expected.

    Where rounds are to name the candidates but there are none, all columns are.
    """
    small = {"candidates", "scaled release"} if outlook.columns < plan.spec.schema.dimension else set()
    if plan.spec.method == "dps-pca" and not products_of(plan):
        small -= {"candidates"}
    return [
        replace(step, extent=replace(step.extent, nonzero_rows=outlook.columns))
        if step.name in small and step.query is ViewCovariance
        else step
        for step in plan
    ]


def _captured(population: Population, sines: FloatArray, *, dense: bool) -> float:
    """Return the part of the variance that is captured; what a component is mixed with has some variance too."""
    if not population.others.size:
        return 1.0
    leading, others, counts = population.leading, population.others, population.counts
    beside = neighbours(leading, others, counts, sines) if dense else np.full(len(leading), population.usual)
    return 1 - float(sines @ (leading - beside)) / float(leading.sum())


def _seconds(steps: list[Step], population: Population) -> float:
    """Estimate the time, roughly: preparing rows, computing answers, waiting for their moments, and eigenvectors."""
    rows = population.rows / population.providers
    numbers, schedule = rows * population.dimension, Schedule(steps)
    total = _PER_JOB + _PER_TABLE * len({step.noise_std for step in steps} - {0.0}) + _PER_NUMBER * numbers
    for number, step in enumerate(steps):
        sent = math.prod(step.shape)
        is_square = step.extent.columns == 0 and len(step.shape) > 1
        work = _PER_SQUARE * rows * sent if is_square else _PER_PRODUCT * numbers * step.extent.columns
        total += max(2 * schedule.interval(number), work) + _PER_ANSWER + _PER_SENT_NUMBER * sent
        total += _PER_VIEWED_NUMBER * numbers if issubclass(step.query, ViewQuery) else 0.0
        total += _PER_EIGENVECTORS * step.shape[0] ** 3 if is_square else 0.0
        total += _PER_PAIR * rows * SignPairs.columns_of(step.extent) ** 2 if issubclass(step.query, SignPairs) else 0.0
    return total
