"""A simulated disk for SQLite that records every write, truncation, deletion and sync.

From the record follows what a power cut leaves at each point: what was not synced yet is kept, lost, or kept in part,
sector by sector and in any order. The disk can also refuse a step while the process goes on.
"""

import os
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import apsw

from dpspca.provider.ledger.files import HeadFile

SECTOR = 512

Kind: TypeAlias = Literal["create", "write", "truncate", "delete", "sync", "note"]


@dataclass(frozen=True)
class Step:
    """A change of a file; or a note of what the program had done by then."""

    kind: Kind
    name: str = ""
    offset: int = 0
    content: bytes = b""
    note: Any = None


@dataclass
class Disk:
    """The record of all steps. ``refuse`` is called with the number of each step before it happens, and may raise."""

    steps: list[Step] = field(default_factory=list)
    refuse: Callable[[int, Step], None] = lambda _number, _step: None
    tried: int = 0

    def take(self, step: Step) -> None:
        self.tried += 1
        self.refuse(self.tried, step)
        self.steps.append(step)

    def note(self, note: Any) -> None:
        self.steps.append(Step("note", note=note))

    def holding(self, files: Mapping[str, bytes]) -> "Disk":
        """Return this disk with files on it from the start."""
        for name, content in files.items():
            self.steps += [Step("write", name, 0, content), Step("sync", name)]
        return self

    def notes(self, point: int) -> list[Any]:
        """Return what the program had done before a point."""
        return [step.note for step in self.steps[:point] if step.kind == "note"]

    def points(self) -> Iterator[int]:
        """Yield all points at which the power can fail: before each step, and after the last."""
        yield from (point for point, step in enumerate(self.steps) if step.kind != "note")
        yield len(self.steps)

    def left(self, point: int, keep: Callable[[], bool]) -> dict[str, bytes]:
        """Return the files that a power cut leaves. ``keep`` decides for each sector that was not synced."""
        files: dict[str, _File] = {}
        for step in self.steps[:point]:
            if step.kind != "note":
                files.setdefault(step.name, _File()).take(step)
        remains = {name: file.after_cut(keep) for name, file in files.items()}
        return {name: content for name, content in remains.items() if content is not None}


@dataclass
class _File:
    safe: bytearray | None = None
    waiting: list[Step] = field(default_factory=list)

    def take(self, step: Step) -> None:
        if step.kind == "sync":
            self.safe = self.apply(self.safe, self.waiting)
            self.waiting = []
        else:
            self.waiting.append(step)

    def after_cut(self, keep: Callable[[], bool]) -> bytes | None:
        survived = [part for step in self.waiting for part in _sectors(step) if keep()]
        found = self.apply(None if self.safe is None else bytearray(self.safe), survived)
        return None if found is None else bytes(found)

    @staticmethod
    def apply(content: bytearray | None, steps: Sequence[Step]) -> bytearray | None:
        for step in steps:
            if step.kind == "delete":
                content = None
                continue
            content = bytearray() if content is None else content
            if step.kind == "truncate":
                content = (content + bytes(max(0, step.offset - len(content))))[: step.offset]
            elif step.kind == "write":
                content.extend(bytes(max(0, step.offset - len(content))))
                content[step.offset : step.offset + len(step.content)] = step.content
        return content


def _sectors(step: Step) -> Iterator[Step]:
    """Split a write at sector boundaries, as a disk may."""
    if step.kind != "write":
        yield step
        return
    at = 0
    while at < len(step.content):
        size = SECTOR - (step.offset + at) % SECTOR
        yield Step("write", step.name, step.offset + at, step.content[at : at + size])
        at += size


def keep_all() -> bool:
    """Keep everything, as after a kill: the operating system has all that was written."""
    return True


def keep_none() -> bool:
    """Keep nothing, as after a power cut with everything still in memory."""
    return False


def keep_some(seed: object) -> Callable[[], bool]:
    """Keep random sectors, as after a power cut during write-back."""
    draw = random.Random(repr(seed))
    share = draw.choice([0.1, 0.5, 0.9])
    return lambda: draw.random() < share


# --- SQLite over such a disk ------------------------------------------------------------------------------------------


class Shim(apsw.VFS):
    """A SQLite VFS that records changes of files."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.name, self.disk = name, disk
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> "ShimFile":  # noqa: N802  # SQLite's name
        return ShimFile(self.disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802  # SQLite's name
        self.disk.take(Step("delete", Path(filename).name))
        super().xDelete(filename, syncdir)
        if syncdir:
            self.disk.take(Step("sync", Path(filename).name))


class ShimFile(apsw.VFSFile):
    """A file whose every change is recorded before it is made."""

    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        self.disk = disk
        self.short = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "temporary").name
        super().__init__("", name, flags)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802  # SQLite's name
        self.disk.take(Step("write", self.short, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802  # SQLite's name
        self.disk.take(Step("truncate", self.short, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802  # SQLite's name
        self.disk.take(Step("sync", self.short))
        super().xSync(flags)


class RecordedHeadFile(HeadFile):
    """The head file, on the same disk."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.disk, self.short = disk, path.name
        super().__init__(path)

    def _put(self, content: bytes, offset: int) -> None:
        self.disk.take(Step("write", self.short, offset, content))
        os.pwrite(self._descriptor, content, offset)
        self.disk.take(Step("sync", self.short))


class Rows(list[tuple[Any, ...]]):
    """The result of a statement, and the number of rows it changed."""

    rowcount = 0

    def fetchall(self) -> "Rows":
        return self


class Connection:
    """A connection through a shim that raises the errors of ``sqlite3``. Its settings must not be changed."""

    def __init__(self, path: Path, shim: Shim, settings: Sequence[str] = ()) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._connection = apsw.Connection(str(path), flags, vfs=shim.name)
        self._settled: tuple[str, ...] = ()
        for setting in settings:
            self.execute(f"PRAGMA {setting}")
        self._settled = tuple(f"PRAGMA {setting.partition('=')[0]}=" for setting in settings)

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Rows:
        if sql.startswith(self._settled):
            return Rows()
        try:
            found = Rows(self._connection.execute(sql, parameters))
        except apsw.Error as problem:
            raise sqlite3.OperationalError(str(problem)) from problem
        found.rowcount = self._connection.changes()
        return found

    def close(self) -> None:
        try:
            self._connection.close()
        except apsw.Error as problem:
            raise sqlite3.OperationalError(str(problem)) from problem
