"""Any damage to a journal is reported as a clear error."""

import json
import sqlite3
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from damage import DEEP, altered, damaged, damaged_pages, require_reason, written
from hypothesis import given
from hypothesis import strategies as st
from ledgers import quick_folder
from messages import few

from dpspca.server.job_states import Event, JobParticipant, JobRecord
from dpspca.server.journal.contract import JournalError, Sum, read_job, write_job
from dpspca.server.journal.sqlite import SqliteJournal
from dpspca.server.rpc.messages import as_message

COLUMNS: Final = (
    ("jobs", "standing"),
    ("jobs", "signed"),
    ("jobs", "model_bytes"),
    ("questions", "digest"),
    ("questions", "parties"),
    ("sums", "content"),
)
STANDING: Final = JobRecord(
    "running",
    "dpspca://town/analyst/ada",
    "cohort",
    3,
    participants={"north": JobParticipant(1, 1), "south": JobParticipant()},
)


@cache
def shut_journal() -> bytes:
    """Return the bytes of a journal with a running and a finished job."""
    with quick_folder() as folder:
        journal = SqliteJournal(folder / "journal.db")
        journal.hold()
        for name in ("running", "done"):
            job = JobRecord(name, STANDING.analyst, "cohort", 3, participants=STANDING.participants)
            journal.accept(job, b"signed")
            job = job.after(Event.BEGIN)
            journal.ask(job, 0, "d", None)
            journal.ask(job, 1, "e", Sum(np.arange(4), 1))
        journal.end(job.after(Event.FINISH, now=1.0), b"model")
        journal.close()
        return (folder / "journal.db").read_bytes()


def stored(folder: Path, content: bytes | None = None) -> Path:
    path = folder / "journal.db"
    path.touch(0o600)
    path.write_bytes(shut_journal() if content is None else content)
    return path


def look_through(path: Path) -> None:
    journal = SqliteJournal(path)
    try:
        journal.hold()
        for recorded in journal.jobs():
            assert isinstance(recorded.signed, bytes)
            assert isinstance(recorded.model_bytes, int)
        journal.query("running", 0)
        journal.total("running", 0, (4,))
        journal.model("done", 0)
    finally:
        journal.close()


@st.composite
def cells(draw: st.DrawFn) -> Any:
    """Return any value that SQLite can store in any column, whatever its declared type."""
    return draw(st.none() | st.integers(-(2**15), 2**15) | st.floats(allow_nan=False) | st.binary(max_size=40))


@few
@given(st.data())
def test_t36_a_damaged_journal_file_is_read_or_refused_with_a_reason(data: st.DataObject) -> None:
    content = shut_journal()
    with quick_folder() as folder:
        path = stored(folder, data.draw(damaged_pages(content) | damaged(content)))
        require_reason(lambda: look_through(path), JournalError)


@pytest.mark.parametrize("word", [b"CREATE", b"KEY"])
def test_t36_a_journal_with_tables_not_defined_in_text_is_refused(word: bytes) -> None:
    """SQLite's own message would quote it."""
    with quick_folder() as folder:
        path = stored(folder, shut_journal().replace(word, word[:-1] + b"\x80"))
        require_reason(lambda: look_through(path), JournalError)


@given(st.sampled_from(COLUMNS), cells(), st.booleans())
def test_t36_any_row_of_the_journal_is_read_or_refused_with_a_reason(
    column: tuple[str, str], value: Any, text: bool
) -> None:
    table, name = column
    with quick_folder() as folder:
        path = stored(folder)
        with closing(sqlite3.connect(path)) as connection, connection:
            put = "CAST(? AS TEXT)" if text else "?"
            connection.execute(f"UPDATE OR IGNORE {table} SET {name} = {put}", (value,))  # noqa: S608  # names of ours
        require_reason(lambda: look_through(path), JournalError)


@given(altered(json.loads(write_job(STANDING))))
def test_t36_any_state_of_a_job_is_read_or_refused_with_a_reason(standing: Any) -> None:
    """Complete enough to be sent to its analyst."""
    require_reason(lambda: as_message(read_job(written(standing))).SerializeToString(), JournalError)


def test_t36_an_endlessly_nested_job_is_refused_with_a_reason() -> None:
    require_reason(lambda: read_job(DEEP), JournalError)


def test_t36_a_number_in_the_place_of_a_model_is_refused_with_a_reason() -> None:
    with quick_folder() as folder:
        path = stored(folder)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE models SET content = 5")
        journal = SqliteJournal(path)
        journal.hold()
        with closing(journal), pytest.raises(JournalError):
            journal.model("done", 0)
