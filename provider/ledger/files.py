"""The two small files beside a ledger: the hold that keeps it to one writer, and the head file, which has its head.

The head file has two places, written in turn and synced each time: a crash can spoil the place being written and leaves
the other. It holds no secret and needs no backup; it is there because backups of the ledger exist. Keep it on another
volume, where restoring the ledger does not restore it.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from dpspca.common.storage import PRIVATE, posix

from .entries import Head, LedgerError

PLACE_BYTES: Final = 512
"""A sector: disks write it whole or not at all, and neither place shares one."""
UNREADABLE: Final = Head("unreadable", 0, "")
"""What a head file says that holds something, and no head."""


class WriterLock:
    """A hold on a ledger, for as long as this process lives; whoever comes second is told who has it."""

    def __init__(self, path: Path, instance: str) -> None:
        self._descriptor = _open_private(path)
        try:
            _hold(self._descriptor, path, os.pread(self._descriptor, 4096, 0).decode("utf-8", "replace").strip())
            since = datetime.now(UTC).isoformat(timespec="seconds")
            text = f"process {os.getpid()} on {socket.gethostname()} since {since} (instance {instance})\n".encode()
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Let go."""
        os.close(self._descriptor)


class HeadFile:
    """The head file, held by one ledger at a time."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _open_private(path)
        try:
            _hold(self._descriptor, path, "another ledger")
            self._turn = _newest(self._content())[0]
            if not self._content():
                self._make_room(path.parent)
        except BaseException:
            self.end()
            raise

    def read(self) -> Head | None:
        """Give what was remembered last; None if nothing ever was."""
        return _newest(self._content())[1]

    def write(self, head: Head) -> None:
        """OpenHeadStore a head, and wait until it is on the disk."""
        self._turn += 1
        self._put(_place(self._turn, head), self._turn % 2 * PLACE_BYTES)

    def end(self) -> None:
        """Let go."""
        os.close(self._descriptor)

    def _content(self) -> bytes:
        return os.pread(self._descriptor, 2 * PLACE_BYTES, 0)

    def _put(self, content: bytes, offset: int) -> None:
        os.pwrite(self._descriptor, content, offset)
        getattr(os, "fdatasync", os.fsync)(self._descriptor)

    def _make_room(self, folder: Path) -> None:
        """Take the disk space now, so that a full disk cannot stop the writing later."""
        self._put(bytes(2 * PLACE_BYTES), 0)
        posix.flush_folder(folder)


def read_head(path: Path) -> Head | None:
    """Give what a head file remembers, while its ledger may be in use; None if there is nothing."""
    try:
        with path.open("rb") as file:
            return _newest(file.read(2 * PLACE_BYTES))[1]
    except FileNotFoundError:
        return None


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Say what is wrong with a file in a sentence."""
    try:
        yield
    except OSError as problem:
        raise LedgerError(
            f"{path} cannot be used: {problem.strerror}.", "Check the disk: free space, health, permissions."
        ) from problem


def _open_private(path: Path) -> int:
    with file_errors(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | posix.NO_LINKS | posix.NOT_INHERITED, PRIVATE)


def _hold(descriptor: int, path: Path, holder: str) -> None:
    try:
        is_held = posix.lock(descriptor)
    except OSError as problem:
        raise LedgerError(f"{path} cannot be locked: {problem.strerror}.", "Use a local disk.") from problem
    if not is_held:
        raise LedgerError(
            f"{path} is in use by {holder or 'another process'}.",
            "Stop the other daemon first: a ledger has one daemon.",
        )


def _place(turn: int, head: Head) -> bytes:
    text = json.dumps({"turn": turn, "ledger": head.ledger, "entries": head.entries, "hash": head.hash})
    return f"{text} {sha256(text.encode()).hexdigest()}\n".encode().ljust(PLACE_BYTES)


def _read_place(parts: dict[str, Any]) -> tuple[int, Head]:
    turn, ledger, entries, found = (parts[key] for key in ("turn", "ledger", "entries", "hash"))
    if not (type(turn) is type(entries) is int and type(ledger) is type(found) is str and min(turn, entries) >= 0):
        raise TypeError
    return turn, Head(ledger, entries, found)


def _newest(content: bytes) -> tuple[int, Head | None]:
    """Find the last head that was written whole, and its turn."""
    found: list[tuple[int, Head]] = []
    for start in (0, PLACE_BYTES):
        text, _, check = content[start : start + PLACE_BYTES].strip().rpartition(b" ")
        if text and sha256(text).hexdigest().encode() == check:
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                found.append(_read_place(json.loads(text)))
    if found:
        return max(found, key=lambda each: each[0])
    return 0, (UNREADABLE if content.strip(b"\0") else None)
