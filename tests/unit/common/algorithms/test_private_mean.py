"""A private mean without a bound: found wherever the rows are, at a price that is fixed before."""

from typing import Any

import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpspca import DPSPCA
from dpspca.client import findings
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, InvalidParameterError, RefusedError
from dpspca.common.job import MEAN_SHARE, PRIVATE_BOUND, Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance, thin_qr
from dpspca.common.privacy import ROW_BITS, usable_mu
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import ColumnSums
from dpspca.common.results import Model
from dpspca.provider.data import check_rows
from dpspca.provider.evaluate import Shard
from dpspca.provider.ledger import JobPosition
from dpspca.provider.release.gate import Gate

COLUMNS, ROWS = 20, 12_000
RNG = np.random.default_rng(7)
AXES = thin_qr(RNG.standard_normal((COLUMNS, 2)))[0]
TABLE = RNG.standard_normal((ROWS, COLUMNS)) * 0.3 + RNG.standard_normal((ROWS, 2)) * [2.5, 2.0] @ AXES.T
TABLE -= TABLE.mean(axis=0)
TRUTH = np.linalg.eigh(TABLE.T @ TABLE)[1][:, -2:]
DIRECTION = RNG.choice([-1.0, 1.0], COLUMNS)


def job(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(COLUMNS),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": PRIVATE_BOUND,
        "components": 2,
        "centering": "private",
        "mean_bound": PRIVATE_BOUND,
    }
    return JobSpec(**good | changes)


def off(model: Model, mean: np.ndarray) -> float:
    assert model.mean is not None
    return float(np.linalg.norm(model.mean - mean))


def error(model: Model) -> float:
    return subspace_distance(TRUTH, model.components.T)


@pytest.mark.parametrize("unit", ["row-replace-one", "row-add-remove", "person-replace-one"])
@pytest.mark.parametrize("norm_bound", [PRIVATE_BOUND, 8.0])
@pytest.mark.parametrize("offset", [0.0, 1.0, 20.0])
def test_the_mean_is_found_wherever_the_rows_are(offset: float, norm_bound: float, unit: str) -> None:
    """Rows are about 3.5 long around their mean. Without one, the offset of 20 would be the first component."""
    rows = [(TABLE + offset * DIRECTION)[part] for part in (slice(0, 3000), slice(3000, None))]
    persons = [np.arange(len(each)) for each in rows] if unit == "person-replace-one" else None
    model = simulate(rows, job(unit=unit, norm_bound=norm_bound), noise_seed=1, persons=persons)
    assert off(model, offset * DIRECTION) < 0.35
    assert error(model) < 0.12


def test_a_known_bound_needs_more_noise_than_one_that_is_found() -> None:
    """The second sum is about a rough mean, and so about much shorter rows."""
    rows, mean = TABLE + 20 * DIRECTION, 20 * DIRECTION
    bound = float(np.linalg.norm(rows, axis=1).max())
    found = [off(simulate([rows], job(), noise_seed=seed), mean) for seed in range(5)]
    given = [off(simulate([rows], job(mean_bound=bound), noise_seed=seed), mean) for seed in range(5)]
    assert np.median(found) < np.median(given) / 3


def test_rows_in_any_unit_and_a_row_that_is_far_too_long_change_little() -> None:
    plain = simulate([TABLE + DIRECTION], job(), noise_seed=3)
    tiny = simulate([(TABLE + DIRECTION) * 2.0**-40], job(), noise_seed=3)
    assert plain.mean is not None
    assert tiny.mean is not None
    np.testing.assert_allclose(tiny.mean * 2.0**40, plain.mean, atol=0.1)
    with_long = TABLE + DIRECTION
    with_long[5] = 1e12
    assert off(simulate([with_long], job(), noise_seed=3), DIRECTION) < 0.35


def test_a_norm_bound_far_beyond_all_rows_does_no_harm() -> None:
    rows = (TABLE + 5 * DIRECTION) * 1e-6
    model = simulate([rows], job(norm_bound=2.0**100), noise_seed=3)
    assert off(model, 5e-6 * DIRECTION) < 0.5e-6


@pytest.mark.parametrize("bound", [[3.0], np.array(3.0), np.array([3.0, 2.0]), "long", -1.0])
def test_a_bound_that_is_none_is_refused(bound: Any) -> None:
    with pytest.raises(DpspcaError, match=facts("mean_bound")):
        DPSPCA(2, unit="row-replace-one", centering="private", mean_bound=bound).fit(TABLE[:50])


def test_a_mean_that_noise_hides_is_none() -> None:
    """With so few rows, no length shows above the noise, and a mean of noise alone would be far from all rows."""
    model = simulate([TABLE[:20] + 20 * DIRECTION], job(budget=Budget(0.1, 1e-6)), noise_seed=4)
    assert model.mean is not None
    assert np.abs(model.mean).max() < 1e-6


def test_prices_are_fixed_and_the_whole_budget_is_used() -> None:
    for changes in ({}, {"schema": Schema(300)}, {"schema": Schema(9000)}, {"unit": PrivacyUnit.ROW_ADD_REMOVE}):
        plan, known = catalogue.plan(job(**changes)), catalogue.plan(job(**changes, mean_bound=1.0))
        assert plan.price.units == pytest.approx(known.price.units, rel=1e-6)
    names = [step.name for step in catalogue.plan(job())]
    assert names[:6] == [
        *("count", "range of norms for the mean", "norms for the mean", "rough mean"),
        *("norms about the rough mean", "mean"),
    ]


def test_the_mean_costs_its_share() -> None:
    plan = catalogue.plan(job())
    mu = {step.name: step.event.mu for step in plan if step.query is ColumnSums and step.event}
    whole = usable_mu(1.0, 1e-6)
    assert mu["mean"] ** 2 == pytest.approx(MEAN_SHARE * whole**2, rel=1e-6)
    assert mu["rough mean"] ** 2 < 0.03 * whole**2


@given(
    center=arrays(np.float64, 3, elements=st.floats(-1e30, 1e30)),
    exponents=arrays(np.int64, 3, elements=st.integers(-100, 100)),
)
def test_t16_no_row_counts_for_more_whatever_is_subtracted_and_divided_by(
    center: np.ndarray, exponents: np.ndarray
) -> None:
    shard = Shard(check_rows(np.array([[1e18, -3.0, 1e-20]]), least=1), 1.0, mean_bound=PRIVATE_BOUND)
    answer = shard.evaluate(ColumnSums(3, 2.0**exponents, center))
    assert np.linalg.norm(answer.astype(float)) <= 2.0**ROW_BITS


def test_only_a_job_that_says_so_divides_columns() -> None:
    query = ColumnSums(COLUMNS, np.full(COLUMNS, 2.0))
    for bound, is_granted in ((1.0, False), (PRIVATE_BOUND, True)):
        plan = catalogue.plan(job(mean_bound=bound))
        position = [step.name for step in plan].index("mean")
        standing = JobPosition(position, plan.prices[position])
        if is_granted:
            assert Gate(plan).grant(position, query, standing).step.query is ColumnSums
        else:
            with pytest.raises(RefusedError, match=facts("scales", "none")):
                Gate(plan).grant(position, query, standing)


def test_a_mean_whose_noise_may_look_like_a_component_brings_a_warning() -> None:
    few = simulate([TABLE[:900] + 20 * DIRECTION], job(components=5), noise_seed=4)
    assert few.decision is not None
    assert few.decision.mean_noise is not None
    assert few.decision.values is not None
    assert off(few, TABLE[:900].mean(axis=0) + 20 * DIRECTION) ** 2 < 4 * few.decision.mean_noise
    assert min(few.decision.values) < few.decision.mean_noise
    assert any("noise of its own" in each for each in findings.of_model(few))
    many = simulate([TABLE + 20 * DIRECTION], job(), noise_seed=4)
    assert not any("noise of its own" in each for each in findings.of_model(many))


def test_the_statement_says_that_the_length_was_found() -> None:
    statement = simulate([TABLE], job(), noise_seed=1).statement
    assert "To find the mean, rows were first clipped to a length that was found privately" in statement.text
    assert statement.to_dict()["mean_bound_is_private"]


def test_methods_that_cannot_find_a_bound_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts("mean_bound", "analyze-gauss", "auto")):
        catalogue.plan(job(method="analyze-gauss", norm_bound=1.0))


def test_scaled_columns_have_a_bound_that_fits() -> None:
    assert job(scaling="private").mean_bound == job(scaling="private", mean_bound=None).mean_bound != PRIVATE_BOUND


def test_the_canonical_form_is_read_back() -> None:
    assert JobSpec.from_json(job().to_json()) == job()
    written = job().to_dict()
    assert (written["norm_bound"], written["mean_bound"]) == ("private", "private")
    assert JobSpec.from_dict(written, "a job") == job()
