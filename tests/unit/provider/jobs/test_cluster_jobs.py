"""Jobs about rows that a cluster reads: they are answered as others, and what needs more than sums is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import Here, folder_of, rows_of
from facts import facts
from local_federation import AllowEverything, Enrolment, now

from dpspca.common.errors import RefusedError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.keystream import repeatable_entropy
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.common.trust.identity import Identity
from dpspca.provider import startup
from dpspca.provider.data.cluster_rows import ClusterRows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup

ROWS = np.random.default_rng(0).standard_normal((60, 5))
SPEC = JobSpec(
    schema=Schema(5),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 5, "rounds": 3},
    method="dps-pca",
)
NUMBER_IN_TEXT = 650e-9
"""Seconds that a worker takes for a number in text (``bench/engines.py``)."""
QUERY = CovarianceProduct(np.eye(5)[:, :2])


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


@pytest.fixture
def me(enrolment: Enrolment) -> Identity:
    return enrolment.identity(Role.PROVIDER, "north")


def registry(enrolment: Enrolment, me: Identity, rows: Any) -> JobRegistry:
    setup = ProviderSetup("", lambda: me, enrolment.revocations, now, {"cohort": rows}, AllowEverything)
    setup.entropy = repeatable_entropy(1)
    return JobRegistry(setup)


def test_answers_have_the_bits_of_rows_that_the_provider_reads_itself(
    enrolment: Enrolment, me: Identity, tmp_path: Path
) -> None:
    """The whole path: permission, ledger, noise and evaluation."""
    folder = folder_of(ROWS, tmp_path / "cohort")
    ada = enrolment.identity(Role.ANALYST, "ada")
    job = enrolment.job(SPEC, ada, ["north"])
    answers = []
    for rows in (read_offered(folder), rows_of(folder)):
        opened = registry(enrolment, me, rows).open(job)
        answers.append([opened.responder.respond(place, QUERY) for place in range(2)])
    assert all((one == other).all() for one, other in zip(*answers, strict=True))


def test_the_interval_of_answers_covers_the_reading_of_a_row(
    enrolment: Enrolment, me: Identity, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer reads every row anew, and in text a number takes longer than what is computed of it."""
    monkeypatch.setattr(AllowEverything, "answer_interval", None)
    folder = folder_of(np.zeros((4, 900)), tmp_path / "wide")
    job = enrolment.job(replace(SPEC, schema=Schema(900)), enrolment.identity(Role.ANALYST, "ada"), ["north"])
    here, there = (
        registry(enrolment, me, rows).open(job).schedule.interval(0) for rows in (read_offered(folder), rows_of(folder))
    )
    assert here < 10 * 900 * NUMBER_IN_TEXT <= there


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unit": PrivacyUnit.ENTRY, "method": "noisy-power", "options": {}}, "unit entry"),
        ({"centering": Centering.PAIRS}, "centering pairs"),
        ({"method": "range-projection", "options": {}}, "range-projection"),
    ],
)
def test_a_job_that_needs_more_than_sums_is_refused_before_it_reserves(
    changes: dict[str, Any], reason: str, enrolment: Enrolment, me: Identity, tmp_path: Path
) -> None:
    rows = rows_of(folder_of(ROWS[:, :5], tmp_path / "cohort"))
    held = registry(enrolment, me, rows)
    ada = enrolment.identity(Role.ANALYST, "ada")
    with pytest.raises(RefusedError, match=facts(reason)):
        held.open(enrolment.job(replace(SPEC, **changes), ada, ["north"]))
    assert not list(held._settings.ledger.open_jobs())


def test_rows_keep_their_budget_when_a_cluster_reads_them(enrolment: Enrolment, me: Identity, tmp_path: Path) -> None:
    """The same rows under another name are refused, whoever reads them."""
    folder = folder_of(ROWS, tmp_path / "cohort")
    both = {"cohort": rows_of(folder), "again": read_offered(folder)}
    with pytest.raises(RefusedError, match=facts("'again'", "'cohort'")):
        JobRegistry(ProviderSetup("", lambda: me, enrolment.revocations, now, both, AllowEverything))


def config(tmp_path: Path, more: str, cohort: str = "cohort") -> ProviderSettings:
    plain = 'coordinator = "127.0.0.1:1"\nidentity = "me"\nrevocations = "r.pem"\npolicy = "p.toml"\n'
    path = tmp_path / "north.toml"
    path.write_text(f'{plain}[data_sets]\ncohort = "{cohort}"\n{more}', encoding="utf-8")
    return read_settings(ProviderSettings, path)


def test_settings_with_an_engine_never_open_the_rows_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_of(ROWS, tmp_path / "cohort", ending=".csv")
    settings = config(tmp_path, '[engines.cohort]\nengine = "dask"\nscheduler = "tcp://127.0.0.1:8786"\n')
    monkeypatch.setattr(startup, "open_cluster", lambda _: Here())
    monkeypatch.setattr(startup, "read_offered", None)
    rows = startup.read_data_set(settings, "cohort")
    assert isinstance(rows, ClusterRows)
    assert (rows.count, rows.names) == (60, tuple(f"c{place}" for place in range(5)))
