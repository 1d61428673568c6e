"""The journal in a file of SQLite's, held by one coordinator of this machine; and one that is gone with its process."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import quote

from dpspca.common.transport import files

from .jobs import Job
from .journal import NO_RECEIPTS, JournalError
from .sql_journal import Cursor, SqlJournal, not_held

APPLICATION_ID: Final = int.from_bytes(b"dpsj")
KEPT_LOG_BYTES: Final = 1 << 24
"""To which the write-ahead log shrinks after a large sum."""
CHECKPOINT_PAGES: Final = 256
"""Pages of the log after which it is written back; the library's own thousand would be twice the bytes above."""
PAGE_BYTES: Final = 1 << 15
"""Of a new file: large sums are written twice as fast as in small pages, and small sums hardly slower."""
LARGEST_PAGE_BYTES: Final = 1 << 16
"""Of a file that nobody syncs: a sum is one write for every page of it."""
EXTRA: Final = 3
"""What SQLite calls synchronous = EXTRA."""


class Connection(Protocol):
    """The part of a connection to SQLite that a journal needs; it raises the errors of ``sqlite3``."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Cursor: ...  # noqa: ANN401  # what SQL takes
    def close(self) -> None: ...


Connect: TypeAlias = Callable[[Path], Connection]


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that exists."""
    address = f"file:{quote(str(path))}?mode=rw"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)


class _Tables(SqlJournal):
    begin = "BEGIN IMMEDIATE"
    _connection: Connection | None = None
    _where = "The journal"

    def _run(self, statement: str, *values: Any) -> Cursor:  # noqa: ANN401  # what SQL takes
        if self._connection is None:
            raise not_held()
        with self._in_words():
            return self._connection.execute(statement, values)

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
        found, version, tables = (
            self._number(query)
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if found == APPLICATION_ID or not (found or version or tables):
            return version
        raise JournalError(f"{self._where} is no journal of a coordinator.", "Name the right file.")

    def _set_version(self, version: int) -> None:
        self._run(f"PRAGMA application_id = {APPLICATION_ID}")
        self._run(f"PRAGMA user_version = {version}")

    def _number(self, query: str) -> int:
        return int(self._rows(query)[0][0])

    def close(self) -> None:
        self._held = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqliteJournal(_Tables):
    """The journal in a file, which a lock file beside it keeps to one holder.

    The hold ends with its process and no sooner, so that its holder needs no heartbeat; ``check`` looks whether the
    file is still the one that was opened.
    """

    heartbeat_seconds = 5.0

    def __init__(self, path: Path, connect: Connect = connect) -> None:
        self._path = path
        self._connect = connect
        self._where = f"The journal {path}"
        self._lock: int | None = None

    def hold(self) -> bool:
        if self._lock is None:
            self._lock = self._locked()
        self._held = self._lock is not None
        if self._held:
            self._open()
        return self._held

    def check(self) -> None:
        if self._identity() != self._opened:
            raise JournalError(
                f"{self._where} was moved or replaced while it was in use.", "Stop the coordinator before you touch it."
            )

    def end(self, job: Job, model: bytes | None, receipts: Mapping[str, bytes] = NO_RECEIPTS) -> None:
        super().end(job, model, receipts)
        # Or pages of jobs that are over would stay until they fill the library's cache: for hours, memory would grow.
        # A smaller cache would do as well, but writes large sums at half the speed.
        self._run("PRAGMA shrink_memory").fetchall()

    def close(self) -> None:
        super().close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _locked(self) -> int | None:
        """Take the lock; None while another process, or another journal of this one, has it."""
        lock = self._path.with_name(f"{self._path.name}.lock")
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, files.PRIVATE)
        except OSError as problem:
            raise JournalError(f"{lock} cannot be opened: {problem.strerror}.", "Name a folder of its own.") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError as problem:
            os.close(descriptor)
            raise JournalError(f"{lock} cannot be locked: {problem.strerror}.", "Use a local disk.") from None
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
        # EXTRA is FULL and the folder: or the rollback journal that a new file begins with could come back after a
        # power cut, and take back all that was written since.
        self._run("PRAGMA synchronous = EXTRA").fetchall()
        self._run(f"PRAGMA page_size = {PAGE_BYTES}")
        mode = self._rows("PRAGMA journal_mode = WAL")[0][0]
        for setting in (
            "fullfsync = ON",
            f"journal_size_limit = {KEPT_LOG_BYTES}",
            f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
        ):
            self._run(f"PRAGMA {setting}").fetchall()
        if mode != "wal" or self._number("PRAGMA synchronous") != EXTRA:
            raise JournalError(f"{self._where} cannot be synced.", "Use a local disk, and SQLite as it is distributed.")
        self._migrate()
        self._opened = self._identity()

    def _identity(self) -> tuple[int, int] | None:
        """Tell which file has the journal's name now."""
        try:
            found = self._path.stat()
        except OSError:
            return None
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
