"""The scalar formulas against 60-digit arithmetic, their inverses, and the side on which they err.

A wrong sign, a missing term or a rounding to the wrong side fails here: truth is computed from the textbook formula.
"""

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.privacy import calibration
from dpspca.common.privacy.calibration import (
    float_above,
    float_below,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_std,
    published_claim,
    published_noise_multiplier,
    pure_mu,
    root_down,
    root_up,
)

epsilons = st.floats(math.log(1e-6), math.log(48.0)).map(lambda power: min(48.0, math.exp(power)))
deltas = st.floats(math.log(1e-180), math.log(0.99)).map(math.exp)
fractions = st.fractions(min_value=0).filter(bool) | st.builds(
    lambda n, power: Fraction(n) * Fraction(2) ** power, st.integers(1, 10**40), st.integers(-1060, 880)
)


def tail(x: Any) -> Any:
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


def true_delta(epsilon: float, mu: float) -> Any:
    eps, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
    return tail(eps / m - m / 2) - mpmath.exp(eps) * tail(eps / m + m / 2)


def places() -> Iterator[tuple[float, float]]:
    """Points over the whole promised domain, most of them where delta is neither 1 nor below 1e-300."""
    generator = random.Random(20180621)
    edges = [(e, m) for e in (0.0, 1e-12, 1.0, 1e3) for m in (1e-8, 0.0999999, 0.1, 1.0, 44.7, 1e3)]
    yield from edges
    for _ in range(1500):
        mu = 10 ** generator.uniform(-8, 3)
        epsilon = mu * (generator.uniform(-5, 38) + mu / 2)
        if 0 <= epsilon <= 1e3:
            yield epsilon, mu
    for _ in range(300):
        yield 10 ** generator.uniform(-9, 3), 10 ** generator.uniform(-8, 3)


def test_gaussian_delta_is_at_most_a_billionth_above_the_truth() -> None:
    with mpmath.workdps(60):
        for epsilon, mu in places():
            truth, ours = true_delta(epsilon, mu), mpmath.mpf(gaussian_delta(epsilon, mu))
            assert ours >= truth, (epsilon, mu)
            assert ours <= max(truth, mpmath.mpf("1e-300")) * (1 + mpmath.mpf("1e-9")), (epsilon, mu)


def test_the_guard_is_ten_times_the_error_it_guards_against() -> None:
    with mpmath.workdps(60):
        for epsilon, mu in places():
            truth = true_delta(epsilon, mu)
            if 1e-300 < truth < 0.999:
                unguarded = mpmath.mpf(gaussian_delta(epsilon, mu)) / (1 + calibration.GUARD)
                assert abs(unguarded / truth - 1) < calibration.GUARD / 10, (epsilon, mu)


@pytest.mark.parametrize(
    ("epsilon", "mu", "delta"),
    [
        (0.0, 1.0, 0.382924922548026),  # 2 Phi(1/2) - 1
        (1.0, 1.0, 0.126936737506644),
        (0.0, 1e-8, 3.98942280401433e-09),  # mu / sqrt(2 pi)
    ],
)
def test_gaussian_delta_has_the_values_one_can_look_up(epsilon: float, mu: float, delta: float) -> None:
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-10)


@pytest.mark.parametrize(
    ("epsilon", "mu", "delta"),
    [(1.0, 0.0, 0.0), (0.0, 0.0, 0.0), (1.0, 1.1e3, 1.0), (1e300, 1.0, 1e-300), (9, 5e-324, 1e-300)],
)
def test_gaussian_delta_has_an_answer_beyond_its_accurate_range_too(epsilon: float, mu: float, delta: float) -> None:
    assert gaussian_delta(epsilon, mu) == delta


def test_the_reference_calibration() -> None:
    assert gaussian_mu(1, 1e-6) == pytest.approx(0.2367043806, rel=1e-9)


@given(epsilons, deltas)
def test_gaussian_mu_is_private_enough_and_a_billionth_more_would_not_be(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    with mpmath.workdps(60):
        assert true_delta(epsilon, mu) <= delta
        assert true_delta(epsilon, mu * (1 + 1e-9)) > delta * (1 - 1e-9)
    assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-9)


@given(epsilons, deltas)
def test_gaussian_epsilon_undoes_gaussian_mu(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    back = gaussian_epsilon(delta, mu)
    assert gaussian_delta(back, mu) <= delta
    # Where delta hardly depends on epsilon, epsilon cannot come back; what it stands for does.
    assert gaussian_delta(back, mu) == pytest.approx(delta, rel=1e-9)
    if delta < 0.4 * mu * 0.9:
        assert back == pytest.approx(epsilon, rel=1e-9, abs=1e-9 * mu)


@given(st.floats(math.log(1e-6), math.log(1.5)).map(math.exp), st.floats(1, 29))
def test_mu_and_epsilon_come_back_from_delta_to_nine_digits(mu: float, deviations: float) -> None:
    epsilon = mu * (deviations + mu / 2)
    delta = gaussian_delta(epsilon, mu)
    assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-9)
    assert gaussian_epsilon(delta, mu) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(
    ("delta", "mu", "epsilon"), [(0.0, 0.0, 0.0), (0.5, 0.1, 0.0), (0.0, 1e-3, math.inf), (1e-6, 1e4, math.inf)]
)
def test_gaussian_epsilon_has_an_answer_for_every_delta(delta: float, mu: float, epsilon: float) -> None:
    assert gaussian_epsilon(delta, mu) == epsilon


def test_pure_mu_is_the_least_for_its_epsilon_and_rounded_up() -> None:
    generator = random.Random(2022)
    with mpmath.workdps(60):
        for epsilon in [1e-12, 0.999999, 1.0, 30.0] + [10 ** generator.uniform(-9, 1.5) for _ in range(300)]:
            truth = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(mpmath.mpf(epsilon) / 2))
            assert 0 <= mpmath.mpf(pure_mu(epsilon)) / truth - 1 <= 1e-10, epsilon


def test_pure_mu_meets_the_vertex_of_the_pure_trade_off_curve() -> None:
    with mpmath.workdps(60):
        for epsilon in (0.01, 1.0, 5.0, 60.0):
            assert tail(mpmath.mpf(pure_mu(epsilon)) / 2) == pytest.approx(1 / (1 + mpmath.exp(epsilon)), rel=1e-8)


@given(st.floats(1e-6, 60), st.floats(1e-6, 1 - 1e-6))
def test_the_gaussian_trade_off_curve_lies_below_the_pure_one(epsilon: float, level: float) -> None:
    with mpmath.workdps(60):
        quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(level))
        gaussian = tail(mpmath.mpf(pure_mu(epsilon)) - quantile)  # this is 1 - Phi(mu - quantile)
        pure = max(0, 1 - mpmath.exp(epsilon) * level, mpmath.exp(-epsilon) * (1 - mpmath.mpf(level)))
        assert gaussian <= pure


def test_pure_mu_is_zero_for_zero_and_finite_for_everything() -> None:
    assert pure_mu(0) == 0
    assert pure_mu(1e5) == pytest.approx(894.3957875, rel=1e-8)
    assert math.isfinite(pure_mu(1.7e308))


@given(st.floats(1e-50, 1e50), st.floats(1e-50, 1e50))
def test_gaussian_std_gives_at_most_the_mu_that_was_asked_for(sensitivity: float, mu: float) -> None:
    std = Fraction(gaussian_std(sensitivity, mu))
    assert Fraction(sensitivity) / std <= Fraction(mu)
    assert Fraction(sensitivity) / std >= Fraction(mu) * (1 - Fraction(1, 2**52))


def test_published_noise_is_six_times_the_exact_one() -> None:
    exact = math.sqrt(2) * math.sqrt(10) / gaussian_mu(1, 1e-6)
    assert published_noise_multiplier(10, 1, 1e-6) == pytest.approx(20 * math.sqrt(2 * math.log(2e7)), rel=1e-10)
    assert published_noise_multiplier(10, 1, 1e-6) >= 20 * math.sqrt(2 * math.log(2e7))
    assert published_noise_multiplier(10, 1, 1e-6) / exact == pytest.approx(6.1, abs=0.05)


def test_the_published_claim_is_what_was_put_in() -> None:
    assert published_claim(10, 0.5, 0.3) == (0.5, 0.3)


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        *(
            (lambda e=e: gaussian_mu(e, 1e-6), InvalidParameterError, "epsilon")
            for e in (0, -1, 64.1, math.inf, math.nan)
        ),
        *((lambda d=d: gaussian_mu(1, d), InvalidParameterError, "delta") for d in (0, -1, 1, 2, 1e-201, math.nan)),
        (lambda: gaussian_mu("1", 1e-6), InvalidTypeError, "epsilon"),  # type: ignore[arg-type]
        (lambda: gaussian_mu(1, None), InvalidTypeError, "delta"),  # type: ignore[arg-type]
        (lambda: gaussian_mu(True, 1e-6), InvalidTypeError, "epsilon"),
        (lambda: gaussian_delta(-1e-9, 1), InvalidParameterError, "epsilon"),
        (lambda: gaussian_delta(math.inf, 1), InvalidParameterError, "epsilon"),
        (lambda: gaussian_delta(1, -1e-9), InvalidParameterError, "mu"),
        (lambda: gaussian_delta(1, math.nan), InvalidParameterError, "mu"),
        (lambda: gaussian_epsilon(-1e-9, 1), InvalidParameterError, "delta"),
        (lambda: gaussian_epsilon(1e-9, -1), InvalidParameterError, "mu"),
        (lambda: gaussian_std(0, 1), InvalidParameterError, "sensitivity"),
        (lambda: gaussian_std(1, 0), InvalidParameterError, "mu"),
        (lambda: gaussian_std(1, 10**30), InvalidParameterError, "mu"),
        (lambda: pure_mu(-1), InvalidParameterError, "epsilon"),
        (lambda: pure_mu(math.nan), InvalidParameterError, "epsilon"),
        (lambda: published_noise_multiplier(0, 1, 1e-6), InvalidParameterError, "rounds"),
        (lambda: published_noise_multiplier(10**400, 1, 1e-6), InvalidParameterError, "rounds"),
        (lambda: published_noise_multiplier(1.0, 1, 1e-6), InvalidTypeError, "rounds"),  # type: ignore[arg-type]
        (lambda: published_noise_multiplier(10, 65, 1e-6), InvalidParameterError, "epsilon"),
        (lambda: published_claim(-1, 1, 1e-6), InvalidParameterError, "rounds"),
        (lambda: published_claim(1, 1, 1), InvalidParameterError, "delta"),
    ],
)
def test_bad_input_is_refused_with_its_name_and_a_remedy(
    call: Callable[[], object], error: type[DpspcaError], named: str
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert named in caught.value.what
    assert caught.value.remedy.endswith(".")


@given(fractions)
def test_rounding_brackets_a_rational_within_one_float(exact: Fraction) -> None:
    low, high = float_below(exact), float_above(exact)
    assert Fraction(low) <= exact <= Fraction(high)
    assert high in {low, math.nextafter(low, math.inf)}


@given(fractions)
def test_rounded_roots_bracket_the_root_within_two_floats(square: Fraction) -> None:
    low, high = root_down(square), root_up(square)
    assert Fraction(low) ** 2 <= square <= Fraction(high) ** 2
    assert high <= math.nextafter(math.nextafter(low, math.inf), math.inf)


@given(st.floats(1e-150, 1e150))
def test_the_root_of_a_square_is_exact(root: float) -> None:
    assert root_up(Fraction(root) ** 2) == root == root_down(Fraction(root) ** 2)


def test_zero_rounds_down_to_zero_without_a_sign() -> None:
    assert math.copysign(1, float_below(Fraction(0))) == 1
    assert math.copysign(1, root_down(Fraction(0))) == 1


def test_rounding_up_ends_at_infinity_and_down_at_the_largest_float() -> None:
    assert float_above(Fraction(10) ** 400) == math.inf
    assert math.isfinite(float_below(Fraction(10) ** 400))
    assert root_up(Fraction(0)) == root_down(Fraction(0)) == 0
