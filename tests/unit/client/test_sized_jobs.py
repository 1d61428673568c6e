"""A job is changed for the size of its answers alone, and only where terms say that it is needed."""

import asyncio
from collections.abc import Sequence

import pytest
from facts import facts, names_facts

from dpspca.client.connection.errors import AwayError, DishonestCoordinatorError
from dpspca.client.sized_jobs import sized_to_terms
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidDataError
from dpspca.common.job import Budget, JobSpec, Schema, Terms
from dpspca.common.privacy.units import PrivacyUnit


def job(columns: int, **options: bool) -> JobSpec:
    return JobSpec(
        schema=Schema(columns),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(1.0, 1e-6),
        norm_bound=9.0,
        components=2,
        options=options,
    )


def settled(spec: JobSpec, shown: Exception | Sequence[Terms]) -> tuple[JobSpec, list[str], int]:
    """Return the job, what was said, and how often terms were asked for."""
    said, asked = list[str](), 0

    async def ask_terms() -> Sequence[Terms]:
        nonlocal asked
        asked += 1
        if isinstance(shown, Exception):
            raise shown
        return shown

    return asyncio.run(sized_to_terms(spec, catalogue.plan(spec).answer_bytes, ask_terms, said.append)), said, asked


@pytest.mark.parametrize("spec", [job(20), job(1200, matrix=True), job(1200, matrix=False)])
def test_terms_are_asked_for_only_if_they_can_matter(spec: JobSpec) -> None:
    assert settled(spec, []) == (spec, [], 0)


def test_without_terms_a_job_stays_as_it_is() -> None:
    assert settled(job(1200), []) == (job(1200), [], 1)


def test_terms_that_cannot_be_read_change_nothing_and_are_told_of() -> None:
    spec, (said,), _ = settled(job(1200), InvalidDataError("North contradicts itself.", "Ask others."))
    assert spec == job(1200)
    assert names_facts(said, "North contradicts itself")


@pytest.mark.parametrize("problem", [DishonestCoordinatorError("forged 7", ""), AwayError("gone 7", ""), OSError(7)])
def test_a_coordinator_that_lies_or_is_away_is_an_error(problem: Exception) -> None:
    with pytest.raises(type(problem), match=facts(7)):
        settled(job(1200), problem)
