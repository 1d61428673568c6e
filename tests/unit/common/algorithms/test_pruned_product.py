"""Sparse components from the last product of a loop: found where they are, and dense ones left alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.improved_loop import ROUNDS
from dpspca.common.algorithms.steps.pruned_product import left_vectors, pruned_product
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError, InvalidTypeError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance, thin_qr
from dpspca.common.plan import Noise
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import ViewProduct

LOOPS = ["noisy-power", "streaming-power"]


def product(support: int, strength: float, seed: int = 0, size: int = 400) -> FloatArray:
    """A product of two components on the first columns with a basis near them, and noise of standard deviation 1."""
    rng = np.random.default_rng(seed)
    axes = np.zeros((size, 2))
    axes[:support] = np.linalg.qr(rng.standard_normal((support, 2)))[0]
    basis = thin_qr(axes + 0.02 * rng.standard_normal((size, 2)))[0]
    return strength * axes @ (axes.T @ basis) + rng.standard_normal((size, 2))


def columns_of(product: FloatArray) -> list[int]:
    return np.flatnonzero(product.any(axis=1)).tolist()


def job(method: str, dimension: int = 110, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(dimension),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 35.0,
        "components": 5,
        "method": method,
    }
    return JobSpec(**good | changes)


@pytest.mark.parametrize("seed", range(5))
def test_columns_that_stand_out_are_kept_and_few_others(seed: int) -> None:
    kept = columns_of(pruned_product(product(12, 60.0, seed), 1.0, 2, "auto"))
    assert len(set(kept) & set(range(12))) >= 11  # one may take too small a part
    assert len(kept) <= 14  # of noise alone a tenth of a column is kept, on average


@pytest.mark.parametrize(("support", "strength"), [(400, 500.0), (200, 300.0), (12, 0.0)], ids=["all", "half", "none"])
def test_dense_components_and_noise_alone_are_left_as_they_are(support: int, strength: float) -> None:
    whole = product(support, strength)
    np.testing.assert_array_equal(pruned_product(whole, 1.0, 2, "auto"), whole)


@pytest.mark.parametrize(("support", "strength"), [(400, 500.0), (12, 60.0), (12, 0.0)])
def test_a_number_limits_the_columns_to_the_largest(support: int, strength: float) -> None:
    whole = product(support, strength)
    cut = pruned_product(whole, 1.0, 2, 5)
    kept = columns_of(cut)
    assert len(kept) == 5
    np.testing.assert_array_equal(cut[kept], whole[kept])


def test_pruning_does_not_depend_on_units() -> None:
    whole = product(12, 60.0)
    assert columns_of(pruned_product(1e-9 * whole, 1e-9, 2, "auto")) == columns_of(
        pruned_product(whole, 1.0, 2, "auto")
    )


def test_vectors_are_zero_to_the_last_bit_where_rows_are() -> None:
    cut = pruned_product(product(12, 60.0), 1.0, 2, "auto")
    vectors = left_vectors(cut, 2)
    assert columns_of(vectors) == columns_of(cut)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(2), atol=1e-12)
    assert left_vectors(np.zeros((4, 2)), 2).shape == (4, 2)


@pytest.mark.parametrize("method", LOOPS)
def test_loops_find_sparse_components_far_better_for_the_same_price(method: str) -> None:
    """The paper's design. All seeds are fixed: this holds in every run or in none."""
    model = SpikedModel(dimension=110, components=5, support=10)
    data = spiked_rows(model, 20_000, np.random.default_rng(0))
    dense = job(method, norm_bound=model.norm_bound)
    sparse = replace(dense, options={"sparsity": "auto"})
    assert catalogue.plan(sparse).price == catalogue.plan(dense).price
    errors = []
    for each in (dense, sparse):
        found = simulate([data.rows], each, noise_seed=1)
        errors.append(subspace_distance(found.components.T, data.basis))
    assert errors[1] < 0.5 * errors[0]
    assert set(np.flatnonzero(data.basis.any(axis=1))) <= set(found.support)
    assert len(found.support) <= 12
    assert found.explained_variance is not None


@pytest.mark.parametrize("method", [*LOOPS, "dps-pca"])
def test_a_limit_holds_to_the_last_column(method: str) -> None:
    rows = np.random.default_rng(0).standard_normal((300, 110))
    found = simulate([rows], job(method, options={"sparsity": 7}), noise_seed=1)
    assert len(found.support) <= 7


def test_auto_keeps_what_stands_out_of_a_wide_loop() -> None:
    """More columns than the last block of ``dps-pca`` may have."""
    model = SpikedModel(1_200, 2, 10, 300.0, (5.0, 5.0))
    data = spiked_rows(model, 10_000, np.random.default_rng(0))
    wide = job("dps-pca", 1_200, components=2, norm_bound=model.norm_bound, budget=Budget(4.0, 1e-6))
    found = simulate([data.rows], replace(wide, options={"sparsity": "auto"}), noise_seed=1)
    assert subspace_distance(found.components.T, data.basis) < 0.05
    assert len(found.support) <= 12


@pytest.mark.parametrize("support", [10, 110])
def test_auto_is_far_better_than_any_number_of_columns_in_the_plain_loop(support: int) -> None:
    """All seeds are fixed: this holds in every run or in none."""
    model = SpikedModel(110, 2, support, 60.0)
    data = spiked_rows(model, 20_000, np.random.default_rng(0))
    errors = [
        subspace_distance(simulate([data.rows], each, noise_seed=1).components.T, data.basis)
        for each in (
            job("dps-pca", components=2, norm_bound=model.norm_bound, options={"sparsity": sparsity})
            for sparsity in (support, "auto")
        )
    ]
    assert errors[1] < 0.6 * errors[0]


def test_auto_means_the_improved_loop_and_no_other() -> None:
    automatic = catalogue.plan(job("dps-pca", options={"sparsity": "auto"}))
    improved = catalogue.plan(job("dps-pca", options={"sparsity": 110, "loop": "improved"}))
    assert automatic.steps == improved.steps
    assert not any(step.query is ViewProduct for step in automatic), "all columns are released: rounds tell nothing"
    wide = catalogue.plan(job("dps-pca", 1_001, options={"sparsity": "auto"}))
    assert sum(step.query is ViewProduct for step in wide) == ROUNDS
    assert wide.price.mu == pytest.approx(automatic.price.mu, rel=1e-9)
    with pytest.raises(InvalidParameterError, match=facts("sparsity", "auto", "plain", "improved")):
        catalogue.plan(job("dps-pca", options={"sparsity": "auto", "loop": "plain"}))


@pytest.mark.parametrize("sparsity", [4, 111, "automatic", True, 6.5])
@pytest.mark.parametrize("method", [*LOOPS, "dps-pca"])
def test_other_values_are_refused_by_name(method: str, sparsity: Any) -> None:
    with pytest.raises((InvalidParameterError, InvalidTypeError), match=facts("sparsity")):
        catalogue.plan(job(method, options={"sparsity": sparsity}))


def test_a_matrix_has_no_sparse_components() -> None:
    with pytest.raises(InvalidParameterError, match=facts("sparsity", "spectral")):
        catalogue.plan(job("noisy-power", unit=PrivacyUnit.SPECTRAL, norm_bound=1.0, options={"sparsity": "auto"}))


def test_laplace_noise_may_be_pruned_too() -> None:
    rows = np.random.default_rng(0).standard_normal((2_000, 40)) * np.where(np.arange(40) < 6, 9.0, 0.1)
    options = {"noise": Noise.LAPLACE.value, "sparsity": "auto", "rounds": 3}
    laplace = job("noisy-power", 40, components=2, budget=Budget(40.0, 1e-6), options=options)
    assert simulate([rows], laplace, noise_seed=1).support.tolist() == list(range(6))
