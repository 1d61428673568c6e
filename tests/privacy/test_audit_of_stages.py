"""Audits of jobs that decide on their way: every kind of query that they ask is audited, whichever path they take."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dpspca.client.audit.answers import audit
from dpspca.common.algorithms import automatic, catalogue
from dpspca.common.algorithms.stages import staged_release, wide_release
from dpspca.common.job import PRIVATE_BOUND, Budget, Centering, JobSpec, Schema
from dpspca.common.privacy.audit import AuditKind
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import (
    ColumnSizes,
    ColumnSums,
    GroupedScores,
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

REPLACE, ADD_REMOVE = PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE
RUNS = 40


def job(dimension: int, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {"unit": REPLACE, "budget": Budget(20, 1e-2), "norm_bound": 1.0, "components": 2}
    return JobSpec(**good | {"schema": Schema(dimension), "method": "auto"} | changes)


@pytest.fixture(autouse=True)
def few_columns_count_as_many(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the paths for hundreds and thousands of columns with few, so that an audit is quick. Plans are made anew."""
    monkeypatch.setattr(automatic, "FEW_COLUMNS", 10)
    monkeypatch.setattr(automatic, "MAX_MATRIX_COLUMNS", 20)
    monkeypatch.setattr(staged_release, "SOME_COLUMNS", 14)
    monkeypatch.setattr(wide_release, "WIDE_COLUMNS", 20)
    monkeypatch.setattr(wide_release, "MOST_CANDIDATES", 5)
    monkeypatch.setattr(wide_release, "PAIRED_COLUMNS", 12)
    catalogue._planned.cache_clear()
    yield
    catalogue._planned.cache_clear()


JOBS: dict[str, tuple[JobSpec, set[type[RowQuery]]]] = {
    "private bound": (job(8, norm_bound=PRIVATE_BOUND), {NormRange, NormHistogram, ViewCovariance}),
    "private mean": (
        job(8, centering="private", mean_bound=PRIVATE_BOUND),
        {NormRange, NormHistogram, ColumnSums, ViewCovariance},
    ),
    "scales": (job(8, norm_bound=3.0, scaling="private"), {ColumnSizes, ViewSquares}),
    "picture": (job(8, options={"picture": True}), {ScoreHistogram}),
    "groups": (
        job(
            8,
            options={"picture": True, "picture_by": "sex"},
            dictionary="ab" * 32,
            schema=Schema(8, (*map(str, range(5)), "sex=female", "sex=male", "sex=other")),
        ),
        {GroupedScores},
    ),
    "differences": (job(8, centering=Centering.PAIRS), {NormHistogram, ViewCovariance}),
    "stages": (job(13), {ViewSquares, TiedColumns}),
    "stages and pairs": (job(16, unit=ADD_REMOVE), {SignPairs, TiedColumns}),
    "wide": (job(24), {SignPairs, ViewProduct, TiedColumns, ViewCovariance}),
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


@pytest.mark.slow
def test_a_sensitivity_of_products_stated_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planner and provider share the fault, so only the distance of the neighbours shows it."""
    stated = ViewProduct.sensitivity_of
    monkeypatch.setattr(ViewProduct, "sensitivity_of", lambda unit, extent: stated(unit, extent) / 4)
    found = audit(replace(JOBS["wide"][0], seed=2**63), runs=RUNS)
    assert {each.kind for each in found.findings if not each.passed} == {AuditKind.DISTANCE}


COUNTS: dict[type[RowQuery], str] = {
    ScoreHistogram: "picture",
    GroupedScores: "groups",
    ColumnSizes: "scales",
    NormHistogram: "picture",
    NormRange: "private bound",
}


@pytest.mark.parametrize("unit", [REPLACE, ADD_REMOVE])
@pytest.mark.parametrize("kind", COUNTS)
def test_a_sensitivity_of_counts_stated_too_small_is_caught(
    kind: type[RowQuery], unit: PrivacyUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth is enough: exact answers over the worst neighbours are compared, and no noise can hide it."""
    stated = kind.sensitivity_of
    monkeypatch.setattr(kind, "sensitivity_of", lambda unit, extent: 0.9 * stated(unit, extent))
    found = audit(replace(JOBS[COUNTS[kind]][0], unit=unit, seed=2**62), runs=20)
    wrong = [each for each in found.findings if not each.passed]
    assert AuditKind.REACH in {each.kind for each in wrong}
    named = {step.name for step in catalogue.plan(found.spec) if step.query is kind}
    assert {f"worst neighbours for '{name}'" for name in named} <= {each.name for each in wrong}


@pytest.mark.parametrize("unit", [unit for unit in PrivacyUnit if unit.is_row])
@pytest.mark.parametrize("name", ["picture", "scales", "private bound", "groups"])
def test_the_worst_neighbours_reach_what_the_price_allows(name: str, unit: PrivacyUnit) -> None:
    """So a sensitivity that is too small by a twentieth would be found, whatever the unit."""
    several = 3 if unit.is_person else 1
    found = audit(replace(JOBS[name][0], unit=unit, rows_per_person=several), runs=2)
    reached = [each for each in found.findings if each.kind is AuditKind.REACH]
    assert reached
    for each in reached:
        assert each.passed
        assert each.catches is not None
        assert each.catches > 0.95
