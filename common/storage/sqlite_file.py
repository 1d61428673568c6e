"""How SQLite files are opened, synced and upgraded: a provider's ledger and a coordinator's journal.

A file is opened only if it exists, so that a wrong name creates no new file. A transaction is on disk when it returns;
if SQLite cannot guarantee this, the program does not start. Tables are upgraded by migration steps, which are added and
never changed.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import quote

KEPT_LOG_BYTES: Final = 1 << 24
"""Size to which the write-ahead log shrinks after a large write."""
EXTRA: Final = 3
"""SQLite's number for ``synchronous = EXTRA``."""
BUSY_SECONDS: Final = 10.0
ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""What using a file may raise. The second comes instead of the first where a damaged file has a name that is not in
UTF-8, which the message of the error would quote."""

Migrations: TypeAlias = Sequence[Sequence[str]]
"""Step n upgrades version n - 1 to version n; version 0 is an empty file. Steps are added, never changed."""


class Connection(Protocol):
    """The part of a connection that is needed here. It raises the errors of ``sqlite3``."""

    def execute(self, sql: str, parameters: Any = ..., /) -> Iterable[Any]: ...  # noqa: ANN401  # what SQL takes


Execute: TypeAlias = Callable[[str], object]


def connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """Open an existing file. The caller begins and ends transactions explicitly."""
    address = f"file:{quote(str(path))}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


@dataclass(frozen=True, slots=True)
class FileKind:
    """The application ID in the header of a program's files."""

    application_id: int

    def version(self, connection: Connection) -> int | None:
        """Return the version of a file's tables, 0 for an empty file, or None if another program made the file."""
        found = number(connection, "PRAGMA application_id")
        version = number(connection, "PRAGMA user_version")
        if found == self.application_id:
            return version
        is_empty = not (found or version or number(connection, "SELECT count(*) FROM sqlite_master"))
        return 0 if is_empty else None

    def upgrade(self, execute: Execute, version: int, migrations: Migrations) -> None:
        """Run the migration steps that a file of this version lacks, within the caller's transaction."""
        for statement in (statement for step in migrations[version:] for statement in step):
            execute(statement)
        execute(f"PRAGMA application_id = {self.application_id}")
        execute(f"PRAGMA user_version = {len(migrations)}")


def number(connection: Connection, query: str) -> int:
    """Return the single number that a query gives."""
    ((found,),) = connection.execute(query)
    return int(found)


def make_durable(connection: Connection, *, page_bytes: int = 0, checkpoint_pages: int = 0) -> str | None:
    """Make SQLite sync every commit before it returns. Return None, or the settings in use if SQLite refuses.

    EXTRA syncs the folder too. With FULL, a new file's deleted rollback journal could reappear after a power cut and
    undo everything written since. Deleted content is not overwritten: it was sent already or never secret, and
    overwriting would take ten times as long.
    """
    list(connection.execute("PRAGMA synchronous = EXTRA"))
    if page_bytes:
        list(connection.execute(f"PRAGMA page_size = {page_bytes}"))
    ((mode,),) = connection.execute("PRAGMA journal_mode = WAL")
    for setting in ("fullfsync = ON", "secure_delete = OFF", f"journal_size_limit = {KEPT_LOG_BYTES}"):
        list(connection.execute(f"PRAGMA {setting}"))
    if checkpoint_pages:
        list(connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}"))
    synchronous = number(connection, "PRAGMA synchronous")
    return None if (mode, synchronous) == ("wal", EXTRA) else f"journal {mode}, synchronous {synchronous}"


@contextmanager
def transaction(execute: Execute, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Commit everything or roll back. An error during rollback never hides the original error."""
    execute(begin)
    try:
        yield
        execute("COMMIT")
    except BaseException:
        with suppress(Exception):
            execute("ROLLBACK")
        raise
