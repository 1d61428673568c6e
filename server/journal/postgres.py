"""The journal in its own PostgreSQL database, which a standby on another machine can take over.

Its holder has an advisory lock on the same connection that writes: a holder that loses the lock has lost the connection
and cannot write. The server ends the session of a holder that is silent for too long, because it stopped or is cut off,
so that it does not block a standby forever.
"""

from typing import TYPE_CHECKING, Any, Final

from dpspca.common.errors import MissingExtraError

from .contract import JournalError
from .sql import Cursor, Migrations, SqlJournal, not_held_error

if TYPE_CHECKING:
    import psycopg

LOCK: Final = int.from_bytes(b"dpspca j")
LEASE_SECONDS: Final = 30.0
"""Silence after which a holder loses the journal."""
MINIMUM_VERSION: Final = 14_00_00
"""The first version of PostgreSQL that ends idle sessions."""
CONNECT_SECONDS: Final = 10


class PostgresJournal(SqlJournal):
    """The journal in PostgreSQL. It cannot use a pooler, because the lock belongs to a session."""

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
            self._connection = self._driver.connect(self._url, autocommit=True, **_timeouts(self._lease))
        except self._driver.Error as problem:
            raise _unusable_error(problem) from None
        version = self._connection.info.server_version
        if version < MINIMUM_VERSION:
            raise JournalError(
                f"The journal's PostgreSQL has version {version // 10_000}.", "Use version 14 or a newer one."
            )
        timeout = f"{max(1, round(1000 * self._lease))}ms"
        for setting in ("idle_session_timeout", "idle_in_transaction_session_timeout", "tcp_user_timeout"):
            self._run(f"SET {setting} = '{timeout}'")
        self._run("SET synchronous_commit = on")
        for setting in ("fsync", "synchronous_commit"):
            if self._rows(f"SHOW {setting}")[0][0] != "on":
                raise JournalError(
                    f"The journal's PostgreSQL has {setting} off.", "Turn it on: without it, a crash can lose jobs."
                )

    def _run(self, statement: str, *values: Any) -> Cursor:  # noqa: ANN401  # what SQL takes
        if self._connection is None:
            raise not_held_error()
        try:
            return self._connection.execute(statement.replace("?", "%b").encode(), values or None, binary=True)
        except self._driver.Error as problem:
            raise _unusable_error(problem) from None

    def _version(self) -> int:
        query = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()"
        tables = {name for (name,) in self._rows(query)}
        if "journal" in tables:
            return int(self._rows("SELECT version FROM journal")[0][0])
        if tables:
            raise JournalError(
                f"The journal's database holds other tables: {', '.join(sorted(tables)[:5])}.",
                "Use a separate database for the journal.",
            )
        return 0

    def _upgrade(self, version: int, migrations: Migrations) -> None:
        for statement in (statement for step in migrations[version:] for statement in step):
            self._run(statement)
        self._run("CREATE TABLE IF NOT EXISTS journal (version INTEGER NOT NULL)")
        self._run("DELETE FROM journal")
        self._run("INSERT INTO journal VALUES (?)", len(migrations))
        for table in ("sums", "models"):  # noise does not compress
            self._run(f"ALTER TABLE {table} ALTER COLUMN content SET STORAGE EXTERNAL")


def _timeouts(seconds: float) -> dict[str, int]:
    """Return settings with which a lost server is noticed before it gives the journal to another coordinator."""
    whole = max(1, round(seconds))
    return {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": 1000 * whole,
        "keepalives_idle": max(1, whole // 4),
        "keepalives_interval": max(1, whole // 4),
        "keepalives_count": 3,
    }


def _driver() -> Any:  # noqa: ANN401  # an optional module
    try:
        import psycopg  # noqa: PLC0415  # an optional dependency
    except ImportError:
        raise MissingExtraError(
            "A journal in PostgreSQL needs psycopg, which is not installed.",
            "Install it with: pip install 'psycopg[binary]'",
        ) from None
    return psycopg


def _unusable_error(problem: Exception) -> JournalError:
    lines = str(problem).strip().splitlines() or [type(problem).__name__]
    return JournalError(
        f"The journal's PostgreSQL cannot be used: {lines[0].rstrip('.')}.",
        "Check that it runs and that no other coordinator took over the journal. Then restart the coordinator.",
    )


class PostgresReader(PostgresJournal):
    """The journal in PostgreSQL, connected to be read beside its holder."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._connect()
