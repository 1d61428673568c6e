"""Reads a query of PostgreSQL as batches of Arrow through ADBC, which converts a binary COPY without Python objects.

It takes the same connection string as psycopg, because both hand it to libpq. The session can only read.
"""

from collections.abc import Iterator
from typing import Any, Final

from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.files import TemporarilyUnreadableError
from dpspca.provider.data.tables import import_extra

_OF_LOST: Final = ("FATAL: ", "connection", "receive data")
"""Libpq's messages when a session ends."""
TIMEOUT: Final = "57014"
"""The SQLSTATE of a statement that was cancelled."""
_OF_TIMEOUT: Final = "statement timeout"
_READ_ONLY: Final = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
_BATCH_BYTES: Final = "adbc.postgresql.batch_size_hint_bytes", str(2**25)


def arrow_batches(conninfo: str, statement: str) -> Iterator[Any]:
    """Run a query that psycopg found to be sound, and yield what it gives. An error quotes nothing of the server's."""
    import_extra("pyarrow")
    driver = import_extra("adbc_driver_postgresql.dbapi")
    try:
        with driver.connect(conninfo) as connection, connection.cursor() as cursor:
            cursor.execute(_READ_ONLY)
            connection.commit()  # it holds from the next transaction on
            cursor.adbc_statement.set_options(**dict([_BATCH_BYTES]))
            cursor.execute(statement)
            yield from cursor.fetch_record_batch()
    except (driver.Error, OSError, ValueError) as problem:  # while rows come, Arrow's own errors, without SQLSTATE
        state = getattr(problem, "sqlstate", None) or ""
        if state == TIMEOUT or _OF_TIMEOUT in str(problem):
            raise took_too_long() from None
        if is_lost(state) if state else any(word in str(problem) for word in _OF_LOST):
            raise lost() from None
        raise InvalidDataError("The query failed while rows were read.", "Run it with psql, which shows why.") from None


def is_lost(state: str) -> bool:
    """Tell whether an error's SQLSTATE, or its lack, says that the database went away."""
    return not state or state.startswith(("08", "57"))


def took_too_long() -> TemporarilyUnreadableError:
    """Say that the database cancelled a query, as its settings demand, or as an administrator wished."""
    return TemporarilyUnreadableError(
        "The database cancelled the query: it took longer than statement_timeout allows, or somebody cancelled it.",
        "Allow more for this user, or add options='-c statement_timeout=0' to the connection string.",
    )


def lost() -> TemporarilyUnreadableError:
    """Say that the database went away."""
    return TemporarilyUnreadableError(
        "The connection to the database was lost while rows were read.", "Start again when the database runs."
    )
