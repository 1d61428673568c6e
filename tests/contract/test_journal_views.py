"""A journal is read beside its holder, in a file and in PostgreSQL. Nothing is taken from the holder."""

from collections.abc import Iterator
from pathlib import Path

import database
import pytest
from facts import facts

from dpspca.common.storage import DatabaseUrl
from dpspca.server.job_states import Event, JobParticipant, JobRecord
from dpspca.server.journal import JournalError, PostgresJournal, SqliteJournal, read_jobs

JOB = JobRecord("a" * 64, "dpspca://town/analyst/ada", "cohort", 3, participants={"north": JobParticipant()})


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | DatabaseUrl:
    if request.param == "sqlite":
        return tmp_path / "journal.db"
    return DatabaseUrl(request.getfixturevalue("server").database())


def test_jobs_and_receipts_are_read_while_the_coordinator_goes_on(place: Path | DatabaseUrl) -> None:
    journal = PostgresJournal(place) if isinstance(place, DatabaseUrl) else SqliteJournal(place)
    assert journal.hold()
    journal.accept(JOB, b"signed")
    assert read_jobs(place) == ([JOB], {})
    running = JOB.after(Event.BEGIN)
    journal.ask(running, 0, "d", None, {"north": b"receipt"})
    journal.check()
    assert read_jobs(place) == ([running], {"north": b"receipt"})
    journal.end(running.after(Event.FAIL, "why", now=2.0), None)
    assert [each.reason for each in read_jobs(place)[0]] == ["why"]
    journal.close()


def test_a_journal_that_is_missing_or_of_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=facts(tmp_path / "journal.db", "`journal`")):
        read_jobs(tmp_path / "journal.db")
    assert not (tmp_path / "journal.db").exists()
    (tmp_path / "other.db").write_bytes(b"noise" * 1000)
    with pytest.raises(JournalError):
        read_jobs(tmp_path / "other.db")
