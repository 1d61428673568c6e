"""Finds the listed methods that no job could use under a policy's other rules. Pure.

Each method is asked to plan the smallest possible jobs. If it refuses all of these, it refuses every job.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Final

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.privacy import PrivacyUnit

COLUMNS: Final = 8
SEVERAL: Final = 2
"""Rows of a person. A method that has a price for two has one for more, if the budget is large enough."""
BUDGET: Final = Budget(1.0, 1e-6)
"""At this budget every method has a plan, with each accounting that it supports."""


def unusable(
    methods: Iterable[str],
    unit: PrivacyUnit,
    accounting: Iterable[Accounting],
    centering: Iterable[Centering],
    rows_per_person: int,
) -> dict[str, str]:
    """Return the methods that no job within these rules can use, each with the reason."""
    ways = [*product(accounting, centering)]
    tried = {name: [_refusal(name, unit, noise, mean, rows_per_person) for noise, mean in ways] for name in methods}
    return {name: refusals[0] for name, refusals in tried.items() if refusals and all(refusals)}


def _refusal(name: str, unit: PrivacyUnit, accounting: Accounting, centering: Centering, rows_per_person: int) -> str:
    """Return why a small job has no plan, or "" if it has one."""
    try:
        catalogue.plan(
            JobSpec(
                schema=Schema(COLUMNS),
                unit=unit,
                budget=BUDGET,
                norm_bound=1.0,
                components=1,
                method=name,
                accounting=accounting,
                centering=centering,
                mean_bound=1.0 if centering is Centering.PRIVATE else None,
                public_mean=(0.0,) * COLUMNS if centering is Centering.PUBLIC else None,
                explained_variance=False,
                rows_per_person=min(rows_per_person, SEVERAL),
                options=dict(_needed(name)),
            )
        )
    except DpspcaError as problem:
        return problem.what
    return ""


def _needed(name: str) -> Iterator[tuple[str, int]]:
    """Return the options that a job must have. All of them are whole numbers."""
    return ((option.name, COLUMNS) for option in catalogue.find(name).options if option.required)
