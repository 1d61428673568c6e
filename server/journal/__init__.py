"""What the coordinator must not forget."""

from .contract import Journal, JournalError, Recorded, Sum, damaged
from .keeper import Keeper
from .postgres import PostgresJournal
from .sqlite import PassingJournal, SqliteJournal

__all__ = [
    "Journal",
    "JournalError",
    "Keeper",
    "PassingJournal",
    "PostgresJournal",
    "Recorded",
    "SqliteJournal",
    "Sum",
    "damaged",
]
