"""The disk of a simulated party: a power cut keeps what was synced and some of what was not.

The ledger, its head file and the journal are the real ones, over the recording disk of ``disks.py``. At any step of any
write, the power may fail, the process may crash, or the disk may refuse because it is full or broken, once or for a
while. The seed decides. What was written before a failed sync may be lost, even if later syncs succeed.
"""

import asyncio
import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import apsw
from crashing_processes import CrashingProcess
from disks import Connection, Disk, RecordedHeadFile, Shim, Step, keep_none, keep_some
from fault_rates import FaultRates

from dpspca.provider.ledger.files import row_key_path
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.server.journal.sqlite import SqliteJournal

LEDGER, HEAD, JOURNAL = "ledger.sqlite", "head", "journal.db"
SETTINGS: Final = ("page_size = 16384", "wal_autocheckpoint = 8")
"""Pages are so large that each table fits into one. So the number of writes does not depend on keys, signatures or
hashes, which differ between runs. The log is written back often."""
LONGEST_FAULT: Final = 20.0
"""Longest time for which a disk refuses, in seconds."""

_names = map("universe {}".format, count())


@dataclass(frozen=True, slots=True)
class FaultSource:
    """Decides at random about faults of a disk, and reports them."""

    rates: FaultRates
    chance: Random
    record_fault: Callable[[str], None]

    def happens(self, likelihood: float, what: str) -> bool:
        found = self.chance.random() < likelihood
        if found:
            self.record_fault(what)
        return found


class FaultyDisk(Disk):
    """A disk while one process uses it."""

    def __init__(self, faults: FaultSource, process: CrashingProcess, *, syncs_nothing: bool) -> None:
        super().__init__()
        self._faults = faults
        self._process = process
        self._syncs_nothing = syncs_nothing
        self._until = 0.0
        self._problem = 0
        self.off = False
        """Whether the disk ignores all writes, because its process has ended."""

    def take(self, step: Step) -> None:
        if self.off:
            return
        self._crash_sometimes()
        self._serve(step)
        if step.kind != "sync" or not self._syncs_nothing:
            self.steps.append(step)

    def _crash_sometimes(self) -> None:
        """Sometimes crash in the middle of a write."""
        if self._process.has_ended or self._faults.happens(self._faults.rates.dark, "death"):
            self.off = True
            self._process.crash()

    def _serve(self, step: Step) -> None:
        """Accept a step, or refuse it."""
        chance, now = self._faults.chance, asyncio.get_running_loop().time()
        if self._problem and now > self._until:
            self._problem = 0
        if not self._problem and self._faults.happens(self._faults.rates.fault, "fault"):
            self._problem = chance.choice([errno.EIO, errno.ENOSPC])
            self._until = now + chance.choice([0.0, chance.uniform(0, LONGEST_FAULT)])
        if not self._problem or (self._problem == errno.ENOSPC and step.kind != "write"):
            return
        problem, self._problem = self._problem, self._problem if self._until > now else 0
        if step.kind == "sync":
            self._lose(step.name)
        if step.name == HEAD:
            raise OSError(problem, "refused")
        raise apsw.FullError("refused") if problem == errno.ENOSPC else apsw.IOError("refused")

    def _lose(self, name: str) -> None:
        """Lose some of the unsynced writes. The system reports a failed sync once and does not retry it."""
        last = max((at for at, step in enumerate(self.steps) if (step.kind, step.name) == ("sync", name)), default=-1)
        survives = keep_some(self._faults.chance.getrandbits(32))
        waiting = [step for step in self.steps[last + 1 :] if (step.kind, step.name) != ("write", name) or survives()]
        self.steps[last + 1 :] = waiting

    def cut(self, *, last: bool) -> dict[str, bytes]:
        """Return what is on the disk when its process ends. At the end of the run, that is only what was synced."""
        self.off = True
        is_cut = last or self._faults.happens(0.5, "power cut")
        if not is_cut:
            self.steps += [Step("sync", name) for name in {step.name: None for step in self.steps}]
        some = not last and self._faults.chance.choice([True, False])
        keep = keep_some(self._faults.chance.getrandbits(32)) if some else keep_none
        return self.left(len(self.steps), keep)


class PartyDisk:
    """The files of a party, which outlast its processes."""

    def __init__(self, folder: Path, faults: FaultSource, *, syncs_nothing: bool = False) -> None:
        self._folder = folder
        self._faults = faults
        self._syncs_nothing = syncs_nothing
        self._files: dict[str, bytes] = {}
        self._numbers = count()
        self.is_last = False
        """Whether the current process is the last one of the run."""

    @contextmanager
    def ledger(self, process: CrashingProcess, clock: Callable[[], float]) -> Iterator[SqliteLedger]:
        """Open the ledger on the party's files."""
        with self._used(process) as (folder, disk, connect):
            ledger = SqliteLedger(
                folder / LEDGER,
                folder / HEAD,
                clock=clock,
                connect=connect,
                open_head_store=lambda path: RecordedHeadFile(path, disk),
            )
            try:
                yield ledger
            finally:
                disk.off = True
                ledger.shut()

    @contextmanager
    def journal(self, process: CrashingProcess) -> Iterator[SqliteJournal]:
        """Open the journal on the party's files. Its process must acquire it first."""
        with self._used(process) as (folder, disk, connect):
            journal = SqliteJournal(folder / JOURNAL, connect)
            try:
                yield journal
            finally:
                disk.off = True
                journal.close()

    @contextmanager
    def copied_files(self) -> Iterator[Path]:
        """Copy the party's files into a folder, to read them."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(mode=0o700, parents=True)
        for name, content in self._files.items():
            (folder / name).touch(0o600)
            (folder / name).write_bytes(content)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    @staticmethod
    def _key_of(folder: Path) -> dict[str, bytes]:
        """Return the key of the ledger if it was made. It is synced before the ledger relies on it."""
        path = row_key_path(folder / LEDGER)
        return {path.name: path.read_bytes()} if path.exists() else {}

    @contextmanager
    def _used(self, process: CrashingProcess) -> Iterator[tuple[Path, FaultyDisk, Callable[[Path], Any]]]:
        disk = FaultyDisk(self._faults, process, syncs_nothing=self._syncs_nothing)
        disk.holding(self._files)
        shim = Shim(next(_names), disk)
        with self.copied_files() as folder:
            try:
                yield folder, disk, partial(Connection, shim=shim, settings=SETTINGS)
            finally:
                self._files = disk.cut(last=self.is_last) | self._key_of(folder)
                shim.unregister()
