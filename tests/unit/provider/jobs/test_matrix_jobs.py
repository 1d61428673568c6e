"""A square table is rows or a matrix as the job's unit says, and what is neither costs nothing."""

import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts, names_facts
from local_federation import AllowEverything, Enrolment, now, permissive_policy

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidDataError, RefusedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.matrix import SpectralProduct, SymmetricProduct
from dpspca.common.trust.identity import Identity
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.evaluate.matrix_shard import MATRIX_ENTRY_BYTES, PRODUCT_BYTES, MatrixShard
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.jobs.last_prepared import MOST_PREPARED
from dpspca.provider.jobs.open_job import OpenJob
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.policy.rules import Policy

SQUARE = np.diag([4.0, 3.0, 2.0, 1.0])


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def settings(enrolment: Enrolment, values: np.ndarray = SQUARE) -> ProviderSetup:
    me = enrolment.identity(Role.PROVIDER, "north")
    return ProviderSetup("", lambda: me, enrolment.revocations, now, {"cohort": check_rows(values)}, AllowEverything)


def job(unit: PrivacyUnit) -> JobSpec:
    return JobSpec(
        schema=Schema(4),
        unit=unit,
        budget=Budget(1.0, 1e-6),
        norm_bound=2.0,
        components=1,
        method="noisy-power",
        explained_variance=False,
    )


@pytest.fixture
def ada(enrolment: Enrolment) -> Identity:
    return enrolment.identity(Role.ANALYST, "ada")


def answered(
    enrolment: Enrolment, registry: JobRegistry, ada: Identity, unit: PrivacyUnit, query: type[RowQuery]
) -> np.ndarray:
    opened = registry.open(enrolment.job(job(unit), ada, ["north"]))
    return opened.responder.respond(0, query(np.eye(4, 2)))  # type: ignore[call-arg]


def test_a_matrix_too_large_for_memory_is_refused_before_it_is_loaded(
    enrolment: Enrolment, ada: Identity, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", np.eye(300))
    held = read_offered(tmp_path / "rows.npy", scratch=Scratch(tmp_path / "scratch"))
    spec, usual = replace(job(PrivacyUnit.ENTRY), schema=Schema(300)), settings(enrolment)
    memory = MATRIX_ENTRY_BYTES * 300**2 + PRODUCT_BYTES * max(math.prod(step.shape) for step in catalogue.plan(spec))
    for least, is_taken in ((memory, True), (memory - 1, False)):
        setup = replace(usual, data_sets={"cohort": held}, memory=least, ledger=MemoryLedger())
        registry = JobRegistry(setup)
        if is_taken:
            registry.open(enrolment.job(spec, ada, ["north"]))
            continue
        with pytest.raises(RefusedError, match=facts("memory_mebibytes")):
            registry.open(enrolment.job(spec, ada, ["north"]))
        assert not setup.ledger.open_jobs()


@pytest.mark.parametrize(("form", "dimension", "columns"), [("dense", 300, 250), ("sparse", 4000, 60)])
def test_t35_an_answer_from_a_matrix_takes_what_is_counted(form: str, dimension: int, columns: int) -> None:
    identity: Any = np.eye(dimension) if form == "dense" else scipy.sparse.eye_array(dimension, format="csr")
    held = check_rows(identity)
    step: Any = SimpleNamespace(shape=(dimension, columns))
    query = SymmetricProduct(np.eye(dimension, columns))
    tracemalloc.start()
    try:
        shard = MatrixShard(held, 2.0, PrivacyUnit.ENTRY)
        assert tracemalloc.get_traced_memory()[1] < 11 * dimension**2  # opening costs nothing, and is not counted
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        taken = query.basis.nbytes + len([shard.evaluate(query)]) * 16 * dimension * columns  # noise, and their sum
        taken += tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert taken < shard.memory_of(step) + 40 * 3 * dimension < 3 * taken


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_t15_dozens_of_open_jobs_hold_no_copy_of_a_matrix(
    form: Callable[[np.ndarray], Any], enrolment: Enrolment, ada: Identity
) -> None:
    """Each is another by a thousandth of its bound, and is asked nothing, or was pushed out by others."""
    registry = JobRegistry(settings(enrolment, form(np.ones((300, 300)))))
    spec = replace(job(PrivacyUnit.ENTRY), schema=Schema(300), budget=Budget(0.01, 1e-6))
    one, query = 8 * 300**2, SymmetricProduct(np.eye(300, 2))

    def opened(each: int) -> OpenJob:
        return registry.open(enrolment.job(replace(spec, norm_bound=2.0 + each / 1000), ada, ["north"]))

    opened(40).responder.respond(0, query)  # loads what the first answer needs
    tracemalloc.start()
    try:
        jobs = [opened(each) for each in range(40)]
        assert tracemalloc.get_traced_memory()[0] < 2 * one
        for asked in jobs:
            asked.used()
            asked.responder.respond(0, query)
            asked.done()
        assert tracemalloc.get_traced_memory()[0] < 5 * MOST_PREPARED * one
    finally:
        tracemalloc.stop()


def test_t35_an_answer_from_a_sparse_matrix_takes_about_what_reading_takes() -> None:
    """So it counts as all of the memory, into which reading had to fit."""
    half: Any = scipy.sparse.random_array((4000, 4000), density=0.02, format="csr", rng=np.random.default_rng(0))
    matrix = (half + half.T).tocsr()
    shard = MatrixShard(check_rows(matrix), 5.0, PrivacyUnit.ENTRY, memory=10**9)
    tracemalloc.start()
    try:
        shard.evaluate(SymmetricProduct(np.eye(4000, 2)))
        assert tracemalloc.get_traced_memory()[1] < 50 * matrix.nnz
    finally:
        tracemalloc.stop()
    step: Any = SimpleNamespace(shape=(4000, 2))
    assert shard.memory_of(step) == 10**9


def test_rows_made_ready_for_a_job_do_not_answer_one_about_entries(enrolment: Enrolment) -> None:
    """Nor the other way round, nor entries a job about spectral norms, though the bound is the same.

    A ledger holds a data set to one unit; this holds where it has not been asked yet.
    """
    registry = JobRegistry(settings(enrolment))
    for unit in 2 * [unit for unit in PrivacyUnit if not unit.is_person]:
        made = registry.rows.of(registry.offer, "cohort", catalogue.plan(job(unit)))
        made.check(job(unit))
        assert isinstance(made, Shard if unit.is_row else MatrixShard)
        others = [other for other in PrivacyUnit if other.is_row is not unit.is_row]
        assert not any(made.fits(job(other)) for other in others)


def test_jobs_of_two_units_over_one_data_set_are_refused(enrolment: Enrolment, ada: Identity) -> None:
    registry = JobRegistry(settings(enrolment))
    answered(enrolment, registry, ada, PrivacyUnit.ENTRY, SymmetricProduct)
    with pytest.raises(RefusedError, match=facts("unit = entry", "spectral")):
        answered(enrolment, registry, ada, PrivacyUnit.SPECTRAL, SpectralProduct)


@pytest.mark.parametrize("unit", [PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL])
def test_t23_refusing_a_matrix_with_persons_depends_on_no_row_or_person(
    unit: PrivacyUnit, enrolment: Enrolment, ada: Identity
) -> None:
    """Bounded first, a matrix lost the rows beyond a person's, and the refusal said how many there still were."""
    usual, told = settings(enrolment), set()
    for persons in ([0, 1, 2, 3], [0, 0, 0, 1], [0, 0, 0, 0]):
        for values in (SQUARE, SQUARE + np.eye(4, k=1)):
            rows = replace(check_rows(values), persons=np.array(persons))
            registry = JobRegistry(replace(usual, data_sets={"cohort": rows}))
            with pytest.raises(RefusedError) as caught:
                registry.open(enrolment.job(job(unit), ada, ["north"]))
            told.add(str(caught.value))
    what = f"This data set names the person of each row, but the unit {unit} does not protect persons."
    assert told == {f"{what} Choose person-add-remove or person-replace-one."}


def test_a_table_that_is_not_symmetric_is_refused_before_any_entry(enrolment: Enrolment, ada: Identity) -> None:
    told = settings(enrolment, SQUARE + np.eye(4, k=1))
    asked = enrolment.job(job(PrivacyUnit.ENTRY), ada, ["north"])
    with pytest.raises(InvalidDataError, match=facts("(M + M.T) / 2")):
        JobRegistry(told).open(asked)
    assert isinstance(told.ledger, MemoryLedger)
    assert [entry.number for entry in told.ledger.entries] == [1]  # its founding


def of_a_matrix(unit: str, least: float = 1.0) -> str:
    """Write a policy of a unit with a least bound."""
    kept = [
        line for line in permissive_policy(unit).splitlines() if not line.startswith(("mean_bound", "rows_per_person"))
    ]
    text = "\n".join('centering = ["none"]' if line.startswith("centering") else line for line in kept)
    return text.replace(f"least = {2.0**-100!r}", f"least = {least!r}")


def spectral(least: float) -> str:
    return of_a_matrix("spectral", least)


def test_a_spectral_matrix_is_checked_once_at_the_start_for_all_jobs(
    enrolment: Enrolment, ada: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    """The same refusal for every bound and every policy since: nobody learns more by asking again."""
    told = settings(enrolment, np.diag([2.0**21, 3.0, 2.0, 1.0]))
    policy = [spectral(1.0)]
    registry = JobRegistry(replace(told, policy=lambda: Policy.parse(policy[-1])))
    assert names_facts(caplog.text, "'cohort'", "norm_bound")
    said = set()
    for text, bound in ((policy[0], 1.0), (policy[0], 2.0**40), (spectral(4.0), 4.0)):
        policy.append(text)
        with pytest.raises(RefusedError) as caught:
            registry.open(enrolment.job(replace(job(PrivacyUnit.SPECTRAL), norm_bound=bound), ada, ["north"]))
        said.add(caught.value.what)
    (refusal,) = said
    assert names_facts(refusal, "unit spectral")
    assert not told.ledger.open_jobs()
    JobRegistry(replace(told, policy=lambda: Policy.parse(spectral(4.0)))).open(
        enrolment.job(replace(job(PrivacyUnit.SPECTRAL), norm_bound=4.0), ada, ["north"])
    )


@pytest.mark.parametrize(("before", "named"), [(spectral(4.0), "norm_bound"), (of_a_matrix("entry"), "spectral")])
def test_a_smaller_spectral_bound_than_at_the_start_takes_a_new_start(
    before: str, named: str, enrolment: Enrolment, ada: Identity
) -> None:
    policy = [before]
    registry = JobRegistry(replace(settings(enrolment), policy=lambda: Policy.parse(policy[-1])))
    policy.append(spectral(1.0))
    with pytest.raises(RefusedError, match=facts(named)):
        registry.open(enrolment.job(job(PrivacyUnit.SPECTRAL), ada, ["north"]))
