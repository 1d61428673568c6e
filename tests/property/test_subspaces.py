"""How far eigenvectors of neighbours are apart, and how much likelier a draw is: no neighbour beats what is claimed."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.linalg import principal_angles
from dpspca.common.privacy.smooth import subspace_distance_bound
from dpspca.common.queries.subspace import DrawnSubspace, WeightedDrawnSubspace
from dpspca.provider.evaluate.mechanisms import exponent

seeds = st.integers(0, 2**32 - 1)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def leading(square: np.ndarray, columns: int) -> tuple[np.ndarray, float]:
    values, vectors = np.linalg.eigh(square)
    return vectors[:, -columns:], float(values[-columns] - values[-columns - 1])


def nearest_frames(some: np.ndarray, others: np.ndarray) -> float:
    """The distance of the nearest frames of two spaces, in Frobenius norm."""
    return float(np.linalg.norm(2 * np.sin(principal_angles(some, others) / 2)))


def changes(rng: np.random.Generator, frame: np.ndarray, step: int) -> list[np.ndarray]:
    """What a row can change: rows in random places, and rows between the frame's axes and others, which matter most."""
    dimension = len(frame)
    rows = [unit(rng.standard_normal(dimension)) for _ in range(4)]
    rows += [unit(frame @ rng.standard_normal(frame.shape[1]) + rng.standard_normal(dimension)) for _ in range(4)]
    turn = np.linalg.qr(np.column_stack([frame, rng.standard_normal((dimension, dimension - frame.shape[1]))]))[0]
    inside, beside = turn[:, frame.shape[1] - 1], turn[:, -1]
    rows += [unit(inside + beside), unit(inside - beside), inside, beside]
    alone = [np.outer(row, row) for row in rows]
    if step == 1:
        return alone + [-each for each in alone]
    return [one - other for one in alone for other in alone]


@pytest.mark.slow
@given(seed=seeds, dimension=st.integers(2, 7), gap=st.floats(0.5, 40.0), step=st.sampled_from([1, 2]))
def test_no_neighbour_is_further_away_than_the_gap_allows_nor_is_its_gap(
    seed: int, dimension: int, gap: float, step: int
) -> None:
    rng = np.random.default_rng(seed)
    columns = int(rng.integers(1, dimension))
    values = np.r_[gap + rng.exponential(1.0, columns) * rng.choice([0, 1]), rng.uniform(-3, 0, dimension - columns)]
    values[0], values[-1] = gap, 0.0
    turn = np.linalg.qr(rng.standard_normal((dimension, dimension)))[0]
    square = turn @ np.diag(values) @ turn.T
    frame, own_gap = leading(square, columns)
    angles = min(columns, dimension - columns)
    for change in changes(rng, frame, step):
        other, other_gap = leading(square + change, columns)
        assert abs(other_gap - own_gap) <= step * (1 + 1e-9)
        distance = nearest_frames(frame, other)
        assert distance <= subspace_distance_bound(own_gap / step, angles) + 1e-6


@pytest.mark.parametrize(("step", "gap"), [(1, 1.01), (1, 5.0), (2, 2.1), (2, 20.0)])
def test_for_one_component_the_bound_on_the_distance_is_reached(step: int, gap: float) -> None:
    """By the row, or the two rows, that turn a plane most: at an angle of which the cosine of the double is -1/r."""
    square = np.diag([gap, 0.0])
    frame, _ = leading(square, 1)
    reached = 0.0
    for half in np.linspace(0, math.pi, 4001):
        x = np.array([math.cos(half), math.sin(half)])
        change = np.outer(x, x)
        if step == 2:
            y = np.array([math.sin(half), -math.cos(half)])
            change = change - np.outer(y, y)
        reached = max(reached, nearest_frames(frame, leading(square + change, 1)[0]))
    bound = subspace_distance_bound(gap / step, 1)
    assert 2 * math.sin(bound / 2) * (1 - 1e-3) <= reached <= bound


def test_replacing_the_last_leading_row_by_the_next_moves_the_gap_by_two() -> None:
    square, x, y = np.diag([9.0, 5.0, 1.0]), np.eye(3)[2], np.eye(3)[1]
    _, before = leading(square, 2)
    _, after = leading(square + np.outer(x, x) - np.outer(y, y), 2)
    assert before - after == pytest.approx(2.0)


def circle_density(square: np.ndarray, weight: float) -> np.ndarray:
    """Density of the exponential mechanism on a grid of angles of the plane."""
    angles = np.linspace(0, math.pi, 20_001)[:-1]
    axes = np.stack([np.cos(angles), np.sin(angles)])
    logs = weight * np.einsum("in,ij,jn->n", axes, square, axes)
    raised = np.exp(logs - logs.max())
    return raised / raised.mean()


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
@given(seed=seeds, size=st.floats(0.0, 300.0))
def test_no_neighbour_makes_a_draw_likelier_by_more_than_the_price(epsilon: float, seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((2, 2))
    square = size * factor @ factor.T
    x, y = unit(rng.standard_normal(2)), unit(rng.standard_normal(2))
    for query, change in (
        (DrawnSubspace(2), np.outer(x, x)),
        (WeightedDrawnSubspace(2), np.outer(x, x) - np.outer(y, y)),
    ):
        weight = exponent(query, epsilon)
        here, there = circle_density(square, weight), circle_density(square + change, weight)
        seen = here + there > 1e-250
        loss = np.abs(np.log(here[seen & (there > 0) & (here > 0)] / there[seen & (there > 0) & (here > 0)]))
        assert loss.max() <= epsilon * (1 + 1e-9)


def test_both_exponents_are_used_up_by_some_rows() -> None:
    """A flat density for a row that is added; one concentrated on y, where y gives way to x at right angles to it."""
    x, y = np.eye(2)
    here = circle_density(300 * np.outer(y, y), exponent(DrawnSubspace(2), 1.0))
    there = circle_density(300 * np.outer(y, y) + np.outer(x, x), exponent(DrawnSubspace(2), 1.0))
    assert np.log(there / here).max() > 0.98
    weight = exponent(WeightedDrawnSubspace(2), 1.0)
    here = circle_density(300 * np.outer(y, y), weight)
    there = circle_density(300 * np.outer(y, y) + np.outer(x, x) - np.outer(y, y), weight)
    assert np.log(there / here).max() > 0.98
