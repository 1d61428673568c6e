"""The improved loop of dps-pca finds what the plain one finds, with less error for the same budget."""

import math
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue, improved_loop
from dpspca.common.algorithms.stages.product_loop import Product, join
from dpspca.common.algorithms.stages.view_steps import Reach
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import ViewProduct
from dpspca.common.results import Model

REPLACE = PrivacyUnit.ROW_REPLACE_ONE


def job(dimension: int, **changes: Any) -> JobSpec:
    options = {"sparsity": 20} | changes.pop("options", {})
    good: dict[str, Any] = {"unit": REPLACE, "budget": Budget(2.0, 1e-6), "norm_bound": 40.0, "components": 2}
    return JobSpec(schema=Schema(dimension), method="dps-pca", options=options, **good | changes)


def spiked(n: int, d: int, support: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    axes = np.zeros((d, 2))
    axes[:support] = np.linalg.qr(rng.standard_normal((support, 2)))[0]
    return rng.standard_normal((n, d)) + rng.standard_normal((n, 2)) * [9, 7] @ axes.T, axes


def error(model: Model, axes: np.ndarray) -> float:
    return float(np.linalg.norm(axes - model.components.T @ (model.components @ axes)))


def fit(rows: np.ndarray, parties: int = 1, **changes: Any) -> Model:
    return simulate(np.array_split(rows, parties), job(rows.shape[1], **changes), noise_seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("parties", [1, 3])
def test_the_improved_loop_has_far_less_error(parties: int) -> None:
    rows, axes = spiked(20_000, 150, 8)
    plain, improved = (fit(rows, parties, options={"loop": loop}) for loop in ("plain", "improved"))
    assert error(improved, axes) < 0.5 * error(plain, axes)
    assert set(range(8)) <= set(improved.support)
    assert len(improved.support) <= 10
    assert improved.explained_variance is not None
    np.testing.assert_allclose(improved.explained_variance, [82, 50], rtol=0.2)
    assert improved.statement.mu <= plain.statement.mu * (1 + 1e-9)


@pytest.mark.slow
def test_without_a_limit_that_matters_dense_components_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, axes = spiked(20_000, 150, 150)
    assert error(fit(rows, options={"loop": "improved", "sparsity": 150}), axes) < 0.15
    monkeypatch.setattr(improved_loop, "MOST_RELEASED", 100)
    plan = catalogue.plan(job(151, options={"loop": "improved", "sparsity": 151}))
    assert sum(step.query is ViewProduct for step in plan) == improved_loop.ROUNDS + 1
    assert (
        error(fit(np.pad(rows, ((0, 0), (0, 1))), options={"loop": "improved", "sparsity": 151}), axes_of(axes)) < 0.2
    )


def axes_of(axes: np.ndarray) -> np.ndarray:
    return np.vstack([axes, np.zeros((1, 2))])


@pytest.mark.parametrize("rounds", [1, 4, 9])
def test_the_plan_spends_the_same_budget_in_any_number_of_rounds(rounds: int) -> None:
    plain, options = catalogue.plan(job(150)), {"loop": "improved", "rounds": rounds}
    plan = catalogue.plan(job(150, options=options, centering=Centering.PRIVATE, mean_bound=2.0))
    assert sum(step.query is ViewProduct for step in plan) == rounds
    assert math.isclose(plan.price.mu, plain.price.mu, rel_tol=1e-9)


@pytest.mark.parametrize("rows", [np.zeros((50, 60)), np.full((50, 60), 1e9)], ids=["zero", "huge"])
def test_any_rows_end_in_a_model(rows: np.ndarray) -> None:
    model = fit(rows, options={"loop": "improved"}, budget=Budget(0.1, 1e-6), explained_variance=False)
    assert np.allclose(model.components @ model.components.T, np.eye(2))


@pytest.mark.parametrize(
    "changes", [{"options": {"loop": "improved", "start": "published"}}, {"options": {"loop": "best"}}]
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=facts("loop")):
        catalogue.plan(job(60, **changes))


def test_the_papers_noise_is_refused_for_another_loop() -> None:
    with pytest.raises(InvalidParameterError, match=facts("improved", "plain", "exact")):
        catalogue.plan(job(60, options={"loop": "improved"}, accounting=Accounting.PUBLISHED))


def test_products_of_all_rounds_are_better_than_the_best_of_them() -> None:
    rng = np.random.default_rng(1)
    truth = np.linalg.qr(rng.standard_normal((300, 2)))[0]
    matrix = truth @ np.diag([90.0, 60.0]) @ truth.T
    products, basis = [], np.linalg.qr(truth + 0.1 * rng.standard_normal((300, 2)))[0]
    for _ in range(4):
        values = matrix @ basis + rng.standard_normal((300, 2))
        products.append(Product(basis, values, 1.0, Reach(1.0), 1))
        basis = products[-1].direction
    alone = [np.linalg.norm(truth - each.direction @ (each.direction.T @ truth)) for each in products]
    found = join(products)
    assert np.linalg.norm(truth - found.vectors @ (found.vectors.T @ truth)) < 0.7 * min(alone)
    np.testing.assert_allclose(found.values, [90, 60], rtol=0.1)
    assert found.shown == 2


def test_of_products_of_pure_noise_no_loading_is_known() -> None:
    """The longest column of noise is 1.1 times its usual length once in far more than 1,000 draws of so many rows."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        basis = np.linalg.qr(rng.standard_normal((2000, 2)))[0]
        found = join([Product(basis, rng.standard_normal((2000, 2)), 1.0, Reach(1.0), 1) for _ in range(3)])
        assert found.shown == 0
        assert found.loading_std.min() == 1.0
