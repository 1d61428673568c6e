"""The most that a guess can be right, against the error of the best test between neighbours."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.privacy.calibration import gaussian_delta
from dpspca.common.privacy.guesses import best_guess_by_epsilon, best_guess_by_mu

THOUSANDTH = 1e-3


@given(mu=st.floats(0, 20))
def test_a_guess_by_mu_is_half_the_distance_above_even_odds(mu: float) -> None:
    """The delta at epsilon 0 is the total variation distance."""
    right = 0.5 + gaussian_delta(0.0, mu) / 2 if mu else 0.5
    assert right - 1e-12 <= best_guess_by_mu(mu, 0.0) <= right + THOUSANDTH + 1e-12


@given(epsilon=st.floats(0, 30), delta=st.floats(0, 0.5))
def test_a_guess_by_epsilon_is_that_of_randomized_response(epsilon: float, delta: float) -> None:
    """With probability delta the answer is known, and else it is right with the odds e^epsilon."""
    right = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
    assert right - 1e-9 <= best_guess_by_epsilon(epsilon, delta) <= right + THOUSANDTH + 1e-9


@pytest.mark.parametrize("guess", [best_guess_by_mu, best_guess_by_epsilon])
def test_a_guess_is_a_probability_and_never_rounded_down(guess: Callable[[float, float], float]) -> None:
    assert (guess(0.0, 0.0), guess(0.0, 1e-9), guess(1000.0, 0.5)) == (0.5, 0.501, 1.0)
