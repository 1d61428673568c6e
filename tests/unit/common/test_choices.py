"""Where a plan leaves a choice between two queries, both have the same price, and the query decides which is asked."""

from typing import Any

import numpy as np
import pytest

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.plan import Step
from dpspca.common.privacy.costs import Price
from dpspca.common.privacy.events import GaussianEvent
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.picks import TiedColumns
from dpspca.common.queries.views import View, ViewCovariance, ViewSquares
from dpspca.provider.approval.words import answer_groups


def spec(dimension: int, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {"unit": PrivacyUnit.ROW_REPLACE_ONE, "budget": Budget(1, 1e-6), "norm_bound": 1.0}
    return JobSpec(schema=Schema(dimension), components=3, method="auto", **good | changes)


def choices_of(job: JobSpec) -> list[Step]:
    return [step for step in catalogue.plan(job) if step.instead]


@pytest.mark.parametrize("unit", [unit for unit in PrivacyUnit if unit.is_row])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 40.0])
@pytest.mark.parametrize("dimension", [400, 9000])
def test_a_query_asked_in_anothers_place_costs_no_more(unit: PrivacyUnit, epsilon: float, dimension: int) -> None:
    chosen = choices_of(spec(dimension, unit=unit, budget=Budget(epsilon, 1e-6)))
    assert len(chosen) == (1 if dimension == 400 else 2)
    for step in chosen:
        first, other = step.choices
        assert other.event is not None
        assert first.event is not None
        assert Price.of([other.event]).is_within(Price.of([first.event]))
        assert isinstance(other.event, GaussianEvent)
        moved = other.query.lattice_sensitivity(unit, other.extent)
        assert moved / other.event.std <= Price.of([first.event]).mu
        assert moved / other.event.std >= 0.999999 * Price.of([first.event]).mu


def test_of_two_choices_the_query_decides_which_noise_is_added() -> None:
    job = spec(400)
    (step,) = choices_of(job)
    matrix = ViewCovariance(View.whole(400))
    ties = TiedColumns(View(400, [0, 1, 2], axes=np.eye(3)))
    assert step.admits(matrix)
    assert step.admits(ties)
    assert not step.admits(ViewSquares(View.whole(400)))
    assert step.fit_to(matrix, job.unit).query is ViewCovariance
    assert step.fit_to(matrix, job.unit).noise_std > 0
    assert step.fit_to(ties, job.unit).query is TiedColumns
    assert step.largest == 400**2


def test_a_steward_sees_both_queries_and_the_larger_answer() -> None:
    groups = [group for group in answer_groups(catalogue.plan(spec(400))) if " or " in group["kind"]]
    assert [group["numbers"] for group in groups] == [400**2]
    assert groups[0]["kind"] == "tied-columns or view-covariance"
