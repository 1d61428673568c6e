"""The jobs that a forecast compares: one job by every method, with the options that are its own or usual."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from dpspca.common.algorithms import AUTO, CATALOGUE
from dpspca.common.job import PRIVATE_BOUND, JobSpec, Scalar
from dpspca.common.plan import Plan

from .methods import MethodForecast, of_job
from .population import Hints, Population

Within: TypeAlias = Callable[[JobSpec], JobSpec]
"""Makes a candidate one that providers would admit, or raises an error that says why there is none."""
_USUAL_SPARSITY: Final = 50
_PRUNED: Final[Mapping[str, Scalar]] = MappingProxyType({"sparsity": AUTO})


def as_it_is(candidate: JobSpec) -> JobSpec:
    """Admit every candidate."""
    return candidate


def of_candidate(job: JobSpec | Plan, other: JobSpec, hints: Hints) -> MethodForecast:
    """Forecast a job by another of its ``candidates``, or by its own method, for which it may be planned already."""
    spec = job.spec if isinstance(job, Plan) else job
    found = of_job(job if other == spec else other, hints)
    is_same = (other.norm_bound, other.mean_bound) == (spec.norm_bound, spec.mean_bound)
    return found if is_same else replace(found, norm_bound=other.norm_bound)


def candidates(spec: JobSpec, hints: Hints) -> Iterator[JobSpec]:
    """Yield the job by every method, with the options that are its own or usual.

    If the job leaves bounds to its method, those that cannot find them get a tight one.
    """
    known = spec.norm_bound if spec.norm_bound != PRIVATE_BOUND else Population.of(spec, hints).tight_bound
    tight: dict[str, Any] = {"norm_bound": known, "mean_bound": known if spec.finds_mean_bound else spec.mean_bound}
    dimension = spec.schema.dimension
    usual = max(spec.components, min(dimension, _USUAL_SPARSITY if hints.support is None else hints.support))
    limit = spec.options.get("sparsity")
    for name, method in CATALOGUE.items():
        if name == spec.method:
            yield spec
            continue
        options: dict[str, Scalar] = {} if limit is None or not method.option("sparsity") else {"sparsity": limit}
        if name == "dps-pca":
            options = {"sparsity": limit if isinstance(limit, int) else usual}
        yield replace(spec, method=name, options=options, **({} if method.finds_bound else tight))
    if limit is None:
        yield replace(spec, method="analyze-gauss", options=_PRUNED, **tight)
    if limit is None or (limit == AUTO and spec.method != "dps-pca"):
        yield replace(spec, method="dps-pca", options=_PRUNED, **tight)  # its improved loop
