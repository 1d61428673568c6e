"""The coordinator's durable record of jobs and of sums of answers."""

from .contract import Journal, JournalError, RecordedJob, StoppingError, Sum, damaged_error
from .journal_thread import JournalThread
from .postgres import PostgresJournal
from .reader import read_jobs
from .sqlite import SqliteJournal, TemporaryJournal

__all__ = [
    "Journal",
    "JournalError",
    "JournalThread",
    "PostgresJournal",
    "RecordedJob",
    "SqliteJournal",
    "StoppingError",
    "Sum",
    "TemporaryJournal",
    "damaged_error",
    "read_jobs",
]
