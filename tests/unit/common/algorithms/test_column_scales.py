"""Columns in any units give the components that standardised columns give, and nothing is promised in vain."""

import math
from typing import Any

import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.stages.column_scales import WIDEST, rough_sizes
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import PRIVATE_BOUND, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import subspace_distance, thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.ranges import LARGEST_SIZE, SIZES, NormRange
from dpspca.common.results import Model

COLUMNS, ROWS = 20, 20_000
RNG = np.random.default_rng(11)
TABLE = RNG.standard_normal((ROWS, COLUMNS))
TABLE += RNG.standard_normal((ROWS, 2)) * [2.5, 2.0] @ thin_qr(RNG.standard_normal((COLUMNS, 2)))[0].T
TABLE /= np.sqrt(np.square(TABLE).mean(axis=0))
UNITS = 10.0 ** np.linspace(-3, 6, COLUMNS)
TRUTH = np.linalg.eigh(TABLE.T @ TABLE)[1][:, -2:]


def job(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(COLUMNS),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": PRIVATE_BOUND,
        "components": 2,
        "scaling": "private",
    }
    return JobSpec(**good | changes)


def error(model: Model) -> float:
    return subspace_distance(TRUTH, model.components.T)


def test_columns_in_any_units_give_the_components_of_the_standardised_table() -> None:
    """Scales take a tenth of the budget, and their own noise adds a little."""
    standardised = simulate([TABLE], job(scaling="none"), noise_seed=1)
    scaled = simulate([TABLE * UNITS], job(), noise_seed=1)
    assert error(standardised) < 0.05
    assert error(scaled) < 0.06
    assert scaled.scales is not None
    np.testing.assert_allclose(scaled.scales, UNITS, rtol=0.1)
    assert error(simulate([TABLE * UNITS], job(scaling="none"), noise_seed=1)) > 1


@pytest.mark.parametrize("unit", ["row-add-remove", "row-replace-one"])
def test_the_mean_is_found_at_the_columns_own_scales(unit: str) -> None:
    model = simulate(
        [(TABLE[:12_000] + 2) * UNITS, (TABLE[12_000:] + 2) * UNITS], job(centering="private", unit=unit), noise_seed=2
    )
    assert model.mean is not None
    np.testing.assert_allclose(model.mean / UNITS, 2, atol=0.2)
    assert error(model) < 0.1


def test_scores_are_those_of_scaled_rows_and_lead_back() -> None:
    model = simulate([TABLE * UNITS], job(centering="public", public_mean=tuple(UNITS)), noise_seed=3)
    assert model.scales is not None
    assert model.mean is not None
    rows = (TABLE * UNITS)[:50]
    np.testing.assert_allclose(model.transform(rows), (rows - model.mean) / model.scales @ model.components.T)
    back = model.inverse_transform(model.transform(rows))
    np.testing.assert_allclose(model.transform(back), model.transform(rows), rtol=1e-6)
    assert Model.from_bytes(model.to_bytes()).scales is not None


@pytest.mark.nightly
def test_the_stages_of_many_columns_work_at_scales_too() -> None:
    rng = np.random.default_rng(5)
    table = rng.standard_normal((20_000, 300))
    table[:, :8] += 2 * rng.standard_normal((20_000, 1))
    model = simulate([table * 10.0 ** rng.uniform(-3, 6, 300)], job(schema=Schema(300), components=1), noise_seed=0)
    assert set(range(8)) <= set(model.support.tolist())
    assert len(model.support) < 12


def test_prices_are_fixed_and_the_whole_budget_is_used() -> None:
    for changes in ({}, {"schema": Schema(300)}, {"centering": "private", "mean_bound": 1.0}, {"schema": Schema(9000)}):
        plan, plain = catalogue.plan(job(**changes)), catalogue.plan(job(**changes, scaling="none"))
        assert plan.price.units == pytest.approx(plain.price.units, rel=1e-6)
        assert not any(step.query is NormRange for step in plan)
    assert [step.name for step in catalogue.plan(job(centering="private"))][:5] == [
        *("sizes of columns", "count", "mean", "norms to scale by", "squares to scale by")
    ]


def test_a_mean_without_a_bound_has_one_that_fits_scaled_columns() -> None:
    assert job(centering="private").mean_bound == pytest.approx(2 * math.sqrt(COLUMNS))
    assert job(centering="private", mean_bound=3.0).mean_bound == 3.0
    with pytest.raises(InvalidParameterError, match=facts("mean_bound")):
        job(centering=Centering.PRIVATE, scaling="none")


def test_methods_that_cannot_scale_and_too_many_columns_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts("analyze-gauss", "auto")):
        catalogue.plan(job(method="analyze-gauss", norm_bound=1.0))
    with pytest.raises(InvalidParameterError, match=facts(WIDEST)):
        catalogue.plan(job(schema=Schema(WIDEST + 1)))


# --- What counts of sizes tell ----------------------------------------------------------------------------------------


def counted(entries: np.ndarray) -> np.ndarray:
    edges = LARGEST_SIZE * 4.0 ** -np.arange(SIZES - 1)
    places = np.count_nonzero(np.abs(entries)[:, None] < edges, axis=1)
    return np.bincount(places, minlength=SIZES).astype(float)


@given(st.floats(-80, 80))
def test_a_rough_size_is_near_the_root_mean_square_whatever_the_unit(power: float) -> None:
    entries = np.random.default_rng(0).standard_normal(5000) * 2.0**power
    counts = counted(entries) + np.random.default_rng(1).normal(0, 20, SIZES)
    (size,) = rough_sizes(counts[None], 20.0)
    assert 0.6 < size / 2.0**power < 1.6


def test_columns_that_do_not_show_have_a_size_too() -> None:
    rng = np.random.default_rng(2)
    zeros, few = counted(np.zeros(5000)), counted(np.full(30, 7.0))
    sizes = rough_sizes(np.stack([zeros, few]) + rng.normal(0, 100, (2, SIZES)), 100.0)
    assert sizes[0] == 1
    assert np.isfinite(sizes).all()
    assert (sizes > 0).all()
    assert rough_sizes(counted(np.r_[np.zeros(4000), np.full(1000, 2.0)])[None], 10.0) == pytest.approx(
        0.45 * 2.3, rel=0.1
    )
