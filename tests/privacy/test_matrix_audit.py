"""The audit also tests providers of shares of a matrix, with neighbours by the unit of the job.

False alarms: an audit of an honest provider fails with probability at most 1e-6, by the union bound.
"""

import math
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.client.audit.answers import audit
from dpspca.client.audit.neighbours import neighbours
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Budget, JobSpec, Schema, Span
from dpspca.common.privacy.audit import AuditKind
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import matrix
from dpspca.common.queries.base import RowQuery
from dpspca.provider.evaluate.matrix_shard import MatrixShard
from dpspca.provider.release import responder

ENTRY, SPECTRAL = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL


def job(unit: PrivacyUnit, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(40),
        "unit": unit,
        "budget": Budget(20.0, 1e-2),
        "norm_bound": 1.0,
        "components": 4,
        "method": "noisy-power",
        "options": {"rounds": 3, "columns": 4},
    }
    return JobSpec(**good | changes)


def failed(spec: JobSpec) -> set[AuditKind]:
    return {each.kind for each in audit(spec).findings if not each.passed}


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
@pytest.mark.parametrize("components", [1, 2, 4])
def test_the_made_up_matrices_are_neighbours_as_far_apart_as_may_be(unit: PrivacyUnit, components: int) -> None:
    spec = job(unit, components=components, norm_bound=7.0)
    first, second = neighbours(spec)
    assert (first == first.T).all()
    change = second - first
    assert (change == change.T).all()
    if unit is ENTRY:
        assert np.count_nonzero(change) == 2
        assert np.abs(change).max() == 7.0
    else:
        assert np.linalg.norm(change, 2) == pytest.approx(7.0)


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
@pytest.mark.parametrize("method", ["noisy-power", "power-iteration"])
def test_the_made_up_neighbours_are_nearly_as_far_apart_as_the_price_allows(unit: PrivacyUnit, method: str) -> None:
    """False alarm: an estimate of standard deviation 0.14 that is wrong by five of them, below 1e-6."""
    found = audit(job(unit, method=method, options={"rounds": 3}))
    assert found.passed
    (whole,) = [each for each in found.findings if each.kind is AuditKind.DISTANCE and "'" not in each.name]
    assert whole.measured > 0.7 * whole.planned - 5 * math.sqrt(2 / found.runs)


def test_a_forgotten_mirror_image_is_caught_though_the_noise_is_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planner and provider share the fault, so only the distance of the neighbours shows it."""
    right = matrix.SymmetricProduct.movement
    monkeypatch.setattr(
        matrix.SymmetricProduct, "movement", lambda self, unit, l1: right(self, unit, l1=l1) / math.sqrt(2)
    )
    assert failed(job(ENTRY)) == {AuditKind.DISTANCE}


def test_a_forgotten_root_of_the_columns_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = matrix.SpectralProduct.lattice_sensitivity
    monkeypatch.setattr(matrix.SpectralProduct, "lattice_sensitivity", lambda unit, extent: right(unit, extent) / 2)
    assert failed(job(SPECTRAL, seed=2**63)) == {AuditKind.DISTANCE}  # plans are remembered by their jobs


def test_a_matrix_that_is_not_in_units_of_the_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MatrixShard.evaluate

    def twice(shard: MatrixShard, query: RowQuery) -> Any:
        return right(shard, query) * 2

    monkeypatch.setattr(MatrixShard, "evaluate", twice)
    assert failed(job(ENTRY)) == {AuditKind.DISTANCE}


# --- Shares with a span -----------------------------------------------------------------------------------------------

SPAN = Span(5, 8, 24)


@pytest.mark.parametrize("unit", [ENTRY, SPECTRAL])
@pytest.mark.parametrize("method", ["noisy-power", "power-iteration"])
def test_a_provider_with_a_span_passes_and_answers_zero_in_others_rows(unit: PrivacyUnit, method: str) -> None:
    """False alarm: as above; and the neighbours are nearly as far apart as the price allows here as well."""
    found = audit(job(unit, method=method, options={"rounds": 3}), span=SPAN)
    assert [each.name for each in found.findings if not each.passed] == []
    names = {each.name: each for each in found.findings}
    assert names["zeros in the rows of others"].measured == 0
    whole = names["distance of the neighbours in all answers"]
    assert whole.measured > 0.6 * whole.planned - 5 * math.sqrt(2 / found.runs)


def test_noise_in_the_rows_of_others_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MatrixShard, "silent", lambda *_: None)
    found = audit(job(ENTRY), span=SPAN)
    assert {each.kind for each in found.findings if not each.passed} == {AuditKind.SILENCE}


def test_a_span_that_takes_the_noise_off_an_own_row_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry without noise makes the measured width too small."""
    right = responder._clear_silent_rows

    def more(noise: Any, exact: Any, silent: Any) -> None:
        right(noise, exact, silent)
        noise[SPAN.start] = 0

    monkeypatch.setattr(responder, "_clear_silent_rows", more)
    found = audit(job(ENTRY), span=SPAN)
    assert AuditKind.WIDTH in {each.kind for each in found.findings if not each.passed}


@pytest.mark.parametrize("span", [SPAN, Span(0, 8, 59), Span(0, 60, 60)])
def test_a_span_without_a_table_is_refused(span: Span) -> None:
    spec = None if span.of < 60 else job(ENTRY)
    with pytest.raises(DpspcaError, match=facts("span")):
        audit(spec, span=span)
