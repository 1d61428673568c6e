"""Choices follow the exponential mechanism, and cost what their event says."""

import math
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.special import expit, ndtri
from scipy.stats import chi2

from dpspca.common.errors import InvalidParameterError
from dpspca.common.privacy import picks
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.alias_tables import scaled_exp
from dpspca.common.privacy.calibration import choice_mu, choice_range, pure_mu
from dpspca.common.privacy.costs import UNIT, cost_units, slack_units
from dpspca.common.privacy.events import ChoiceEvent, GaussianEvent
from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.privacy.picks import _weights, pick_columns, pick_pairs

SCORES = np.array([[9, 4, 4, 0], [4, 9, 2, 7], [4, 2, 9, 1], [0, 7, 1, 9]], dtype=np.int32)
PAIRS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


@pytest.fixture
def listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep weights from one query to the next, which a provider must not do: thousands of draws need them."""
    monkeypatch.setattr(picks, "_weights", cache(picks._weights))


@pytest.mark.usefixtures("listed_once")
def test_a_choice_is_as_likely_as_the_exponential_mechanism_says() -> None:
    """Chi-square over six outcomes; a true sampler fails with probability 1e-9, and the seed is fixed."""
    draws, scale = 4000, 3.0
    words = KeyStream.repeatable(1, "picks")
    seen = Counter(pick_pairs(SCORES, 1, scale, words)[0] for _ in range(draws))
    weights = np.array([math.exp(SCORES[pair] / scale) for pair in PAIRS])
    expected = draws * weights / weights.sum()
    statistic = sum((seen[pair] - each) ** 2 / each for pair, each in zip(PAIRS, expected, strict=True))
    assert statistic < chi2.isf(1e-9, len(PAIRS) - 1)


def test_each_choice_adds_a_column_until_none_is_left() -> None:
    for seed in range(50):
        chosen = pick_pairs(SCORES, 10, 2.0, KeyStream.repeatable(seed, "picks"))
        columns: set[int] = set()
        for pair in chosen:
            assert pair in PAIRS
            assert not set(pair) <= columns
            columns |= set(pair)
        assert columns == {0, 1, 2, 3}


def test_with_a_tiny_scale_the_largest_scores_are_chosen() -> None:
    assert pick_pairs(SCORES, 2, 1e-6, KeyStream.repeatable(1, "picks"))[0] == (1, 3)


@pytest.mark.usefixtures("listed_once")
def test_a_column_is_as_likely_as_the_exponential_mechanism_says() -> None:
    """Chi-square over four outcomes; a true sampler fails with probability 1e-9, and the seed is fixed."""
    draws, scale, scores = 4000, 3.0, np.array([5, -1, 0, 7, 5], dtype=np.int32)
    words = KeyStream.repeatable(1, "picks")
    seen = Counter(pick_columns(scores, 1, scale, words)[0] for _ in range(draws))
    there = [0, 2, 3, 4]
    weights = np.exp(scores[there] / scale)
    expected = draws * weights / weights.sum()
    assert set(seen) == set(there)
    assert sum((seen[at] - each) ** 2 / each for at, each in zip(there, expected, strict=True)) < chi2.isf(1e-9, 3)


def test_a_draw_looks_at_as_many_levels_whatever_the_scores_are() -> None:
    """Their number is bounded by the scale and by the largest score that there can be."""
    assert len(_weights(3.0, 2**24)) == 511
    assert len(_weights(3.0, 100)) == len(_weights(1e9, 100)) == 101
    rate = 1 / Fraction(300.0)
    listed = _weights(300.0, 5000)
    for distance in (0, 1, 255, 256, 257, 4999):
        exact = math.exp(-distance / 300) * 2.0**240
        assert listed[distance] == pytest.approx(exact, rel=1e-14)
        assert abs(listed[distance] - (scaled_exp(-rate * distance) if distance else 1 << 240)) <= 6


def test_each_column_is_chosen_once_until_none_is_left() -> None:
    scores = np.array([3, 3, -1, 0], dtype=np.int32)
    for seed in range(50):
        assert sorted(pick_columns(scores, 10, 2.0, KeyStream.repeatable(seed, "picks"))) == [0, 1, 3]
        assert set(pick_columns(scores, 2, 1e-6, KeyStream.repeatable(seed, "picks"))) == {0, 1}
    assert pick_columns(np.full(3, -1, dtype=np.int32), 2, 1.0, KeyStream.repeatable(1, "picks")) == []


@pytest.mark.parametrize("log_range", [0.01, 0.3, 1.0, 4.0, 20.0])
def test_no_coin_of_this_range_is_easier_to_tell_apart_than_its_mu(log_range: float) -> None:
    """The corner of every coin's trade-off curve, over a fine grid of coins; the middle one attains the bound."""
    odds = np.linspace(-15, 30, 45_001)
    needed = ndtri(expit(odds)) - ndtri(expit(odds - log_range))
    needed = needed[np.isfinite(needed) & (odds < 15)]  # beyond, a probability near one has too few digits
    mu = choice_mu(log_range)
    assert needed.max() <= mu * (1 + 1e-9)
    assert ndtri(expit(log_range / 2)) - ndtri(expit(-log_range / 2)) == pytest.approx(mu, rel=1e-6)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.2367, 1.0, 5.0])
def test_a_range_for_a_mu_costs_no_more_than_that(mu: float) -> None:
    assert mu * (1 - 1e-8) <= choice_mu(choice_range(mu)) <= mu


def test_the_cost_of_choices_is_the_sum_of_their_squares() -> None:
    event = ChoiceEvent(2.0, 100.0, 20, 2.0**-100)
    assert event.log_range == pytest.approx(0.04)
    one = Fraction(pure_mu(0.02)) ** 2 / UNIT
    assert 20 * one <= cost_units([event]) <= 20 * one * (1 + Fraction(1, 2**30)) + 1
    assert slack_units([event]) == 2**156
    assert compose([event, GaussianEvent(1.0, 10.0)]).is_gaussian


def test_neighbours_outcomes_stay_within_the_range() -> None:
    """The worst neighbour: one score rises by the sensitivity and all others fall by it."""
    event = ChoiceEvent(2.0, 7.0)
    moved = np.array([6.0, -2.0, -2.0, -2.0, -2.0, -2.0])
    scores = np.array([float(SCORES[pair]) for pair in PAIRS])

    def law(each: np.ndarray) -> np.ndarray:
        weights = np.exp(each / event.scale)
        return weights / weights.sum()

    ratios = np.log(law(scores + np.sign(moved) * event.sensitivity) / law(scores))
    assert np.ptp(ratios) <= event.log_range * (1 + 1e-12)
    assert np.ptp(ratios) == pytest.approx(event.log_range)


@pytest.mark.parametrize("change", [{"picks": 0}, {"scale": 0.0}, {"sensitivity": -1.0}, {"slack": 1.0}])
def test_a_choice_that_means_nothing_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InvalidParameterError):
        ChoiceEvent(**({"sensitivity": 2.0, "scale": 7.0, "picks": 3} | change))  # type: ignore[arg-type]


def test_a_choice_takes_no_step_at_a_power_of_two_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row more adds one level at most. A choice takes as long if somebody chose among as many rows before."""
    for rows in (255, 256, 1023, 4095, 4096, 16_383, 2**20 - 1):
        assert 0 <= len(_weights(700.0, rows + 1)) - len(_weights(700.0, rows)) <= 1
    taken = Counter[int]()

    def counted(value: Fraction) -> int:
        taken[rows] += 1
        return scaled_exp(value)

    monkeypatch.setattr(picks, "scaled_exp", counted)
    for rows in (4095, 4096):
        _weights(700.0, rows)
    first = dict(taken)
    for rows in (4095, 4096):
        _weights(700.0, rows)
    assert taken == {rows: 2 * count for rows, count in first.items()}
    assert first[4096] - first[4095] <= 1
