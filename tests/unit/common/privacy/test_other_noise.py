"""What is not Gaussian: mechanisms that fail with a small probability, and the width of Laplace noise."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import BudgetExceededError, DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.privacy.accountant import Filter, calibrated_scale, compose
from dpspca.common.privacy.costs import SLACK_UNIT, cost_units, slack_units
from dpspca.common.privacy.events import ApproximateEvent, GaussianEvent, LaplaceEvent, ParallelEvent, PureEvent

# --- Mechanisms that fail with a small probability --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "named"),
    [
        (lambda: ApproximateEvent(-0.1, 0.0), InvalidParameterError, "epsilon"),
        (lambda: ApproximateEvent(math.inf, 0.0), InvalidParameterError, "epsilon"),
        (lambda: ApproximateEvent(True, 0.0), InvalidTypeError, "epsilon"),
        (lambda: ApproximateEvent(1.0, -1e-9), InvalidParameterError, "delta"),
        (lambda: ApproximateEvent(1.0, math.nan), InvalidParameterError, "delta"),
        (lambda: ApproximateEvent(1.0, 1.0), InvalidParameterError, "delta"),
        (lambda: ApproximateEvent(1.0, "0"), InvalidTypeError, "delta"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_with_its_name_and_a_remedy(
    make: Callable[[], object], error: type[DpspcaError], named: str
) -> None:
    with pytest.raises(error) as caught:
        make()
    assert named in caught.value.what
    assert caught.value.remedy.endswith(".")


@given(epsilon=st.floats(0, 10), delta=st.floats(0, 1e-3))
def test_an_approximate_mechanism_costs_a_pure_one_plus_delta_as_slack(epsilon: float, delta: float) -> None:
    event = ApproximateEvent(epsilon, delta)
    assert cost_units([event]) == cost_units([PureEvent(epsilon)])
    assert 0 <= slack_units([event]) * SLACK_UNIT - Fraction(delta) < SLACK_UNIT
    assert compose([event]).gdp_bound == compose([PureEvent(epsilon)]).gdp_bound


def test_without_a_delta_it_is_a_pure_mechanism() -> None:
    for epsilon in (0.1, 0.5, 0.9):
        assert compose([ApproximateEvent(0.5, 0.0)] * 3).delta(epsilon) == compose([PureEvent(0.5)] * 3).delta(epsilon)


def test_its_delta_is_charged_times_one_and_e_to_the_epsilon() -> None:
    """The price of calling it a slack: (epsilon, delta) alone would be charged delta once."""
    charged = compose([ApproximateEvent(0.5, 1e-9)]).delta(0.5)
    assert (1 + math.exp(0.5)) * 1e-9 <= charged < (1 + math.exp(0.5)) * 1e-9 * (1 + 1e-9)
    assert compose([ApproximateEvent(0.5, 1e-9)] * 3).slack == pytest.approx(3e-9, rel=1e-12)


def _worst(times: int, each: float, delta: float, epsilon: float) -> float:
    """Delta at ``epsilon`` of the worst mechanism there is, so many times, by adding up all its outcomes.

    It shows its input with probability delta and is randomised response of ``each`` otherwise (Kairouz, Oh &
    Viswanath 2015); nothing is bounded or rounded here.
    """
    likely = 1 / (1 + math.exp(-each))
    hidden = sum(
        math.comb(times, k)
        * likely**k
        * (1 - likely) ** (times - k)
        * max(0.0, 1 - math.exp(epsilon - each * (2 * k - times)))
        for k in range(times + 1)
    )
    return 1 - (1 - delta) ** times * (1 - hidden)


@pytest.mark.parametrize("times", [1, 2, 5, 20])
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3])
def test_the_worst_approximate_mechanism_costs_no_more_than_reported(times: int, epsilon: float, delta: float) -> None:
    told = compose([ApproximateEvent(0.2, delta)] * times).delta(epsilon)
    assert told >= _worst(times, 0.2, delta, epsilon) * (1 - 1e-9)


def test_of_parallel_groups_the_likeliest_failure_counts() -> None:
    groups = ParallelEvent(((ApproximateEvent(0.1, 1e-9),) * 2, (ApproximateEvent(0.5, 1e-10),)))
    assert slack_units([groups]) == 2 * slack_units([ApproximateEvent(0.1, 1e-9)])
    assert cost_units([groups]) == cost_units([PureEvent(0.5)])
    assert compose([groups]).delta(0.5) >= (1 + math.exp(0.5)) * 2e-9


def test_a_filter_pays_for_a_failure_from_the_delta_kept_for_slack() -> None:
    """A millionth of delta, divided by 1 + e^epsilon; what fails more often is refused whatever it costs."""
    full = Filter.for_budget(1.0, 1e-3)
    kept = float(full.whole.slack_units * SLACK_UNIT)
    assert kept < 1e-9
    assert full.admit([ApproximateEvent(0.1, kept * 0.999)])
    with pytest.raises(BudgetExceededError):
        full.admit([ApproximateEvent(0.1, kept * 1.001)])


def test_beside_gaussian_noise_it_adds_its_epsilon_and_its_failure() -> None:
    gaussian, approximate = GaussianEvent(0.2, 1.0), ApproximateEvent(0.3, 1e-8)
    both = compose([gaussian, approximate]).delta(1.0)
    assert compose([gaussian, PureEvent(0.3)]).delta(1.0) < both
    assert both <= compose([gaussian]).delta(0.7) + (1 + math.e) * 1e-8 * (1 + 1e-9)


# --- The width of Laplace noise ---------------------------------------------------------------------------------------


@given(sensitivity=st.floats(1e-30, 1e30), epsilon=st.floats(1e-6, 48))
def test_a_calibrated_scale_is_at_least_the_quotient_and_next_to_no_more(sensitivity: float, epsilon: float) -> None:
    scale = Fraction(calibrated_scale(sensitivity, epsilon))
    quotient = Fraction(sensitivity) / Fraction(epsilon)
    assert quotient < scale < quotient * (1 + Fraction(1, 2**39))


@given(
    epsilon=st.floats(1e-3, 48),
    weights=st.lists(st.floats(0.01, 1), min_size=1, max_size=50),
    sensitivity=st.floats(1e-3, 1e12),
)
def test_shares_of_an_epsilon_add_up_to_no_more_than_it(
    epsilon: float, weights: list[float], sensitivity: float
) -> None:
    """As the events say it, in exact fractions, each rounded up; with shares that add up to one in floats."""
    parts = [epsilon * weight / math.fsum(weights) for weight in weights]
    noises = [LaplaceEvent(sensitivity, calibrated_scale(sensitivity, part)) for part in parts]
    assert sum(Fraction(each.epsilon) for each in noises) <= Fraction(epsilon)


def test_noises_that_share_an_epsilon_need_no_delta() -> None:
    noises = [LaplaceEvent(3.0, calibrated_scale(3.0, 1.0 / 7)) for _ in range(7)]
    assert compose(noises).delta(1.0) == 0


@pytest.mark.parametrize(
    ("sensitivity", "epsilon", "named"), [(0.0, 1.0, "sensitivity"), (1.0, 0.0, "epsilon"), (1.0, math.inf, "epsilon")]
)
def test_a_scale_of_nothing_or_for_nothing_is_refused(sensitivity: float, epsilon: float, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts(named)):
        calibrated_scale(sensitivity, epsilon)
