"""Rows are clipped where sampling and noise together are least; lengths and noise alone decide."""

from functools import cache

import numpy as np
import pytest

from dpspca.common.algorithms.stages.clip_choice import CHOICES, Clip, Lengths, best_clip
from dpspca.common.queries import BINS

PARTS = [(5, 5), (2, 8), (2, 40), (1, 3)]


@cache
def scaled_rows(along: int, rest: int, count: int = 60_000) -> tuple[np.ndarray, np.ndarray]:
    """Draw normal rows whose two parts are of the same length, together with a mean square of one."""
    rng = np.random.default_rng(7)
    parts = (rng.standard_normal((count, size)) / np.sqrt(2 * size) for size in (along, rest))
    return next(parts), next(parts)


@cache
def squares_of(along: int, rest: int) -> np.ndarray:
    return np.asarray(sum(np.square(part).sum(axis=1) for part in scaled_rows(along, rest)))


@cache
def kept(along: int, rest: int) -> tuple[float, ...]:
    """Return the bounds to choose from, the longest first."""
    return tuple(np.quantile(squares_of(along, rest), CHOICES).tolist())


def listed(squares: np.ndarray) -> Lengths:
    return Lengths(np.ones(len(squares)), squares)


def binned(squares: np.ndarray) -> np.ndarray:
    """Count rows as a histogram of norms does."""
    bins = np.clip(np.ceil(-np.log2(squares)), 0, BINS - 1).astype(int)
    return np.bincount(bins, minlength=BINS).astype(float)


@pytest.mark.parametrize("dimension", [4, 10, 50])
def test_without_noise_normal_rows_are_clipped_least(dimension: int) -> None:
    """Of equal directions no bound is best; where few have as much as all others, nearly none is."""
    squares = np.random.default_rng(3).chisquare(dimension, 60_000) / dimension
    bounds = np.quantile(squares, CHOICES)
    assert best_clip(bounds, listed(squares), (2, dimension - 2), 0.0).square == max(bounds)


@pytest.mark.parametrize("parts", PARTS)
def test_without_noise_few_scaled_rows_are_clipped(parts: tuple[int, int]) -> None:
    assert best_clip(kept(*parts), listed(squares_of(*parts)), parts, 0.0).square >= kept(*parts)[2]


@pytest.mark.parametrize("parts", PARTS)
def test_more_noise_never_makes_the_bound_longer(parts: tuple[int, int]) -> None:
    lengths = listed(squares_of(*parts))
    chosen = [best_clip(kept(*parts), lengths, parts, noise).square for noise in (0.0, 10.0, 100.0, 1e3, 1e5)]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[-1] == min(kept(*parts))


@pytest.mark.parametrize("keep", CHOICES)
@pytest.mark.parametrize("parts", PARTS)
def test_a_turn_is_seen_as_much_as_computed(parts: tuple[int, int], keep: float) -> None:
    """Turn normal rows a little, clip them, and compare the cross block with that of rows as they were."""
    first, second = scaled_rows(*parts)
    bound, angle, lengths = kept(*parts)[CHOICES.index(keep)], 0.05, np.square(first).sum(axis=1)

    def cross(rest: np.ndarray, moved: np.ndarray) -> float:
        clipped = np.minimum(1.0, bound / (lengths + np.square(rest).sum(axis=1)))
        return float((clipped[:, None] * first * moved).sum())

    columns = min(parts)
    seen = 0.0
    for place in range(columns):
        turned = second.copy()
        turned[:, place] += angle * first[:, place]
        moved = np.zeros_like(first)
        moved[:, place] = turned[:, place]
        before = np.zeros_like(first)
        before[:, place] = second[:, place]
        along = np.zeros_like(first)
        along[:, place] = angle * first[:, place]
        seen += (cross(turned, moved) - cross(second, before)) / cross(second, along) / columns
    assert seen == pytest.approx(Clip.at(bound, listed(squares_of(*parts)), parts, 0.0).turn, rel=0.03)


@pytest.mark.parametrize("scale", [0.01, 0.014, 0.02])
@pytest.mark.parametrize("parts", PARTS)
def test_bins_show_what_clipping_leaves(parts: tuple[int, int], scale: float) -> None:
    squares = squares_of(*parts) * scale
    lengths = Lengths.in_bins(binned(squares))
    for keep in (0.95, 0.7, 0.5, 0.05):
        bound = float(np.quantile(squares, keep))
        left = float(np.minimum(squares, bound).mean() / squares.mean())
        assert lengths.left(bound) == pytest.approx(left, rel=0.035)


def test_no_row_is_lost_between_bins_and_places() -> None:
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 1000, BINS) * (rng.random(BINS) < 0.7).astype(float)
    lengths = Lengths.in_bins(counts)
    np.testing.assert_allclose(lengths.rows.reshape(BINS, -1).sum(axis=1), counts)
    assert (lengths.rows >= 0).all()
    assert (np.diff(lengths.squares) <= 0).all()
    assert lengths.squares.max() == 1.0  # rows beyond the bound are clipped to it


def test_lengths_of_no_rows_leave_everything() -> None:
    assert Lengths.in_bins(np.zeros(BINS)).left(0.5) == 1.0
