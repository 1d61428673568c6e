"""A party's disk in a universe: files of SQLite's, of which a power cut leaves what was synced and some of the rest.

The ledger, its head file and the journal are the real ones, over the recording disk of ``disks.py``. At any step of
any write the seed may have the power fail or the process die, and the disk refuse: full, or broken, once or for a
while. What was written before a sync that failed may be lost for good, however well later syncs go.
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
from disks import Connection, Disk, RecordedHeadFile, Shim, Step, keep_none, keep_some
from lives import Life
from weather import Weather

from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.server.journal.sqlite import SqliteJournal

LEDGER, HEAD, JOURNAL = "ledger.sqlite", "head", "journal.db"
SETTINGS: Final = ("page_size = 16384", "wal_autocheckpoint = 8")
"""Pages so large that no table fills one: how many writes there are depends on no key, signature or hash, which are
others in every run. A log that is written back often."""
LONGEST_TROUBLE: Final = 20.0
"""Seconds for which a disk refuses."""

_names = map("universe {}".format, count())


@dataclass(frozen=True, slots=True)
class Accidents:
    """What decides about a disk, and who is told of what it decided."""

    weather: Weather
    chance: Random
    tell: Callable[[str], None]

    def happens(self, likelihood: float, what: str) -> bool:
        found = self.chance.random() < likelihood
        if found:
            self.tell(what)
        return found


class Drive(Disk):
    """A disk while one process uses it."""

    def __init__(self, accidents: Accidents, life: Life, *, lies: bool) -> None:
        super().__init__()
        self._accidents = accidents
        self._life = life
        self._lies = lies
        self._until = 0.0
        self._problem = 0
        self.off = False
        """From here on nothing gets to the disk, whatever a process that has ended still does."""

    def take(self, step: Step) -> None:
        if self.off:
            return
        self._live()
        self._serve(step)
        if step.kind != "sync" or not self._lies:
            self.steps.append(step)

    def _live(self) -> None:
        """Go on, or die in the midst of a write."""
        if self._life.is_over or self._accidents.happens(self._accidents.weather.dark, "death"):
            self.off = True
            self._life.strike()

    def _serve(self, step: Step) -> None:
        """Do as asked, or refuse."""
        chance, now = self._accidents.chance, asyncio.get_running_loop().time()
        if self._problem and now > self._until:
            self._problem = 0
        if not self._problem and self._accidents.happens(self._accidents.weather.fault, "fault"):
            self._problem = chance.choice([errno.EIO, errno.ENOSPC])
            self._until = now + chance.choice([0.0, chance.uniform(0, LONGEST_TROUBLE)])
        if not self._problem or (self._problem == errno.ENOSPC and step.kind != "write"):
            return
        problem, self._problem = self._problem, self._problem if self._until > now else 0
        if step.kind == "sync":
            self._lose(step.name)
        if step.name == HEAD:
            raise OSError(problem, "refused")
        raise apsw.FullError("refused") if problem == errno.ENOSPC else apsw.IOError("refused")

    def _lose(self, name: str) -> None:
        """Forget some of what was to be synced: the system will not try again, and says so this once."""
        last = max((at for at, step in enumerate(self.steps) if (step.kind, step.name) == ("sync", name)), default=-1)
        survives = keep_some(self._accidents.chance.getrandbits(32))
        waiting = [step for step in self.steps[last + 1 :] if (step.kind, step.name) != ("write", name) or survives()]
        self.steps[last + 1 :] = waiting

    def cut(self, *, last: bool) -> dict[str, bytes]:
        """End its use, and give what is on the disk then; at the very last, what was synced and nothing else."""
        self.off = True
        is_cut = last or self._accidents.happens(0.5, "power cut")
        if not is_cut:
            self.steps += [Step("sync", name) for name in {step.name: None for step in self.steps}]
        some = not last and self._accidents.chance.choice([True, False])
        keep = keep_some(self._accidents.chance.getrandbits(32)) if some else keep_none
        return self.left(len(self.steps), keep)


class Home:
    """Where the state of a party lies while its processes come and go."""

    def __init__(self, folder: Path, accidents: Accidents, *, lies: bool = False) -> None:
        self._folder = folder
        self._accidents = accidents
        self._lies = lies
        self._files: dict[str, bytes] = {}
        self._numbers = count()
        self.is_last = False
        """Whether the end of the process that runs is that of the universe."""

    @contextmanager
    def ledger(self, life: Life, clock: Callable[[], float]) -> Iterator[SqliteLedger]:
        """Start a ledger on what there is."""
        with self._used(life) as (folder, drive, connect):
            ledger = SqliteLedger(
                folder / LEDGER,
                folder / HEAD,
                clock=clock,
                connect=connect,
                open_head_store=lambda path: RecordedHeadFile(path, drive),
            )
            try:
                yield ledger
            finally:
                drive.off = True
                ledger.shut()

    @contextmanager
    def journal(self, life: Life) -> Iterator[SqliteJournal]:
        """Use a journal, which its process has to hold first."""
        with self._used(life) as (folder, drive, connect):
            journal = SqliteJournal(folder / JOURNAL, connect)
            try:
                yield journal
            finally:
                drive.off = True
                journal.close()

    @contextmanager
    def laid(self) -> Iterator[Path]:
        """Lay what there is into a folder, to be looked at."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir(mode=0o700, parents=True)
        for name, content in self._files.items():
            (folder / name).touch(0o600)
            (folder / name).write_bytes(content)
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    @contextmanager
    def _used(self, life: Life) -> Iterator[tuple[Path, Drive, Callable[[Path], Any]]]:
        drive = Drive(self._accidents, life, lies=self._lies)
        drive.holding(self._files)
        shim = Shim(next(_names), drive)
        with self.laid() as folder:
            try:
                yield folder, drive, partial(Connection, shim=shim, settings=SETTINGS)
            finally:
                self._files = drive.cut(last=self.is_last)
                shim.unregister()
