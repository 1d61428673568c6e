"""What a release costs, and who gets refused: the filter never a unit over and never a plan short.

Everything here is exact or deterministic given the examples; no test is statistical.
"""

import math
import random
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest
from facts import facts
from hypothesis import given, settings
from hypothesis import strategies as st

from dpspca.common.errors import BudgetExceededError, DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.privacy import Price
from dpspca.common.privacy.accountant import Filter, calibrated_std, compose, epsilon_within, usable_mu
from dpspca.common.privacy.calibration import gaussian_delta, gaussian_epsilon, gaussian_mu, gaussian_std, root_up
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent, ParallelEvent, PureEvent

UNIT = Fraction(1, 2**80)
SLACK = 2.0**-140
FINE = 2.0**30
"""A scale at which integer noise is as fine as continuous noise."""

epsilons = st.floats(math.log(0.05), math.log(48.0)).map(lambda power: min(48.0, math.exp(power)))
deltas = st.floats(-12, -1).map(lambda power: 10.0**power)
sensitivities = st.floats(-20, 20).map(lambda power: 10.0**power)
small_gaussians = st.builds(GaussianEvent, st.floats(0, 0.02), st.floats(1, 2), st.just(0.0) | st.just(2.0**-150))
small_events: st.SearchStrategy[Event] = st.one_of(
    small_gaussians,
    st.builds(LaplaceEvent, st.floats(0, 0.02), st.floats(1, 2)),
    st.builds(PureEvent, st.floats(0, 0.02)),
    st.builds(lambda a, b: ParallelEvent((tuple(a), tuple(b))), *[st.lists(small_gaussians, max_size=3)] * 2),
)


def mu_of(events: list[Event]) -> float:
    mu = compose(events).mu
    assert mu is not None
    return mu


# --- Composition ------------------------------------------------------------------------------------------------------


def test_gaussian_events_compose_by_adding_squares_exactly() -> None:
    loss = compose([GaussianEvent(3, 1), GaussianEvent(8, 2)])
    assert loss.mu == 5.0
    assert loss.is_gaussian
    assert loss.delta(2.0) == gaussian_delta(2.0, 5.0)
    assert loss.epsilon(1e-6) == gaussian_epsilon(1e-6, 5.0)


@given(st.lists(st.tuples(sensitivities, sensitivities), max_size=20))
def test_composed_mu_is_never_below_the_exact_root(pairs: list[tuple[float, float]]) -> None:
    mu = mu_of([GaussianEvent(sensitivity, std) for sensitivity, std in pairs])
    truth = sum(((Fraction(a) / Fraction(b)) ** 2 for a, b in pairs), Fraction(0))
    assert Fraction(mu) ** 2 >= truth
    assert Fraction(mu) ** 2 <= (truth + len(pairs) * UNIT) * (1 + Fraction(1, 2**50))


def test_the_reference_plan_of_ten_rounds_costs_what_it_promised() -> None:
    std = calibrated_std(math.sqrt(2), usable_mu(1, 1e-6) / math.sqrt(10))
    loss = compose([GaussianEvent(math.sqrt(2), std, SLACK)] * 10)
    assert 1 - 2e-6 < loss.epsilon(1e-6) <= 1
    assert loss.delta(1) <= 1e-6


def test_nothing_costs_nothing() -> None:
    for events in ([], [GaussianEvent(0, 1)], [PureEvent(0)], [ParallelEvent(((),))]):
        loss = compose(events)
        assert (loss.mu, loss.delta(0), loss.epsilon(0), loss.slack) == (0, 0, 0, 0)
        assert loss.describe() == "nothing that costs"


def test_pure_events_add_up_exactly() -> None:
    loss = compose([PureEvent(0.5), PureEvent(0.5)])
    assert loss.mu is None
    assert not loss.is_gaussian
    assert loss.delta(1.0) == 0
    assert loss.delta(0.9999) > 0
    assert loss.epsilon(0) == pytest.approx(1.0)
    assert loss.epsilon(0) >= 1.0


def test_one_pure_event_is_randomised_response_at_worst() -> None:
    # Its delta is the weight of the loss +epsilon, 1/(1 + e^-1), times 1 - e^(e - epsilon).
    loss = compose([PureEvent(1.0)])
    truth = (1 - math.exp(-0.5)) / (1 + math.exp(-1))
    assert truth <= loss.delta(0.5) <= truth * 1.001


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 2.5, 2.9, 2.99])
def test_many_pure_events_cost_the_binomial_sum_of_randomised_responses(epsilon: float) -> None:
    """Down to deltas of 1e-11, where an allowance of the wrong sign for floating point would show."""
    heads = 1 / (1 + math.exp(-0.1))
    truth = sum(
        math.comb(30, up) * heads**up * (1 - heads) ** (30 - up) * max(0.0, 1 - math.exp(epsilon - 0.1 * (2 * up - 30)))
        for up in range(31)
    )
    assert truth <= compose([PureEvent(0.1)] * 30).delta(epsilon) <= truth * 1.2 + 1e-10


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 3.0, 4.0])
def test_a_coin_and_a_gaussian_cost_the_average_over_the_coin(epsilon: float) -> None:
    heads = 1 / (1 + math.exp(-0.3))
    truth = heads * gaussian_delta(epsilon - 0.3, 0.5) + (1 - heads) * gaussian_delta(epsilon + 0.3, 0.5)
    ours = compose([PureEvent(0.3), GaussianEvent(1, 2)]).delta(epsilon)
    assert truth * (1 - 1e-10) <= ours <= truth * 1.01 + 1e-11


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 0.5, 0.9])
def test_one_laplace_event_has_its_closed_form_and_is_better_than_pure(epsilon: float) -> None:
    """A shift by many integers has the closed form of continuous noise; by one, that of a pure event."""
    loss = compose([LaplaceEvent(FINE, FINE)])
    truth = 1 - math.exp((epsilon - 1) / 2)
    assert truth <= loss.delta(epsilon) <= truth * (1 + 1e-6)
    assert loss.delta(epsilon) < compose([PureEvent(1)]).delta(epsilon)
    assert compose([LaplaceEvent(1, 1)]).delta(epsilon) == compose([PureEvent(1)]).delta(epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.39, 0.41, 0.8])
def test_a_laplace_shift_spread_over_two_entries_is_never_worse_than_one(epsilon: float) -> None:
    """The lemma that lets vectors be accounted for by their L1 sensitivity alone, against its closed form."""
    a, b, left = 0.7, 0.3, 1 - epsilon
    truth = 1 - math.exp(-left / 2) * (1 + min(left, 2 * b) / 4)
    spread = compose([LaplaceEvent(a * FINE, FINE), LaplaceEvent(b * FINE, FINE)]).delta(epsilon)
    assert truth <= spread <= truth * (1 + 1e-6)
    assert spread < compose([LaplaceEvent((a + b) * FINE, FINE)]).delta(epsilon)


def test_a_mixture_costs_more_than_its_parts_and_less_than_simple_bounds() -> None:
    gaussian: list[Event] = [GaussianEvent(1, 4)] * 5
    laplace: list[Event] = [LaplaceEvent(1, 20)] * 3
    mixed = compose([*gaussian, *laplace, PureEvent(0.1)])
    alone = compose(gaussian)
    assert alone.epsilon(1e-6) < mixed.epsilon(1e-6)
    assert mixed.epsilon(1e-6) <= alone.epsilon(1e-6) + 0.25 + 1e-9
    assert mixed.epsilon(1e-6) <= gaussian_epsilon(1e-6, mixed.gdp_bound) * (1 + 1e-9)
    assert mixed.delta(mixed.epsilon(1e-6)) <= 1e-6
    assert "Laplace" in mixed.describe()
    assert "pure" in mixed.describe()


def test_a_mixture_with_next_to_no_other_noise_is_the_gaussian_one() -> None:
    mixed, alone = compose([GaussianEvent(1, 1), PureEvent(1e-9)]), compose([GaussianEvent(1, 1)])
    for epsilon in (0.5, 2.0, 4.0):
        assert alone.delta(epsilon) <= mixed.delta(epsilon) <= alone.delta(epsilon) * (1 + 1e-6)


@pytest.mark.parametrize(
    "events", [[LaplaceEvent(1, 0.001)], [LaplaceEvent(1, 1 / 300), PureEvent(300)], [PureEvent(1e300), PureEvent(1)]]
)
def test_hopeless_mixtures_are_reported_as_such(events: list[Event]) -> None:
    assert compose(events).delta(1.0) == pytest.approx(1.0)
    assert compose(events).epsilon(1e-6) > 500


def test_a_row_is_in_one_group_only() -> None:
    pure, gaussian = PureEvent(0.1), GaussianEvent(1, 10)
    together = compose([ParallelEvent(((pure,), (gaussian,)))])
    assert together.mu is None
    for epsilon in (0.0, 0.05, 0.2):
        assert together.delta(epsilon) == max(compose([pure]).delta(epsilon), compose([gaussian]).delta(epsilon))
    assert together.delta(0.2) < compose([pure, gaussian]).delta(0.2)


def test_each_parallel_event_may_choose_its_own_group() -> None:
    pure, gaussian = PureEvent(0.1), GaussianEvent(1, 10)
    twice = compose([ParallelEvent(((pure,), (gaussian,)))] * 2)
    choices = [[pure, pure], [pure, gaussian], [gaussian, gaussian]]
    assert twice.delta(0.15) == max(compose(events).delta(0.15) for events in choices)


def test_too_many_incomparable_groups_fall_back_to_their_gaussian_bound() -> None:
    groups = tuple((PureEvent(0.01 * count), GaussianEvent(1, 20 + count)) for count in range(1, 12))
    loss = compose([ParallelEvent(groups)])
    assert loss.mu == pytest.approx(max(compose(group).gdp_bound for group in groups))
    assert all(loss.delta(0.1) >= compose(group).delta(0.1) for group in groups)


# --- Slack ------------------------------------------------------------------------------------------------------------


def test_slack_is_charged_to_delta() -> None:
    """Would fail if slack were ignored, counted once for several releases, or not multiplied by 1 + e^epsilon."""
    eta = 1e-9
    events = [GaussianEvent(1, 10, eta), LaplaceEvent(1, 50, eta), GaussianEvent(1, 10, eta)]
    ideal = compose([GaussianEvent(1, 10), LaplaceEvent(1, 50), GaussianEvent(1, 10)])
    loss = compose(events)
    assert loss.slack == pytest.approx(3 * eta)
    for epsilon in (0.0, 1.0, 3.0):
        charge = loss.delta(epsilon) - ideal.delta(epsilon)
        assert charge == pytest.approx((1 + math.exp(epsilon)) * 3 * eta, rel=1e-6)


def test_epsilon_pays_for_slack_too() -> None:
    ideal, real = compose([GaussianEvent(1, 1)]), compose([GaussianEvent(1, 1, 1e-9)])
    epsilon = real.epsilon(1e-6)
    assert epsilon > ideal.epsilon(1e-6)
    assert real.delta(epsilon) <= 1e-6
    assert real.delta(epsilon * (1 - 1e-6)) > 1e-6
    assert epsilon == pytest.approx(ideal.epsilon(1e-6 - (1 + math.exp(epsilon)) * 1e-9), rel=1e-9)


def test_slack_that_eats_all_of_delta_leaves_no_promise() -> None:
    assert compose([GaussianEvent(1, 1, 1e-6)]).epsilon(1e-6) == math.inf
    assert compose([GaussianEvent(1, 1, 0.4)]).delta(5.0) == 1
    assert compose([GaussianEvent(1, 1, SLACK)]).delta(1e4) == 1
    assert compose([GaussianEvent(1, 1, SLACK)]).epsilon(0) == math.inf


def test_an_epsilon_not_found_in_a_hundred_steps_is_infinite() -> None:
    """Where the charge for slack grows as fast as it is made up for, steps are as small as they get."""
    loss = compose([GaussianEvent(1, 1, 1e-9)])
    lost, found = 2.93e-7, 2.94e-7  # each of these steps takes a hundred of the others
    assert math.isinf(loss.epsilon(lost)) > math.isinf(loss.epsilon(found))
    while (middle := (lost + found) / 2) not in {lost, found}:
        lost, found = (middle, found) if math.isinf(loss.epsilon(middle)) else (lost, middle)
    assert loss.epsilon(lost) == math.inf
    assert loss.delta(loss.epsilon(found)) <= found


# --- Filter -----------------------------------------------------------------------------------------------------------


def test_a_new_filter_has_all_of_its_budget() -> None:
    fresh = Filter.for_budget(1.0, 1e-6)
    assert fresh == Filter(1.0, 1e-6)
    assert fresh.spent_mu_squared == 0
    assert fresh.budget == fresh.remaining_mu
    assert fresh.budget <= usable_mu(1.0, 1e-6) < gaussian_mu(1.0, 1e-6)
    assert fresh.budget == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)


def test_admission_returns_a_new_filter_and_leaves_the_old_one() -> None:
    fresh, event = Filter.for_budget(1.0, 1e-6), GaussianEvent(1, 10, SLACK)
    after = fresh.admit([event])
    assert after.spent.units == cost_units([event])
    assert after.spent.slack_units == slack_units([event])
    assert after.spent_mu_squared >= Fraction(1, 100)
    assert fresh.spent.units == 0
    with pytest.raises(FrozenInstanceError):
        after.spent.units = 0  # type: ignore[misc]


def test_a_refusal_says_what_was_asked_what_is_left_and_what_to_do() -> None:
    after = Filter.for_budget(1.0, 1e-6).admit([GaussianEvent(0.2, 1)])
    with pytest.raises(BudgetExceededError, match=facts("mu = 0.2", "mu = 0.126606", "0.236704")) as caught:
        after.admit([GaussianEvent(0.2, 1)])
    assert "1.5797" in caught.value.remedy
    assert after.admit([GaussianEvent(0.12, 1)]).spent.units > after.spent.units


def test_what_is_left_can_be_spent_to_the_last_unit() -> None:
    after = Filter.for_budget(1.0, 1e-6).admit([GaussianEvent(0.2, 1)])
    empty = after.admit([GaussianEvent(1, gaussian_std(1, after.remaining_mu))])
    assert empty.remaining_mu < 1e-7
    full = empty.charge(Price(empty.whole.units - empty.spent.units))
    assert full.remaining_mu == 0
    with pytest.raises(BudgetExceededError, match=facts("mu = 0.2", "mu = 0", "0.236704")):
        full.admit([GaussianEvent(0.2, 1)])
    assert full.admit([GaussianEvent(0, 1), PureEvent(0)]) == full
    with pytest.raises(BudgetExceededError, match=facts("mu = 0", "0.236704")):
        full.admit([GaussianEvent(1e-300, 1)])
    with pytest.raises(BudgetExceededError, match=facts("mu = 0", "0.236704")):
        full.charge(Price(1))


@settings(max_examples=60)
@given(epsilons, deltas, st.lists(st.tuples(st.floats(1e-3, 1), sensitivities), min_size=1, max_size=40), sensitivities)
def test_a_plan_that_fills_the_budget_is_admitted_whole_and_nothing_after_it(
    epsilon: float, delta: float, weights: list[tuple[float, float]], last: float
) -> None:
    mu, total = usable_mu(epsilon, delta), sum(weight for weight, _ in weights)
    shares = [(min(1.0, weight / total), sensitivity) for weight, sensitivity in weights]
    full = Filter.for_budget(epsilon, delta).admit(
        GaussianEvent(sensitivity, calibrated_std(sensitivity, mu, share)) for share, sensitivity in shares
    )
    crumb = GaussianEvent(last, calibrated_std(last, mu, 1e-9))
    with pytest.raises(BudgetExceededError):
        full.admit([crumb])


@settings(max_examples=60)
@given(epsilons, deltas, st.integers(1, 10**6), sensitivities)
def test_up_to_a_million_equal_events_fill_a_budget_exactly(
    epsilon: float, delta: float, times: int, sensitivity: float
) -> None:
    mu = usable_mu(epsilon, delta)
    for std in (calibrated_std(sensitivity, mu, 1 / times), calibrated_std(sensitivity, mu * math.sqrt(1 / times))):
        full = Filter.for_budget(epsilon, delta).charge(Price(times * cost_units([GaussianEvent(sensitivity, std)])))
        with pytest.raises(BudgetExceededError):
            full.admit([GaussianEvent(sensitivity, calibrated_std(sensitivity, mu, 1e-9))])


@settings(max_examples=40)
@given(epsilons, st.floats(-9, -1).map(lambda power: 10.0**power), st.lists(small_gaussians, max_size=30))
def test_whatever_a_filter_admits_keeps_its_promise(epsilon: float, delta: float, events: list[Event]) -> None:
    """The accountant's report of an admitted list, slack included, never exceeds the budget."""
    state, admitted = Filter.for_budget(epsilon, delta), []
    for event in [*events, GaussianEvent(1, calibrated_std(1, usable_mu(epsilon, delta)))]:
        try:
            state = state.admit([event])
        except BudgetExceededError:
            continue
        admitted.append(event)
    assert compose(admitted).delta(epsilon) <= delta


@given(st.lists(small_events, max_size=8), st.randoms(use_true_random=False))
def test_order_and_grouping_of_admissions_do_not_matter(events: list[Event], generator: random.Random) -> None:
    shuffled = list(events)
    generator.shuffle(shuffled)
    state = Filter.for_budget(1.0, 1e-6)
    for event in shuffled:
        state = state.admit([event])
    assert state == Filter.for_budget(1.0, 1e-6).admit(events)


@given(st.lists(small_events, max_size=8), small_events)
def test_spending_only_ever_grows_and_refusals_stay_refused(events: list[Event], more: Event) -> None:
    state = Filter.for_budget(0.05, 1e-6)
    for event in events:
        try:
            after = state.admit([event])
        except BudgetExceededError:
            with pytest.raises(BudgetExceededError):
                state.admit([event, more])
            continue
        assert after.spent.units >= state.spent.units
        assert after.spent.slack_units >= state.spent.slack_units
        assert after.remaining_mu <= state.remaining_mu
        state = after


def test_a_list_is_admitted_together_or_not_at_all() -> None:
    state = Filter.for_budget(1.0, 1e-6)
    with pytest.raises(BudgetExceededError):
        state.admit([GaussianEvent(0.2, 1), GaussianEvent(0.2, 1)])
    assert state.admit(iter([GaussianEvent(0.2, 1)])).spent.units == cost_units([GaussianEvent(0.2, 1)])


def test_a_sampler_too_far_from_its_ideal_is_refused_whatever_its_noise() -> None:
    state = Filter.for_budget(1.0, 1e-6)
    reserve = 1e-6 * 2**-20 / (1 + math.e)
    almost = state.admit([GaussianEvent(0.001, 1, 0.999 * reserve)])
    for sloppy in (GaussianEvent(0.001, 1, 0.002 * reserve), LaplaceEvent(0, 1, 0.002 * reserve)):
        with pytest.raises(BudgetExceededError, match=facts("approximate_delta")):
            almost.admit([sloppy])


def test_the_samplers_slack_fits_many_releases_into_every_sensible_budget() -> None:
    for epsilon, delta in ((0.1, 1e-12), (1, 1e-9), (8, 1e-6), (20, 1e-6)):
        state = Filter.for_budget(epsilon, delta)
        assert state.charge(Price(0, 1000 * slack_units([GaussianEvent(1, 1, SLACK)]))).spent.slack_units > 0


def test_a_ledger_can_restore_a_filter_from_two_integers() -> None:
    state = Filter.for_budget(1.0, 1e-6).admit([GaussianEvent(1, 10, SLACK), PureEvent(0.01)])
    stored = str(state.spent.units), str(state.spent.slack_units)
    assert Filter.for_budget(1.0, 1e-6).charge(Price(*map(int, stored))) == state


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda: Filter.for_budget(0, 1e-6), InvalidParameterError, "epsilon"),
        (lambda: Filter.for_budget(65, 1e-6), InvalidParameterError, "epsilon"),
        (lambda: Filter.for_budget(1, 0), InvalidParameterError, "delta"),
        (lambda: Filter.for_budget(1, 1), InvalidParameterError, "delta"),
        (lambda: Filter.for_budget(1, 1e-200), InvalidParameterError, "delta"),
        (lambda: Filter.for_budget("1", 1e-6), InvalidTypeError, "epsilon"),
        (lambda: Filter(1, 1e-6, Price(-1)), InvalidParameterError, "spent.units"),
        (lambda: Filter(1, 1e-6, Price(0.0)), InvalidTypeError, "spent.units"),
        (lambda: Filter(1, 1e-6, Price(2**81)), InvalidParameterError, "spent.units"),
        (lambda: Filter(1, 1e-6, Price(0, True)), InvalidTypeError, "spent.slack_units"),
        (lambda: Filter(1, 1e-6, Price(0, 2**256)), InvalidParameterError, "spent.slack_units"),
        (lambda: Filter(1, 1e-6).charge(Price(-1)), InvalidParameterError, "units"),
        (lambda: Filter(1, 1e-6).charge(Price(0, -1)), InvalidParameterError, "slack"),
        (lambda: Filter(1, 1e-6).charge(Price(1.0)), InvalidTypeError, "units"),
        (lambda: Filter(1, 1e-6).admit([None]), InvalidTypeError, "NoneType"),
        (lambda: Filter(1, 1e-6).admit(GaussianEvent(1, 1)), InvalidTypeError, "GaussianEvent"),
        (lambda: Filter(1, 1e-6).charge(Price(10**1000)), BudgetExceededError, "mu"),
        (lambda: compose([1.0]), InvalidTypeError, "float"),
        (lambda: cost_units([object()]), InvalidTypeError, "object"),
        (lambda: slack_units(3), InvalidTypeError, "int"),
        (lambda: compose([]).delta(-1), InvalidParameterError, "epsilon"),
        (lambda: compose([]).epsilon(-1), InvalidParameterError, "delta"),
        (lambda: usable_mu(1, 2), InvalidParameterError, "delta"),
        (lambda: calibrated_std(0, 1), InvalidParameterError, "sensitivity"),
        (lambda: calibrated_std(1, 0), InvalidParameterError, "mu"),
        (lambda: calibrated_std(1, 1, 0), InvalidParameterError, "share"),
        (lambda: calibrated_std(1, 1, 1.5), InvalidParameterError, "share"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_a_remedy(
    call: Callable[[], object], error: type[DpspcaError], named: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert named in caught.value.what
    assert caught.value.remedy.endswith(".")


# --- A part of delta set aside ----------------------------------------------------------------------------------------


@given(st.floats(0.1, 8), st.floats(1e-9, 0.1), st.floats(0.01, 0.99))
def test_what_is_set_aside_and_the_rest_together_are_the_whole_delta(epsilon: float, delta: float, part: float) -> None:
    """Everything that the filter admits, of both kinds at once, costs no more than its delta."""
    budget = Filter.for_budget(epsilon, delta, part * delta)
    full = budget.charge(Price(budget.whole.units, budget.whole.slack_units))
    gaussian = gaussian_delta(epsilon, root_up(full.spent_mu_squared))
    slack = Fraction(full.spent.slack_units, 2**256) * (1 + Fraction(math.exp(epsilon)))
    assert gaussian + slack <= delta * (1 + 1e-12)


def test_an_approximate_mechanism_finds_room_only_in_what_is_set_aside() -> None:
    mechanism = ApproximateEvent(0.1, 1e-8)
    with pytest.raises(BudgetExceededError, match=facts("approximate_delta")):
        Filter.for_budget(2.0, 1e-6).admit([mechanism])
    after = Filter.for_budget(2.0, 1e-6, aside=1e-7).admit([mechanism])
    assert after.aside == 1e-7
    with pytest.raises(BudgetExceededError):
        after.admit([ApproximateEvent(0.1, 1e-8)])


@pytest.mark.parametrize("aside", [1e-6, 1.0, -1e-9, math.nan])
def test_no_more_can_be_set_aside_than_there_is(aside: float) -> None:
    with pytest.raises(DpspcaError, match=facts("aside")):
        Filter.for_budget(1.0, 1e-6, aside)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 2.5, 4.0, 12.0, 48.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
def test_an_untouched_budget_has_its_own_epsilon_left(epsilon: float, delta: float) -> None:
    assert epsilon_within(Filter.for_budget(epsilon, delta).whole, delta) == epsilon


@given(st.integers(0, 2**90), st.floats(1e-15, 0.1))
@settings(max_examples=60)
def test_the_epsilon_that_is_left_fits_and_no_noticeably_larger_one_does(units: int, delta: float) -> None:
    """Also by the exact curve of what is left: its epsilon at delta is not below the one that is shown."""
    left = epsilon_within(Price(units), delta)
    assert 0 <= left <= 48
    if left:
        assert Filter.for_budget(left, delta).whole.units <= units
        exact = gaussian_epsilon(delta * (1 - 2.0**-20), root_up(units * UNIT))
        assert left <= exact * (1 + 1e-10)
    larger = 1.0001 * left + 1e-9
    if larger <= 48:
        assert Filter.for_budget(larger, delta).whole.units > units


def test_nothing_left_has_no_epsilon() -> None:
    assert epsilon_within(Price(), 1e-6) == 0.0
    assert epsilon_within(Price(units=1, slack_units=10**20), 1e-6) == 0.0
