"""Statistical audit of the noise: the sampler as a whole, against the ideal laws and an independent implementation.

Every test rejects a correct sampler with probability ``FALSE_ALARM`` (a test that asks several queries divides it
among them). All but the one against OpenDP draw from fixed keys, so that they always give the same answer.
"""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.privacy.noise import DiscreteGaussian, DiscreteLaplace

FALSE_ALARM: Final = 1e-6
COUNT: Final = 1 << 20
STDS: Final = [2.0**3, 2.0**10, 2.0**20, 2.0**40]
WIDE: Final = [2.0**20, 2.0**40]

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@cache
def gaussian(std: float, count: int = COUNT) -> Integers:
    return DiscreteGaussian.with_std_at_least(std).sample(count, KeyStream.repeatable(1, f"gaussian {std}"))


@cache
def laplace(scale: float) -> Integers:
    return DiscreteLaplace.with_scale_at_least(scale).sample(COUNT, KeyStream.repeatable(1, f"laplace {scale}"))


def gaussian_at_most(points: Integers, std: float) -> Floats:
    """Return P(X <= point); for wide noise by the midpoint rule, whose error is of order 1/std²."""
    if std > 2**10:
        return np.asarray(stats.norm.cdf((points + 0.5) / std))
    reach = int(20 * std)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / std) ** 2)
    return np.asarray(np.cumsum(weights) / weights.sum())[np.clip(points, -reach, reach) + reach]


def laplace_at_most(points: Integers, scale: float) -> Floats:
    """Return P(X <= point), exactly."""
    tail = np.exp(-(np.where(points >= 0, points + 1.0, -points)) / scale) / (1 + np.exp(-1 / scale))
    return np.asarray(np.where(points >= 0, 1 - tail, tail))


def edges_between(quantiles: Floats, scale: float) -> Integers:
    """Return integers that cut the ideal law into bins of about the probabilities that gave the quantiles."""
    return np.unique(np.floor(quantiles * scale).astype(np.int64))


LEVELS: Final = np.arange(1, 256) / 256
NORMAL_QUANTILES: Final = np.asarray(stats.norm.ppf(LEVELS))
LAPLACE_QUANTILES: Final = np.asarray(stats.laplace.ppf(LEVELS))


def fit(draws: Integers, edges: Integers, at_most: Floats) -> float:
    """Return the chi-square p-value of the counts between the edges."""
    probabilities = np.diff(np.concatenate([[0.0], at_most, [1.0]]))
    return chi_square(np.bincount(np.searchsorted(edges, draws), minlength=len(probabilities)), probabilities)


def gaussian_fit(draws: Integers, std: float) -> float:
    edges = edges_between(NORMAL_QUANTILES, std)
    return fit(draws, edges, gaussian_at_most(edges, std))


def laplace_fit(draws: Integers, scale: float) -> float:
    edges = edges_between(LAPLACE_QUANTILES, scale)
    return fit(draws, edges, laplace_at_most(edges, scale))


def chi_square(counts: Integers, probabilities: Floats) -> float:
    return float(stats.chisquare(counts, probabilities / probabilities.sum() * counts.sum()).pvalue)


def two_sided(score: float) -> float:
    """Return the p-value of a score that is standard normal by the central limit theorem."""
    return float(2 * stats.norm.sf(abs(score)))


# --- one draw


@pytest.mark.parametrize("std", STDS)
def test_gaussian_draws_fit_the_ideal_law(std: float) -> None:
    """False alarm 1e-6; 2^20 draws in up to 256 bins."""
    assert gaussian_fit(gaussian(std), std) > FALSE_ALARM


@pytest.mark.parametrize("scale", STDS)
def test_laplace_draws_fit_the_ideal_law(scale: float) -> None:
    """False alarm 1e-6; 2^20 draws in up to 256 bins."""
    assert laplace_fit(laplace(scale), scale) > FALSE_ALARM


def test_the_fit_would_notice_a_scale_that_is_two_percent_wrong() -> None:
    """Fixed keys: no false alarm. It shows that the tests above have power."""
    assert gaussian_fit(gaussian(2.0**20), 2.0**20 * 1.02) < FALSE_ALARM
    assert laplace_fit(laplace(2.0**20), 2.0**20 * 1.02) < FALSE_ALARM


@pytest.mark.parametrize("scale", WIDE)
@pytest.mark.parametrize("draw", [gaussian, laplace])
@pytest.mark.parametrize("modulus", [256, 481, 835, 1000])
def test_the_low_digits_of_wide_noise_are_uniform(
    draw: Callable[[float], Integers], scale: float, modulus: int
) -> None:
    """False alarm 1e-6. The strides of the sums, where a seam would show, are among the moduli."""
    counts = np.bincount(draw(scale) % modulus, minlength=modulus)
    assert chi_square(counts, np.full(modulus, 1 / modulus)) > FALSE_ALARM


@pytest.mark.parametrize("std", STDS)
def test_the_first_four_moments_are_those_of_the_ideal_law(std: float) -> None:
    """False alarm 1e-6, a quarter for each moment. Var of x, x², x³, x⁴ for a normal x: 1, 2, 15, 96."""
    standardised = gaussian(std) / std
    for power, mean, variance in [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)]:
        score = (np.mean(standardised**power) - mean) / np.sqrt(variance / COUNT)
        assert two_sided(float(score)) > FALSE_ALARM / 4


@pytest.mark.parametrize("std", WIDE)
@pytest.mark.parametrize("multiple", [4, 5])
def test_the_tails_hold_as_many_draws_as_they_should(std: float, multiple: int) -> None:
    """False alarm 1e-6: an exact binomial test on 2^22 draws, about 266 beyond 4 std and 2.4 beyond 5."""
    beyond = int(np.count_nonzero(np.abs(gaussian(std, 1 << 22)) > multiple * std))
    assert stats.binomtest(beyond, 1 << 22, float(2 * stats.norm.sf(multiple))).pvalue > FALSE_ALARM


@pytest.mark.parametrize("scale", WIDE)
def test_the_laplace_tails_hold_as_many_draws_as_they_should(scale: float) -> None:
    """False alarm 1e-6: an exact binomial test, about 48 of 2^20 draws beyond 10 scales."""
    beyond = int(np.count_nonzero(np.abs(laplace(scale)) > 10 * scale))
    assert stats.binomtest(beyond, COUNT, float(np.exp(-10))).pvalue > FALSE_ALARM


# --- draws together


@pytest.mark.parametrize("lag", [1, 2, 3, 64, 1 << 15, (1 << 15) + 1])
@pytest.mark.parametrize("power", [1, 2])
def test_draws_are_not_correlated_with_later_ones(lag: int, power: int) -> None:
    """False alarm 1e-6; the lag of 2^15 pairs the same places of neighbouring batches."""
    values = (gaussian(2.0**40) / 2.0**40) ** power
    values = (values - values.mean()) / values.std()
    score = np.sum(values[lag:] * values[:-lag]) / np.sqrt(COUNT - lag)
    assert two_sided(float(score)) > FALSE_ALARM


@pytest.mark.parametrize("std", [2.0**10, 2.0**40])
@pytest.mark.parametrize("lag", [1, 1 << 15])
def test_pairs_of_draws_are_independent(std: float, lag: int) -> None:
    """False alarm 1e-6: disjoint pairs, binned 16 by 16 with known probabilities."""
    edges = edges_between(NORMAL_QUANTILES[15::16], std)
    probabilities = np.diff(np.concatenate([[0.0], gaussian_at_most(edges, std), [1.0]]))
    pairs = gaussian(std).reshape(-1, 2, lag)
    first, second = (np.searchsorted(edges, pairs[:, side].ravel()) for side in (0, 1))
    counts = np.bincount(first * 16 + second, minlength=256)
    assert chi_square(counts, np.outer(probabilities, probabilities).ravel()) > FALSE_ALARM


@pytest.mark.parametrize("bit", [0, 7, 19])
def test_a_bit_of_successive_draws_changes_as_often_as_a_fair_coin(bit: int) -> None:
    """False alarm 1e-6: the number of runs, less one, is binomial."""
    bits = gaussian(2.0**40) >> bit & 1
    changes = int(np.count_nonzero(np.diff(bits)))
    assert stats.binomtest(changes, COUNT - 1, 0.5).pvalue > FALSE_ALARM


def test_the_sign_says_nothing_about_the_low_digit() -> None:
    """False alarm 1e-6: a sign by low byte table of 2^20 draws."""
    draws = gaussian(2.0**40)
    counts = np.bincount((draws >= 0) * 256 + draws % 256, minlength=512)
    assert chi_square(counts, np.full(512, 1 / 512)) > FALSE_ALARM


# --- an independent implementation


@pytest.mark.parametrize("std", [20.5, 300.0])
def test_opendp_draws_from_the_same_law(std: float) -> None:
    """False alarm 1e-6: two-sample chi-square. OpenDP cannot be seeded, so this one is not deterministic."""
    dp: Any = importlib.import_module("opendp.prelude")  # by name: it publishes no types that a checker could use
    dp.enable_features("contrib")
    count, size = 20_000, 1 << 18
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    theirs = np.array(dp.m.make_gaussian(*space, scale=std)([0] * count))
    edges = edges_between(NORMAL_QUANTILES[7::8], std)
    ours = gaussian(std, size)
    table = [np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1) for draws in (theirs, ours)]
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM
