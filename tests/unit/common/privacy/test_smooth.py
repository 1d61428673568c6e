"""Smooth bounds and the noise that goes with them, against brute force and exact integrals."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from dpspca.common.privacy import smooth
from dpspca.common.privacy.smooth import Constants, keeps_promise, smooth_bound, subspace_distance_bound

betas = st.floats(1e-4, 2.0)
gaps = st.floats(0.0, 300.0)
steps = st.sampled_from([1, 2])
angles = st.integers(1, 4)


@given(gap=gaps, step=steps, angles=angles, beta=betas)
def test_the_maximum_over_all_steps_is_found_with_three_candidates(
    gap: float, step: int, angles: int, beta: float
) -> None:
    ratio = gap / (step * (1 + smooth.ROUNDING))
    every = [math.exp(-beta * j) * subspace_distance_bound(ratio - j, angles) for j in range(400)]
    assert smooth_bound(gap, step, angles, beta) == pytest.approx(max(every) * (1 + smooth.ROUNDING), rel=1e-12)


@given(gap=gaps, step=steps, angles=angles, beta=betas, moved=st.floats(-1, 1))
def test_the_bound_is_smooth_and_above_the_local_one(
    gap: float, step: int, angles: int, beta: float, moved: float
) -> None:
    """Also where rounding moves the gap by a little more than a row can."""
    here = smooth_bound(gap, step, angles, beta)
    there = smooth_bound(max(0.0, gap + moved * step * (1 + 2.0**-9)), step, angles, beta)
    assert abs(math.log(here / there)) <= beta * (1 + 1e-9)
    assert here >= subspace_distance_bound(gap / step, angles)


def test_without_an_angle_nothing_can_move() -> None:
    assert smooth_bound(0.0, 2, 0, 0.1) == 0.0


def divergence(epsilon: float, scale: float, shift: float) -> float:
    """Integrate max(0, p - e^epsilon p') for p = N(0, 1) and p' = N(shift, scale^2): the delta that is needed."""

    def above(z: float) -> float:
        return max(0.0, stats.norm.pdf(z) - math.exp(epsilon) * stats.norm.pdf(z, shift, scale))

    return sum(integrate.quad(above, low, low + 2, epsabs=1e-16)[0] for low in range(-40, 40, 2))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-3), (2.0, 1e-5), (8.0, 1e-6)])
def test_gaussian_noise_keeps_what_its_constants_promise(epsilon: float, delta: float) -> None:
    """One entry, the scale as far off as it may be, either way, and the centre as well; by exact integration."""
    for constants in (
        smooth.gaussian_constants(1, epsilon, delta),
        smooth.published_gaussian_constants(1, epsilon, delta),
    ):
        assert keeps_promise(constants, 1, epsilon, delta)
        for change in (constants.beta, -constants.beta, 0.0):
            scale = math.exp(change)
            shift = constants.alpha * min(1.0, scale)
            assert divergence(epsilon, scale, shift) <= delta


@pytest.mark.parametrize("entries", [1, 10, 200, 5000])
@pytest.mark.parametrize("probability", [1e-3, 1e-9, 1e-20])
def test_what_a_change_of_scale_loses_is_bounded_but_for_its_probability(entries: int, probability: float) -> None:
    beta = 0.1 / entries
    limit = smooth.scale_loss(entries, beta, probability)
    for change in (beta, beta / 2, -beta / 2, -beta):
        # The loss is D l - w (1 - e^(-2l)) / 2, for a chi-square w; it exceeds the limit on one side of a w.
        slope = -math.expm1(-2 * change) / 2
        edge = (entries * change - limit) / slope
        tail = stats.chi2.cdf(edge, entries) if change > 0 else stats.chi2.sf(edge, entries)
        assert tail <= probability
    assert smooth.scale_loss(entries, beta / 2, probability) < limit


def student_loss(z: np.ndarray, scale: float, shift: np.ndarray) -> np.ndarray:
    entries = z.shape[1]

    def log_density(at: np.ndarray) -> np.ndarray:
        return -entries * np.log1p(np.square(at).sum(axis=1) / entries)

    return log_density(z) - log_density((z - shift) / scale) + entries * math.log(scale)


@pytest.mark.parametrize("entries", [1, 3, 40])
def test_student_noise_is_purely_private_with_tight_constants(
    entries: int,
) -> None:
    rng = np.random.default_rng(entries)
    constants = smooth.student_constants(entries, 1.0)
    largest = 0.0
    for change in (constants.beta, -constants.beta):
        scale = math.exp(change)
        shift = np.zeros(entries)
        shift[0] = constants.alpha * min(1.0, scale)
        z = rng.standard_normal((2000, entries)) * np.geomspace(1e-3, 1e4, 2000)[:, None]
        along = np.zeros((2000, entries))
        along[:, 0] = np.linspace(-5, 5, 2000) * math.sqrt(entries)
        loss = np.abs(student_loss(np.vstack([z, along]), scale, shift))
        assert loss.max() <= 1.0
        largest = max(largest, float(loss.max()))
    assert largest > 0.5


def test_published_cauchy_noise_costs_a_third_of_what_it_is_sold_for() -> None:
    constants = smooth.published_cauchy_constants(3, 1.2)
    z = np.linspace(-50, 50, 20_001)
    worst = 0.0
    for change in (constants.beta, -constants.beta):
        scale = math.exp(change)
        shift = constants.alpha * min(1.0, scale)
        plain = np.log1p((z / scale) ** 2) - np.log1p(z**2) + change
        shifted = np.log1p(((z - shift) / scale) ** 2) - np.log1p(z**2) + change
        worst = max(worst, float(np.abs(shifted).max() + 2 * np.abs(plain).max()))  # all of the shift in one entry
    assert 0.15 < worst <= 0.4


def test_published_constants_that_promise_too_much_are_found_out() -> None:
    """With a large epsilon the change of scale alone loses more; and noise half as wide never is enough."""
    large = smooth.published_gaussian_constants(1, 40.0, 0.5)
    assert not keeps_promise(large, 1, 40.0, 0.5)
    good = smooth.gaussian_constants(60, 1.0, 1e-6)
    assert keeps_promise(good, 60, 1.0, 1e-6)
    assert not keeps_promise(Constants(2 * good.alpha, good.beta), 60, 1.0, 1e-6)
    assert not keeps_promise(Constants(good.alpha, 3 * good.beta), 60, 1.0, 1e-6)


def test_exact_constants_give_less_noise_than_the_published_ones() -> None:
    exact, published = smooth.gaussian_constants(60, 1.0, 1e-6), smooth.published_gaussian_constants(60, 1.0, 1e-6)
    assert exact.alpha > 1.5 * published.alpha
    pure, cauchy = smooth.student_constants(60, 1.0), smooth.published_cauchy_constants(60, 1.0)
    assert pure.alpha > 2.9 * cauchy.alpha / math.sqrt(60)
    assert pure.beta == pytest.approx(3 * cauchy.beta)
