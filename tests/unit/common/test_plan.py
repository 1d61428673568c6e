"""A plan spends its budget and no more, and its noise follows the formulas."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import BudgetExceededError, InvalidParameterError, NoiseTooWideError, PlanOverBudgetError
from dpspca.common.job import MAX_QUERIES, Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.plan import Noise, PlannedQuery, QuerySeries, Step, events, price, prices
from dpspca.common.privacy.accountant import Filter, compose
from dpspca.common.privacy.calibration import gaussian_mu
from dpspca.common.privacy.costs import Price, cost_units, slack_units
from dpspca.common.privacy.events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent, ParallelEvent, PureEvent
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent
from dpspca.common.queries.rows import ColumnSums, CompressedCovariance, Count, CovarianceProduct


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(1000),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 3.0,
        "components": 5,
        "options": {"sparsity": 50},
        "method": "dps-pca",
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
def test_an_exact_plan_uses_its_whole_budget_and_no_more(
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
    prices = catalogue.plan(job).events
    full = Filter.for_budget(epsilon, delta).admit(prices)
    with pytest.raises(BudgetExceededError):
        full.admit([GaussianEvent(1.0, 1e4 / full.budget)])
    assert compose(prices).delta(epsilon) <= delta


def test_a_rounds_noise_is_the_sharp_sensitivity_over_its_share_of_mu() -> None:
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


def test_a_plan_lists_the_queries_of_the_spec_in_order() -> None:
    full = spec(unit="row-add-remove", centering="private", mean_bound=4.0, options={"sparsity": 50, "rounds": 2})
    kinds = [step.query for step in catalogue.plan(full)]
    assert kinds == [Count, ColumnSums, CovarianceProduct, CovarianceProduct, CompressedCovariance]
    bare = spec(explained_variance=False, options={"sparsity": 50, "rounds": 2})
    assert [step.query for step in catalogue.plan(bare)] == [CovarianceProduct] * 2


def test_the_number_of_rows_is_free_exactly_if_rows_are_replaced() -> None:
    replaced, added = [catalogue.plan(spec(unit=unit))[0] for unit in ("row-replace-one", "row-add-remove")]
    assert replaced.event is None
    assert replaced.noise_std == 0
    assert added.event is not None
    assert added.noise_std > 0


def test_only_a_dense_start_has_a_full_first_basis() -> None:
    dense, published = [
        catalogue.plan(spec(explained_variance=False, options={"sparsity": 50, "rounds": 3, "start": start}))
        for start in ("dense", "published")
    ]
    assert [step.extent.nonzero_rows for step in dense] == [1000, 50, 50]
    assert [step.extent.nonzero_rows for step in published] == [50, 50, 50]


def test_t18_five_rows_of_a_person_take_five_times_the_noise_at_equal_price() -> None:
    one, five = (catalogue.plan(spec(unit="row-add-remove", rows_per_person=rows)) for rows in (1, 5))
    for alone, together in zip(one, five, strict=True):
        assert alone.event is not None
        assert together.event is not None
        assert together.noise_std == pytest.approx(5 * alone.noise_std, rel=0.2 if alone.query is Count else 1e-9)
    assert compose(events(five)).gdp_bound == pytest.approx(compose(events(one)).gdp_bound, rel=1e-9)


@pytest.mark.parametrize("accounting", Accounting)
def test_t35_too_many_queries_are_refused_before_any_is_named_or_priced(
    accounting: Accounting,
) -> None:
    def never(*_: object) -> Any:
        raise AssertionError

    many = QuerySeries(PlannedQuery("round", Count, Extent(0), 1.0), 10**15, never, "rounds (10^15)")
    job = spec(unit=PrivacyUnit.ROW_ADD_REMOVE, accounting=accounting)
    with pytest.raises(InvalidParameterError, match=facts(10**15 + 1)) as refused:
        price(job, [PlannedQuery("mean", ColumnSums, Extent(1000), 0.0), many], never)
    assert "rounds (10^15)" in refused.value.remedy
    alike = PlannedQuery("count", Count, Extent(0), 1.0)
    with pytest.raises(InvalidParameterError, match=facts(MAX_QUERIES + 1)):
        price(job, [alike] * (MAX_QUERIES + 1), never)


def test_a_series_is_priced_like_its_queries_one_by_one() -> None:
    job, planned = spec(unit=PrivacyUnit.ROW_ADD_REMOVE), PlannedQuery("count", Count, Extent(0), 1.0, 3)
    together = price(job, [QuerySeries(planned, 3, lambda number: f"count {number}", "it")])
    assert together == price(job, [replace(planned, name=f"count {number}") for number in (1, 2, 3)])


def test_a_larger_budget_affords_more_rounds() -> None:
    rounds = [
        sum(step.query is CovarianceProduct for step in catalogue.plan(spec(budget=Budget(epsilon, 1e-6))))
        for epsilon in (0.1, 1, 4, 16, 48)
    ]
    assert rounds[0] == 5
    assert rounds == sorted(rounds)
    assert rounds[-1] > rounds[0]


def test_integer_noise_is_wider_than_the_continuous_noise_it_replaces() -> None:
    """The lemma adds a rounding term. It is visible in a float only for narrow noise, such as that of a count."""
    count = catalogue.plan(spec(unit="row-add-remove"))[0]
    assert count.event is not None
    assert count.noise_std == pytest.approx(math.hypot(count.event.std, 2.6), rel=1e-12)
    assert count.noise_std > 1.001 * count.event.std


def test_the_samplers_distance_from_the_ideal_is_charged_to_delta() -> None:
    assert all(event.slack > 0 for event in catalogue.plan(spec()).events)


@pytest.mark.parametrize("accounting", Accounting)
def test_an_epsilon_too_small_to_divide_by_is_refused(accounting: Accounting) -> None:
    job = spec(method="analyze-gauss", options={}, accounting=accounting, unit=PrivacyUnit.ROW_ADD_REMOVE)
    with pytest.raises(InvalidParameterError, match=facts(math.ulp(0.0), "1e-200")):
        catalogue.plan(replace(job, budget=Budget(math.ulp(0.0), 0.5)))


def test_t24_noise_that_would_leave_the_lattice_is_refused() -> None:
    with pytest.raises(NoiseTooWideError, match=facts("'round 1 of 5'", "1.13e+15")):
        catalogue.plan(spec(budget=Budget(1e-7, 1e-12)))


@pytest.mark.parametrize(("epsilon", "delta"), [(20.0, 0.5), (32.0, 0.3), (12.0, 0.78)])
def test_a_published_formula_that_breaks_its_promise_is_refused(epsilon: float, delta: float) -> None:
    settings: dict[str, Any] = {"explained_variance": False, "options": {"sparsity": 50, "rounds": 1}}
    job = spec(budget=Budget(epsilon, delta), accounting="published", **settings)
    with pytest.raises(PlanOverBudgetError):
        catalogue.plan(job)
    assert catalogue.plan(spec(budget=Budget(epsilon, delta), **settings))


def test_a_plan_of_more_draws_than_delta_covers_is_refused() -> None:
    with pytest.raises(PlanOverBudgetError):
        catalogue.plan(spec(schema=Schema(10**6), budget=Budget(48.0, 1e-15)))


def test_t27_a_providers_noise_does_not_depend_on_other_providers() -> None:
    """All other providers may collude and subtract their own noise: one provider's noise is enough."""
    alone, among_many = (catalogue.plan(spec(minimum_providers=least)) for least in (1, 100))
    assert alone.steps == among_many.steps
    assert all(step.noise_std >= step.event.std for step in alone if step.event)


def test_t26_the_number_of_rows_gets_noise_if_it_is_private() -> None:
    hidden, public = (catalogue.plan(spec(unit=unit))[0] for unit in ("row-add-remove", "row-replace-one"))
    assert (hidden.query, public.query) == (Count, Count)
    assert hidden.event is not None
    assert public.event is None


# --- Prices of all kinds of plans ------------------------------------------------------------------------------------

sizes = st.floats(1e-3, 1e3)
slacks = st.just(0.0) | st.floats(2.0**-170, 2.0**-140)
any_events: st.SearchStrategy[Event | None] = st.one_of(
    st.none(),
    st.builds(GaussianEvent, sizes, sizes, slacks),
    st.builds(LaplaceEvent, sizes, sizes, slacks),
    st.builds(PureEvent, st.floats(0, 3)),
    st.builds(ApproximateEvent, st.floats(0, 3), st.floats(0, 1e-9)),
)
extents = st.just(Extent(4, 2, 4)) | st.integers(1, 4).map(lambda block: Extent(4, 2, 4, block, 4))
plans = st.lists(st.builds(Step, st.just("step"), st.just(CovarianceProduct), extents, any_events), max_size=8)


@given(plans)
def test_the_price_after_each_step_is_that_of_the_events_up_to_it(steps: list[Step]) -> None:
    """What a ledger has spent covers what was released until then, with or without blocks of rows."""
    after = list(prices(steps))
    assert len(after) == len(steps)
    for reached, spent in enumerate(after, start=1):
        released = events(steps[:reached])
        assert spent == Price(cost_units(released), slack_units(released))


@given(plans)
def test_prices_never_fall(steps: list[Step]) -> None:
    for before, after in pairwise([Price(), *prices(steps)]):
        assert after.units >= before.units
        assert after.slack_units >= before.slack_units


@given(plans)
def test_all_blocks_are_one_parallel_event_and_other_steps_are_one_each(steps: list[Step]) -> None:
    cost = events(steps)
    parallel = [each for each in cost if isinstance(each, ParallelEvent)]
    in_blocks = [step.event for step in steps if step.event and step.extent.blocks]
    assert [each for each in cost if not isinstance(each, ParallelEvent)] == [
        step.event for step in steps if step.event and not step.extent.blocks
    ]
    assert len(parallel) == bool(in_blocks)
    grouped = [event for each in parallel for group in each.groups for event in group]
    assert sorted(map(repr, grouped)) == sorted(map(repr, in_blocks))


# --- Plans with other noise than Gaussian --------------------------------------------------------------------------


def laplace_job(delta: float = 1e-30) -> JobSpec:
    return spec(schema=Schema(6), budget=Budget(1.0, delta), components=2)


def laplace(share: float, times: int = 1) -> list[PlannedQuery]:
    return [PlannedQuery(f"{n}", ColumnSums, Extent(6), share, times, noise=Noise.LAPLACE) for n in range(times)]


@pytest.mark.parametrize("times", [1, 3, 7, 100])
def test_a_laplace_plan_uses_all_of_epsilon_and_almost_no_delta(times: int) -> None:
    steps = price(laplace_job(), laplace(1.0, times))
    spent = sum(Fraction(step.event.epsilon) for step in steps if isinstance(step.event, LaplaceEvent))
    assert 1 - Fraction(1, 2**39) < spent <= 1


@pytest.mark.parametrize("times", [1, 3, 7])
def test_a_laplace_plan_above_epsilon_by_a_billionth_is_refused(times: int) -> None:
    with pytest.raises(PlanOverBudgetError):
        price(laplace_job(), laplace(1 + 2.0**-30, times))


def test_laplace_noise_is_the_l1_sensitivity_over_its_share_of_epsilon() -> None:
    (step,) = price(laplace_job(), laplace(0.25))
    assert isinstance(step.event, LaplaceEvent)
    expected = ColumnSums.lattice_l1_sensitivity(PrivacyUnit.ROW_REPLACE_ONE, Extent(6)) / 0.25
    assert step.event.scale == pytest.approx(expected, rel=1e-9)
    assert step.noise_std == pytest.approx(math.sqrt(2) * expected, rel=1e-9)


def _exact_delta(epsilon: float, shift: float, mu: float) -> float:
    """Delta of one Laplace and one Gaussian shift together: the Gaussian's, over the law of the Laplace's loss.

    For a shift of s scales the loss is s with probability 1/2, -s with e^-s/2, and s - 2x with density e^-x/2 between.
    """

    def gaussian(left: np.ndarray) -> np.ndarray:
        return ndtr(mu / 2 - left / mu) - np.exp(left) * ndtr(-mu / 2 - left / mu)

    nodes, weights = np.polynomial.legendre.leggauss(400)
    x = shift * (nodes + 1) / 2
    between = float((weights * shift / 2 * np.exp(-x) / 2 * gaussian(epsilon - (shift - 2 * x))).sum())
    ends = gaussian(np.array([epsilon - shift, epsilon + shift])) @ [0.5, math.exp(-shift) / 2]
    return between + float(ends)


@pytest.mark.parametrize(("epsilon", "shift", "mu"), [(1.0, 0.5, 0.2), (2.0, 1.0, 0.3), (0.5, 0.1, 0.15)])
def test_a_mixed_plan_is_checked_against_the_loss_of_both_noises(epsilon: float, shift: float, mu: float) -> None:
    """The test composes both by quadrature. A delta 2 % above the result is accepted, one 2 % below is refused.

    The shift spans many integers, so that integer noise has the curve of continuous noise.
    """
    needed = _exact_delta(epsilon, shift, mu)
    planned_queries = [
        PlannedQuery("one", ColumnSums, Extent(6), 1.0, event=LaplaceEvent(shift * 2**30, 2.0**30)),
        PlannedQuery("two", ColumnSums, Extent(6), 1.0, event=GaussianEvent(mu, 1.0)),
    ]
    assert price(spec(budget=Budget(epsilon, 1.02 * needed)), planned_queries)
    with pytest.raises(PlanOverBudgetError):
        price(spec(budget=Budget(epsilon, 0.98 * needed)), planned_queries)


@pytest.mark.parametrize("share", [0.05, 0.4, 0.9])
@pytest.mark.parametrize("other", [0.02, 0.2, 0.6, 1.0])
def test_every_mixed_plan_that_is_accepted_keeps_its_promise(share: float, other: float) -> None:
    job = laplace_job(1e-6)
    planned_queries = [*laplace(share), PlannedQuery("sums", ColumnSums, Extent(6), other)]
    try:
        steps = price(job, planned_queries)
    except InvalidParameterError:
        assert share + other > 0.5, "two small shares, of epsilon and of mu squared, must fit"
        return
    (first, second) = (step.event for step in steps)
    assert isinstance(first, LaplaceEvent)
    assert isinstance(second, GaussianEvent)
    assert _exact_delta(1.0, first.epsilon, second.mu) <= 1e-6


def test_an_approximate_mechanism_costs_its_delta_times_1_plus_e_to_epsilon() -> None:
    job = spec(budget=Budget(1.0, 1e-6))
    fits = 1e-6 / (1 + math.e)

    def ask(delta: float) -> list[PlannedQuery]:
        return [PlannedQuery("one", ColumnSums, Extent(6), 1.0, event=ApproximateEvent(1.0, delta))]

    assert price(job, ask(fits * (1 - 1e-9)))
    with pytest.raises(PlanOverBudgetError):
        price(job, ask(fits * (1 + 1e-9)))


# --- Noise that depends on a query's content --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sized(Count):
    """A query whose sensitivity depends on its public content."""

    kind = "sized"
    fits_noise = True
    moves: float

    def movement(self, unit: PrivacyUnit, *, l1: bool) -> float:
        return self.moves


@given(planned=st.floats(1e-6, 1e12), part=st.floats(1e-9, 1), width=st.floats(1e-3, 1e6), kind=st.sampled_from(Noise))
def test_reduced_noise_costs_almost_as_much_as_planned_and_not_more(
    planned: float, part: float, width: float, kind: Noise
) -> None:
    """Compare the quotients of sensitivity and width as exact fractions. The ledger reserved the planned price."""
    event = (GaussianEvent if kind is Noise.GAUSSIAN else LaplaceEvent)(planned, planned * width, 2.0**-160)
    query = Sized(planned * part)
    fitted = Step("step", Sized, query.extent, event).fit_to(query, PrivacyUnit.ROW_ADD_REMOVE)
    assert type(fitted.event) is type(event)
    assert isinstance(fitted.event, GaussianEvent | LaplaceEvent)
    assert (fitted.event.sensitivity, fitted.event.slack) == (query.moves, event.slack)
    before, after = _worth(event), _worth(fitted.event)
    assert before * (1 - Fraction(1, 2**38)) < after <= before
    assert cost_units([fitted.event]) <= cost_units([event])


def _worth(event: GaussianEvent | LaplaceEvent) -> Fraction:
    width = event.std if isinstance(event, GaussianEvent) else event.scale
    return Fraction(event.sensitivity) / Fraction(width)


def test_noise_stays_as_planned_for_queries_without_fitted_noise() -> None:
    step = catalogue.plan(spec())[1]
    basis = np.eye(1000, 5)
    assert step.fit_to(CovarianceProduct(basis), PrivacyUnit.ROW_REPLACE_ONE) is step


# --- Refusals ---------------------------------------------------------------------------------------------------------


def refused(
    planned_queries: Sequence[PlannedQuery],
    *named: object,
    kind: type[InvalidParameterError] = InvalidParameterError,
    **changes: Any,
) -> None:
    with pytest.raises(kind, match=facts(*named)) as caught:
        price(spec(**changes), planned_queries)
    assert caught.value.remedy.endswith(".")


def test_published_accounting_without_a_formula_is_refused() -> None:
    planned_queries = [PlannedQuery("sums", ColumnSums, Extent(1000), 1.0)]
    refused(planned_queries, "published", "dps-pca", "row-replace-one", accounting=Accounting.PUBLISHED)
    assert price(spec(accounting=Accounting.PUBLISHED), planned_queries, lambda _, __: 100.0)


def test_blocks_of_rows_are_refused_if_rows_are_added_or_removed() -> None:
    block = [PlannedQuery("block", CovarianceProduct, Extent(1000, 5, 1000, 1, 3), 1.0)]
    refused(block, "row-replace-one", "row-add-remove", unit=PrivacyUnit.ROW_ADD_REMOVE)
    assert price(spec(unit=PrivacyUnit.ROW_REPLACE_ONE), block)


def test_several_blocks_cost_as_much_as_one_of_them() -> None:
    def block(number: int, share: float = 1.0) -> PlannedQuery:
        return PlannedQuery("block", CovarianceProduct, Extent(1000, 5, 1000, number, 3), share)

    assert price(spec(), [block(1), block(2), block(3)])
    too_much = [block(number, share) for number in (1, 2) for share in (0.6, 0.5)]
    refused(too_much, "epsilon", kind=PlanOverBudgetError)
    refused([block(1, 0.5), block(2, 0.6)], 1, 2)
