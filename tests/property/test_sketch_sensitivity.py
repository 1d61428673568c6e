"""No replaced row moves a sketch, or a projection of it, further than was paid for; and little more is paid for."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpspca.common.privacy.directions import DIRECTION_BITS, STRETCH_TAIL, directions, stretch
from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent
from dpspca.common.queries.sketch import MAX_COLUMNS, Projection, Sketch
from dpspca.provider.evaluate.integer_rows import integer_rows
from dpspca.provider.evaluate.moments import DenseRows
from dpspca.provider.evaluate.sketches import add_sketch, project

REPLACE = PrivacyUnit.ROW_REPLACE_ONE
BOUND = 3.0
SCALE = 2.0**DIRECTION_BITS


def key(number: int) -> bytes:
    return KeyStream.repeatable(number, "directions").words(8).tobytes()


# --- How far directions stretch what was there before -----------------------------------------------------------------

CHANGES = {
    "one entry": np.array([1.0, 0.0, 0.0]),
    "two entries": np.array([1.0, -1.0, 0.0]) / math.sqrt(2),
    "all entries": np.array([2.0, -1.0, 2.0]) / 3,
}


@pytest.mark.parametrize("columns", [1, 2, 8])
@pytest.mark.parametrize("change", CHANGES)
def test_directions_stretch_a_fixed_change_as_rarely_as_stated(change: str, columns: int) -> None:
    """Of 20,000 directions 200 may do so: more than 270 with probability below 1e-6, if exactly one in a hundred did.

    Chernoff's bound is no quantile: it is kept in three of four, or rarer; that it is of use is seen below.
    """
    drawn = directions(key(columns), 3 * 20_000, columns).reshape(20_000, 3, columns)
    lengths = np.linalg.norm(np.einsum("j,njl->nl", CHANGES[change], drawn), axis=1) / SCALE
    beyond = np.count_nonzero(lengths > stretch(columns, 0.01))
    assert 0 < beyond <= 270
    exact = math.sqrt(stats.chi2.isf(0.01, columns))
    assert np.count_nonzero(lengths > exact) == pytest.approx(200, abs=70)  # directions are as normal as they should be


@pytest.mark.parametrize("columns", [1, 2, 8, 40, MAX_COLUMNS])
@pytest.mark.parametrize(("tail", "most"), [(0.01, 1.4), (1e-9, 1.13), (STRETCH_TAIL, 1.05)])
def test_the_stretch_is_above_the_quantile_of_chi_square_and_not_by_much(
    columns: int, tail: float, most: float
) -> None:
    quantile = math.sqrt(stats.chi2.isf(tail, columns))
    assert quantile < stretch(columns, tail) < most * quantile


@pytest.mark.parametrize("std", [0.3, 1.0, 7.5])
def test_discrete_gaussian_numbers_have_no_larger_moments_than_normal_ones(std: float) -> None:
    """What the stretch rests on: E exp(t X) <= exp(t^2 s^2 / 2), summed over the integers, for many t."""
    x = np.arange(-400, 401)
    weight = -np.square(x) / (2 * std**2)
    for t in np.linspace(-4 / std, 4 / std, 81):
        moment = np.exp(weight + t * x).sum() / np.exp(weight).sum()
        assert moment <= math.exp(t**2 * std**2 / 2) * (1 + 1e-12)


def test_directions_that_somebody_chose_would_stretch_a_change_much_further() -> None:
    """Why nobody may: whoever knows Omega finds a change that it stretches by its spectral norm."""
    omega = directions(key(0), 4000, 6) / SCALE
    left, _, _ = np.linalg.svd(omega, full_matrices=False)
    assert np.linalg.norm(left[:, 0] @ omega) > 4 * stretch(6)
    fixed = np.full(4000, 4000**-0.5)
    assert np.linalg.norm(fixed @ omega) < stretch(6)


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 8), columns=st.integers(1, 6))
def test_no_replaced_row_moves_a_sketch_further_than_declared(seed: int, dimension: int, columns: int) -> None:
    """False alarm: 2^-100 for each."""
    rng = np.random.default_rng(seed)
    omega = directions(key(seed), dimension, columns)
    row = rng.standard_normal((1, dimension)) * rng.choice([1e-9, 1.0, 100.0])
    for other in (-row, rng.standard_normal((1, dimension)), np.zeros((1, dimension))):
        sketches = np.zeros((2, 1, columns), dtype=np.int64)
        for sketch, one in zip(sketches, (row, other), strict=True):
            add_sketch(sketch, DenseRows(integer_rows(one, BOUND)), omega)
        moved = np.linalg.norm((sketches[0] - sketches[1]).astype(float))
        assert moved <= Sketch.lattice_sensitivity(REPLACE, Extent(dimension, columns))


def test_a_row_and_its_opposite_reach_what_directions_allow() -> None:
    """The factor of two is needed: beyond what one row alone could do, by an unlucky draw of one in a hundred."""
    row = np.array([[BOUND, 0.0]])
    longest = 0.0
    for number in range(300):
        sketches = np.zeros((2, 1, 1), dtype=np.int64)
        omega = directions(key(number), 2, 1)
        for sketch, one in zip(sketches, (row, -row), strict=True):
            add_sketch(sketch, DenseRows(integer_rows(one, BOUND)), omega)
        longest = max(longest, float(np.linalg.norm((sketches[0] - sketches[1]).astype(float))))
    assert longest > 2.0 ** (17 + DIRECTION_BITS) * stretch(1, 0.01) * 1.5


@pytest.mark.parametrize("columns", [1, 6])
def test_a_sketch_costs_a_row_and_its_opposite_at_the_largest_stretch(columns: int) -> None:
    """Sketches move less, for directions that stretch as far come once in 2^100: so the factors are looked at here."""
    forward, backward = (integer_rows(np.array([[sign * BOUND, 0.0]]), BOUND).astype(float) for sign in (1, -1))
    furthest = float(np.linalg.norm(forward - backward)) * SCALE * stretch(columns)
    price = Sketch.lattice_sensitivity(REPLACE, Extent(2, columns))
    assert furthest <= price < furthest * (1 + 1e-9)


# --- How far a projection moves ---------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.integers(1, 6),
    columns=st.integers(1, 5),
    size=st.sampled_from([1e-300, 1e-7, 1e-5, 1e-3, 1.0, 1e300]),
)
def test_no_replaced_row_moves_a_projection_further_than_declared(
    seed: int, dimension: int, columns: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((12, dimension)) * 10
    sketch = rng.integers(-(2**16) + 1, 2**16, (12, columns)).astype(np.int32)
    reach = float(rng.uniform(2.0**-20, math.sqrt(columns)))
    asked = Projection(rng.standard_normal((columns, columns)) * size, dimension, reach)
    place = rng.integers(12)
    neighbours = [rows.copy() for _ in range(3)]
    neighbours[0][place] *= -1
    neighbours[1][place] = rng.standard_normal(dimension)
    neighbours[2][place] = 0
    first, *others = (
        project(DenseRows(integer_rows(each, BOUND)), sketch, asked).astype(float) for each in [rows, *neighbours]
    )
    moved = max(float(np.linalg.norm(first - other)) for other in others)
    assert moved <= asked.movement(REPLACE, l1=False) <= Projection.lattice_sensitivity(REPLACE, asked.extent)


@pytest.mark.parametrize("columns", [1, 4])
def test_a_row_and_its_opposite_reach_the_price_of_a_projection(columns: int) -> None:
    rows = np.array([[BOUND, 0.0], [0.0, 1.0]])
    sketch = np.array([[1000] * columns, [1] * columns], dtype=np.int32)
    asked = Projection(np.eye(columns) / 1000, 2, math.sqrt(columns))
    other = rows * np.array([[-1.0], [1.0]])
    first, second = (
        project(DenseRows(integer_rows(each, BOUND)), sketch, asked).astype(float) for each in (rows, other)
    )
    moved = np.linalg.norm(first - second)
    assert 0.9999 * asked.movement(REPLACE, l1=False) < moved <= asked.movement(REPLACE, l1=False)
    assert moved > 0.9999 * Projection.lattice_sensitivity(REPLACE, asked.extent)
