"""A square table is rows or a matrix as the job's unit says, and what is neither costs nothing."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from town import AnythingGoes, Town, now

from dpspca.common.errors import InvalidDataError, RefusedError
from dpspca.common.matrix_queries import SpectralProduct, SymmetricProduct
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.question import RowQuery
from dpspca.common.spec import Budget, JobSpec, Schema
from dpspca.common.transport.identity import Identity
from dpspca.common.transport.names import Role
from dpspca.provider.docket import Docket, Settings
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.matrix_shard import MatrixShard
from dpspca.provider.preparation import check_rows
from dpspca.provider.shard import Shard

SQUARE = np.diag([4.0, 3.0, 2.0, 1.0])


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


def settings(town: Town, values: np.ndarray = SQUARE) -> Settings:
    me = town.identity(Role.PROVIDER, "north")
    return Settings("", lambda: me, town.revocations, now, {"cohort": check_rows(values)}, AnythingGoes)


def job(unit: PrivacyUnit) -> JobSpec:
    return JobSpec(
        schema=Schema(4),
        unit=unit,
        budget=Budget(1.0, 1e-6),
        norm_bound=2.0,
        components=1,
        algorithm="noisy-power",
        explained_variance=False,
    )


@pytest.fixture
def ada(town: Town) -> Identity:
    return town.identity(Role.ANALYST, "ada")


def answered(town: Town, docket: Docket, ada: Identity, unit: PrivacyUnit, question: type[RowQuery]) -> np.ndarray:
    opened = docket.open(town.job(job(unit), ada, ["north"]))
    return opened.responder.respond(0, question(np.eye(4, 2)))  # type: ignore[call-arg]


def test_rows_made_ready_for_a_job_do_not_answer_one_about_entries(town: Town) -> None:
    """Nor the other way round, nor entries a job about spectral norms, though the bound is the same.

    A ledger holds a data set to one unit; this holds where it has not been asked yet.
    """
    docket = Docket(settings(town))
    for unit in (*PrivacyUnit, *PrivacyUnit):
        made = docket._shard("cohort", job(unit))
        made.check(job(unit))
        assert isinstance(made, Shard if unit.is_row else MatrixShard)


def test_jobs_of_two_units_over_one_data_set_are_refused(town: Town, ada: Identity) -> None:
    docket = Docket(settings(town))
    answered(town, docket, ada, PrivacyUnit.ENTRY, SymmetricProduct)
    with pytest.raises(RefusedError, match="unit"):
        answered(town, docket, ada, PrivacyUnit.SPECTRAL, SpectralProduct)


def test_what_is_made_ready_for_a_matrix_is_kept_for_the_next_job(town: Town, ada: Identity) -> None:
    docket = Docket(settings(town))
    answered(town, docket, ada, PrivacyUnit.ENTRY, SymmetricProduct)
    (kept,) = docket._shards.values()
    answered(town, docket, ada, PrivacyUnit.ENTRY, SymmetricProduct)
    assert [*docket._shards.values()] == [kept]


@pytest.mark.parametrize("unit", [PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL])
def test_t23_a_matrix_whose_rows_are_persons_is_refused_in_words_that_no_row_and_no_person_changes(
    unit: PrivacyUnit, town: Town, ada: Identity
) -> None:
    """Bounded first, a matrix lost the rows beyond a person's, and the refusal said how many there still were."""
    usual, told = settings(town), set()
    for persons in ([0, 1, 2, 3], [0, 0, 0, 1], [0, 0, 0, 0]):
        for values in (SQUARE, SQUARE + np.eye(4, k=1)):
            rows = replace(check_rows(values), persons=np.array(persons))
            docket = Docket(replace(usual, data_sets={"cohort": rows}))
            with pytest.raises(RefusedError) as caught:
                docket.open(town.job(job(unit), ada, ["north"]))
            told.add(str(caught.value))
    assert told == {"Rows of this data set are persons', and no matrix. Ask for a unit of rows."}


def test_a_table_that_is_no_symmetric_matrix_is_refused_before_anything_is_written_down(
    town: Town, ada: Identity
) -> None:
    told = settings(town, SQUARE + np.eye(4, k=1))
    asked = town.job(job(PrivacyUnit.ENTRY), ada, ["north"])
    with pytest.raises(InvalidDataError, match="not symmetric"):
        Docket(told).open(asked)
    assert isinstance(told.ledger, MemoryLedger)
    assert [entry.number for entry in told.ledger.entries] == [1]  # its founding
