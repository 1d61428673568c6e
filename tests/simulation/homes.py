"""What is left of every party when its process has gone: in memory, or on a disk.

``Inheritance`` is what a universe's laws are held against: everything in it was read by software that knows nothing of
the processes that wrote it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Protocol

from drives import HEAD, JOURNAL, LEDGER, Home
from lives import Life

from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.provider.ledger.entries import Entry
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.rules import Books
from dpspca.provider.ledger.sqlite import SqliteLedger, verify
from dpspca.server.job import JobRecord
from dpspca.server.journal.contract import Journal
from dpspca.server.journal.sqlite import SqliteJournal, TemporaryJournal


@dataclass
class LeftLedger:
    """A ledger after the end of its universe."""

    entries: list[Entry]
    problems: list[str] = field(default_factory=list)
    """What is wrong with it."""

    def __post_init__(self) -> None:
        self.books = Books.replay(self.entries)


@dataclass
class LeftJournal:
    """A journal after the end of its universe."""

    jobs: Mapping[str, JobRecord]
    models: Mapping[str, bytes]
    problems: list[str] = field(default_factory=list)
    """What is wrong with it."""

    @classmethod
    def read(cls, journal: Journal) -> "LeftJournal":
        jobs = {each.job.name: each.job for each in journal.jobs()}
        models = {name: b"".join(takewhile(bool, (journal.model(name, piece) for piece in count()))) for name in jobs}
        return cls(jobs, models)


class LedgerHome(Protocol):
    """Where a ledger outlasts processes."""

    def used(self, life: Life, clock: Callable[[], float]) -> AbstractContextManager[Any]: ...
    def left(self) -> LeftLedger: ...


class JournalHome(Protocol):
    """Where a journal outlasts processes."""

    def used(self, life: Life) -> AbstractContextManager[Any]: ...
    def left(self) -> LeftJournal: ...


class LedgerInMemory(MemoryLedger):
    """A ledger that nothing happens to. It has ``answers`` of jobs that are over too, which a ledger drops."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.answers: dict[tuple[str, int], Integers] = {}

    def store(self, job: str, position: int, answer: Integers) -> None:
        super().store(job, position, answer)
        self.answers[job, position] = answer

    def used(self, life: Life, clock: Callable[[], float]) -> AbstractContextManager[MemoryLedger]:
        return nullcontext(self)

    def left(self) -> LeftLedger:
        return LeftLedger(self.entries)


class JournalInMemory(TemporaryJournal):
    """A journal that nothing happens to."""

    def used(self, life: Life) -> AbstractContextManager[TemporaryJournal]:
        return nullcontext(self)

    def left(self) -> LeftJournal:
        return LeftJournal.read(self)


class LedgerOnDisk:
    """A ledger in a file, with its head file."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def used(self, life: Life, clock: Callable[[], float]) -> AbstractContextManager[SqliteLedger]:
        return self._home.ledger(life, clock)

    def left(self) -> LeftLedger:
        with self._home.laid() as folder:
            try:
                with SqliteLedger(folder / LEDGER, folder / HEAD, clock=lambda: 0.0) as ledger:
                    entries = list(ledger._database.entries())
            except DpspcaError as problem:
                return LeftLedger([], [str(problem)])
            return LeftLedger(entries, verify(folder / LEDGER, folder / HEAD))


class JournalOnDisk:
    """A journal in a file."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def used(self, life: Life) -> AbstractContextManager[SqliteJournal]:
        return self._home.journal(life)

    def left(self) -> LeftJournal:
        with self._home.laid() as folder:
            try:
                with _held(SqliteJournal(folder / JOURNAL)) as journal:
                    return LeftJournal.read(journal)
            except DpspcaError as problem:
                return LeftJournal({}, {}, [str(problem)])


@contextmanager
def _held(journal: SqliteJournal) -> Iterator[SqliteJournal]:
    try:
        assert journal.hold()
        yield journal
    finally:
        journal.close()


@dataclass
class Inheritance:
    """All that is left."""

    ledgers: Mapping[str, LeftLedger]
    journal: LeftJournal

    @classmethod
    def of(cls, ledgers: Iterable[tuple[str, LedgerHome]], journal: JournalHome) -> "Inheritance":
        return cls({name: home.left() for name, home in ledgers}, journal.left())
