"""Output perturbation as a job: its price, its answers, its errors, and the bad input that it refuses by name."""

import math
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import output_perturbation
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.plan import events, prices
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.events import ApproximateEvent, LaplaceEvent, PureEvent
from dpspca.common.privacy.smooth import (
    gaussian_constants,
    keeps_promise,
    published_gaussian_constants,
    smooth_bound,
    student_constants,
)
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.subspace import MAX_SUBSPACE_COLUMNS

ROWS = np.random.default_rng(0).standard_normal((20_000, 6)) * [0.4, 0.3, 0.1, 0.1, 0.1, 0.1]
TRUTH = np.eye(6)[:, :2]
UNITS = [PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE]
PURE = {"privacy": "pure"}
APPROXIMATE = {"privacy": "approximate"}


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(6),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(2.0, 1e-6),
        "norm_bound": 1.0,
        "components": 2,
        "method": "output-perturbation",
        "options": APPROXIMATE,
    }
    return JobSpec(**good | changes)


@pytest.mark.parametrize("options", [APPROXIMATE, PURE])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("accounting", list(Accounting))
@pytest.mark.parametrize("budget", [Budget(0.1, 1e-9), Budget(2.0, 1e-6), Budget(20.0, 1e-2)])
def test_the_promise_and_the_price_follow_from_the_events(
    options: dict[str, str], unit: PrivacyUnit, accounting: Accounting, budget: Budget
) -> None:
    job = spec(options=options, unit=unit, accounting=accounting, budget=budget)
    steps = output_perturbation.steps_of(job)
    listed = events(steps)
    assert compose(listed).delta(budget.epsilon) <= budget.delta
    *_, total = prices(steps)
    assert (total.units, total.slack_units) == (cost_units(listed), slack_units(listed))


@pytest.mark.parametrize("centering", [Centering.NONE, Centering.PRIVATE])
def test_a_pure_job_spends_all_of_epsilon_and_the_samplers_delta(centering: Centering) -> None:
    bound = 1.0 if centering is Centering.PRIVATE else None
    job = spec(options=PURE, budget=Budget(2.0, 1e-30), centering=centering, mean_bound=bound)
    listed = events(output_perturbation.steps_of(job))
    total = sum(event.epsilon for event in listed if isinstance(event, PureEvent | LaplaceEvent))
    assert len(listed) == sum(isinstance(event, PureEvent | LaplaceEvent) for event in listed)
    assert 2.0 * (1 - 1e-9) <= total <= 2.0
    assert compose(listed).delta(2.0) < 1e-40


def test_the_delta_of_an_approximate_release_fills_the_budget_as_slack() -> None:
    (event,) = (event for event in events(output_perturbation.steps_of(spec())) if isinstance(event, ApproximateEvent))
    assert 0.99e-6 < event.delta * (1 + math.exp(2.0)) < 1e-6


@pytest.mark.parametrize("options", [APPROXIMATE, PURE])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("parties", [1, 3])
def test_with_a_gap_that_is_large_beside_the_noise_the_subspace_is_found(
    options: dict[str, str], unit: PrivacyUnit, parties: int
) -> None:
    job = spec(options=options, unit=unit, budget=Budget(20.0, 1e-6))
    model = simulate(np.array_split(ROWS, parties), job, noise_seed=1)
    assert subspace_distance(model.components.T, TRUTH) < 0.05
    assert model.explained_variance is not None
    assert model.explained_variance == pytest.approx([0.16, 0.09], rel=0.1)


@pytest.mark.parametrize("options", [APPROXIMATE, PURE])
def test_the_error_is_what_noise_of_the_smooth_bound_gives(options: dict[str, str]) -> None:
    """Means of 30 runs within a factor of 1.5: sqrt(k (d - k)) entries of the noise are at right angles to the frame.

    The gap is .08 a row and moves by 2. Each error has a relative deviation of less than a half, so the mean of 30 one
    of less than .1, and a false alarm a probability below 1e-6.
    """
    epsilon, delta, gap = 2.0, 1e-6 / (1 + math.exp(2.0)), 0.08 * len(ROWS)
    constants = student_constants(12, epsilon) if options else gaussian_constants(12, epsilon, delta)
    scale = smooth_bound(gap, 2, 2, constants.beta) / constants.alpha
    job = spec(options=options, explained_variance=False)
    errors = [subspace_distance(simulate([ROWS], job, noise_seed=seed).components.T, TRUTH) for seed in range(30)]
    sampling = subspace_distance(np.linalg.eigh(ROWS.T @ ROWS)[1][:, -2:], TRUTH)
    expected = math.hypot(scale * math.sqrt(2 * 4), sampling)
    assert expected / 1.5 < np.mean(errors) < expected * 1.5


def test_rows_without_a_gap_give_noise_and_no_error() -> None:
    model = simulate([np.random.default_rng(2).standard_normal((400, 6))], spec(norm_bound=3.0), noise_seed=1)
    assert np.allclose(model.components @ model.components.T, np.eye(2))


def test_the_published_noise_is_the_paper_s_and_wider_than_the_exact() -> None:
    entries, epsilon, delta = 12, 1.0, 1e-6
    published = published_gaussian_constants(entries, epsilon, delta)
    exact = gaussian_constants(entries, epsilon, delta)
    assert 1 / published.alpha == pytest.approx(5 * math.sqrt(2 * math.log(2 / delta)) / epsilon)
    assert published.beta == pytest.approx(epsilon / (4 * (entries + math.log(2 / delta))))
    assert exact.alpha > published.alpha


def test_published_noise_that_does_not_keep_its_promise_is_refused() -> None:
    job = spec(schema=Schema(2), components=1, accounting=Accounting.PUBLISHED, budget=Budget(48.0, 0.5))
    assert not keeps_promise(published_gaussian_constants(2, 45.0, 1e-22), 2, 45.0, 1e-22)
    with pytest.raises(InvalidParameterError, match=facts("exact", "epsilon", "delta")):
        output_perturbation.steps_of(job)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"options": {"privacy": "none"}}, "privacy"),
        ({"options": {"rounds": 3}}, "rounds"),
        ({"unit": PrivacyUnit.ENTRY}, "row-add-remove"),
        ({"schema": Schema(MAX_SUBSPACE_COLUMNS + 1)}, str(MAX_SUBSPACE_COLUMNS)),
        ({"budget": Budget(1.0, 1e-160)}, "delta"),
    ],
)
def test_bad_input_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts(named)):
        output_perturbation.steps_of(spec(**changes))
