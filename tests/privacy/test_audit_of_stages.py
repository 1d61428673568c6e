"""Audits of jobs that decide on their way: every kind of query that they ask is audited, whichever path they take."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dpspca.client.audit.answers import audit
from dpspca.common.algorithms import automatic, catalogue, staged_release, wide_release
from dpspca.common.privacy.audit import Kind
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import (
    ColumnSizes,
    NormHistogram,
    NormRange,
    RowQuery,
    ScoreHistogram,
    SignPairs,
    TiedColumns,
    ViewCovariance,
    ViewProduct,
    ViewSquares,
)
from dpspca.common.spec import PRIVATE_BOUND, Budget, Centering, JobSpec, Schema

REPLACE, ADD_REMOVE = PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE
RUNS = 40


def job(dimension: int, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {"unit": REPLACE, "budget": Budget(20, 1e-2), "norm_bound": 1.0, "components": 2}
    return JobSpec(schema=Schema(dimension), method=changes.pop("method", "auto"), **good | changes)


@pytest.fixture(autouse=True)
def few_columns_count_as_many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the paths for hundreds and thousands of columns with few, so that an audit is quick. Plans are made anew."""
    monkeypatch.setattr(automatic, "FEW_COLUMNS", 10)
    monkeypatch.setattr(automatic, "MAX_DIMENSION", 20)
    monkeypatch.setattr(staged_release, "SOME_COLUMNS", 14)
    monkeypatch.setattr(wide_release, "WIDE_COLUMNS", 20)
    monkeypatch.setattr(wide_release, "MOST_CANDIDATES", 5)
    catalogue._planned.cache_clear()
    yield
    catalogue._planned.cache_clear()


JOBS: dict[str, tuple[JobSpec, set[type[RowQuery]]]] = {
    "private bound": (job(8, norm_bound=PRIVATE_BOUND), {NormRange, NormHistogram, ViewCovariance}),
    "scales": (job(8, norm_bound=3.0, scaling="private"), {ColumnSizes, ViewSquares}),
    "picture": (job(8, options={"picture": True}), {ScoreHistogram}),
    "differences": (job(8, centering=Centering.PAIRS), {NormHistogram, ViewCovariance}),
    "stages": (job(13), {ViewSquares, TiedColumns}),
    "stages and pairs": (job(16, unit=ADD_REMOVE), {SignPairs, TiedColumns}),
    "wide": (job(24), {ViewProduct, TiedColumns, ViewCovariance}),
    "improved loop": (
        job(12, method="dps-pca", options={"sparsity": 6, "loop": "improved", "rounds": 3}),
        {ViewProduct, ViewCovariance},
    ),
}


@pytest.mark.parametrize("name", JOBS)
def test_an_honest_provider_passes_on_every_path(name: str) -> None:
    what, kinds = JOBS[name]
    assert kinds <= {each.query for step in catalogue.plan(what) for each in step.choices}
    found = audit(what, runs=RUNS)
    assert found.passed, [each for each in found.findings if not each.passed]


def test_a_sensitivity_of_products_stated_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planner and provider share the fault, so only the distance of the neighbours shows it."""
    stated = ViewProduct.sensitivity_of
    monkeypatch.setattr(ViewProduct, "sensitivity_of", lambda unit, extent: stated(unit, extent) / 4)
    found = audit(replace(JOBS["wide"][0], seed=2**63), runs=RUNS)
    assert {each.kind for each in found.findings if not each.passed} == {Kind.DISTANCE}
