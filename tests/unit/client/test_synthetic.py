"""Synthetic rows follow their model, and shards contain all of them."""

import math
from typing import Any

import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.client.made_up_rows import LEAST_ROWS, SpikedModel, SpikedRows, spiked_rows, unequal_shards
from dpspca.common.errors import InvalidParameterError, InvalidTypeError

SMALL = SpikedModel(dimension=30, components=3, support=6)
ROWS = 70_001  # a full block of this dimension and a part of one


def draw(model: SpikedModel = SMALL, rows: int = 50, seed: int = 0) -> SpikedRows:
    return spiked_rows(model, rows, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def many() -> SpikedRows:
    return draw(rows=ROWS)


def test_the_true_basis_is_orthonormal_and_lies_on_the_first_features() -> None:
    basis = draw().basis
    assert basis.shape == (30, 3)
    assert basis.T @ basis == pytest.approx(np.eye(3), abs=1e-12)
    assert not basis[6:].any()
    assert basis[:6].all()


def test_the_eigenvalues_are_those_of_the_model() -> None:
    eigenvalues = draw(SpikedModel(200, 4, 10, leading_eigenvalue=50.0, noise_range=(2.0, 7.0))).eigenvalues
    assert eigenvalues[:4].tolist() == [50.0] * 4
    assert np.all(np.diff(eigenvalues) <= 0)
    assert 2 <= eigenvalues[-1] < 2.5
    assert 6.5 < eigenvalues[4] <= 7


def test_variance_along_the_true_basis_is_that_of_the_model(many: SpikedRows) -> None:
    """Deterministic (fixed seed). An entry's standard deviation is at most 100 sqrt(2 / n) = 0.53.

    Over other seeds, one of the six entries would be five standard deviations off with probability below 4e-6.
    """
    scores = many.rows @ many.basis
    assert scores.T @ scores / ROWS == pytest.approx(100 * np.eye(3), abs=5 * 100 * math.sqrt(2 / ROWS))


def test_the_sample_covariance_has_the_stated_eigenvalues(many: SpikedRows) -> None:
    """Deterministic (fixed seed); by Weyl's inequality no eigenvalue moves further than the error of the covariance."""
    found = np.linalg.eigvalsh(many.rows.T @ many.rows / ROWS)[::-1]
    assert found == pytest.approx(many.eigenvalues, rel=0.03, abs=0.02)


def test_every_row_is_drawn_including_the_last_partial_block(many: SpikedRows) -> None:
    assert many.rows.shape == (ROWS, 30)
    assert np.abs(many.rows).max(axis=1).min() > 0
    assert len(np.unique(many.rows[:, 0])) == ROWS


def test_equal_seeds_give_equal_rows_and_other_seeds_other_rows() -> None:
    first, second, other = draw(seed=1), draw(seed=1), draw(seed=2)
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.basis, second.basis)
    assert not np.array_equal(first.rows, other.rows)


def test_the_global_generator_is_left_alone() -> None:
    before = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002  # this is what is tested
    draw()
    assert np.random.get_state()[1].tolist() == before  # type: ignore[index]  # noqa: NPY002


def test_few_rows_but_some_are_longer_than_the_norm_bound() -> None:
    model = SpikedModel(dimension=200, components=3)
    lengths = np.linalg.norm(draw(model, rows=5000).rows, axis=1)
    assert 0.001 < np.mean(lengths > model.norm_bound) < 0.1


def test_the_norm_bound_follows_its_formula() -> None:
    model = SpikedModel(dimension=5, components=1, support=2, leading_eigenvalue=9.0, noise_range=(1.0, 1.0))
    assert model.norm_bound == pytest.approx(math.sqrt(13 + 2 * math.sqrt(2 * (81 + 4))))


def test_a_model_of_nothing_but_leading_components_is_possible() -> None:
    drawn = draw(SpikedModel(dimension=3, components=3, support=3))
    assert drawn.eigenvalues.tolist() == [100.0] * 3


@given(providers=st.integers(1, 40), rows=st.integers(80, 400))
def test_shards_keep_all_rows_in_order_and_grow(providers: int, rows: int) -> None:
    data = np.arange(2.0 * rows).reshape(rows, 2)
    shards = unequal_shards(data, providers)
    sizes = [len(shard) for shard in shards]
    assert len(shards) == providers
    assert sizes == sorted(sizes)
    assert sizes[0] >= LEAST_ROWS
    assert np.array_equal(np.vstack(shards), data)
    assert all(np.shares_memory(shard, data) for shard in shards)


def test_shards_differ_in_size_if_there_are_enough_rows() -> None:
    assert [len(shard) for shard in unequal_shards(np.zeros((108, 1)), 4)] == [12, 22, 32, 42]


@pytest.mark.parametrize(
    "wrong",
    [
        {"dimension": 0},
        {"dimension": 10**6},
        {"components": 0},
        {"components": 11},
        {"support": 4},
        {"support": 1001},
        {"leading_eigenvalue": 10.0},
        {"leading_eigenvalue": math.nan},
        {"noise_range": (3.0, 2.0)},
        {"noise_range": (-1.0, 2.0)},
        {"noise_range": (0.0, math.inf)},
    ],
)
def test_impossible_model_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        SpikedModel(**wrong)


def test_zero_rows_and_a_wrong_generator_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts("rows", 0)):
        spiked_rows(SMALL, 0, np.random.default_rng(0))
    with pytest.raises(InvalidTypeError, match=facts("numpy.random.Generator")):
        spiked_rows(SMALL, 10, 0)  # type: ignore[arg-type]  # the mistake that is tested


@pytest.mark.parametrize("providers", [0, 6])
def test_shards_of_fewer_than_two_rows_are_refused(providers: int) -> None:
    with pytest.raises(InvalidParameterError, match=facts("providers", 1, 5)):
        unequal_shards(np.zeros((11, 2)), providers)
