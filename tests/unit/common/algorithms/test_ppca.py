"""PPCA as a job: its price, its answers, its errors, and the bad input that it refuses by name."""

import math
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import ppca
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.plan import events, prices
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.events import PureEvent
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.subspace import MAX_SUBSPACE_COLUMNS, DrawnSubspace, WeightedDrawnSubspace
from dpspca.provider.evaluate.mechanisms import ROUNDING, exponent

ROWS = np.random.default_rng(0).standard_normal((20_000, 6)) * [0.4, 0.3, 0.1, 0.1, 0.1, 0.1]
TRUTH = np.eye(6)[:, :2]
UNITS = [PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE]
CHAIN = {"sampler": "gibbs"}


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(6),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-30),
        "norm_bound": 1.0,
        "components": 2,
        "method": "ppca",
    }
    return JobSpec(**good | changes)


def released(job: JobSpec) -> float:
    (event,) = (event for event in events(ppca.steps_of(job)) if isinstance(event, PureEvent))
    return event.epsilon


@pytest.mark.parametrize("options", [{}, CHAIN])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("accounting", list(Accounting))
def test_the_promise_and_the_price_follow_from_the_events(
    options: dict[str, str], unit: PrivacyUnit, accounting: Accounting
) -> None:
    steps = ppca.steps_of(spec(options=options, unit=unit, accounting=accounting))
    listed = events(steps)
    assert compose(listed).delta(1.0) <= 1e-30
    *_, total = prices(steps)
    assert (total.units, total.slack_units) == (cost_units(listed), slack_units(listed))


@pytest.mark.parametrize("options", [{}, CHAIN])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("parties", [1, 3])
def test_with_a_large_budget_the_subspace_is_found(options: dict[str, str], unit: PrivacyUnit, parties: int) -> None:
    job = spec(options=options, unit=unit, budget=Budget(20.0, 1e-30))
    model = simulate(np.array_split(ROWS, parties), job, noise_seed=1)
    assert subspace_distance(model.components.T, TRUTH) < 0.05
    assert model.explained_variance is not None
    assert model.explained_variance == pytest.approx([0.16, 0.09], rel=0.1)


def test_the_error_is_that_of_the_law() -> None:
    """One component of six: the squared error is a sum over the other axes of 1/(2 c gap_i), for a large c.

    It is a mean of 40 draws of about half a chi-square with 5 degrees each: a relative deviation of .1, so a factor of
    1.7 either way has a probability below 1e-6.
    """
    job = spec(components=1, explained_variance=False)
    gaps = len(ROWS) * (0.16 - np.array([0.09, 0.01, 0.01, 0.01, 0.01]))
    expected = (1 / (2 * 0.5 * gaps)).sum()
    errors = [
        subspace_distance(simulate([ROWS], job, noise_seed=seed).components.T, np.eye(6)[:, :1]) ** 2
        for seed in range(40)
    ]
    sampling = subspace_distance(np.linalg.eigh(ROWS.T @ ROWS)[1][:, -1:], np.eye(6)[:, :1]) ** 2
    assert expected / 1.7 < np.mean(errors) - sampling < expected * 1.7


def test_a_row_added_or_removed_allows_twice_the_exponent_of_a_row_replaced() -> None:
    assert exponent(DrawnSubspace(6), 1.0) == ROUNDING
    assert exponent(WeightedDrawnSubspace(6), 1.0) == ROUNDING / 2
    assert 1 - ROUNDING > 1e-4


def test_the_published_exponent_is_half_of_epsilon_and_charged_in_full() -> None:
    for unit, cost in zip(UNITS, (1.0, 0.5), strict=True):
        whole = released(spec(unit=unit, explained_variance=False))
        published = released(spec(unit=unit, explained_variance=False, accounting=Accounting.PUBLISHED))
        assert whole == pytest.approx(1.0)
        assert published == pytest.approx(cost)
        query = ppca.steps_of(spec(unit=unit, explained_variance=False, accounting=Accounting.PUBLISHED))[-1].query
        assert exponent(query(6), published) == pytest.approx(ROUNDING / 2)  # type: ignore[call-arg, arg-type]


def test_the_gibbs_chain_has_its_own_query() -> None:
    kinds = {step.query.kind for unit in UNITS for step in ppca.steps_of(spec(unit=unit, options=CHAIN))}
    assert {"walked-subspace", "weighted-walked-subspace"} < kinds
    assert "drawn-subspace" not in kinds


def test_a_private_mean_is_paid_for_out_of_epsilon() -> None:
    job = spec(centering=Centering.PRIVATE, mean_bound=1.0)
    assert released(job) == pytest.approx(0.85)
    model = simulate([ROWS + 0.1], job, noise_seed=1)
    assert model.mean is not None
    assert np.abs(model.mean - 0.1).max() < 5 * math.sqrt(2) * 2 * math.sqrt(6) / 0.1 / len(ROWS) + 0.02


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"options": {"sampler": "metropolis"}}, "sampler"),
        ({"options": {"privacy": "pure"}}, "privacy"),
        ({"unit": PrivacyUnit.SPECTRAL}, "row-add-remove"),
        ({"schema": Schema(MAX_SUBSPACE_COLUMNS + 1)}, str(MAX_SUBSPACE_COLUMNS)),
    ],
)
def test_bad_input_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts(named)):
        ppca.steps_of(spec(**changes))
