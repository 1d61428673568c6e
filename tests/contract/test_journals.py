"""The contract of all journals: records come back complete and in order, and only one holder writes."""

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import database
import numpy as np
import psycopg
import pytest
from facts import facts

from dpspca.common.results import Weighed
from dpspca.common.storage.sqlite_file import EXTRA
from dpspca.server.job_states import Event, JobParticipant, JobRecord
from dpspca.server.journal import sql
from dpspca.server.journal.contract import (
    PIECE,
    DamagedJournalError,
    Journal,
    JournalError,
    JournalLostError,
    RecordedQuery,
    Sum,
    read_job,
    write_job,
)
from dpspca.server.journal.postgres import PostgresJournal
from dpspca.server.journal.sql import MIGRATIONS
from dpspca.server.journal.sqlite import SqliteJournal, TemporaryJournal

LARGE = np.random.default_rng(0).integers(-(2**56), 2**56, (250_000, 2))
"""More than three pieces."""
SMALL = np.arange(-3, 3)
WAITING = JobRecord(
    "a" * 64, "dpspca://town/analyst/ada", "cohort", 3, submitted=7.5, participants={"north": JobParticipant()}
)
RUNNING = replace(
    WAITING.after(Event.BEGIN), participants={"north": JobParticipant(1, 1), "south": JobParticipant(1, 0, "no")}
)
DONE = RUNNING.after(Event.FINISH, now=9.25)

Open = Callable[[], Journal]
LASTING = ("sqlite", "postgres")
KINDS = ("passing", *LASTING)


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


@pytest.fixture
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the same journal each time."""
    made: list[Journal] = []
    make: Open
    if request.param == "passing":
        only = TemporaryJournal()
        make = lambda: only  # noqa: E731
    elif request.param == "sqlite":
        make = partial(SqliteJournal, tmp_path / "journal.db")
    else:
        make = partial(PostgresJournal, request.getfixturevalue("server").database())

    def opened() -> Journal:
        made.append(make())
        return made[-1]

    yield opened
    for journal in made:
        journal.close()


def take(journal: Journal) -> None:
    """Wait until the journal is acquired. PostgreSQL notices after a moment that the previous holder is gone."""
    while not journal.hold():
        time.sleep(0.02)


@pytest.fixture
def again(opening: Open) -> Open:
    """Return a function that closes the journal, if it is persistent, and acquires it again."""
    held: list[Journal] = []

    def reopen() -> Journal:
        if held and not isinstance(held[-1], TemporaryJournal):
            held[-1].close()
        held.append(opening())
        take(held[-1])
        return held[-1]

    return reopen


every = pytest.mark.parametrize("opening", KINDS, indirect=True)
lasting = pytest.mark.parametrize("opening", LASTING, indirect=True)


def test_the_state_of_a_job_is_read_as_written() -> None:
    for job in (WAITING, RUNNING, DONE):
        assert read_job(write_job(job)) == job
    for text in ("", "{}", "[]", write_job(DONE).replace("done", "gone")):
        with pytest.raises(DamagedJournalError):
            read_job(text)


@every
def test_accepted_jobs_come_back_in_order_with_their_signed_bytes(again: Open) -> None:
    journal = again()
    assert journal.jobs() == []
    others = [replace(WAITING, name=letter * 64) for letter in "cab"]
    for job in others:
        journal.accept(job, job.name.encode() + b"\0\xff")
    found = again().jobs()
    assert [(each.job, each.signed) for each in found] == [(job, job.name.encode() + b"\0\xff") for job in others]
    assert {(each.queries, each.model_bytes) for each in found} == {(0, 0)}
    reopened = again()
    assert [reopened.signed(job.name) for job in others] == [job.name.encode() + b"\0\xff" for job in others]
    assert reopened.signed("nobody's") == b""
    assert [reopened.job(job.name) for job in others] == others
    assert reopened.job("nobody's") is None


@every
def test_a_job_is_accepted_once(again: Open) -> None:
    journal = again()
    journal.accept(WAITING, b"signed")
    with pytest.raises(JournalError):
        journal.accept(WAITING, b"other")
    assert [each.signed for each in again().jobs()] == [b"signed"]


@every
def test_queries_and_sums_come_back_as_they_were(again: Open) -> None:
    journal = again()
    journal.accept(WAITING, b"signed")
    journal.ask(RUNNING, 0, "first", None)
    further = replace(RUNNING, answered=1, step="range", bytes_moved=10)
    journal.ask(further, 1, "second", Sum(LARGE, 128))
    journal.ask(further, 2, "third", Sum(SMALL, 1))
    journal = again()
    asked = [journal.query(WAITING.name, position) for position in range(4)]
    assert asked == [RecordedQuery("first", 128), RecordedQuery("second", 1), RecordedQuery("third", None), None]
    for position, written in enumerate((LARGE, SMALL)):
        read = journal.total(WAITING.name, position, written.shape)
        assert read.dtype == np.int64
        assert np.array_equal(read, written)
    (found,) = journal.jobs()
    assert (found.job, found.queries) == (further, 3)


@every
def test_weights_come_back_with_their_sum(again: Open) -> None:
    journal, weighed = again(), Weighed.of([(700, 65536), (3, 12), (3, 12)])
    journal.accept(WAITING, b"signed")
    journal.ask(RUNNING, 0, "first", None)
    counted = RUNNING.with_participant("north", JobParticipant(asked=1, answered=1, rows=700))
    journal.ask(counted, 1, "second", Sum(SMALL, 3, weighed))
    journal.ask(counted, 2, "third", Sum(SMALL, 3))
    journal = again()
    assert [journal.query(WAITING.name, at) for at in range(2)] == [
        RecordedQuery("first", 3, weighed),
        RecordedQuery("second", 3),
    ]
    assert [each.job for each in journal.jobs()] == [counted]


@lasting
def test_a_journal_without_weights_is_migrated_with_plain_sums(again: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(sql, "MIGRATIONS", sql.MIGRATIONS[:2])
        journal = again()
        journal.accept(WAITING, b"signed")
        journal._run("INSERT INTO questions VALUES (?, 0, 'first', 2)", WAITING.name)
    journal = again()
    assert journal.query(WAITING.name, 0) == RecordedQuery("first", 2)
    assert [each.rows for each in journal.jobs()[0].job.participants.values()] == [None] * len(WAITING.participants)


@every
def test_a_sum_that_is_not_contiguous_is_written_completely(again: Open) -> None:
    journal = again()
    journal.accept(WAITING, b"signed")
    journal.ask(RUNNING, 0, "first", None)
    journal.ask(RUNNING, 1, "second", Sum(LARGE[:, :1], 1))
    assert np.array_equal(again().total(WAITING.name, 0, (250_000, 1)), LARGE[:, :1])
    journal = again()
    with pytest.raises(DamagedJournalError, match=facts("2000000 bytes", "4000000")):
        journal.total(WAITING.name, 0, LARGE.shape)


@every
@pytest.mark.parametrize(
    ("position", "before"), [(0, None), (2, None), (1, None), (2, Sum(SMALL, 1)), (3, Sum(SMALL, 1))]
)
def test_a_query_out_of_sequence_changes_nothing(again: Open, position: int, before: Sum | None) -> None:
    journal = again()
    journal.accept(WAITING, b"signed")
    journal.ask(RUNNING, 0, "first", None)
    with pytest.raises(JournalError):
        journal.ask(replace(RUNNING, answered=1), position, "other", before)
    journal = again()
    assert journal.query(WAITING.name, 0) == RecordedQuery("first", None)
    assert [each.job for each in journal.jobs()] == [RUNNING]
    journal.ask(RUNNING, 1, "second", Sum(SMALL, 2))


@every
def test_a_job_that_was_not_accepted_has_no_queries_and_no_end(again: Open) -> None:
    journal = again()
    with pytest.raises(DamagedJournalError, match=facts(f"job {RUNNING.name:.12}")):
        journal.ask(RUNNING, 0, "first", None)
    with pytest.raises(DamagedJournalError, match=facts(f"job {RUNNING.name:.12}")):
        again().end(DONE, b"model")


@every
def test_a_job_ends_once_and_its_sums_are_deleted(again: Open) -> None:
    journal = again()
    journal.accept(WAITING, b"signed")
    journal.ask(RUNNING, 0, "first", None)
    journal.ask(RUNNING, 1, "second", Sum(SMALL, 2))
    model = os.urandom(2 * PIECE + 5)
    journal.end(DONE, model)
    journal = again()
    (found,) = journal.jobs()
    assert (found.job, found.queries, found.model_bytes) == (DONE, 0, len(model))
    assert b"".join(journal.model(DONE.name, piece) for piece in range(3)) == model
    assert journal.model(DONE.name, 3) == b""
    assert journal.query(DONE.name, 0) is None
    for work in (
        lambda: again().ask(RUNNING, 0, "first", None),
        lambda: again().end(RUNNING.after(Event.FAIL, "late"), None),
        lambda: again().end(DONE, b"other"),
    ):
        with pytest.raises(DamagedJournalError, match=facts(f"job {RUNNING.name:.12}")):
            work()
    assert again().model(DONE.name, 2) == model[2 * PIECE :]


@every
def test_t38_done_is_recorded_with_a_model_and_nothing_else_is(again: Open) -> None:
    journal = again()
    journal.accept(WAITING, b"signed")
    for ended, model in ((DONE, None), (DONE, b""), (RUNNING.after(Event.FAIL, "no"), b"model"), (RUNNING, b"model")):
        with pytest.raises(JournalError):
            journal.end(ended, model)
    assert [each.job for each in again().jobs()] == [WAITING]


@every
def test_models_and_jobs_are_dropped_by_name(again: Open) -> None:
    journal = again()
    jobs = [replace(DONE, name=letter * 64) for letter in "abc"]
    for job in jobs:
        journal.accept(replace(WAITING, name=job.name), b"signed")
        journal.end(job, b"model of " + job.name.encode())
    journal.drop_models([jobs[0].name])
    journal.forget([jobs[1].name])
    journal = again()
    assert [(each.job.name[0], each.model_bytes) for each in journal.jobs()] == [("a", 0), ("c", 73)]
    assert [bool(journal.model(job.name, 0)) for job in jobs] == [False, False, True]
    journal.accept(replace(WAITING, name=jobs[1].name), b"anew")


@every
def test_the_last_receipt_of_each_provider_outlasts_its_job(again: Open) -> None:
    journal = again()
    assert journal.receipts() == {}
    journal.accept(WAITING, b"signed")
    journal.ask(RUNNING, 0, "first", None, {"north": b"\0north 1", "south": b"south 1"})
    assert again().receipts() == {"north": b"\0north 1", "south": b"south 1"}
    again().ask(RUNNING, 1, "second", Sum(SMALL, 2), {"north": b"north 2\xff"})
    again().end(DONE, b"model", {"west": b"west 1"})
    again().forget([DONE.name])
    assert again().receipts() == {"north": b"north 2\xff", "south": b"south 1", "west": b"west 1"}


@every
def test_receipts_are_not_recorded_without_their_query_or_end(again: Open) -> None:
    journal = again()
    journal.accept(WAITING, b"signed")
    journal.ask(RUNNING, 0, "first", None, {"north": b"north 1"})
    for work in (
        lambda: again().ask(RUNNING, 2, "third", Sum(SMALL, 2), {"north": b"north 2"}),
        lambda: again().end(replace(DONE, name="b" * 64), b"model", {"north": b"north 2"}),
    ):
        with pytest.raises(JournalError):
            work()
    assert again().receipts() == {"north": b"north 1"}


@pytest.mark.parametrize("opening", LASTING, indirect=True)
def test_a_journal_without_receipts_is_migrated_with_its_jobs(again: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as older:
        older.setattr(sql, "MIGRATIONS", sql.MIGRATIONS[:1])
        journal = again()
        journal.accept(WAITING, b"signed")
        with pytest.raises(JournalError):
            journal.receipts()
    journal = again()
    assert [each.job for each in journal.jobs()] == [WAITING]
    journal.ask(RUNNING, 0, "first", None, {"north": b"north 1"})
    assert again().receipts() == {"north": b"north 1"}


@lasting
def test_a_journal_has_one_holder_and_the_next_continues(opening: Open) -> None:
    first, second = opening(), opening()
    assert first.hold()
    assert not second.hold()
    first.accept(WAITING, b"signed")
    assert not second.hold()
    first.close()
    with pytest.raises(JournalError):
        first.accept(replace(WAITING, name="b" * 64), b"signed")
    take(second)
    assert [each.job for each in second.jobs()] == [WAITING]
    second.check()


@lasting
def test_only_the_holder_of_a_journal_can_write(opening: Open) -> None:
    holder, standby = opening(), opening()
    assert holder.hold()
    assert not standby.hold()
    with pytest.raises(JournalError):
        standby.accept(WAITING, b"signed")
    assert holder.jobs() == []


def test_a_postgresql_holder_without_its_session_cannot_write(server: database.Server) -> None:
    url = server.database()
    first, second = PostgresJournal(url), PostgresJournal(url)
    assert first.hold()
    first.accept(WAITING, b"signed")
    server.end_sessions()
    take(second)
    for work in (first.check, lambda: first.end(DONE, b"model"), first.jobs, first.hold):
        with pytest.raises(JournalError, match=facts("PostgreSQL")):
            work()
    assert [each.job for each in second.jobs()] == [WAITING]
    first.close()
    second.close()


def test_a_silent_postgresql_holder_loses_the_journal(server: database.Server) -> None:
    url = server.database()
    silent, standby = PostgresJournal(url, lease_seconds=0.5), PostgresJournal(url)
    assert silent.hold()
    take(standby)
    with pytest.raises(JournalError, match=facts("idle-session timeout")):
        silent.accept(WAITING, b"signed")
    assert standby.jobs() == []
    silent.close()
    standby.close()


def test_a_postgresql_database_with_other_tables_is_refused_unchanged(server: database.Server) -> None:
    url = server.database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE accounts (name TEXT)")
    journal = PostgresJournal(url)
    with pytest.raises(JournalError, match=facts("accounts")):
        journal.hold()
    journal.close()


def test_a_postgresql_server_without_fsync_is_refused(server: database.Server) -> None:
    url = server.database()
    server.run("ALTER SYSTEM SET fsync = off")
    server.run("SELECT pg_reload_conf()")
    try:
        while server.run("SHOW fsync") == [("on",)]:
            pass  # until the server has read its settings
        journal = PostgresJournal(url)
        with pytest.raises(JournalError, match=facts("fsync")):
            journal.hold()
        journal.close()
    finally:
        server.run("ALTER SYSTEM RESET fsync")
        server.run("SELECT pg_reload_conf()")


def test_an_absent_postgresql_server_is_named_without_its_password(tmp_path: Path) -> None:
    journal = PostgresJournal(f"postgresql://ada:swordfish@/journal?host={tmp_path}")
    with pytest.raises(JournalError, match=facts("PostgreSQL", tmp_path)) as caught:
        journal.hold()
    assert "swordfish" not in str(caught.value)


def test_an_unknown_version_is_refused_and_the_journal_unchanged(tmp_path: Path, server: database.Server) -> None:
    path, url = tmp_path / "journal.db", server.database()
    for journal in (SqliteJournal(path), PostgresJournal(url)):
        assert journal.hold()
        journal.close()
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 99")
    file.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE journal SET version = 99")
    for journal in (SqliteJournal(path), PostgresJournal(url)):
        with pytest.raises(JournalError, match=facts("version 99", len(MIGRATIONS))):
            take(journal)
        journal.close()


def test_a_file_that_is_not_a_journal_is_refused_unchanged(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as file:
        file.execute("CREATE TABLE accounts (name TEXT)")
    file.close()
    (tmp_path / "text.db").write_text("not a database at all, and longer than a header of one would have to be" * 20)
    for path in (other, tmp_path / "text.db"):
        path.chmod(0o600)
        before = path.read_bytes()
        journal = SqliteJournal(path)
        with pytest.raises(JournalError, match=facts(path)):
            journal.hold()
        journal.close()
        assert path.read_bytes() == before


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    first = SqliteJournal(path)
    assert first.hold()
    first.close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(JournalError, match=facts(f"`chmod 600 {path}`")):
        SqliteJournal(path).hold()


def test_a_file_that_is_replaced_while_it_is_in_use_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    assert journal.hold()
    journal.check()
    path.rename(tmp_path / "old.db")
    with pytest.raises(JournalLostError, match=facts(path)):
        journal.check()
    path.write_bytes((tmp_path / "old.db").read_bytes())
    with pytest.raises(JournalLostError, match=facts(path)):
        journal.check()
    journal.close()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=facts(tmp_path / "nowhere" / "journal.db.lock", os.strerror(errno.ENOENT))):
        SqliteJournal(tmp_path / "nowhere" / "journal.db").hold()


@pytest.mark.slow
def test_sqlite_syncs_its_writes(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    assert journal.hold()
    assert journal._rows("PRAGMA synchronous") == [(EXTRA,)]
    assert journal._rows("PRAGMA journal_mode") == [("wal",)]
    journal.close()
