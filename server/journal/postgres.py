"""The journal in a PostgreSQL database of its own, which a standby on another machine can take over.

Its holder has an advisory lock, on the very connection that writes: whoever loses the lock loses the connection, and
can write nothing more. The server ends the session of a holder that says nothing for a while (stopped, or cut off), so
that it cannot keep a standby waiting for ever.
"""

from typing import TYPE_CHECKING, Any, Final

from dpspca.common.errors import MissingExtraError

from .contract import JournalError
from .sql import Cursor, Migrations, SqlJournal, not_held

if TYPE_CHECKING:
    import psycopg

LOCK: Final = int.from_bytes(b"dpspca j")
LEASE_SECONDS: Final = 30.0
"""Silence after which a holder loses the journal."""
OLDEST: Final = 14_00_00
"""The first version that ends idle sessions."""
CONNECT_SECONDS: Final = 10


class PostgresJournal(SqlJournal):
    """The journal in PostgreSQL; not through a pooler, for the lock belongs to a session."""

    begin = "BEGIN"

    def __init__(self, url: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self._url = url
        self._lease = lease_seconds
        self.heartbeat_seconds = lease_seconds / 5
        self._driver = _driver()
        self._connection: psycopg.Connection[Any] | None = None

    def hold(self) -> bool:
        if self._connection is None:
            self._connect()
        self._held = bool(self._rows("SELECT pg_try_advisory_lock(?::bigint)", LOCK)[0][0])
        if self._held:
            self._migrate()
        return self._held

    def check(self) -> None:
        self._run("SELECT 1")

    def close(self) -> None:
        self._held = False
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> None:
        try:
            self._connection = self._driver.connect(self._url, autocommit=True, **_impatient(self._lease))
        except self._driver.Error as problem:
            raise _unusable(problem) from None
        if self._connection.info.server_version < OLDEST:
            raise JournalError("The journal's PostgreSQL is older than version 14.", "Use a newer one.")
        silence = f"{max(1, round(1000 * self._lease))}ms"
        for setting in ("idle_session_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout"):
            self._run(f"SET {setting} = '{silence}'")
        self._run("SET synchronous_commit = on")
        for setting in ("fsync", "synchronous_commit"):
            if self._rows(f"SHOW {setting}")[0][0] != "on":
                raise JournalError(f"The journal's PostgreSQL has {setting} off.", "Turn it on: nothing is safe else.")

    def _run(self, statement: str, *values: Any) -> Cursor:  # noqa: ANN401  # what SQL takes
        if self._connection is None:
            raise not_held()
        try:
            return self._connection.execute(statement.replace("?", "%b").encode(), values or None, binary=True)
        except self._driver.Error as problem:
            raise _unusable(problem) from None

    def _version(self) -> int:
        query = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()"
        tables = {name for (name,) in self._rows(query)}
        if "journal" in tables:
            return int(self._rows("SELECT version FROM journal")[0][0])
        if tables:
            raise JournalError("The journal's database holds other tables.", "Give the journal one of its own.")
        return 0

    def _upgrade(self, version: int, migrations: Migrations) -> None:
        for statement in (statement for step in migrations[version:] for statement in step):
            self._run(statement)
        self._run("CREATE TABLE IF NOT EXISTS journal (version INTEGER NOT NULL)")
        self._run("DELETE FROM journal")
        self._run("INSERT INTO journal VALUES (?)", len(migrations))
        for table in ("sums", "models"):  # noise does not compress; to try costs more than to write
            self._run(f"ALTER TABLE {table} ALTER COLUMN content SET STORAGE EXTERNAL")


def _impatient(seconds: float) -> dict[str, int]:
    """Have a server that is cut off noticed within the time after which it gives the journal to another."""
    whole = max(1, round(seconds))
    return {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": 1000 * whole,
        "keepalives_idle": max(1, whole // 4),
        "keepalives_interval": max(1, whole // 4),
        "keepalives_count": 3,
    }


def _driver() -> Any:  # noqa: ANN401  # a module that may not be there
    try:
        import psycopg  # noqa: PLC0415  # the package of an extra
    except ImportError:
        raise MissingExtraError(
            "A journal in PostgreSQL needs psycopg, which is not installed.",
            "Install it with: pip install 'psycopg[binary]'",
        ) from None
    return psycopg


def _unusable(problem: Exception) -> JournalError:
    said = str(problem).strip().splitlines() or [type(problem).__name__]
    return JournalError(
        f"The journal's PostgreSQL cannot be used: {said[0].rstrip('.')}.",
        "See that it runs and that nobody else took the journal over; then start the coordinator anew.",
    )
