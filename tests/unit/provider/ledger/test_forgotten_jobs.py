"""Jobs that are over take no memory, are looked up in the entries, and are never opened again."""

import gc
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from facts import facts
from ledgers import EXPIRY, LIMITS, SIGNED, Place, answer, opening, quick_folder, reserve, respond

from dpspca.common.errors import JobEndedError
from dpspca.common.privacy.costs import Price
from dpspca.provider.ledger.accounts import JobPosition
from dpspca.provider.ledger.database import DECISIONS, OF_JOBS
from dpspca.provider.ledger.entries import DamagedLedgerError, Decided, Head, LedgerDiskError
from dpspca.provider.ledger.ledger import Ledger
from dpspca.provider.ledger.sqlite import SqliteLedger, verify

WARM_UP = 200
MANY = 1000
FEW_BYTES = 40
"""Bytes that a job may leave in memory. Its name alone would take a hundred. This includes caches."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head")


def finish(ledger: Ledger, job: str, **changes: Any) -> None:
    """Open a job, answer one query, and end it."""
    ledger.open(opening(job, **changes), LIMITS)
    respond(ledger, job, 0)
    ledger.close(job, "done")


def refuses(ledger: Ledger, job: str, state: str) -> None:
    """Require that a job can be neither opened, asked nor read any more."""
    for work in (
        lambda: ledger.open(opening(job), LIMITS),
        lambda: reserve(ledger, job, 1),
        lambda: ledger.store(job, 0, answer(job, 0)),
    ):
        with pytest.raises(JobEndedError, match=facts(f"({state})")):
            work()
    assert ledger.stored(job, 0) is None


def kept_answers(place: Place) -> set[str]:
    with closing(sqlite3.connect(place.path)) as connection:
        return {job for (job,) in connection.execute("SELECT job FROM answers")}


def live_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_jobs_that_are_over() -> None:
    def work(ledger: SqliteLedger, number: int) -> None:
        job = f"{number:064x}"
        ledger.expire(SIGNED)
        ledger.open(opening(job, units=2, slack_units=2, signature_hash=f"{number:064x}"), LIMITS)
        before = None
        for position in range(2):
            after = JobPosition(position + 1, Price(position + 1, position + 1))
            assert ledger.reserve(job, "product", f"{number} {position}", before, after)
            ledger.store(job, position, answer(job, position))
            before = after
        ledger.close(job, "done")

    with quick_folder() as folder:
        tracemalloc.start()
        try:
            with Place(folder / "kept" / "ledger.sqlite", folder / "second" / "head").start() as ledger:
                for number in range(WARM_UP):
                    work(ledger, number)
                before = live_bytes()
                for number in range(WARM_UP, WARM_UP + MANY):
                    work(ledger, number)
                assert live_bytes() - before < FEW_BYTES * MANY
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("again", [lambda _ledger: None, lambda ledger: ledger.expire(EXPIRY - 1)])
def test_t10_a_job_that_is_over_stays_over_in_memory_and_in_entries(
    place: Place, again: Callable[[SqliteLedger], None]
) -> None:
    with place.start() as ledger:
        finish(ledger, "job")
        ledger.open(opening("late"), LIMITS)
        respond(ledger, "late", 0)
        ledger.expire(EXPIRY)
        refuses(ledger, "job", "done")
        refuses(ledger, "late", "expired")
    with place.start() as ledger:
        again(ledger)
        refuses(ledger, "job", "done")
        refuses(ledger, "late", "expired")
        ledger.open(opening("another"), LIMITS)
    assert verify(place.path, place.head) == []


def test_t15_a_clock_set_back_reopens_no_forgotten_job(place: Place) -> None:
    with place.start() as ledger:
        finish(ledger, "job")
        ledger.expire(EXPIRY * 2)
        ledger.expire(SIGNED)
        refuses(ledger, "job", "done")


def test_t12_a_job_that_was_open_at_a_quarantine_is_over(place: Place) -> None:
    with place.start() as ledger:
        ledger.open(opening("job"), LIMITS)
        respond(ledger, "job", 0)
        head = ledger.head()
        assert ledger.check_head(Head(head.ledger, head.entries + 7, "f" * 64))
        ledger.expire(EXPIRY - 1)
        ledger.end_quarantine("Looked into.", {}, {"cohort": Price(0, 0)})
        refuses(ledger, "job", "quarantined")


def test_answers_are_deleted_when_their_job_is_over(place: Place) -> None:
    with place.start() as ledger:
        for job in ("open", "late"):
            ledger.open(opening(job, expires_at=EXPIRY + (job == "open")), LIMITS)
            respond(ledger, job, 0)
        finish(ledger, "done")
        assert kept_answers(place) == {"open", "late"}
        ledger.expire(EXPIRY)
        assert kept_answers(place) == {"open"}
    with place.start() as ledger:
        assert kept_answers(place) == {"open"}
        assert ledger.stored("open", 0) is not None


def test_a_start_deletes_answers_that_an_earlier_version_kept(place: Place) -> None:
    with place.start() as ledger:
        ledger.open(opening("done"), LIMITS)
        respond(ledger, "done", 0)
        ledger.open(opening("open"), LIMITS)
        respond(ledger, "open", 0)
        (kept,) = place.tamper("SELECT hex(content) FROM answers WHERE job = 'done'")
        ledger.close("done", "done")
    place.tamper(f"INSERT INTO answers VALUES ('done', 0, 0, x'{kept[0]}')")  # noqa: S608  # ours
    with place.start():
        assert kept_answers(place) == {"open"}


def test_jobs_from_before_the_index_are_found(place: Place) -> None:
    with place.start() as ledger:
        finish(ledger, "job")
    place.tamper("DROP INDEX entries_of_jobs", "DROP INDEX decisions_of_jobs", "PRAGMA user_version = 2")
    with place.start() as ledger:
        ledger.expire(EXPIRY - 1)
        refuses(ledger, "job", "done")


DECIDED = Decided(
    job="job",
    data_set="cohort",
    verdict="approve",
    person="maria",
    login="m",
    reason="",
    decided_at=1,
    expires_at=EXPIRY,
    certificate="c",
    signature="5",
)


@pytest.mark.parametrize(("index", "of"), [("entries_of_jobs", OF_JOBS), ("decisions_of_jobs", DECISIONS)])
def test_a_ledger_whose_index_lacks_an_entry_is_refused(index: str, of: str, place: Place) -> None:
    """Otherwise that job would be admitted again, or evidence would say that nobody had decided about it."""
    with place.start() as ledger:
        ledger.decide(DECIDED)
        finish(ledger, "job")
    whole = f"CREATE INDEX {index} ON entries (json_extract(content, '$.job')) WHERE {of}"
    quoted = whole.replace("'", "''")
    place.tamper(
        f"DROP INDEX {index}",
        f"{whole} AND number > 1000",
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = '{quoted}' WHERE name = '{index}'",  # noqa: S608  # ours
    )
    with pytest.raises(DamagedLedgerError):
        place.start()
    assert any("missing from index" in problem for problem in verify(place.path, place.head))


def test_a_job_that_cannot_be_looked_up_is_neither_opened_nor_charged(place: Place) -> None:
    """The lookup fails, because its connection has no such table. The log alone has the details."""
    with place.start() as ledger:
        finish(ledger, "first")
        before = ledger.head()
        place.tamper("ALTER TABLE entries RENAME TO gone")
        with pytest.raises(LedgerDiskError):
            ledger.open(opening("second"), LIMITS)
        place.tamper("ALTER TABLE gone RENAME TO entries")
        assert ledger.head() == before
        finish(ledger, "second")


def test_a_start_finds_answers_that_belong_to_no_query(place: Place) -> None:
    with place.start() as ledger:
        ledger.open(opening("first"), LIMITS)
        respond(ledger, "first", 0)
    place.tamper("PRAGMA ignore_check_constraints = ON", "UPDATE answers SET job = x'00'")
    with pytest.raises(DamagedLedgerError, match=facts(place.path)):
        place.start()
