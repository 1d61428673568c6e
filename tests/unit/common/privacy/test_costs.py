"""Costs in whole units: exact, rounded up, and for disjoint rows the dearest group's."""

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.privacy.calibration import pure_mu
from dpspca.common.privacy.costs import UNIT, Price, cost_units, slack_units, worst_cases
from dpspca.common.privacy.events import GaussianEvent, LaplaceEvent, ParallelEvent, PureEvent


def test_a_gaussian_event_costs_its_exact_squared_ratio_rounded_up() -> None:
    assert cost_units([GaussianEvent(1, 1)]) == 2**80
    assert cost_units([GaussianEvent(1, 2**40)]) == 1
    assert cost_units([GaussianEvent(1, 2**41)]) == 1
    assert cost_units([GaussianEvent(1, 3)]) == -(-(2**80) // 9)
    assert cost_units([GaussianEvent(0, 3)]) == 0
    assert cost_units([]) == 0


@given(st.floats(0, 1e20), st.floats(1e-10, 1e20))
def test_cost_is_within_one_unit_above_the_truth(sensitivity: float, std: float) -> None:
    truth = (Fraction(sensitivity) / Fraction(std)) ** 2
    assert 0 <= cost_units([GaussianEvent(sensitivity, std)]) * UNIT - truth < UNIT


def test_pure_and_laplace_events_cost_their_gaussian_conversion() -> None:
    assert cost_units([PureEvent(0.5)]) == math.ceil(Fraction(pure_mu(0.5)) ** 2 / UNIT)
    assert cost_units([LaplaceEvent(1, 2)]) == cost_units([PureEvent(0.5)])


def test_slack_is_counted_in_units_rounded_up_and_only_where_noise_was_drawn() -> None:
    assert slack_units([GaussianEvent(1, 1, 2.0**-140), LaplaceEvent(1, 1, 2.0**-300), PureEvent(1)]) == 2**116 + 1


def test_parallel_groups_cost_what_the_dearest_one_costs() -> None:
    cheap, dear = GaussianEvent(1, 4, 2.0**-100), GaussianEvent(1, 2, 2.0**-140)
    event = ParallelEvent(((cheap, cheap), (dear,), ()))
    assert cost_units([event]) == cost_units([dear]) > cost_units([cheap, cheap])
    assert slack_units([event]) == 2 * slack_units([cheap])
    assert cost_units([event, cheap]) == cost_units([dear, cheap])


def test_parallel_events_nest() -> None:
    inner = ParallelEvent(((GaussianEvent(1, 2),), (GaussianEvent(1, 3),)))
    outer = ParallelEvent(((inner, GaussianEvent(1, 2)), (GaussianEvent(1, 2),)))
    assert cost_units([outer]) == 2 * cost_units([GaussianEvent(1, 2)])
    assert [case.gaussian_units for case in worst_cases((outer,))] == [2**79]


def test_the_larger_and_the_smaller_of_two_prices_go_by_each_unit() -> None:
    one, other = Price(3, 1), Price(2, 5)
    assert one.at_least(other) == Price(3, 5)
    assert one.at_most(other) == Price(2, 1)
    assert one.at_most(other).is_within(one)
