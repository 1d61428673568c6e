"""The automatic method finds what there is, sparse or dense, and stays within its plan whatever the rows are."""

import numpy as np
import pytest

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.view_steps import quantile
from dpspca.common.errors import InvalidParameterError
from dpspca.common.model import Model
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Budget, JobSpec, Schema

REPLACE = PrivacyUnit.ROW_REPLACE_ONE


def fit(rows: np.ndarray, components: int = 2, parties: int = 1, bound: float = 30.0, **changes: object) -> Model:
    plain = {"budget": Budget(1.0, 1e-6), "unit": REPLACE, "method": "auto"} | changes
    spec = JobSpec(schema=Schema(rows.shape[1]), norm_bound=bound, components=components, **plain)  # type: ignore[arg-type]
    return simulate(np.array_split(rows, parties), spec, noise_seed=1)


def spiked(n: int, d: int, support: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make rows with two strong directions on the first columns; return them and the directions."""
    rng = np.random.default_rng(seed)
    axes = np.zeros((d, 2))
    axes[:support] = np.linalg.qr(rng.standard_normal((support, 2)))[0]
    return rng.standard_normal((n, d)) + rng.standard_normal((n, 2)) * [7, 5] @ axes.T, axes


def error(model: Model, axes: np.ndarray) -> float:
    return float(np.linalg.norm(axes - model.components.T @ (model.components @ axes)))


@pytest.mark.parametrize("d", [40, 300])
@pytest.mark.parametrize("parties", [1, 3])
def test_a_small_support_is_found_at_no_cost(d: int, parties: int) -> None:
    rows, axes = spiked(40_000, d, 8)
    model = fit(rows, parties=parties)
    assert set(range(8)) <= set(model.support)
    assert len(model.support) <= 9  # a tenth of a column is kept by mistake, on average
    assert error(model, axes) < 0.05
    assert model.explained_variance is not None
    np.testing.assert_allclose(model.explained_variance, [50, 26], rtol=0.2)


@pytest.mark.parametrize("d", [40, 150])
def test_dense_components_stay_dense(d: int) -> None:
    rows, axes = spiked(40_000, d, d)
    model = fit(rows)
    assert len(model.support) == d
    assert error(model, axes) < 0.15


def test_a_norm_bound_a_hundred_times_too_large_does_no_harm() -> None:
    rows, axes = spiked(20_000, 40, 40)
    assert error(fit(rows, bound=3000.0), axes) < 1.2 * error(fit(rows, bound=30.0), axes) + 0.02


@pytest.mark.parametrize("d", [30, 130])
def test_a_given_sparsity_limits_the_support(d: int) -> None:
    rows, _ = spiked(20_000, d, d)
    assert len(fit(rows, options={"sparsity": 5}).support) == 5


@pytest.mark.parametrize(
    "rows", [np.zeros((50, 130)), np.full((50, 130), 1e9), np.eye(130)], ids=["zero", "huge", "few"]
)
@pytest.mark.parametrize("unit", [unit for unit in PrivacyUnit if unit in catalogue.find("auto").units])
def test_any_rows_end_in_a_model(rows: np.ndarray, unit: PrivacyUnit) -> None:
    persons = [list(range(len(rows)))] if unit.is_person else None
    spec = JobSpec(schema=Schema(130), norm_bound=1.0, components=3, budget=Budget(0.1, 1e-6), unit=unit, method="auto")
    model = simulate([rows], spec, noise_seed=2, persons=persons)
    assert np.allclose(model.components @ model.components.T, np.eye(3))


@pytest.mark.slow
def test_with_many_columns_pairs_find_what_no_sum_shows() -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((20_000, 1600))
    rows[:, :10] = 0.6 * rows[:, :10] + 0.8 * rng.standard_normal((20_000, 1))
    model = fit(rows, components=1, bound=200.0)
    assert set(model.support) == set(range(10))


def test_what_auto_does_not_offer_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="rounds"):
        fit(np.ones((10, 5)), options={"rounds": 3})
    with pytest.raises(InvalidParameterError, match="8192"):
        catalogue.plan(
            JobSpec(
                schema=Schema(9000), norm_bound=1.0, components=1, budget=Budget(1.0, 1e-6), unit=REPLACE, method="auto"
            )
        )


@pytest.mark.parametrize(
    ("counts", "keep", "expected"),
    [
        ([100.0, 0, 0, 0, 0], 0.95, 1.0),
        ([0.0, 0, 100, 0, 0], 0.5, 2 ** (-0.75)),
        ([0.0, 10, 0, 90, 0], 0.95, 2 ** (-0.25)),
        ([0.0, 0, 0, 0, 0], 0.95, 1.0),
    ],
)
def test_a_quantile_is_read_off_a_histogram_from_above(counts: list[float], keep: float, expected: float) -> None:
    assert quantile(np.array(counts), 1.0, 100.0, keep) == pytest.approx(expected)
