"""The plan spends the budget and no more, and its noise is what the formulas say."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import BudgetExceededError, InvalidParameterError
from dpspca.common.plan import events
from dpspca.common.privacy.accountant import Filter, compose
from dpspca.common.privacy.calibrate import gaussian_mu
from dpspca.common.privacy.events import GaussianEvent
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import ColumnSums, CompressedCovariance, Count, CovarianceProduct
from dpspca.common.spec import Budget, Centering, JobSpec, Schema


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(1000),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 3.0,
        "components": 5,
        "options": {"sparsity": 50},
    }
    return JobSpec(**good | changes)


@given(
    epsilon=st.floats(1e-3, 48),
    delta=st.floats(1e-12, 0.5),
    rounds=st.integers(1, 100),
    unit=st.sampled_from([PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.ROW_REPLACE_ONE]),
    centering=st.sampled_from([Centering.NONE, Centering.PRIVATE]),
    explained=st.booleans(),
)
def test_an_exact_plan_fits_its_budget_and_fills_it(
    epsilon: float, delta: float, rounds: int, unit: PrivacyUnit, centering: Centering, explained: bool
) -> None:
    job = spec(
        budget=Budget(epsilon, delta),
        unit=unit,
        centering=centering,
        mean_bound=5.0 if centering is Centering.PRIVATE else None,
        explained_variance=explained,
        options={"sparsity": 50, "rounds": rounds},
    )
    prices = events(catalogue.plan(job))
    full = Filter.for_budget(epsilon, delta).admit(prices)
    with pytest.raises(BudgetExceededError):
        full.admit([GaussianEvent(1.0, 1e4 / full.budget)])
    assert compose(prices).delta(epsilon) <= delta


def test_the_noise_of_a_round_is_the_sharp_sensitivity_over_its_share_of_mu() -> None:
    plan = catalogue.plan(spec(explained_variance=False, options={"sparsity": 50, "rounds": 10}))
    expected = math.sqrt(2) * math.sqrt(10) / gaussian_mu(1.0, 1e-6)
    assert len(plan) == 10
    for step in plan:
        assert step.noise_std * 2.0**-30 == pytest.approx(expected, rel=1e-3)


def test_the_published_noise_is_six_times_the_exact_noise() -> None:
    options = {"sparsity": 50, "rounds": 10}
    exact, published = [
        catalogue.plan(spec(explained_variance=False, accounting=accounting, options=options))[0].noise_std
        for accounting in ("exact", "published")
    ]
    assert published * 2.0**-30 == pytest.approx(20 * math.sqrt(2 * math.log(20 / 1e-6)), rel=1e-3)
    assert published / exact == pytest.approx(6.1, abs=0.05)


def test_questions_come_in_their_order_and_only_those_that_were_asked_for() -> None:
    full = spec(unit="row-add-remove", centering="private", mean_bound=4.0, options={"sparsity": 50, "rounds": 2})
    kinds = [step.question for step in catalogue.plan(full)]
    assert kinds == [Count, ColumnSums, CovarianceProduct, CovarianceProduct, CompressedCovariance]
    bare = spec(explained_variance=False, options={"sparsity": 50, "rounds": 2})
    assert [step.question for step in catalogue.plan(bare)] == [CovarianceProduct] * 2


def test_the_number_of_rows_is_free_exactly_when_rows_are_replaced() -> None:
    replaced, added = [catalogue.plan(spec(unit=unit))[0] for unit in ("row-replace-one", "row-add-remove")]
    assert replaced.event is None
    assert replaced.noise_std == 0
    assert added.event is not None
    assert added.noise_std > 0


def test_only_the_dense_start_may_fill_the_first_basis() -> None:
    dense, published = [
        catalogue.plan(spec(explained_variance=False, options={"sparsity": 50, "rounds": 3, "start": start}))
        for start in ("dense", "published")
    ]
    assert [step.extent.nonzero_rows for step in dense] == [1000, 50, 50]
    assert [step.extent.nonzero_rows for step in published] == [50, 50, 50]


def test_a_larger_budget_affords_more_rounds() -> None:
    rounds = [
        sum(step.question is CovarianceProduct for step in catalogue.plan(spec(budget=Budget(epsilon, 1e-6))))
        for epsilon in (0.1, 1, 4, 16, 48)
    ]
    assert rounds[0] == 5
    assert rounds == sorted(rounds)
    assert rounds[-1] > rounds[0]


def test_integer_noise_is_wider_than_the_continuous_noise_it_stands_for() -> None:
    """By the rounding of the lemma; where noise is wide that is lost in a float, so it is looked for at a count."""
    count = catalogue.plan(spec(unit="row-add-remove"))[0]
    assert count.event is not None
    assert count.noise_std == pytest.approx(math.hypot(count.event.std, 2.6), rel=1e-12)
    assert count.noise_std > 1.001 * count.event.std


def test_the_noise_of_the_sampler_is_charged_to_delta() -> None:
    assert all(event.slack > 0 for event in events(catalogue.plan(spec())))


def test_t24_noise_that_would_leave_the_lattice_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="leave the lattice"):
        catalogue.plan(spec(budget=Budget(1e-7, 1e-12)))


@pytest.mark.parametrize(("epsilon", "delta"), [(20.0, 0.5), (32.0, 0.3), (12.0, 0.78)])
def test_the_published_formula_is_refused_where_it_promises_more_than_its_noise_gives(
    epsilon: float, delta: float
) -> None:
    settings: dict[str, Any] = {"explained_variance": False, "options": {"sparsity": 50, "rounds": 1}}
    job = spec(budget=Budget(epsilon, delta), accounting="published", **settings)
    with pytest.raises(InvalidParameterError, match="more than its budget"):
        catalogue.plan(job)
    assert catalogue.plan(spec(budget=Budget(epsilon, delta), **settings))


def test_a_plan_of_more_draws_than_delta_covers_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(InvalidParameterError, match="more than its budget"):
        catalogue.plan(spec(schema=Schema(10**6), budget=Budget(48.0, 1e-15)))


def test_t27_the_noise_of_a_provider_relies_on_nobody_else_s() -> None:
    """Everybody but one may work together and take their own noise away: what is left is all of that one's."""
    alone, among_many = (catalogue.plan(spec(minimum_parties=least)) for least in (1, 100))
    assert alone == among_many
    assert all(step.noise_std >= step.event.std for step in alone if step.event)


def test_t26_the_number_of_rows_is_asked_for_with_noise_where_it_is_private() -> None:
    hidden, public = (catalogue.plan(spec(unit=unit))[0] for unit in ("row-add-remove", "row-replace-one"))
    assert (hidden.question, public.question) == (Count, Count)
    assert hidden.event is not None
    assert public.event is None
