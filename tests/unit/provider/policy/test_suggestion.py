"""What is suggested allows the job it was made for, several times, and a larger one not once."""

from dataclasses import replace
from typing import Any

import pytest
from examples import EXAMPLES
from local_federation import spec

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.names import PartyName, Role
from dpspca.common.spec import Accounting, Budget, Centering, JobSpec
from dpspca.provider.policy.rules import Policy, Rules
from dpspca.provider.policy.suggestion import suggest

ADA = PartyName("town", Role.ANALYST, "ada")
SITES = ("east", "north", "south")


def rules(job: JobSpec) -> Rules:
    return Policy.parse(suggest(catalogue.plan(job), "cohort", ["ada"])).rules("cohort")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unit": "row-add-remove", "minimum_parties": 3},
        {"centering": Centering.PRIVATE, "mean_bound": 3.5},
        {"centering": Centering.PUBLIC, "public_mean": (0.0,) * 30},
        {"explained_variance": False, "norm_bound": 1e-7, "budget": Budget(1e-3, 1e-9)},
        {"budget": Budget(40.0, 1e-3)},
    ],
)
def test_the_job_is_allowed(changes: dict[str, Any]) -> None:
    job = spec(**changes)
    rules(job).check(job, ADA, SITES)
    lifetime, _ = rules(job).limits(ADA)
    assert lifetime.whole.units >= catalogue.plan(job).price.units


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_job_of_every_algorithm_is_allowed_and_finds_room(name: str) -> None:
    for what, job in EXAMPLES[name].jobs.items():
        modest = replace(job, budget=Budget(min(1.0, job.budget.epsilon), job.budget.delta))
        if job.accounting is Accounting.EXACT:
            rules(modest).check(modest, ADA, ("north",))
            lifetime, _ = rules(modest).limits(ADA)
            listed = catalogue.plan(modest).events
            assert lifetime.admit(listed).admit(listed), what


def test_a_job_that_no_lifetime_has_room_for_is_refused() -> None:
    pure = EXAMPLES["ppca"].jobs["plain"]
    assert suggest(catalogue.plan(pure), "cohort", ["ada"])
    with pytest.raises(InvalidParameterError, match="No lifetime has room for this job: at epsilon 48"):
        suggest(catalogue.plan(replace(pure, budget=Budget(48.0, 1e-6))), "cohort", ["ada"])


def test_a_data_set_with_a_point_in_its_name_is_one_table() -> None:
    assert Policy.parse(suggest(catalogue.plan(spec()), "cohort.2024", ["ada"])).rules("cohort.2024").analysts == (
        "ada",
    )


def test_a_job_that_asks_for_more_is_not() -> None:
    job = spec()
    for changed in (
        replace(job, budget=Budget(job.budget.epsilon * 1.01, job.budget.delta)),
        replace(job, norm_bound=job.norm_bound * 2),
        replace(job, centering=Centering.PRIVATE, mean_bound=1.0),
    ):
        with pytest.raises(RefusedError):
            rules(job).check(changed, ADA, SITES)
