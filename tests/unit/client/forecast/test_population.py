"""Hints are completed to a population whose eigenvalues add up, or refused with numbers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.forecast import Hints
from dpspca.client.forecast.population import Population, length_quantile
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

SPEC = JobSpec(
    schema=Schema(300), unit=PrivacyUnit.ROW_REPLACE_ONE, budget=Budget(1.0, 1e-6), norm_bound=10.0, components=3
)


def of(**hints: Any) -> Population:
    return Population.of(SPEC, Hints(**{"rows": 1000} | hints))


@pytest.mark.parametrize(
    "hints",
    [
        {},
        {"leading": 0.1},
        {"leading": 0.1, "largest": 0.3},
        {"leading": 0.1, "following": 0.0237},
        {"leading": 0.1, "following": 0.05, "support": 3},
        {"leading": 1 / 3, "following": 0.0},
    ],
)
def test_the_eigenvalues_add_up_to_the_mean_squared_length(hints: dict[str, float]) -> None:
    found = of(**hints)
    assert found.leading.sum() + found.counts @ found.others == pytest.approx(1, abs=2e-3)
    assert found.counts.sum() == pytest.approx(297)
    assert found.others.max() <= found.leading.min()
    if "following" in hints:
        assert found.others[0] == pytest.approx(hints["following"])


def test_without_hints_the_components_explain_about_half() -> None:
    assert of().leading.sum() == pytest.approx(0.5, abs=0.01)
    everything = Population.of(replace(SPEC, schema=Schema(3)), Hints(rows=10))
    assert everything.leading.sum() == pytest.approx(1)
    assert everything.others.size == 0


@pytest.mark.parametrize(
    ("hints", "fact"),
    [
        ({"rows": 1}, "rows"),
        ({"providers": 120, "rows": 200}, "200"),
        ({"leading": 1.5}, "1.5"),
        ({"leading": float("nan")}, "nan"),
        ({"following": 0.1}, "leading"),
        ({"leading": 0.1, "following": 0.1}, "0.1"),
        ({"leading": 0.1, "largest": 0.05}, "0.05"),
        ({"leading": 0.4}, "1.2"),
        ({"leading": 0.1, "following": 0.001}, "0.00236"),
        ({"support": 2}, "2"),
        ({"support": 301}, "301"),
        ({"row_length": 0.0}, "0.0"),
    ],
)
def test_impossible_facts_are_refused_with_their_value(hints: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts(fact)):
        of(**hints)


def test_clipping_shrinks_every_eigenvalue_and_keeps_their_order() -> None:
    whole = of(leading=0.2, following=0.01)
    loose, tight = whole.clipped(100.0), whole.clipped(0.5)
    assert loose.leading == pytest.approx(whole.leading, rel=1e-6)
    assert (tight.leading < 0.6 * whole.leading).all()
    assert tight.leading.min() > tight.others.max()


def test_clipping_agrees_with_drawn_rows() -> None:
    whole = of(leading=0.1)
    stds = np.sqrt(np.r_[whole.leading, np.full(297, whole.others[0])])
    rows = np.random.default_rng(0).standard_normal((20_000, 300)) * stds
    lengths = np.square(rows).sum(axis=1)
    kept = np.minimum(1, 0.8 / lengths)
    assert (np.square(rows[:, 0]) * kept).mean() == pytest.approx(whole.clipped(0.8).leading[0], rel=0.05)
    assert np.quantile(lengths, 0.75) == pytest.approx(length_quantile(0.75, 1.0, whole.squares), rel=0.06)


def test_eigenvalues_between_fall_by_a_power_law_or_faster_where_they_must() -> None:
    law = Population.of(replace(SPEC, components=4), Hints(rows=1000, leading=0.05, largest=0.2))
    assert law.leading == pytest.approx([0.2, 0.1, 0.2 / 3, 0.05])
    steep = Population.of(replace(SPEC, components=4), Hints(rows=1000, leading=0.02, largest=0.9, following=0.015))
    assert steep.leading[[0, -1]] == pytest.approx([0.9, 0.02])
    assert (np.diff(steep.leading) <= 0).all()
    assert steep.leading.sum() < 1
