"""What is suggested allows the job it was made for, several times, and a larger one not once."""

from dataclasses import replace
from typing import Any

import pytest
from examples import EXAMPLES
from facts import facts
from local_federation import spec

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.provider.policy.job_request import JobRequest
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
        {"unit": "row-add-remove", "minimum_providers": 3},
        {"centering": Centering.PRIVATE, "mean_bound": 3.5},
        {"centering": Centering.PUBLIC, "public_mean": (0.0,) * 30},
        {"explained_variance": False, "norm_bound": 1e-7, "budget": Budget(1e-3, 1e-9)},
        {"budget": Budget(40.0, 1e-3)},
    ],
)
def test_the_job_is_allowed(changes: dict[str, Any]) -> None:
    job = spec(**changes)
    rules(job).check(JobRequest(job, ADA, SITES))
    lifetime, _ = rules(job).limits(ADA)
    assert lifetime.whole.units >= catalogue.plan(job).price.units


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_job_of_every_algorithm_is_allowed_and_finds_room(name: str) -> None:
    for what, job in EXAMPLES[name].jobs.items():
        modest = replace(job, budget=Budget(min(1.0, job.budget.epsilon), job.budget.delta))
        if job.accounting is Accounting.EXACT:
            rules(modest).check(JobRequest(modest, ADA, ("north",)))
            lifetime, _ = rules(modest).limits(ADA)
            listed = catalogue.plan(modest).events
            assert lifetime.admit(listed).admit(listed), what


def test_a_job_that_no_lifetime_has_room_for_is_refused() -> None:
    pure = EXAMPLES["ppca"].jobs["plain"]
    assert suggest(catalogue.plan(pure), "cohort", ["ada"])
    with pytest.raises(InvalidParameterError, match=facts("epsilon 48", "ppca")):
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
            rules(job).check(JobRequest(changed, ADA, SITES))


def described(*columns: str) -> JobSpec:
    return spec(schema=Schema(len(columns), columns), dictionary="ab" * 32, options={}, method="analyze-gauss")


def test_the_features_of_a_job_with_a_dictionary_are_allowed_and_no_others() -> None:
    job = described("mean area", "sex=female", "sex=male", "Größe \U0001f9ec")
    allowed = rules(job)
    assert allowed.columns == ("mean area", "sex", "Größe \U0001f9ec")
    allowed.check(JobRequest(job, ADA, SITES))
    allowed.check(JobRequest(described("sex=female", "sex=male"), ADA, SITES))
    with pytest.raises(RefusedError, match=facts("'columns'", "'bmi'")):
        allowed.check(JobRequest(described("mean area", "bmi"), ADA, SITES))


@pytest.mark.parametrize(("count", "listed"), [(40, True), (100, True), (101, False)])
def test_very_many_features_are_counted_and_not_listed(count: int, listed: bool) -> None:
    names = tuple(f"feature {number}" for number in range(count))
    job = described(*names)
    assert rules(job).columns == (names if listed else count)
    rules(job).check(JobRequest(job, ADA, SITES))


def test_columns_of_a_job_without_a_dictionary_are_counted() -> None:
    assert rules(spec(schema=Schema(30, tuple(f"c{number}" for number in range(30))))).columns == 30
