"""SuLQ and MOD-SuLQ: the papers' noise, the least noise that the budget allows, and the subspace that is left."""

import math
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.client.simulation import Progress, simulate
from dpspca.common.algorithms import catalogue, mod_sulq, sulq
from dpspca.common.errors import InvalidParameterError, PlanOverBudgetError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.plan import events, prices
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.calibration import gaussian_mu
from dpspca.common.privacy.costs import cost_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import Covariance, CovarianceTriangle

BOTH = ["sulq", "mod-sulq"]
UNITS = [PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE]
MODEL = SpikedModel(dimension=60, components=3, support=60)


def spec(method: str, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(60),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": MODEL.norm_bound,
        "components": 3,
        "method": method,
        "explained_variance": False,
        "options": {},
    }
    return JobSpec(**good | changes)


# --- Privacy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("accounting", Accounting)
@pytest.mark.parametrize("centering", [Centering.NONE, Centering.PRIVATE])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_promise_and_the_ledger_s_prices_follow_from_the_events(
    method: str, unit: PrivacyUnit, accounting: Accounting, centering: Centering, epsilon: float
) -> None:
    mean = 20.0 if centering is Centering.PRIVATE else None
    budget = Budget(epsilon, 1e-6)
    job = spec(method, unit=unit, accounting=accounting, centering=centering, mean_bound=mean, budget=budget)
    plan = catalogue.plan(job)
    assert compose(events(plan)).delta(epsilon) <= 1e-6
    *_, last = prices(plan)
    assert last.units == cost_units(events(plan))


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-6), (0.3, 0.01), (2.0, 1e-9)])
def test_published_noise_has_the_papers_formulas_and_exact_noise_is_smaller(
    unit: PrivacyUnit, epsilon: float, delta: float
) -> None:
    d = 60
    published = {
        "mod-sulq": (d + 1) / epsilon * math.sqrt(2 * math.log((d * d + d) / (2 * delta * math.sqrt(2 * math.pi))))
        + 1 / math.sqrt(epsilon),
        "sulq": math.sqrt(8 * d**2 * math.log(d / delta) ** 2 / epsilon**2),
    }
    for method, expected in published.items():
        exact, papers = (
            catalogue.plan(spec(method, unit=unit, budget=Budget(epsilon, delta), accounting=accounting))[-1]
            for accounting in (Accounting.EXACT, Accounting.PUBLISHED)
        )
        assert papers.noise_std * 2.0**-30 == pytest.approx(expected, rel=1e-6)
        assert exact.noise_std < papers.noise_std / 10


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize(("unit", "sensitivity"), [(UNITS[0], math.sqrt(2)), (UNITS[1], 1.0)])
def test_the_exact_noise_is_the_sharp_sensitivity_over_mu(method: str, unit: PrivacyUnit, sensitivity: float) -> None:
    (step,) = catalogue.plan(spec(method, unit=unit))
    assert step.noise_std * 2.0**-30 == pytest.approx(sensitivity / gaussian_mu(1.0, 1e-6), rel=1e-3)


@pytest.mark.parametrize("method", BOTH)
def test_a_private_count_and_mean_get_classical_noise(
    method: str,
) -> None:
    job = spec(
        method,
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        accounting=Accounting.PUBLISHED,
        centering=Centering.PRIVATE,
        mean_bound=20.0,
    )
    count, mean, _ = catalogue.plan(job)
    for step, share, unit in ((count, 0.01, 1.0), (mean, 0.1, 2.0**17)):
        classical = math.sqrt(2 * math.log(1.25 / (share * 1e-6))) / share
        assert step.noise_std == pytest.approx(classical * unit, rel=1e-4)


def one_column(method: str, epsilon: float, delta: float, accounting: Accounting = Accounting.PUBLISHED) -> JobSpec:
    budget = Budget(epsilon, delta)
    return spec(method, schema=Schema(1), components=1, budget=budget, accounting=accounting)


def test_mod_sulq_with_a_negative_logarithm_uses_the_second_term() -> None:
    assert mod_sulq.published_std(1, 9.0, 0.5) == pytest.approx(1 / 3)
    for epsilon in (0.01, 0.1, 1.0, 9.0, 48.0):
        assert catalogue.plan(one_column("mod-sulq", epsilon, 0.9))


def test_sulq_s_formula_is_refused_where_it_promises_more_than_it_gives() -> None:
    """For a delta near the number of columns its logarithm leaves next to nothing."""
    with pytest.raises(PlanOverBudgetError):
        catalogue.plan(one_column("sulq", 48.0, 0.9))
    assert catalogue.plan(one_column("sulq", 48.0, 0.9, Accounting.EXACT))


@pytest.mark.parametrize("method", BOTH)
def test_a_matrix_that_is_too_large_and_an_option_are_refused_by_name(method: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts(method, 10_000, 8192)):
        catalogue.plan(spec(method, schema=Schema(10_000)))
    with pytest.raises(InvalidParameterError, match=facts("rounds")):
        catalogue.plan(spec(method, options={"rounds": 3}))


# --- What is released, and found --------------------------------------------------------------------------------------


def released(method: str) -> np.ndarray:
    data = spiked_rows(MODEL, 500, np.random.default_rng(0))
    seen: list[Progress] = []
    simulate([data.rows], spec(method), noise_seed=2, watch=seen.append)
    assert seen[-1].aggregate is not None
    return seen[-1].aggregate.values


def test_mod_sulq_releases_one_triangle_and_sulq_two_that_differ() -> None:
    assert catalogue.plan(spec("mod-sulq"))[-1].query is CovarianceTriangle
    assert released("mod-sulq").shape == (60 * 61 // 2,)
    assert catalogue.plan(spec("sulq"))[-1].query is Covariance
    square = released("sulq")
    above = np.triu_indices(60, 1)
    assert (square[above] != square.T[above]).all()


def test_left_singular_vectors_are_those_of_the_matrix_as_it_is() -> None:
    matrix = np.random.default_rng(3).standard_normal((30, 30))
    expected = np.linalg.svd(matrix)[0][:, :4]
    found = sulq.left_singular(matrix, 4)
    assert subspace_distance(found.T, expected) < 1e-6
    assert np.abs(np.abs(found @ expected) - np.eye(4)).max() < 1e-6
    symmetric = (matrix + matrix.T) / 2
    assert subspace_distance(found.T, np.linalg.eigh(symmetric)[1][:, -4:]) > 0.1


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("accounting", Accounting)
def test_the_subspace_is_recovered_with_a_large_budget(method: str, accounting: Accounting) -> None:
    """Of 1.73 at most. Published noise is so wide that it takes as many rows; the rows' own error is 0.05."""
    data = spiked_rows(MODEL, 40_000, np.random.default_rng(1))
    budget = Budget(40.0, 1e-2)
    job = spec(method, budget=budget, accounting=accounting, explained_variance=True)
    model = simulate([data.rows], job, noise_seed=1)
    assert subspace_distance(model.components.T, data.basis) < 0.2
    assert model.explained_variance is not None
    assert model.explained_variance == pytest.approx([100] * 3, rel=0.2)


def test_each_loses_to_its_descendant_at_one_budget() -> None:
    """Symmetric noise on a triangle, noise on a square that is not averaged, and analyze-gauss, which averages it.

    The noise that bears on the components is sqrt(2) wider for each of the first two. Over eight seeds their mean
    errors are 1.33 and 1.36 times as large as the third's, with a standard deviation of 3 % (seen over 24 seeds): that
    of eight seeds is below 1.18 by chance with probability below 1e-4.
    """
    data = [spiked_rows(MODEL, 2000, np.random.default_rng(seed)) for seed in range(8)]
    errors = {
        method: np.mean(
            [
                subspace_distance(simulate([each.rows], spec(method), noise_seed=seed).components.T, each.basis)
                for seed, each in enumerate(data)
            ]
        )
        for method in (*BOTH, "analyze-gauss")
    }
    assert errors["analyze-gauss"] < 0.85 * min(errors["sulq"], errors["mod-sulq"])


@pytest.mark.parametrize("method", BOTH)
def test_the_error_is_within_the_perturbation_bound_of_its_noise(method: str) -> None:
    """By Wedin's theorem, sqrt(k) ||E|| / (gap - ||E||) for noise E and the gap behind the k-th eigenvalue.

    The spectral norm of d x d noise of width s exceeds s (2 sqrt(d) + 8) with probability below e^-16, mirrored or not;
    so a run is outside by chance with probability below 2e-7. It is held against the rows' own leading subspace.
    """
    for seed in range(5):
        data = spiked_rows(MODEL, 20_000, np.random.default_rng(seed))
        job = spec(method, norm_bound=60.0)
        assert np.linalg.norm(data.rows, axis=1).max() < job.norm_bound
        (step,) = catalogue.plan(job)
        values, vectors = np.linalg.eigh(data.rows.T @ data.rows)
        noise = step.noise_std * step.query.unit_value(job.norm_bound) * (2 * math.sqrt(60) + 8)
        bound = math.sqrt(3) * noise / (values[-3] - values[-4] - noise)
        found = subspace_distance(simulate([data.rows], job, noise_seed=seed).components.T, vectors[:, -3:])
        assert found <= bound < 1
