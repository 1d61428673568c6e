"""Reading a coordinator's journal while the coordinator uses it. Nothing is locked and nothing is written."""

from pathlib import Path
from typing import Final

from dpspca.common.storage import DatabaseUrl, sqlite_file
from dpspca.server.job_states import JobRecord

from .contract import JournalError
from .postgres import PostgresReader
from .sqlite import SqliteReader

_MISSING: Final = "The coordinator makes it at its first start. Check `journal` in its settings."


def read_jobs(location: Path | DatabaseUrl) -> tuple[list[JobRecord], dict[str, bytes]]:
    """Return all jobs, oldest first, and the last receipt of each provider, as they are recorded now."""
    if isinstance(location, DatabaseUrl):
        journal: SqliteReader | PostgresReader = PostgresReader(location)
    else:
        if not location.exists():
            raise JournalError(f"There is no journal at {location}.", _MISSING)
        try:
            journal = SqliteReader(location, sqlite_file.connect(location, "ro"))
        except sqlite_file.ERRORS as problem:
            raise JournalError(f"The journal {location} cannot be read: {problem}.", "Check its permissions.") from None
    try:
        return journal.records(), journal.receipts()
    finally:
        journal.close()
