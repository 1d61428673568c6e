"""The SQLite file of a ledger: its tables, how it is opened, and the one transaction that writes everything.

The table ``entries`` only grows. The table ``answers`` holds the bytes that may be sent again, in pieces, so that no
answer is ever copied whole. There is no table of balances, because they follow from the entries (``history.py``). An
index finds how a job began and ended, so that memory need not keep the jobs that are over. Before each write, the file
must still end where this process left it. This finds another writer, even one that got past the locks.
"""

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from dpspca.common.storage import files, sqlite_file

from .entries import (
    GENESIS,
    DamagedLedgerError,
    Entry,
    Fact,
    Head,
    LedgerDiskError,
    LedgerError,
    LedgerInUseError,
    Quarantined,
    Started,
)

FILE: Final = sqlite_file.FileKind(int.from_bytes(b"dpsl"))
PIECE_BYTES: Final = 1 << 20
_TOGETHER: Final = 4096
"""Entries that are parsed together: a start is a tenth faster than with one after the other."""


def _parsed(rows: Sequence[tuple[str, str]]) -> Iterator[Entry]:
    """Parse entries, and then yield them: all those before one that cannot be read."""
    parsed = list[Entry]()
    try:
        for content, written_hash in rows:
            parsed.append(Entry.read(content, written_hash))  # those before an error are kept
    except DamagedLedgerError:
        yield from parsed
        raise
    yield from parsed


LOST: Final = (
    "The provider makes it at its first start. If it was lost, restore the newest copy and start the provider, which "
    "finds what the copy lacks. Then read `dpspca ledger end-quarantine --help`."
)

OF_JOBS: Final = "json_valid(content) AND json_extract(content, '$.kind') IN ('opened', 'closed')"
"""The entries that open and close jobs. ``json_valid`` keeps the index from failing on a damaged line; reading the line
finds the damage."""
OPENINGS: Final = "json_valid(content) AND json_extract(content, '$.kind') = 'opened'"

_ENTRIES: Final = "(number INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL UNIQUE)"
_TRIGGERS: Final = (
    """CREATE TRIGGER entries_are_never_changed BEFORE UPDATE ON entries
        BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never changed'); END""",
    """CREATE TRIGGER entries_are_never_removed BEFORE DELETE ON entries
        BEGIN SELECT RAISE(ABORT, 'entries of a ledger are never removed'); END""",
    """CREATE TRIGGER entries_come_one_after_another BEFORE INSERT ON entries
        WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM entries)
        BEGIN SELECT RAISE(ABORT, 'entries of a ledger come one after another'); END""",
)
DECISIONS: Final = "json_valid(content) AND json_extract(content, '$.kind') = 'decided'"
"""The entries about what persons decided. They may come long before their job's first entry, or without any."""
_INDEX: Final = f"CREATE INDEX entries_of_jobs ON entries (json_extract(content, '$.job')) WHERE {OF_JOBS}"
_DECISIONS_INDEX: Final = (
    f"CREATE INDEX decisions_of_jobs ON entries (json_extract(content, '$.job')) WHERE {DECISIONS}"
)
_INDEXES: Final = (_INDEX, _DECISIONS_INDEX)

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        f"CREATE TABLE entries {_ENTRIES}",
        """CREATE TABLE answers (
            job TEXT NOT NULL,
            position INTEGER NOT NULL,
            piece INTEGER NOT NULL,
            content BLOB NOT NULL,
            UNIQUE (job, position, piece)
        )""",
        *_TRIGGERS,
    ),
    (),  # entries about a quarantine and its end have more fields, which older software cannot read
    (
        _INDEX,
        f"""CREATE INDEX openings_by_expiry ON entries (json_extract(content, '$.expires_at')) WHERE {OPENINGS}""",
    ),
    ("DROP INDEX openings_by_expiry",),  # answers are dropped when their job is over, and there are new kinds of entry
    (),  # there are decisions about jobs, which older software cannot read
    # Names of rows are under a key, which older software does not know.
    ("CREATE TABLE IF NOT EXISTS earlier_hashes (number INTEGER PRIMARY KEY, hidden TEXT NOT NULL)",),
    (_DECISIONS_INDEX,),
)
"""Step n turns version n - 1 into version n. Version 0 is an empty file. Steps are added, never changed."""

_log = logging.getLogger(__name__)


class LedgerConnection(Protocol):
    """The part of an SQLite connection that a ledger needs. It raises the errors of ``sqlite3``."""

    def execute(self, sql: str, parameters: Sequence[Any] = ..., /) -> Iterable[tuple[Any, ...]]: ...
    def close(self) -> None: ...


Connect: TypeAlias = Callable[[Path], LedgerConnection]


class Database:
    """An open ledger file."""

    def __init__(self, path: Path, connection: LedgerConnection) -> None:
        self._path = path
        self._connection = connection

    @classmethod
    def writable(cls, path: Path, connect: Connect) -> "Database":
        """Open a ledger for writing. Create it if there is none, and migrate it to this version."""
        if not path.exists():
            files.create(path, b"")
        if path.stat().st_mode & 0o077:
            raise LedgerError(f"Other users can read or write {path}.", f"Run `chmod 600 {path}`.")
        with database_errors(path):
            connection = connect(path)
            try:
                _require_ledger(path, connection)
                _require_sync(connection)
                migrate(connection)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    @classmethod
    @contextmanager
    def readable(cls, path: Path) -> "Iterator[Database]":
        """Open a ledger to read it as it is at one moment, even while its daemon is writing."""
        if not path.exists():
            raise LedgerError(f"There is no ledger at {path}.", LOST)
        with database_errors(path):
            connection = sqlite_file.connect(path, "ro")
            try:
                _require_ledger(path, connection, new=False)
                connection.execute("BEGIN")
                yield cls(path, connection)
            finally:
                connection.close()

    def close(self) -> None:
        """Close the file."""
        with database_errors(self._path):
            self._connection.close()

    def entries(self) -> Iterator[Entry]:
        """Read every entry, in order."""
        with database_errors(self._path):
            rows = iter(self._connection.execute("SELECT content, hash FROM entries ORDER BY number"))
            while some := list(islice(rows, _TOGETHER)):
                yield from _parsed(some)

    def quarantine(self) -> str | None:
        """Return why the ledger is in quarantine, or None, without reading all of it.

        Until a quarantine ends, only starts and other quarantines follow its entry.
        """
        with database_errors(self._path):
            rows = self._connection.execute("SELECT content, hash FROM entries ORDER BY number DESC")
            facts = (Entry.read(content, written_hash).fact for content, written_hash in rows)
            last = next((fact for fact in facts if not isinstance(fact, Started)), None)
        return last.reason if isinstance(last, Quarantined) else None

    def hash_at(self, number: int) -> str | None:
        """Return the hash of an entry, or None if no entry has that number."""
        with database_errors(self._path):
            rows = self._run("SELECT hash FROM entries WHERE number = ?", number)
        return rows[0][0] if rows else None

    def of_job(self, job: str, entries: int) -> list[Fact]:
        """Return the facts that opened and closed a job, among the first ``entries`` entries."""
        query = f"SELECT content FROM entries WHERE {OF_JOBS} AND json_extract(content, '$.job') = ? AND number <= ?"  # noqa: S608  # ours
        return [Entry.read(content, "").fact for (content,) in self._select(f"{query} ORDER BY number", job, entries)]

    def entries_of(self, job: str, entries: int) -> list[Entry]:
        """Return the entries of a job, among the first ``entries`` entries. They lie between its first and its last."""
        within = f"SELECT number, json_extract(content, '$.kind') FROM entries WHERE {OF_JOBS}"  # noqa: S608  # ours
        ends = self._select(f"{within} AND json_extract(content, '$.job') = ? AND number <= ?", job, entries)
        if not ends:
            return []
        first = min(number for number, _ in ends)
        last = max((number for number, kind in ends if kind == "closed"), default=entries)
        query = (
            "SELECT content, hash FROM entries WHERE number BETWEEN ? AND ? AND json_valid(content) "
            "AND json_extract(content, '$.job') = ? ORDER BY number"
        )
        return [Entry.read(content, written) for content, written in self._select(query, first, last, job)]

    def decisions(self, job: str, entries: int) -> tuple[Entry, ...]:
        """Return what persons decided about a job, among the first ``entries`` entries, oldest first."""
        query = f"SELECT content, hash FROM entries WHERE {DECISIONS} AND json_extract(content, '$.job') = ?"  # noqa: S608  # ours
        found = self._select(f"{query} AND number <= ? ORDER BY number", job, entries)
        return tuple(Entry.read(content, written) for content, written in found)

    def decision_count(self) -> int:
        """Count the decisions in their index."""
        query = f"SELECT count(*) FROM entries INDEXED BY decisions_of_jobs WHERE {DECISIONS}"  # noqa: S608  # ours
        with database_errors(self._path):
            ((number,),) = self._run(query)
        return int(number)

    def openings(self) -> int:
        """Count the jobs in the index."""
        query = "SELECT count(DISTINCT json_extract(content, '$.job')) FROM entries INDEXED BY entries_of_jobs"
        with database_errors(self._path):
            ((number,),) = self._run(f"{query} WHERE {OF_JOBS}")
        return int(number)

    def write(self, head: Head, entries: Iterable[Entry], answer: tuple[str, int, memoryview] | None) -> None:
        """Add entries after a head, and the answer that they are about. When this returns, they are on the disk."""
        with self._transaction(head):
            for entry in entries:
                self._run("INSERT INTO entries VALUES (?, ?, ?)", entry.number, entry.content, entry.hash)
            if answer:
                job, position, content = answer
                for piece, start in enumerate(range(0, max(1, len(content)), PIECE_BYTES)):
                    part = content[start : start + PIECE_BYTES]
                    self._run("INSERT INTO answers VALUES (?, ?, ?, ?)", job, position, piece, part)

    def rewrite(self, head: Head, change: Callable[[Iterable[Entry]], Iterator[tuple[Entry, str | None]]]) -> None:
        """Replace all entries up to a head by what ``change`` makes of them, and keep a value for each old hash.

        All of it is one transaction. The old entries do not stay in the file: what is deleted is overwritten, and the
        log that has them is emptied.
        """
        self._run("PRAGMA secure_delete = ON")
        with self._transaction(head):
            self._run(f"CREATE TABLE changed {_ENTRIES}")
            for entry, hidden in change(self.entries()):
                self._run("INSERT INTO changed VALUES (?, ?, ?)", entry.number, entry.content, entry.hash)
                if hidden is not None:
                    self._run("INSERT INTO earlier_hashes VALUES (?, ?)", entry.number, hidden)
            for statement in ("DROP TABLE entries", "ALTER TABLE changed RENAME TO entries", *_TRIGGERS, *_INDEXES):
                self._run(statement)
        self._run("PRAGMA secure_delete = OFF")

    def hidden_hash(self, number: int) -> str | None:
        """Return the hidden hash that an entry had before it was rewritten, or None if it never was."""
        with database_errors(self._path):
            rows = self._run("SELECT hidden FROM earlier_hashes WHERE number = ?", number)
        return rows[0][0] if rows else None

    def empty_log(self) -> None:
        """Empty the write-ahead log. It may still have what was deleted from the file."""
        with database_errors(self._path):
            self._run("PRAGMA wal_checkpoint(TRUNCATE)")

    def pieces(self, job: str, position: int) -> Iterator[bytes]:
        """Read an answer piece by piece. Yields nothing if it is not stored."""
        query = "SELECT CAST(content AS BLOB) FROM answers WHERE job = ? AND position = ? ORDER BY piece"
        return (row[0] for row in self._connection.execute(query, (job, position)))

    def answers(self) -> list[tuple[str, int]]:
        """List the job and position of each stored answer."""
        with database_errors(self._path):
            found = list(self._run("SELECT DISTINCT job, position FROM answers"))
        if not all(isinstance(job, str) and isinstance(position, int) for job, position in found):
            raise DamagedLedgerError(
                f"{self._path} is damaged: a stored answer belongs to no query.", "Restore a backup."
            )
        return found

    def drop(self, head: Head, jobs: Iterable[str]) -> None:
        """Delete all answers of these jobs."""
        with self._transaction(head):
            for job in jobs:
                self._run("DELETE FROM answers WHERE job = ?", job)

    def make_room(self) -> None:
        """Free the memory of cached pages. The pages of finished jobs are not read again."""
        self._run("PRAGMA shrink_memory")

    def damages(self) -> list[str]:
        """List what SQLite finds wrong with the file."""
        with database_errors(self._path):
            return [found for (found,) in self._run("PRAGMA integrity_check") if found != "ok"]

    def _select(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401  # what SQL takes
        """Read while a query is being answered. The disk's own error goes to the log alone, as for writing."""
        try:
            return self._run(sql, *parameters)
        except sqlite_file.ERRORS as problem:
            _log.error("%s cannot be read: %s", self._path, problem)
            raise LedgerDiskError(
                "The provider's ledger cannot be read, so nothing was answered.", "The provider's log says why."
            ) from problem

    def _run(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401  # what SQL takes
        return list(self._connection.execute(sql, parameters))

    @contextmanager
    def _transaction(self, head: Head) -> Iterator[None]:
        """Write all of it or nothing. The disk's own error goes to the log, and the requester gets a shorter one."""
        try:
            with sqlite_file.transaction(self._run):
                self._require_head(head)
                yield
        except sqlite_file.ERRORS as problem:
            _log.error("%s cannot be written: %s", self._path, problem)
            raise LedgerDiskError(
                "The provider's ledger cannot be written, so nothing was answered.", "The provider's log says why."
            ) from problem

    def _require_head(self, head: Head) -> None:
        rows = self._run("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1")
        if (rows[0] if rows else (0, GENESIS)) != (head.entries, head.hash):
            _log.error("%s: another process wrote to it, or a write that had failed took effect.", self._path)
            raise LedgerInUseError(
                "Another process changed the provider's ledger, so nothing was answered.",
                "The provider's operator must stop the other daemon and restart this one.",
            )


def migrate(connection: LedgerConnection, steps: Sequence[Sequence[str]] = MIGRATIONS) -> None:
    """Bring a ledger of any version to that of the last step, in one transaction."""
    version = sqlite_file.number(connection, "PRAGMA user_version")
    if version < len(steps):
        with sqlite_file.transaction(connection.execute):
            FILE.upgrade(connection.execute, version, steps)


@contextmanager
def database_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite's into a ``LedgerError``."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        raise LedgerDiskError(
            f"{path} cannot be used: {problem}.", "Check the disk: free space, health, permissions."
        ) from problem
    except sqlite_file.ERRORS as problem:
        raise DamagedLedgerError(f"{path} is damaged: {problem}.", "Restore a backup.") from problem


def _require_ledger(path: Path, connection: LedgerConnection, *, new: bool = True) -> None:
    """Refuse a file that is not a ledger, or whose version this software does not know. Nothing is changed."""
    version = FILE.version(connection)
    if new and version == 0 and not sqlite_file.number(connection, "PRAGMA application_id"):
        return
    if not version or version < 1:
        raise LedgerError(
            f"{path} is not a ledger of this software.",
            "Name another file in the settings, or restore the newest copy of the ledger.",
        )
    if version > len(MIGRATIONS):
        raise LedgerError(
            f"{path} has version {version}, but this software knows versions up to {len(MIGRATIONS)}.",
            "Use the software that wrote it, or a newer one.",
        )


def _require_sync(connection: LedgerConnection) -> None:
    """Make SQLite sync what it writes. Refuse to start if it cannot."""
    missing = sqlite_file.make_durable(connection)
    if missing:
        raise LedgerError(
            f"SQLite does not sync what it writes here ({missing}).",
            "Put the ledger on a local disk, and use a standard build of SQLite.",
        )
