"""The state of each party that outlasts its processes: in memory, or on a disk.

The invariants are checked against ``FinalState``, which is read by new processes after the run has ended.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Protocol

from crashing_processes import CrashingProcess
from faulty_disks import HEAD, JOURNAL, LEDGER, PartyDisk

from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.provider.ledger.entries import Entry
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.rules import LedgerState
from dpspca.provider.ledger.sqlite import SqliteLedger, verify
from dpspca.server.job_states import JobRecord
from dpspca.server.journal.contract import Journal
from dpspca.server.journal.sqlite import SqliteJournal, TemporaryJournal


@dataclass
class FinalLedger:
    """A ledger after the end of a run."""

    entries: list[Entry]
    problems: list[str] = field(default_factory=list)
    """Errors found in it."""

    def __post_init__(self) -> None:
        self.state = LedgerState.replay(self.entries)


@dataclass
class FinalJournal:
    """A journal after the end of a run."""

    jobs: Mapping[str, JobRecord]
    models: Mapping[str, bytes]
    problems: list[str] = field(default_factory=list)
    """Errors found in it."""

    @classmethod
    def read(cls, journal: Journal) -> "FinalJournal":
        jobs = {each.job.name: each.job for each in journal.jobs()}
        models = {name: b"".join(takewhile(bool, (journal.model(name, piece) for piece in count()))) for name in jobs}
        return cls(jobs, models)


class LedgerStore(Protocol):
    """Keeps a ledger between processes."""

    def opened(self, process: CrashingProcess, clock: Callable[[], float]) -> AbstractContextManager[Any]: ...
    def left(self) -> FinalLedger: ...


class JournalStore(Protocol):
    """Keeps a journal between processes."""

    def opened(self, process: CrashingProcess) -> AbstractContextManager[Any]: ...
    def left(self) -> FinalJournal: ...


class LedgerInMemory(MemoryLedger):
    """A ledger without faults. It keeps the ``answers`` of finished jobs, which a real ledger drops."""

    def __init__(self) -> None:
        super().__init__(lambda: 0.0)
        self.answers: dict[tuple[str, int], Integers] = {}

    def store(self, job: str, position: int, answer: Integers) -> None:
        super().store(job, position, answer)
        self.answers[job, position] = answer

    def opened(self, process: CrashingProcess, clock: Callable[[], float]) -> AbstractContextManager[MemoryLedger]:
        return nullcontext(self)

    def left(self) -> FinalLedger:
        return FinalLedger(self.entries)


class JournalInMemory(TemporaryJournal):
    """A journal without faults."""

    def opened(self, process: CrashingProcess) -> AbstractContextManager[TemporaryJournal]:
        return nullcontext(self)

    def left(self) -> FinalJournal:
        return FinalJournal.read(self)


class LedgerOnDisk:
    """A ledger in a file, with its head file."""

    def __init__(self, party_disk: PartyDisk) -> None:
        self._disk = party_disk

    def opened(self, process: CrashingProcess, clock: Callable[[], float]) -> AbstractContextManager[SqliteLedger]:
        return self._disk.ledger(process, clock)

    def left(self) -> FinalLedger:
        with self._disk.copied_files() as folder:
            try:
                with SqliteLedger(folder / LEDGER, folder / HEAD, clock=lambda: 0.0) as ledger:
                    entries = list(ledger._database.entries())
            except DpspcaError as problem:
                return FinalLedger([], [str(problem)])
            return FinalLedger(entries, verify(folder / LEDGER, folder / HEAD))


class JournalOnDisk:
    """A journal in a file."""

    def __init__(self, party_disk: PartyDisk) -> None:
        self._disk = party_disk

    def opened(self, process: CrashingProcess) -> AbstractContextManager[SqliteJournal]:
        return self._disk.journal(process)

    def left(self) -> FinalJournal:
        with self._disk.copied_files() as folder:
            try:
                with _held(SqliteJournal(folder / JOURNAL)) as journal:
                    return FinalJournal.read(journal)
            except DpspcaError as problem:
                return FinalJournal({}, {}, [str(problem)])


@contextmanager
def _held(journal: SqliteJournal) -> Iterator[SqliteJournal]:
    try:
        assert journal.hold()
        yield journal
    finally:
        journal.close()


@dataclass
class FinalState:
    """All that is left."""

    ledgers: Mapping[str, FinalLedger]
    journal: FinalJournal

    @classmethod
    def of(cls, ledgers: Iterable[tuple[str, LedgerStore]], journal: JournalStore) -> "FinalState":
        return cls({name: store.left() for name, store in ledgers}, journal.left())
