"""A budget holds for the neighbours that every job protected. A policy that promises more is refused."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from facts import facts
from ledgers import BUDGET, Place, opening, respond

from dpspca.common.errors import RefusedError
from dpspca.provider.ledger.entries import DamagedLedgerError, Entry, Vouched
from dpspca.provider.ledger.ledger import LedgerError, Limits, MemoryLedger
from dpspca.provider.ledger.promises import Promise
from dpspca.provider.ledger.sqlite import SqliteLedger, export

ROWS, MATRIX = "row-replace-one", "entry"


def stating(unit: str, extent: float) -> Limits:
    return Limits(BUDGET, promise=Promise(unit, extent))


def spend(ledger: MemoryLedger | SqliteLedger, unit: str, extent: float, job: str = "first") -> None:
    ledger.open(opening(job, unit=unit, protects=extent), stating(unit, extent))
    respond(ledger, job, 0)
    ledger.close(job, "done")


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger(lambda: 5.0)


def test_rows_per_person_cannot_be_raised_after_jobs_protected_fewer(ledger: MemoryLedger) -> None:
    spend(ledger, ROWS, 2)
    with pytest.raises(RefusedError, match=facts("'cohort'", "3 rows", "2 rows", "rows_per_person")):
        ledger.open(opening("second", unit=ROWS, protects=3), stating(ROWS, 3))
    ledger.open(opening("second", unit=ROWS, protects=3), stating(ROWS, 2))


def test_the_least_norm_bound_cannot_be_raised_after_jobs_protected_less(ledger: MemoryLedger) -> None:
    spend(ledger, MATRIX, 5)
    spend(ledger, MATRIX, 0.5, "smaller")
    with pytest.raises(RefusedError, match=facts("'cohort'", 5, 0.5, "norm_bound")):
        ledger.open(opening("second", unit=MATRIX, protects=5), stating(MATRIX, 5))


@pytest.mark.parametrize(("unit", "spent", "stated"), [(ROWS, 3, 1), (ROWS, 2, 2), (MATRIX, 5, 0.1)])
def test_a_policy_may_promise_less_than_all_jobs_protected(
    ledger: MemoryLedger, unit: str, spent: float, stated: float
) -> None:
    spend(ledger, unit, spent)
    spend(ledger, unit, stated, "second")
    with pytest.raises(RefusedError) if stated < spent else nullcontext():
        ledger.require_promise("cohort", Promise(unit, spent))


def test_a_job_without_a_query_counts_while_it_is_open(ledger: MemoryLedger) -> None:
    ledger.open(opening(unit=ROWS, protects=1), stating(ROWS, 1))
    with pytest.raises(RefusedError, match=facts("'cohort'", 2, "rows_per_person", 1)):
        ledger.open(opening("second", unit=ROWS, protects=2), stating(ROWS, 2))
    ledger.close("job", "cancelled")
    ledger.open(opening("second", unit=ROWS, protects=2), stating(ROWS, 2))


def test_each_data_set_has_its_own_promise(ledger: MemoryLedger) -> None:
    spend(ledger, ROWS, 1)
    ledger.open(opening("second", data_set="another", unit=MATRIX, protects=7), stating(MATRIX, 7))


def test_unit_and_extent_survive_a_restart(tmp_path: Path) -> None:
    place = Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")
    with place.start() as ledger:
        spend(ledger, MATRIX, 2)
    with place.start() as ledger:
        with pytest.raises(RefusedError, match=facts("unit = entry", "spectral")):
            ledger.require_promise("cohort", Promise("spectral", 2))
        with pytest.raises(RefusedError, match=facts(3, 2, "norm_bound")):
            ledger.require_promise("cohort", Promise(MATRIX, 3))
        ledger.require_promise("cohort", Promise(MATRIX, 2))


# --- Ledgers of earlier versions --------------------------------------------------------------------------------------


def earlier(place: Place, unit: str) -> None:
    """A ledger as an earlier version wrote it: the entry that admits a job has fewer fields."""
    with place.start() as ledger:
        spend(ledger, unit, 3)
    lines = [{key: each[key] for key in each if key not in NEW} for each in export(place.path)]
    place.rewrite([json.dumps(line, sort_keys=True, separators=(",", ":")) for line in lines], version=3)


NEW = {"protects", "queries", "answer_bytes", "hash"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")


def test_a_job_of_an_earlier_version_counts_for_one_row(place: Place) -> None:
    earlier(place, ROWS)
    with place.start() as ledger:
        assert ledger.quarantine is None
        ledger.require_promise("cohort", Promise(ROWS, 1))
        with pytest.raises(RefusedError, match=facts("'cohort'", 2, "rows_per_person", 1)):
            ledger.require_promise("cohort", Promise(ROWS, 2))


def test_an_operator_states_the_extent_of_unrecorded_matrix_jobs(place: Place) -> None:
    earlier(place, MATRIX)
    with place.start() as ledger:
        with pytest.raises(RefusedError, match=facts("'cohort'", 2, "`dpspca ledger vouch")):
            ledger.require_promise("cohort", Promise(MATRIX, 2))
        for extent, reason in ((0.0, "why"), (-1.0, "why"), (float("inf"), "why"), (3.0, " ")):
            with pytest.raises(LedgerError, match=facts("--reason", "--protects")):
                ledger.vouch("cohort", extent, reason)
        ledger.vouch("cohort", 3.0, "the policy said so from the first day")
        with pytest.raises(LedgerError, match=facts("'cohort'")):
            ledger.vouch("cohort", 4.0, "no, it was more")
    with place.start() as ledger:
        ledger.require_promise("cohort", Promise(MATRIX, 3))
        with pytest.raises(RefusedError, match=facts(4, 3, "norm_bound")):
            ledger.require_promise("cohort", Promise(MATRIX, 4))


def test_vouching_for_recorded_jobs_is_refused(ledger: MemoryLedger) -> None:
    spend(ledger, MATRIX, 2)
    for data_set in ("cohort", "never asked"):
        with pytest.raises(LedgerError, match=facts(f"'{data_set}'")):
            ledger.vouch(data_set, 5.0, "I would like more")
    forged = Entry.following(ledger.head(), 5, Vouched("cohort", 5.0, "by hand"))
    with pytest.raises(DamagedLedgerError, match=facts("Entry 6")):
        ledger._state.append(forged)
