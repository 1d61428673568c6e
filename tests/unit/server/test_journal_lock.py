"""The lock file of a journal may be deleted or replaced by anybody who tidies up: of two coordinators one goes on."""

import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from facts import facts

from dpspca.common.storage.sqlite_file import connect
from dpspca.server.job_states import Event, JobRecord
from dpspca.server.journal.contract import JournalError, JournalLostError
from dpspca.server.journal.sqlite import JournalConnection, SqliteJournal

JOB = JobRecord("a" * 64, "dpspca://town/analyst/ada", "cohort", 3, submitted=7.5)
OTHER = replace(JOB, name="b" * 64)
Spoil = Callable[[Path], None]


def deleted(lock: Path) -> None:
    lock.unlink()


def replaced(lock: Path) -> None:
    """Put a file of the same content and rights in its place, as a restored backup of the folder does."""
    new = lock.with_name("new")
    new.write_bytes(lock.read_bytes())
    new.chmod(0o600)
    new.replace(lock)


def moved(lock: Path) -> None:
    lock.rename(lock.with_name("old.lock"))


def linked(lock: Path) -> None:
    """Put a link to the very file in its place: whoever comes next refuses links."""
    moved(lock)
    lock.symlink_to(lock.with_name("old.lock"))


spoilt = pytest.mark.parametrize("spoil", [deleted, replaced, moved])


@dataclass
class Place:
    """A journal, and all who may have it open."""

    path: Path
    opened: list[SqliteJournal] = field(default_factory=list)

    @property
    def lock(self) -> Path:
        return self.path.with_name("journal.db.lock")

    def journal(self, connect: Callable[[Path], JournalConnection] = connect) -> SqliteJournal:
        self.opened.append(SqliteJournal(self.path, connect))
        return self.opened[-1]

    def written(self) -> list[str]:
        """Read past everybody which jobs the file has."""
        with sqlite3.connect(self.path) as file:
            names = [name for (name,) in file.execute("SELECT name FROM jobs ORDER BY number")]
        file.close()
        return names


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "journal.db")
    yield made
    for journal in made.opened:
        journal.close()


def assert_lost(journal: SqliteJournal, path: Path) -> None:
    """Hold somebody to noticing at every single thing that only a holder may do."""
    for work in (
        journal.check,
        journal.hold,
        lambda: journal.accept(OTHER, b"signed"),
        lambda: journal.ask(JOB.after(Event.BEGIN), 0, "first", None),
        lambda: journal.end(JOB.after(Event.BEGIN).after(Event.FINISH), b"model"),
        lambda: journal.drop_models([JOB.name]),
        lambda: journal.forget([JOB.name]),
    ):
        with pytest.raises(JournalLostError, match=facts(path)):
            work()


@spoilt
def test_after_a_lost_lock_only_the_second_coordinator_acts(place: Place, spoil: Spoil) -> None:
    first, second = place.journal(), place.journal()
    assert first.hold()
    first.accept(JOB, b"signed")
    spoil(place.lock)
    assert second.hold()
    assert_lost(first, place.lock)
    assert [each.job for each in second.jobs()] == [JOB]
    second.check()
    second.accept(OTHER, b"signed")
    assert place.written() == [JOB.name, OTHER.name]


@spoilt
def test_a_holder_whose_lock_is_gone_stops_before_anybody_else_comes(place: Place, spoil: Spoil) -> None:
    holder = place.journal()
    assert holder.hold()
    holder.accept(JOB, b"signed")
    spoil(place.lock)
    assert_lost(holder, place.lock)
    assert place.written() == [JOB.name]


def test_the_signature_alone_keeps_out_the_earlier_coordinator(place: Place) -> None:
    """The first one's lock file is back in its place: it finds all files as it left them, and the journal is signed."""
    first, second = place.journal(), place.journal()
    assert first.hold()
    first.accept(JOB, b"signed")
    os.link(place.lock, place.lock.with_name("kept"))
    place.lock.unlink()
    assert second.hold()
    second.accept(OTHER, b"signed")
    place.lock.with_name("kept").replace(place.lock)
    assert_lost(first, place.path)
    assert_lost(second, place.lock)
    assert place.written() == [JOB.name, OTHER.name]


def test_two_names_of_one_journal_have_two_locks_and_one_holder(place: Place) -> None:
    first = place.journal()
    assert first.hold()
    first.accept(JOB, b"signed")
    place.path.with_name("link.db").symlink_to(place.path)
    second = SqliteJournal(place.path.with_name("link.db"))
    assert second.hold()
    assert_lost(first, place.path)
    second.accept(OTHER, b"signed")
    second.close()
    assert place.written() == [JOB.name, OTHER.name]


def test_a_write_that_began_before_another_came_is_not_finished(place: Place) -> None:
    """Another takes the journal at the last moment, after the holder has looked at its files."""
    second = place.journal()

    class Interrupted:
        """A connection to which something happens before it begins to write."""

        def __init__(self, path: Path) -> None:
            self._connection = connect(path)
            self.happens: Callable[[], object] | None = None

        def execute(self, sql: str, parameters: tuple[object, ...] = (), /) -> sqlite3.Cursor:
            if sql == "BEGIN IMMEDIATE" and self.happens:
                happens, self.happens = self.happens, None
                happens()
            return self._connection.execute(sql, parameters)

        def close(self) -> None:
            self._connection.close()

    made: list[Interrupted] = []

    def interrupted(path: Path) -> JournalConnection:
        made.append(Interrupted(path))
        return made[-1]

    first = place.journal(interrupted)
    assert first.hold()

    def taken() -> None:
        place.lock.unlink()
        assert second.hold()

    made[0].happens = taken
    with pytest.raises(JournalLostError, match=facts(place.path)):
        first.accept(JOB, b"signed")
    assert second.jobs() == []
    second.accept(OTHER, b"signed")
    assert place.written() == [OTHER.name]


@pytest.mark.parametrize("spoil", [deleted, replaced])
def test_the_next_holder_finds_all_that_the_first_ever_wrote(place: Place, spoil: Spoil) -> None:
    """The first goes on writing as fast as it can; what it was told is written, the next one has read."""
    first, second = place.journal(), place.journal()
    assert first.hold()
    kept: list[str] = []
    under_way, problems = threading.Event(), []

    def write() -> None:
        try:
            for number in range(2_000):
                job = replace(JOB, name=f"{number:064}")
                first.accept(job, b"signed")
                kept.append(job.name)
                if number == 20:
                    under_way.set()
        except JournalError as problem:
            problems.append(str(problem))

    writing = threading.Thread(target=write)
    writing.start()
    assert under_way.wait(20)
    spoil(place.lock)
    assert second.hold()
    found = [each.job.name for each in second.jobs()]
    second.accept(OTHER, b"signed")
    writing.join(20)
    assert not writing.is_alive()
    assert len(problems) == 1
    assert kept == found
    assert place.written() == [*found, OTHER.name]


def test_a_holder_may_take_its_journal_again(place: Place) -> None:
    journal = place.journal()
    assert journal.hold()
    journal.accept(JOB, b"signed")
    assert journal.hold()
    journal.check()
    journal.accept(OTHER, b"signed")
    assert place.written() == [JOB.name, OTHER.name]


def test_a_journal_that_is_not_held_is_not_found_good(place: Place) -> None:
    first, second = place.journal(), place.journal()
    assert first.hold()
    assert not second.hold()
    with pytest.raises(JournalLostError):
        second.check()
    first.close()
    with pytest.raises(JournalLostError):
        first.check()


def test_a_lock_deleted_between_opening_and_locking_is_no_hold(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    locking = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        place.lock.unlink()
        locking(descriptor, how)

    journal = place.journal()
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", late)
        assert not journal.hold()
    assert journal.hold()
    journal.check()


def test_a_link_in_the_place_of_the_lock_keeps_everybody_else_out(place: Place) -> None:
    first, second = place.journal(), place.journal()
    assert first.hold()
    linked(place.lock)
    with pytest.raises(JournalError, match=facts(place.lock, os.strerror(errno.ELOOP))):
        second.hold()
    first.accept(JOB, b"signed")


def test_a_journal_of_before_there_were_signatures_is_signed(place: Place) -> None:
    journal = place.journal()
    assert journal.hold()
    journal.accept(JOB, b"signed")
    journal.close()
    with sqlite3.connect(place.path) as file:
        file.execute("DROP TABLE holder")
    file.close()
    assert journal.hold()
    assert [each.job for each in journal.jobs()] == [JOB]
    journal.check()
