"""All methods by name: the one list that providers, the coordinator and clients use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dpspca.common.checks import check, unknown
from dpspca.common.job import PRIVATE_BOUND, Accounting, JobSpec, Scaling, check_pairs
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.protocol import Algorithm

from . import (
    analyze_gauss,
    automatic,
    dps_pca,
    mod_sulq,
    noisy_power,
    output_perturbation,
    power_iteration,
    ppca,
    range_projection,
    streaming_power,
    sulq,
)
from .steps import MatrixOptions, Option, declared

BOTH: Final = (Accounting.EXACT, Accounting.PUBLISHED)


@dataclass(frozen=True, slots=True)
class Method:
    """A method: ``steps_of`` lists the queries of a job and their prices, ``run`` asks them.

    The other fields describe the method: its options, the privacy units it protects, and its kinds of accounting.
    ``gaussian`` says whether all noise is Gaussian in every job. Policy descriptions use it, and so does the price
    counted for a job that a ledger may have lost. No job's price depends on it.
    """

    steps_of: Callable[[JobSpec], tuple[Step, ...]]
    run: Callable[[Plan], Algorithm]
    summary: str
    options: tuple[Option, ...] = ()
    units: tuple[PrivacyUnit, ...] = tuple(unit for unit in PrivacyUnit if unit.is_row)
    accounting: tuple[Accounting, ...] = (Accounting.EXACT,)
    published: tuple[PrivacyUnit, ...] = tuple(PrivacyUnit)
    """Units for which the paper has a noise formula, if ``accounting`` includes ``PUBLISHED``."""
    gaussian: bool = True
    finds_bound: bool = False
    """Whether it finds bounds privately, for rows and for their mean, if the job gives none (``PRIVATE_BOUND``)."""
    finds_scales: bool = False
    """Whether it can find the scales of columns privately (``Scaling.PRIVATE``)."""
    measures_loadings: bool = False
    """Whether its model holds the noise of each loading: an array as large as the components."""
    rows: Callable[[JobSpec], int | None] = lambda _: None
    """Return how many rows of each provider a job is about, counted from the first; None if it is about all rows."""

    def option(self, name: str) -> Option | None:
        """Return the option of this name, or None if the method does not have it."""
        return next((each for each in self.options if each.name == name), None)


CATALOGUE: Final = MappingProxyType(
    {
        "auto": Method(
            automatic.steps_of,
            automatic.run,
            "decides from public facts and released numbers: whole matrix or staged release, dense or sparse",
            options=declared(automatic.AutoOptions),
            finds_bound=True,
            finds_scales=True,
            measures_loadings=True,
        ),
        "dps-pca": Method(
            dps_pca.steps_of,
            dps_pca.run,
            "truncated noisy power loop for sparse components (Ge et al. 2018)",
            options=declared(dps_pca.DpsPcaOptions),
            accounting=BOTH,
        ),
        "analyze-gauss": Method(
            analyze_gauss.steps_of,
            analyze_gauss.run,
            "the whole covariance matrix at once, with Gaussian noise (Dwork et al. 2014)",
            options=declared(MatrixOptions),
            measures_loadings=True,
            accounting=BOTH,
        ),
        "mod-sulq": Method(
            mod_sulq.steps_of,
            mod_sulq.run,
            "the covariance matrix at once, with symmetric noise (Chaudhuri, Sarwate & Sinha 2012)",
            options=declared(MatrixOptions),
            accounting=BOTH,
        ),
        "sulq": Method(
            sulq.steps_of,
            sulq.run,
            "the covariance matrix at once, with noise on every entry that is not symmetric (Blum et al. 2005)",
            options=declared(MatrixOptions),
            accounting=BOTH,
        ),
        "streaming-power": Method(
            streaming_power.steps_of,
            streaming_power.run,
            "noisy power loop, each round over rows of its own (Hardt & Price 2014)",
            options=declared(streaming_power.StreamingPowerOptions),
            units=(PrivacyUnit.ROW_REPLACE_ONE,),
            rows=streaming_power.rows_of,
        ),
        "noisy-power": Method(
            noisy_power.steps_of,
            noisy_power.run,
            "noisy power loop, over rows or over shares of a symmetric matrix (Hardt & Price 2014)",
            options=declared(noisy_power.NoisyPowerOptions),
            gaussian=False,
            units=tuple(PrivacyUnit),
            accounting=BOTH,
            published=(PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL),
        ),
        "power-iteration": Method(
            power_iteration.steps_of,
            power_iteration.run,
            "noisy power iteration for one component after the other, over rows or a matrix (Hardt & Roth 2013)",
            options=declared(power_iteration.PowerIterationOptions),
            units=tuple(PrivacyUnit),
            accounting=BOTH,
            published=(PrivacyUnit.ENTRY,),
        ),
        "range-projection": Method(
            range_projection.steps_of,
            range_projection.run,
            "random directions that no party can choose, then one projection onto their span (Hardt & Roth 2012)",
            options=declared(range_projection.RangeProjectionOptions),
            units=(PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.PERSON_REPLACE_ONE),
        ),
        "output-perturbation": Method(
            output_perturbation.steps_of,
            output_perturbation.run,
            "local eigenvectors with noise that follows their smooth sensitivity (Gonen & Gilad-Bachrach 2017)",
            options=declared(output_perturbation.OutputPerturbationOptions),
            gaussian=False,
            accounting=BOTH,
        ),
        "ppca": Method(
            ppca.steps_of,
            ppca.run,
            "local subspaces drawn by the exponential mechanism (Chaudhuri, Sarwate & Sinha 2012)",
            options=declared(ppca.PpcaOptions),
            gaussian=False,
            accounting=BOTH,
        ),
    }
)


def find(name: str) -> Method:
    """Return the method of this name, or refuse the name."""
    if name not in CATALOGUE:
        raise unknown("method", name, CATALOGUE)
    return CATALOGUE[name]


def plan(spec: JobSpec) -> Plan:
    """Return the plan of a job. Recent plans are cached, because the same job is often planned several times."""
    return _planned(spec.to_json())


def run(plan: Plan) -> Algorithm:
    """Start the coroutine of a planned job."""
    return find(plan.spec.method).run(plan)


def rows_of(spec: JobSpec) -> int | None:
    """Return how many rows of each provider a job is about, counted from the first; None if it is about all rows.

    Later rows do not influence any answer. Which rows these are follows from their position and the spec alone.
    """
    return find(spec.method).rows(spec)


@lru_cache(64)
def _planned(spec: str) -> Plan:
    read = JobSpec.from_json(spec)
    entry = find(read.method)
    # A method that lacks some of the units of rows refuses them itself, with the reason.
    check(
        any(read.unit.is_row == unit.is_row for unit in entry.units),
        f"The method {read.method} protects {' or '.join(entry.units)}, not {read.unit}.",
        f"Choose a unit that it protects, or a method that protects {read.unit}: {_protecting(read.unit)}.",
    )
    check(
        entry.finds_bound or read.norm_bound != PRIVATE_BOUND,
        f"norm_bound is 'private', but the method {read.method} cannot find a norm bound.",
        f"Give a number from public knowledge, or choose a method that can find one: {_finding_bounds()}.",
    )
    check(
        entry.finds_bound or not read.finds_mean_bound,
        f"mean_bound is 'private', but the method {read.method} cannot find a bound for the mean.",
        f"Give a number from public knowledge, or choose a method that can find one: {_finding_bounds()}.",
    )
    check(
        entry.finds_scales or read.scaling is Scaling.NONE,
        f"scaling is {read.scaling}, but {read.method} cannot find the scales of columns.",
        f"Leave the scaling out, or choose a method that can: {_finding_scales()}.",
    )
    check_pairs(read, uses_all_rows=entry.rows(read) is None)
    return Plan(read, entry.steps_of(read))


def _finding_bounds() -> str:
    return ", ".join(name for name, each in CATALOGUE.items() if each.finds_bound)


def _finding_scales() -> str:
    return ", ".join(name for name, each in CATALOGUE.items() if each.finds_scales)


def _protecting(unit: PrivacyUnit) -> str:
    return ", ".join(name for name, each in CATALOGUE.items() if unit in each.units)
