"""Rows are copied for a job's first query, after it was paid for. Opening a job is free, and looks at no row."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from local_federation import AllowEverything, Enrolment, now

from dpspca.common.errors import InvalidDataError, InvalidParameterError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.provider.data.checked import later_rows
from dpspca.provider.data.checked.later_rows import LaterRows, paired_later, used_later
from dpspca.provider.data.checked.pairs import differences
from dpspca.provider.data.checked.persons import with_persons
from dpspca.provider.data.checked.preparation import CheckedRows, check_rows
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.memory.stored_rows import StoredRows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup
from dpspca.provider.release.schedule import COPY_SECONDS

SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 4, "rounds": 2},
    method="dps-pca",
)
FIRST = CovarianceProduct(np.eye(4)[:, :2])
TABLE = np.random.default_rng(1).standard_normal((20, 4))
PERSONS = [place % 7 for place in range(20)]
OF_PERSONS = replace(SPEC, unit=PrivacyUnit.PERSON_ADD_REMOVE, rows_per_person=2)
OF_PAIRS = replace(SPEC, centering=Centering.PAIRS)


def stored(folder: Path) -> CheckedRows:
    np.save(folder / "rows.npy", TABLE)
    return read_offered(folder / "rows.npy", scratch=Scratch(folder / "scratch"))


def sparse(_: Path) -> CheckedRows:
    return check_rows(scipy.sparse.csr_array(TABLE))


CASES: dict[str, tuple[Callable[[Path], CheckedRows], JobSpec]] = {
    "persons, stored": (stored, OF_PERSONS),
    "persons, sparse": (sparse, OF_PERSONS),
    "pairs, stored": (stored, OF_PAIRS),
    "pairs, sparse": (sparse, OF_PAIRS),
}


@pytest.mark.parametrize("case", CASES)
def test_t22_a_job_is_opened_without_a_look_at_any_row(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []

    def recording(of: Any) -> Any:
        return lambda *about, **how: looks.append(of) or of(*about, **how)

    made, spec = CASES[case]
    rows = made(tmp_path)
    rows = with_persons(rows, PERSONS) if spec is OF_PERSONS else rows
    enrolment = Enrolment.create(tmp_path)
    north, ada = enrolment.identity(Role.PROVIDER, "north"), enrolment.identity(Role.ANALYST, "ada")
    setup = ProviderSetup("", lambda: north, enrolment.revocations, now, {"cohort": rows}, AllowEverything)
    registry = JobRegistry(setup)
    monkeypatch.setattr(StoredRows, "stored", recording(StoredRows.stored))
    monkeypatch.setattr(CheckedRows, "bounded", recording(CheckedRows.bounded))
    monkeypatch.setattr(later_rows, "differences", recording(differences))
    opened = registry.open(enrolment.job(spec, ada, ["north"]))
    assert not looks
    assert opened.schedule._moved == pytest.approx(COPY_SECONDS * 4)
    assert opened.schedule._rows == spec.rows_per_person
    opened.responder.respond(0, FIRST)
    assert looks


def test_rows_that_are_copied_later_are_those_that_the_job_is_about() -> None:
    rows = with_persons(replace(check_rows(TABLE), names=("a", "b", "c", "d")), PERSONS)
    later = used_later(rows, 2, None, ("d", "b"))
    assert isinstance(later, LaterRows)
    right = rows.bounded(2).with_columns(("d", "b"))
    assert (later.count, later.dimension, later.names) == (right.count, 2, ("d", "b"))
    assert (later.part(slice(None)) == right.matrix).all()
    assert later.made() is later.made()
    assert later.copied_columns == 4
    paired, both = Shard(rows, 1.0, pairing=3), Shard(differences(rows, 3), 1.0)
    query = CovarianceProduct(np.eye(4)[:, :1])
    assert (paired.evaluate(query) == both.evaluate(query)).all()


def test_t15_forgetting_pairs_frees_the_rows_that_they_were_made_of() -> None:
    rows = replace(check_rows(TABLE), names=("a", "b", "c", "d"))
    chosen = used_later(rows, 1, None, ("d", "b"))
    assert isinstance(chosen, LaterRows)
    pairs = paired_later(chosen, 3)
    assert pairs.copied_columns == 2 + 4
    pairs.made()
    assert chosen._made is not None
    pairs.forget()
    assert (chosen._made, pairs._made) == (None, None)


def test_rows_that_a_job_uses_as_they_are_are_not_copied() -> None:
    rows = check_rows(TABLE)
    assert used_later(rows, 1, None, None) is rows
    assert used_later(rows, 1, 20, None) is rows
    some = used_later(rows, 1, 7, None)
    assert isinstance(some, CheckedRows)
    assert np.shares_memory(np.asarray(some.matrix), np.asarray(rows.matrix))
    assert isinstance(used_later(check_rows(scipy.sparse.csr_array(TABLE)), 1, 7, None), LaterRows)
    assert Shard(rows, 1.0).copied_columns == 0


def test_a_job_that_does_not_fit_is_refused_before_rows_are_copied() -> None:
    with pytest.raises(InvalidDataError, match=facts(21)):
        used_later(check_rows(TABLE), 1, 21, None)
    with pytest.raises(InvalidParameterError, match=facts("genotypes")):
        Shard(CheckedRows(Genotypes.of_codes(np.zeros((4, 4), dtype=np.uint8))), 1.0, pairing=3)
    genotypes = CheckedRows(Genotypes.of_codes(np.zeros((4, 3), dtype=np.uint8)), ("a", "b", "c"))
    with pytest.raises(InvalidParameterError, match=facts("genotypes")):
        Shard(used_later(genotypes, 1, None, ("b", "a")), 1.0, pairing=3)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_t04_differences_next_to_zero_are_zero_before_they_are_multiplied(form: Any) -> None:
    rows = check_rows(form(np.array([[3e-310, 1.0], [0.0, 2.0], [5e-324, 0.0], [0.0, 1e-300]])))
    with np.errstate(under="raise"):
        made = differences(rows, 1).matrix
    sizes = np.abs(made if isinstance(made, np.ndarray) else made.data)
    assert sizes.max() > 0
    assert not ((sizes > 0) & (sizes < 1e-200)).any()
