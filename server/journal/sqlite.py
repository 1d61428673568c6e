"""The journal in a file of SQLite's, held by one coordinator of this machine; and one that is gone with its process."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol, TypeAlias

from dpspca.common.storage import files, posix, sqlite_file
from dpspca.server.job import JobRecord

from .contract import NO_RECEIPTS, JournalError
from .sql import Cursor, Migrations, SqlJournal, not_held

FILE: Final = sqlite_file.FileKind(int.from_bytes(b"dpsj"))
CHECKPOINT_PAGES: Final = 256
"""Pages of the log after which it is written back; the library's own thousand would be twice the bytes above."""
PAGE_BYTES: Final = 1 << 15
"""Of a new file: large sums are written twice as fast as in small pages, and small sums hardly slower."""
LARGEST_PAGE_BYTES: Final = 1 << 16
"""Of a file that nobody syncs: a sum is one write for every page of it."""

File: TypeAlias = tuple[int, int]
"""Which file it is, whatever it is called: its device and its inode, which is not given out anew while it is open."""


class Connection(Protocol):
    """The part of a connection to SQLite that a journal needs; it raises the errors of ``sqlite3``."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...  # noqa: ANN401  # what SQL takes
    def close(self) -> None: ...


Connect: TypeAlias = Callable[[Path], Connection]


class _Tables(SqlJournal):
    begin = "BEGIN IMMEDIATE"
    _connection: Connection | None = None
    _where = "The journal"

    def _run(self, statement: str, *values: Any) -> Cursor:  # noqa: ANN401  # what SQL takes
        connection = self._open_connection()
        with self._in_words():
            return connection.execute(statement, values)

    def _all(self, cursor: Cursor) -> list[Any]:
        with self._in_words():
            return cursor.fetchall()

    @contextmanager
    def _in_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as problem:
            raise JournalError(
                f"{self._where} cannot be used: {problem}.",
                "Look at the disk: its space, its health, its permissions; then start the coordinator anew.",
            ) from problem

    def _version(self) -> int:
        with self._in_words():
            version = FILE.version(self._open_connection())
        if version is None:
            raise JournalError(f"{self._where} is no journal of a coordinator.", "Name the right file.")
        return version

    def _upgrade(self, version: int, migrations: Migrations) -> None:
        FILE.upgrade(self._run, version, migrations)

    def _open_connection(self) -> Connection:
        if self._connection is None:
            raise not_held()
        return self._connection

    def close(self) -> None:
        self._held = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqliteJournal(_Tables):
    """The journal in a file, which a lock file beside it keeps to one holder.

    The hold ends with its process and no sooner, so that its holder needs no heartbeat. Somebody may delete the lock
    file all the same, and another coordinator lock a new one: so whoever takes the journal signs it, and whatever is
    written is written only where the signature is still the writer's, in one transaction. Of two, the later one goes
    on. ``check`` and every write look besides whether the files are still the ones that were opened.
    """

    heartbeat_seconds = 5.0

    def __init__(self, path: Path, connect: Connect = sqlite_file.connect) -> None:
        self._path = path
        self._connect = connect
        self._where = f"The journal {path}"
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._lock: int | None = None
        self._signature: str | None = None

    def hold(self) -> bool:
        if self._signature is not None:
            self.check()  # a journal that was lost is not taken back with the old lock
            return True
        if self._lock is None:
            self._lock = self._locked()
        self._held = self._lock is not None
        if self._held:
            self._open()
        return self._held

    def check(self) -> None:
        if self._signature is None:
            raise not_held()
        self._require_files()
        self._require_signature()

    def end(self, job: JobRecord, model: bytes | None, receipts: Mapping[str, bytes] = NO_RECEIPTS) -> None:
        super().end(job, model, receipts)
        # Or pages of jobs that are over would stay until they fill the library's cache: for hours, memory would grow.
        # A smaller cache would do as well, but writes large sums at half the speed.
        self._run("PRAGMA shrink_memory").fetchall()

    def close(self) -> None:
        super().close()
        self._signature = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._signature is None:  # the file is being opened
            with super()._transaction():
                yield
            return
        self._require_files()
        with super()._transaction():
            self._require_signature()  # and nobody else can sign before this is written
            yield

    def _require_files(self) -> None:
        """Raise unless both files have the names that they had."""
        if _file_at(self._path) != self._opened:
            raise JournalError(
                f"{self._where} was moved or replaced while it was in use.", "Stop the coordinator before you touch it."
            )
        if self._lock is None or _file_at(self._lock_path) != _file(os.fstat(self._lock)):
            raise JournalError(
                f"{self._lock_path} was deleted, moved or replaced while it was in use: another coordinator may take "
                "the journal.",
                "Leave the file alone, whoever holds it; start the coordinator anew.",
            )

    def _require_signature(self) -> None:
        """Raise if somebody else has taken the journal since."""
        if self._rows("SELECT signature FROM holder") != [(self._signature,)]:
            raise JournalError(
                f"{self._where} was taken by another coordinator while it was in use.",
                "Leave its lock file alone; start the coordinator anew, and it stands by.",
            )

    def _sign(self) -> None:
        """Take the journal from whoever may have had it before, past every lock."""
        signature = token_hex(16)
        with self._transaction():
            # Beside the tables of all journals: PostgreSQL knows by itself whose session holds the journal.
            self._run("CREATE TABLE IF NOT EXISTS holder (signature TEXT NOT NULL)")
            self._run("DELETE FROM holder")
            self._run("INSERT INTO holder VALUES (?)", signature)
        self._signature = signature

    def _locked(self) -> int | None:
        """Take the lock; None while another process, or another journal of this one, has it."""
        lock = self._lock_path
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | posix.NO_LINKS | posix.NOT_INHERITED, files.PRIVATE)
        except OSError as problem:
            raise JournalError(f"{lock} cannot be opened: {problem.strerror}.", "Name a folder of its own.") from None
        try:
            is_held = posix.lock(descriptor)
        except OSError as problem:
            os.close(descriptor)
            raise JournalError(f"{lock} cannot be locked: {problem.strerror}.", "Use a local disk.") from None
        # If the file was deleted before it was locked, others would lock another one.
        if not is_held or _file_at(lock) != _file(os.fstat(descriptor)):
            os.close(descriptor)
            return None
        return descriptor

    def _open(self) -> None:
        """Open the file, or make it, for our eyes alone; see to it that what was written is on the disk."""
        if not self._path.exists():
            files.create(self._path, b"")
        if self._path.stat().st_mode & 0o077:
            raise JournalError(f"Others can read {self._path}, or write it.", f"`chmod 600 {self._path}`.")
        with self._in_words():
            self._connection = self._connect(self._path)
        self._version()  # before anything is written to what may be somebody else's file
        with self._in_words():
            missing = sqlite_file.make_durable(
                self._open_connection(), page_bytes=PAGE_BYTES, checkpoint_pages=CHECKPOINT_PAGES
            )
        if missing:
            raise JournalError(
                f"{self._where} cannot be synced ({missing}).", "Use a local disk, and SQLite as it is distributed."
            )
        self._migrate()
        self._sign()
        self._opened = _file_at(self._path)


def _file_at(path: Path) -> File | None:
    """Tell which file has a name now; None if none has."""
    try:
        return _file(path.stat())
    except OSError:
        return None


def _file(found: os.stat_result) -> File:
    return found.st_dev, found.st_ino


class PassingJournal(_Tables):
    """A journal that is gone with its process: for rehearsals and tests. What is large goes to a nameless file."""

    heartbeat_seconds = 3600.0

    def hold(self) -> bool:
        if self._connection is None:
            self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._run(f"PRAGMA page_size = {LARGEST_PAGE_BYTES}")
            self._run("PRAGMA synchronous = OFF")
            self._held = True
            self._migrate()
        return True

    def check(self) -> None:
        pass
