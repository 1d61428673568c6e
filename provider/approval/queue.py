"""The queue of jobs that wait for approval: one SQLite file beside the ledger.

The daemon adds requests, and the commands on the provider's machine add signed decisions, also while no daemon runs. A
decision counts only when the daemon has verified it and recorded it in the ledger. So somebody who can write this file,
but cannot use the provider's key, can delay jobs but approve none. A request and a decision are on disk when the call
returns, and survive a crash of either process.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.storage import files, sqlite_file
from dpspca.provider.ledger import Decided

from .decisions import read_decision, write_decision
from .requests import ApprovalRequest, RequestEvent, RequestState, after

FILE: Final = sqlite_file.FileKind(int.from_bytes(b"dpsa"))
QUEUE_FILE: Final = "approvals.db"
"""Name of the queue beside the ledger."""
MOST_WAITING: Final = 200
"""Jobs that wait at the same time, of all analysts. Each takes as much disk as the analyst's signed job."""
MOST_WAITING_OF_ONE: Final = 20
DAY: Final = 86_400

_COLUMNS: Final = "job, analyst, data_set, asked_at, lapses_at, expires_at, state"
MIGRATIONS: Final[sqlite_file.Migrations] = (
    (
        """CREATE TABLE requests (
            number INTEGER PRIMARY KEY,
            job TEXT NOT NULL UNIQUE,
            analyst TEXT NOT NULL,
            data_set TEXT NOT NULL,
            asked_at INTEGER NOT NULL,
            lapses_at INTEGER NOT NULL,
            expires_at INTEGER NOT NULL,
            state TEXT NOT NULL,
            signed BLOB NOT NULL,
            announced INTEGER NOT NULL DEFAULT 0
        )""",
        """CREATE TABLE decisions (
            number INTEGER PRIMARY KEY,
            job TEXT NOT NULL,
            content TEXT NOT NULL,
            taken INTEGER NOT NULL DEFAULT 0,
            problem TEXT NOT NULL DEFAULT ''
        )""",
    ),
)
"""Step n turns version n - 1 into version n. Steps are added, never changed."""


class QueueError(DpspcaError):
    """The queue cannot be used."""

    code = "approval-queue"


class QueueFullError(RefusedError):
    """Too many jobs wait for approval."""

    code = "approval-queue-full"


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision in the queue: whether the daemon has taken it up, and why it does not count, if it does not."""

    number: int
    content: str
    taken: bool
    problem: str

    def read(self) -> Decided:
        """Parse the decision."""
        return read_decision(self.content)


class ApprovalQueue:
    """The queue in a file. The file is created with the first request. Safe to use from many threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # --- Reading ------------------------------------------------------------------------------------------------------

    def requests(self, *states: RequestState) -> list[ApprovalRequest]:
        """List the requests in these states, or all of them, oldest first."""
        chosen = [each.value for each in states or RequestState]
        marks = ", ".join("?" * len(chosen))
        query = f"SELECT {_COLUMNS} FROM requests WHERE state IN ({marks}) ORDER BY number"  # noqa: S608  # ours
        return [_request(row) for row in self._read(query, *chosen)]

    def find(self, job: str) -> ApprovalRequest | None:
        """Return a job's request, or None."""
        rows = self._read(f"SELECT {_COLUMNS} FROM requests WHERE job = ?", job)  # noqa: S608  # ours
        return _request(rows[0]) if rows else None

    def signed(self, job: str) -> bytes:
        """Return a job as its analyst signed it. Empty if it ended and no person had decided about it."""
        rows = self._read("SELECT CAST(signed AS BLOB) FROM requests WHERE job = ?", job)
        return bytes(rows[0][0]) if rows else b""

    def decisions(self, job: str) -> list[StoredDecision]:
        """List the decisions about a job, oldest first."""
        query = "SELECT number, content, taken, problem FROM decisions WHERE job = ? ORDER BY number"
        return [_stored(row) for row in self._read(query, job)]

    def untaken(self) -> list[StoredDecision]:
        """List the decisions that the daemon has not handled yet, oldest first."""
        query = "SELECT number, content, taken, problem FROM decisions WHERE taken = 0 ORDER BY number"
        return [_stored(row) for row in self._read(query)]

    def unannounced(self) -> list[ApprovalRequest]:
        """List the waiting requests without a notification so far."""
        query = f"SELECT {_COLUMNS} FROM requests WHERE announced = 0 AND state = ? ORDER BY number"  # noqa: S608  # ours
        return [_request(row) for row in self._read(query, RequestState.WAITING.value)]

    # --- Writing ------------------------------------------------------------------------------------------------------

    def ask(self, request: ApprovalRequest, signed: bytes, most_a_day: int) -> ApprovalRequest:
        """Add a request, or return the one that the job has already. A job that waits again keeps its place."""
        with self._writing(create=True) as run:
            rows = run(f"SELECT {_COLUMNS} FROM requests WHERE job = ?", request.job)  # noqa: S608  # ours
            if rows:
                known = _request(rows[0])
                if known.state is not RequestState.APPROVED:
                    return known
                waits = after(known.state, RequestEvent.ASK)
                run(
                    "UPDATE requests SET state = ?, lapses_at = ?, announced = 0 WHERE job = ?",
                    waits.value,
                    request.lapses_at,
                    request.job,
                )
                return _request(run(f"SELECT {_COLUMNS} FROM requests WHERE job = ?", request.job)[0])  # noqa: S608  # ours
            _require_room(run, request, most_a_day)
            values = (*(getattr(request, name) for name in _COLUMNS.split(", ")[:-1]), request.state.value, signed)
            marks = ", ".join("?" * len(values))
            run(f"INSERT INTO requests ({_COLUMNS}, signed) VALUES ({marks})", *values)  # noqa: S608  # ours
            return request

    def change(self, job: str, event: RequestEvent) -> RequestState | None:
        """Apply an event to a job's request. Return the new state, or None if there is no such request.

        The signed job is kept until the request is forgotten if a person decided about it. Otherwise it is kept until
        the request ends, so that an analyst cannot fill the disk with jobs that nobody looked at.
        """
        if not self.path.exists():
            return None
        with self._writing() as run:
            rows = run("SELECT state FROM requests WHERE job = ?", job)
            if not rows:
                return None
            state = after(RequestState(rows[0][0]), event)
            run("UPDATE requests SET state = ? WHERE job = ?", state.value, job)
            if state not in {RequestState.WAITING, RequestState.APPROVED}:
                run("UPDATE requests SET signed = x'' WHERE job = ? AND job NOT IN (SELECT job FROM decisions)", job)
            return state

    def decide(self, decided: Decided) -> int:
        """Add a signed decision for the daemon to take up, and return its number."""
        with self._writing() as run:
            run("INSERT INTO decisions (job, content) VALUES (?, ?)", decided.job, write_decision(decided))
            return int(run("SELECT last_insert_rowid()")[0][0])

    def mark_taken(self, number: int, problem: str = "") -> None:
        """Record that the daemon has taken a decision up, or why it does not count."""
        with self._writing() as run:
            run("UPDATE decisions SET taken = 1, problem = ? WHERE number = ?", problem, number)

    def mark_announced(self, job: str) -> None:
        """Record that the steward was notified of a job, or that this was tried."""
        with self._writing() as run:
            run("UPDATE requests SET announced = 1 WHERE job = ?", job)

    def forget(self, now: float) -> None:
        """Delete requests of jobs that have expired, and their decisions. An expired job is refused anyway.

        Those of today stay, because they count: jobs that expire soon could otherwise ask without end.
        """
        over, times = "expires_at <= ? AND asked_at < ?", (int(now), _midnight(int(now)))
        if self._read(f"SELECT 1 FROM requests WHERE {over} LIMIT 1", *times):  # noqa: S608  # ours
            with self._writing() as run:
                run(f"DELETE FROM requests WHERE {over}", *times)  # noqa: S608  # ours
                run("DELETE FROM decisions WHERE taken = 1 AND job NOT IN (SELECT job FROM requests)")

    # --- The file -----------------------------------------------------------------------------------------------------

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401  # what SQL takes
        if not self.path.exists():
            return []
        with self._connected() as connection:
            # A crash may have left a file without tables.
            return list(connection.execute(query, values)) if self._version(connection) else []

    @contextmanager
    def _writing(self, *, create: bool = False) -> "Iterator[Callable[..., list[tuple[Any, ...]]]]":
        """Write everything or nothing, durably."""
        if create and not self.path.exists():
            try:
                files.create(self.path, b"")
            except DpspcaError:
                if not self.path.exists():  # another thread was faster
                    raise
        with self._connected() as connection:

            def run(query: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401  # what SQL takes
                return list(connection.execute(query, values))

            if missing := sqlite_file.make_durable(connection):
                raise QueueError(f"SQLite does not sync what it writes here ({missing}).", "Use a local disk.")
            with sqlite_file.transaction(run):
                version = self._version(connection)
                if version < len(MIGRATIONS):
                    FILE.upgrade(connection.execute, version, MIGRATIONS)
                yield run

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite_file.connect(self.path)
            try:
                yield connection
            finally:
                connection.close()
        except sqlite3.Error as problem:
            raise QueueError(
                f"{self.path} cannot be used: {problem}.",
                "Check the disk: free space, health, permissions. If the file is damaged, move it away: jobs that "
                "wait are then asked for again.",
            ) from problem

    def _version(self, connection: sqlite3.Connection) -> int:
        version = FILE.version(connection)
        if version is None or version > len(MIGRATIONS):
            raise QueueError(
                f"{self.path} is not an approval queue, or a newer version wrote it.",
                "Move the file away: jobs that wait are then asked for again.",
            )
        return version


def _require_room(run: "Callable[..., list[tuple[Any, ...]]]", request: ApprovalRequest, most_a_day: int) -> None:
    """Refuse a request if too many wait, or the analyst asked too often since midnight UTC."""
    waiting = RequestState.WAITING.value
    counts = (
        ("SELECT count(*) FROM requests WHERE state = ?", (waiting,), MOST_WAITING, "wait for approval here"),
        (
            "SELECT count(*) FROM requests WHERE state = ? AND analyst = ?",
            (waiting, request.analyst),
            MOST_WAITING_OF_ONE,
            "of yours wait for approval here",
        ),
        (
            "SELECT count(*) FROM requests WHERE asked_at >= ? AND analyst = ?",
            (_midnight(request.asked_at), request.analyst),
            most_a_day,
            "of yours asked for approval today",
        ),
    )
    for query, values, most, what in counts:
        ((found,),) = run(query, *values)
        if found >= most:
            raise QueueFullError(f"{found} jobs {what}; at most {most} may.", "Wait, or cancel one of them.")


def _midnight(at: int) -> int:
    """Return when the day of a moment began, in UTC."""
    return at - at % DAY


def _request(row: tuple[Any, ...]) -> ApprovalRequest:
    job, analyst, data_set, asked_at, lapses_at, expires_at, state = row
    texts, times = (job, analyst, data_set), (asked_at, lapses_at, expires_at)
    whole = all(isinstance(each, str) for each in texts) and all(isinstance(each, int) for each in times)
    if not whole or state not in set(RequestState):
        raise QueueError(
            "The queue of approvals is damaged.", "Move the file away: jobs that wait are asked for again."
        )
    return ApprovalRequest(*texts, *times, RequestState(state))


def _stored(row: tuple[Any, ...]) -> StoredDecision:
    number, content, taken, problem = row
    return StoredDecision(int(number), str(content), bool(taken), str(problem))
