"""A job is changed for the size of its answers alone, and only where terms say that it is needed."""

import asyncio
from collections.abc import Sequence

import pytest
from facts import facts

from dpspca.client.sized_jobs import sized_to_terms
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

    return asyncio.run(sized_to_terms(spec, ask_terms, said.append)), said, asked


@pytest.mark.parametrize("spec", [job(20), job(1200, matrix=True), job(1200, matrix=False)])
def test_terms_are_asked_for_only_if_they_can_matter(spec: JobSpec) -> None:
    assert settled(spec, []) == (spec, [], 0)


@pytest.mark.parametrize("shown", [[], InvalidDataError("They contradict themselves.", "Ask others.")])
def test_without_terms_a_job_stays_as_it_is(shown: Exception | Sequence[Terms]) -> None:
    assert settled(job(1200), shown) == (job(1200), [], 1)


def test_an_error_that_is_not_about_terms_is_raised() -> None:
    with pytest.raises(OSError, match=facts(7)):
        settled(job(1200), OSError(7))
