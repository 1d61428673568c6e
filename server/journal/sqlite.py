"""The journal in an SQLite file, held by one coordinator on this machine, and a temporary journal without a file."""

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol, TypeAlias

from dpspca.common.storage import files, posix, sqlite_file
from dpspca.server.job_states import JobRecord

from .contract import NO_RECEIPTS, JournalError, JournalLostError
from .sql import Cursor, Migrations, SqlJournal, not_held_error

FILE: Final = sqlite_file.FileKind(int.from_bytes(b"dpsj"))
CHECKPOINT_PAGES: Final = 256
"""Pages of the write-ahead log after which it is written back to the file."""
PAGE_BYTES: Final = 1 << 15
"""Page size of a new file: it writes large sums twice as fast as small pages do, and small sums hardly slower."""
LARGEST_PAGE_BYTES: Final = 1 << 16
"""Page size of a temporary journal, which is never synced: each page of a sum is one write."""

File: TypeAlias = tuple[int, int]
"""A file's device and inode, which identify it under any name. An inode is not reused while its file is open."""


class JournalConnection(Protocol):
    """The part of an SQLite connection that a journal needs. It raises ``sqlite3`` errors."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...  # noqa: ANN401  # what SQL takes
    def close(self) -> None: ...


Connect: TypeAlias = Callable[[Path], JournalConnection]


class _Tables(SqlJournal):
    begin = "BEGIN IMMEDIATE"
    _connection: JournalConnection | None = None
    _label = "The journal"

    def _run(self, statement: str, *values: Any) -> Cursor:  # noqa: ANN401  # what SQL takes
        connection = self._open_connection()
        with self._raising_journal_errors():
            return connection.execute(statement, values)

    def _all(self, cursor: Cursor) -> list[Any]:
        with self._raising_journal_errors():
            return cursor.fetchall()

    @contextmanager
    def _raising_journal_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite_file.ERRORS as problem:
            raise JournalError(
                f"{self._label} cannot be used: {problem}.",
                "Check the disk's free space, health and permissions. Then restart the coordinator.",
            ) from problem

    def _version(self) -> int:
        with self._raising_journal_errors():
            version = FILE.version(self._open_connection())
        if version is None:
            raise JournalError(f"{self._label} is not a coordinator's journal.", "Name the right file.")
        return version

    def _upgrade(self, version: int, migrations: Migrations) -> None:
        FILE.upgrade(self._run, version, migrations)

    def _open_connection(self) -> JournalConnection:
        if self._connection is None:
            raise not_held_error()
        return self._connection

    def close(self) -> None:
        self._held = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqliteReader(_Tables):
    """The journal in a file, opened to be read beside its holder."""

    def __init__(self, path: Path, connection: JournalConnection) -> None:
        self._label = f"The journal {path}"
        self._connection = connection
        self._version()


class SqliteJournal(_Tables):
    """The journal in a file. A lock file beside it ensures that it has one holder.

    The holder keeps the lock until its process ends, so it needs no heartbeat. But somebody may delete the lock file,
    and then another coordinator can lock a new one. So each holder writes a signature into the journal, and every
    transaction first checks that the signature is still its own. Of two coordinators, the later one continues.
    ``check`` and every write also check that both files are still the ones that were opened.
    """

    heartbeat_seconds = 5.0

    def __init__(self, path: Path, connect: Connect = sqlite_file.connect) -> None:
        self._path = path
        self._connect = connect
        self._label = f"The journal {path}"
        self._lock_path = path.with_name(f"{path.name}.lock")
        self._lock: int | None = None
        self._signature: str | None = None

    def hold(self) -> bool:
        if self._signature is not None:
            self.check()  # a lost journal cannot be taken back with the old lock
            return True
        if self._lock is None:
            self._lock = self._take_lock()
        self._held = self._lock is not None
        if self._held:
            self._open()
        return self._held

    def check(self) -> None:
        if self._signature is None:
            raise not_held_error()
        self._require_files()
        self._require_signature()

    def end(self, job: JobRecord, model: bytes | None, receipts: Mapping[str, bytes] = NO_RECEIPTS) -> None:
        super().end(job, model, receipts)
        # Otherwise pages of ended jobs fill SQLite's cache, and memory grows for hours.
        # A smaller cache would also help, but writes large sums at half the speed.
        self._run("PRAGMA shrink_memory").fetchall()

    def close(self) -> None:
        super().close()
        self._signature = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._signature is None:  # while the file is being opened
            with super()._transaction():
                yield
            return
        self._require_files()
        with super()._transaction():
            self._require_signature()  # no other process can sign until this is committed
            yield

    def _require_files(self) -> None:
        """Raise if either file was moved, replaced or deleted."""
        if _file_at(self._path) != self._opened:
            raise JournalLostError(
                f"{self._label} was moved or replaced while it was in use.",
                "Stop the coordinator before you change it.",
            )
        if self._lock is None or _file_at(self._lock_path) != _file(os.fstat(self._lock)):
            raise JournalLostError(
                f"{self._lock_path} was deleted, moved or replaced while it was in use. Another coordinator may take "
                "the journal.",
                "Restart the coordinator, and never change its lock file.",
            )

    def _require_signature(self) -> None:
        """Raise if another coordinator has taken the journal."""
        if self._rows("SELECT signature FROM holder") != [(self._signature,)]:
            raise JournalLostError(
                f"{self._label} was taken by another coordinator while it was in use.",
                "Restart this coordinator as a standby, and never change the lock file.",
            )

    def _sign(self) -> None:
        """Take the journal from any earlier holder, whatever the state of the lock."""
        signature = token_hex(16)
        with self._transaction():
            # SQLite only: PostgreSQL itself knows which session holds the journal.
            self._run("CREATE TABLE IF NOT EXISTS holder (signature TEXT NOT NULL)")
            self._run("DELETE FROM holder")
            self._run("INSERT INTO holder VALUES (?)", signature)
        self._signature = signature

    def _take_lock(self) -> int | None:
        """Take the lock; None while another process, or another journal in this process, has it."""
        lock = self._lock_path
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | posix.NO_LINKS | posix.NOT_INHERITED, files.PRIVATE)
        except OSError as problem:
            raise JournalError(
                f"{lock} cannot be opened: {problem.strerror}.", "Use a folder for the journal alone."
            ) from None
        try:
            is_held = posix.lock(descriptor)
        except OSError as problem:
            os.close(descriptor)
            raise JournalError(f"{lock} cannot be locked: {problem.strerror}.", "Use a local disk.") from None
        # If the file was deleted before it was locked, another coordinator could lock a new one.
        if not is_held or _file_at(lock) != _file(os.fstat(descriptor)):
            os.close(descriptor)
            return None
        return descriptor

    def _open(self) -> None:
        """Open or create the file, readable by this user only, and make its writes durable."""
        if not self._path.exists():
            files.create(self._path, b"")
        if self._path.stat().st_mode & 0o077:
            raise JournalError(f"Other users can read or write {self._path}.", f"Run `chmod 600 {self._path}`.")
        with self._raising_journal_errors():
            self._connection = self._connect(self._path)
        self._version()  # refuses a foreign file before anything is written to it
        with self._raising_journal_errors():
            missing = sqlite_file.make_durable(
                self._open_connection(), page_bytes=PAGE_BYTES, checkpoint_pages=CHECKPOINT_PAGES
            )
        if missing:
            raise JournalError(
                f"{self._label} cannot be synced ({missing}).", "Use a local disk and an unmodified SQLite."
            )
        self._migrate()
        self._sign()
        self._opened = _file_at(self._path)


def _file_at(path: Path) -> File | None:
    """Return which file is at a path now; None if there is none."""
    try:
        return _file(path.stat())
    except OSError:
        return None


def _file(status: os.stat_result) -> File:
    return status.st_dev, status.st_ino


class TemporaryJournal(_Tables):
    """A journal that ends with its process, for rehearsals and tests. Large data goes to an unnamed temporary file."""

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
