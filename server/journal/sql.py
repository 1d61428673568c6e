"""The journal as SQL tables: everything except the connection, shared by SQLite and PostgreSQL."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Protocol, TypeAlias

from dpspca.common.arrays import Integers
from dpspca.common.storage import sqlite_file
from dpspca.common.transport import answer_content
from dpspca.server.job_states import JobRecord, State

from .contract import (
    NO_RECEIPTS,
    PIECE,
    JournalError,
    JournalLostError,
    RecordedJob,
    RecordedQuery,
    Sum,
    damaged_error,
    join,
    read_job,
    read_weights,
    write_job,
)

Migrations: TypeAlias = sqlite_file.Migrations

MIGRATIONS: Final[Migrations] = (
    (
        """CREATE TABLE jobs (
            number BIGINT PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            is_over INTEGER NOT NULL CHECK (is_over IN (0, 1)),
            standing TEXT NOT NULL,
            signed BYTEA NOT NULL,
            model_bytes BIGINT NOT NULL
        )""",
        """CREATE TABLE questions (
            job TEXT NOT NULL,
            position INTEGER NOT NULL,
            digest TEXT NOT NULL,
            parties INTEGER CHECK (parties > 0),
            PRIMARY KEY (job, position)
        )""",
        """CREATE TABLE sums (
            job TEXT NOT NULL,
            position INTEGER NOT NULL,
            piece INTEGER NOT NULL,
            content BYTEA NOT NULL,
            PRIMARY KEY (job, position, piece)
        )""",
        """CREATE TABLE models (
            job TEXT NOT NULL,
            piece INTEGER NOT NULL,
            content BYTEA NOT NULL,
            PRIMARY KEY (job, piece)
        )""",
    ),
    (
        """CREATE TABLE receipts (
            provider TEXT PRIMARY KEY,
            content BYTEA NOT NULL
        )""",
    ),
    ("ALTER TABLE questions ADD COLUMN weights TEXT",),
)
"""Step n upgrades version n - 1 to version n; version 0 is empty. Steps are added, never changed."""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class SqlJournal(ABC):
    """A journal without its connection. ``contract.Journal`` says what each method promises."""

    begin: str
    """The statement that begins a transaction that writes."""
    _held = False

    @abstractmethod
    def _run(self, statement: str, *values: Any) -> Cursor:  # noqa: ANN401  # what SQL takes
        """Run a statement in which ``?`` stands for a value; raise its errors as ``JournalError``."""

    @abstractmethod
    def _version(self) -> int:
        """Return the version of the tables, 0 if there are none; refuse a database that is not a journal."""

    @abstractmethod
    def _upgrade(self, version: int, migrations: Migrations) -> None:
        """Run the migrations that tables of this version lack, and record the new version."""

    def accept(self, job: JobRecord, signed: bytes) -> None:
        with self._transaction():
            self._run(
                "INSERT INTO jobs SELECT coalesce(max(number), 0) + 1, ?, 0, ?, ?, 0 FROM jobs",
                job.name,
                write_job(job),
                signed,
            )

    def ask(
        self,
        job: JobRecord,
        position: int,
        digest: str,
        before: Sum | None,
        receipts: Mapping[str, bytes] = NO_RECEIPTS,
    ) -> None:
        with self._transaction():
            self._keep_receipts(receipts)
            self._update_job(job)
            if before is not None:
                self._keep_sum(job.name, position - 1, before)
            found = self._rows("SELECT count(*), count(parties) FROM questions WHERE job = ?", job.name)
            _require(found == [(position, position)], f"query {position + 1} is out of order")
            self._run("INSERT INTO questions VALUES (?, ?, ?, NULL, NULL)", job.name, position, digest)

    def end(self, job: JobRecord, model: bytes | None, receipts: Mapping[str, bytes] = NO_RECEIPTS) -> None:
        _require(job.state.is_final, f"a job that is {job.state} cannot be recorded as ended")
        _require((job.state is State.DONE) == bool(model), "a job has a model exactly if it is done")
        with self._transaction():
            self._keep_receipts(receipts)
            self._update_job(job, len(model or b""))
            self._delete([job.name], "questions", "sums")
            for number, piece in enumerate(_pieces(memoryview(model or b""))):
                self._run("INSERT INTO models VALUES (?, ?, ?)", job.name, number, piece)

    def forget(self, jobs: Collection[str]) -> None:
        with self._transaction():
            self._delete(jobs, "questions", "sums", "models")
            for name in jobs:
                self._run("DELETE FROM jobs WHERE name = ?", name)

    def drop_models(self, jobs: Collection[str]) -> None:
        with self._transaction():
            self._delete(jobs, "models")
            for name in jobs:
                self._run("UPDATE jobs SET model_bytes = 0 WHERE name = ?", name)

    def jobs(self) -> list[RecordedJob]:
        counted = "(SELECT count(*) FROM questions WHERE job = name)"
        rows = self._rows(f"SELECT standing, signed, {counted}, model_bytes FROM jobs ORDER BY number")  # noqa: S608  # ours
        return [
            RecordedJob(read_job(_cell(standing, str)), _content(signed), queries, _cell(size, int))
            for standing, signed, queries, size in rows
        ]

    def records(self) -> list[JobRecord]:
        """Return the state of every job, in the order of acceptance."""
        return [
            read_job(_cell(standing, str)) for (standing,) in self._rows("SELECT standing FROM jobs ORDER BY number")
        ]

    def job(self, name: str) -> JobRecord | None:
        rows = self._rows("SELECT standing FROM jobs WHERE name = ?", name)
        return read_job(_cell(rows[0][0], str)) if rows else None

    def query(self, job: str, position: int) -> RecordedQuery | None:
        query = "SELECT digest, parties, weights FROM questions WHERE job = ? AND position = ?"
        rows = self._rows(query, job, position)
        if not rows:
            return None
        digest, parties, weights = rows[0]
        parties = _cell(parties, int | None)
        return RecordedQuery(_cell(digest, str), parties, read_weights(_cell(weights, str | None), parties))

    def total(self, job: str, position: int, shape: tuple[int, ...]) -> Integers:
        return join(self._sum_pieces(job, position), shape)

    def model(self, job: str, piece: int) -> bytes:
        rows = self._rows("SELECT content FROM models WHERE job = ? AND piece = ?", job, piece)
        return _content(rows[0][0]) if rows else b""

    def signed(self, job: str) -> bytes:
        rows = self._rows("SELECT signed FROM jobs WHERE name = ?", job)
        return _content(rows[0][0]) if rows else b""

    def receipts(self) -> dict[str, bytes]:
        return {name: _content(cell) for name, cell in self._rows("SELECT provider, content FROM receipts")}

    def _migrate(self) -> None:
        """Upgrade the tables to the latest version; refuse a newer one."""
        version = self._version()
        if version > len(MIGRATIONS):
            raise JournalError(
                f"The journal has version {version}; this software knows versions up to {len(MIGRATIONS)}.",
                "Use the software version that wrote it, or a newer one.",
            )
        if version < len(MIGRATIONS):
            with self._transaction():
                self._upgrade(version, MIGRATIONS)

    def _update_job(self, job: JobRecord, model_bytes: int = 0) -> None:
        """Write a job's state; refuse a job that has ended or was never accepted."""
        changed = self._run(
            "UPDATE jobs SET standing = ?, is_over = ?, model_bytes = ? WHERE name = ? AND is_over = 0",
            write_job(job),
            int(job.state.is_final),
            model_bytes,
            job.name,
        )
        _require(changed.rowcount == 1, f"job {job.name:.12} is not running")

    def _keep_receipts(self, receipts: Mapping[str, bytes]) -> None:
        query = "INSERT INTO receipts VALUES (?, ?) ON CONFLICT (provider) DO UPDATE SET content = excluded.content"
        for provider, content in receipts.items():
            self._run(query, provider, content)

    def _keep_sum(self, job: str, position: int, kept: Sum) -> None:
        query = "UPDATE questions SET parties = ?, weights = ? WHERE job = ? AND position = ? AND parties IS NULL"
        weights = kept.weighed.to_json() if kept.weighed else None
        changed = self._run(query, kept.parties, weights, job, position)
        _require(changed.rowcount == 1, f"query {position + 1} does not wait for a sum")
        for number, piece in enumerate(_pieces(answer_content(kept.total))):
            self._run("INSERT INTO sums VALUES (?, ?, ?, ?)", job, position, number, piece)

    def _sum_pieces(self, job: str, position: int) -> Iterator[bytes]:
        query = "SELECT content FROM sums WHERE job = ? AND position = ? AND piece = ?"
        for number in count():
            rows = self._rows(query, job, position, number)
            if not rows:
                return
            yield _content(rows[0][0])

    def _delete(self, jobs: Collection[str], *tables: str) -> None:
        for name in jobs:
            for table in tables:
                self._run(f"DELETE FROM {table} WHERE job = ?", name)  # noqa: S608  # constant names

    def _rows(self, query: str, *values: Any) -> list[Any]:  # noqa: ANN401  # what SQL takes
        return self._all(self._run(query, *values))

    def _all(self, cursor: Cursor) -> list[Any]:
        """Read all rows of a cursor; raise errors as ``_run`` does."""
        return cursor.fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write everything or nothing; refuse if the journal is not held."""
        if not self._held:
            raise not_held_error()
        with sqlite_file.transaction(self._run, self.begin):
            yield


def _cell(cell: Any, kind: Any) -> Any:  # noqa: ANN401  # a damaged file may hold anything
    """Return a cell if it has the declared type."""
    if not isinstance(cell, kind):
        raise damaged_error(f"a cell has the wrong type, {type(cell).__name__}")
    return cell


def _content(cell: object) -> bytes:
    """Return the bytes of a cell. A number is refused, because ``bytes`` would make that many zeros of it."""
    if not isinstance(cell, bytes | memoryview):
        raise damaged_error(f"a cell has the wrong type, {type(cell).__name__}")
    return bytes(cell)


def not_held_error() -> JournalLostError:
    """Return the error for using a journal without holding it."""
    return JournalLostError("The journal is not held by this coordinator.", "Restart the coordinator.")


def _pieces(content: memoryview) -> Iterator[memoryview]:
    return (content[start : start + PIECE] for start in range(0, len(content), PIECE))


def _require(holds: bool, what: str) -> None:  # noqa: FBT001  # reads as: require that it holds
    if not holds:
        raise damaged_error(what)
