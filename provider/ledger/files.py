"""The small files beside a ledger: the lock file, the key of the names of rows (``row_key.py``), and the head file.

The lock file keeps a ledger to one writer. The head file has the ledger's head, in two copies, which are written in
turn and synced each time. A crash can spoil the copy being written, and leaves the other. The head file holds no secret
and needs no backup: it exists to notice when the ledger was restored from one. Keep it on another volume, so that
restoring the ledger does not restore it too.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes
from typing import Final

from dpspca.common.decoding import STORED, Count, decode, parse_json
from dpspca.common.errors import DpspcaError
from dpspca.common.storage import PRIVATE, files, posix

from .entries import Head, LedgerDiskError, LedgerInUseError
from .row_key import KEY_BYTES, RowKey

COPY_BYTES: Final = 512
"""The size of a copy: one sector of its own, which disks write whole or not at all."""
UNREADABLE: Final = Head("unreadable", 0, "")
"""Stands for the content of a head file that holds something, but no valid head."""


class WriterLock:
    """The lock of a ledger's one writer, held until ``end``. A second writer gets an error that names the first."""

    def __init__(self, path: Path, instance: str) -> None:
        self._descriptor = _open_private(path)
        try:
            _lock(self._descriptor, path, os.pread(self._descriptor, 4096, 0).decode("utf-8", "replace").strip())
            since = datetime.now(UTC).isoformat(timespec="seconds")
            text = f"process {os.getpid()} on {socket.gethostname()} since {since} (instance {instance})\n".encode()
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


class HeadFile:
    """The head file, locked by one ledger at a time."""

    def __init__(self, path: Path) -> None:
        self._descriptor = _open_private(path)
        try:
            _lock(self._descriptor, path, "another ledger")
            self._turn = _newest(self._content())[0]
            if not self._content():
                self._make_room(path.parent)
        except BaseException:
            self.end()
            raise

    def read(self) -> Head | None:
        """Return the head that was written last, or None if none ever was."""
        return _newest(self._content())[1]

    def write(self, head: Head) -> None:
        """Write a head, and wait until it is on the disk."""
        self._turn += 1
        self._put(_copy(self._turn, head), self._turn % 2 * COPY_BYTES)

    def end(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _content(self) -> bytes:
        return os.pread(self._descriptor, 2 * COPY_BYTES, 0)

    def _put(self, content: bytes, offset: int) -> None:
        os.pwrite(self._descriptor, content, offset)
        getattr(os, "fdatasync", os.fsync)(self._descriptor)

    def _make_room(self, folder: Path) -> None:
        """Take the disk space now, so that a full disk cannot stop a later write."""
        self._put(bytes(2 * COPY_BYTES), 0)
        posix.flush_folder(folder)


def read_head(path: Path) -> Head | None:
    """Return the head in a head file, even while its ledger is in use. Return None if there is none."""
    try:
        with path.open("rb") as file:
            return _newest(file.read(2 * COPY_BYTES))[1]
    except FileNotFoundError:
        return None


def row_key_path(ledger: Path) -> Path:
    """Return the path of the key for a ledger's names of rows: beside the ledger, so that backups have both."""
    return ledger.with_name(f"{ledger.name}.row-key")


def read_row_key(ledger: Path) -> RowKey | None:
    """Read the key for a ledger's names of rows, or return None if there is none. Refuse one that others can read."""
    path = row_key_path(ledger)
    return RowKey.from_text(files.read(path, private=True)) if path.exists() else None


def make_row_key(ledger: Path) -> RowKey:
    """Make a key for a ledger, and wait until it is on the disk."""
    made = RowKey(token_bytes(KEY_BYTES))
    files.replace(row_key_path(ledger), made.to_text())
    return made


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn an error of the file system into a ``LedgerError``."""
    try:
        yield
    except OSError as problem:
        raise LedgerDiskError(
            f"{path} cannot be used: {problem.strerror}.", "Check the disk: free space, health, permissions."
        ) from problem


def _open_private(path: Path) -> int:
    with file_errors(path):
        return os.open(path, os.O_RDWR | os.O_CREAT | posix.NO_LINKS | posix.NOT_INHERITED, PRIVATE)


def _lock(descriptor: int, path: Path, holder: str) -> None:
    try:
        is_locked = posix.lock(descriptor)
    except OSError as problem:
        raise LedgerDiskError(f"{path} cannot be locked: {problem.strerror}.", "Use a local disk.") from problem
    if not is_locked:
        raise LedgerInUseError(
            f"{path} is in use by {holder or 'another process'}.",
            "Stop the other daemon first: a ledger has only one daemon.",
        )


def _copy(turn: int, head: Head) -> bytes:
    text = json.dumps({"turn": turn, "ledger": head.ledger, "entries": head.entries, "hash": head.hash})
    return f"{text} {sha256(text.encode()).hexdigest()}\n".encode().ljust(COPY_BYTES)


@dataclass(frozen=True, slots=True)
class _HeadCopy:
    turn: Count
    ledger: str
    entries: Count
    hash: str


def _newest(content: bytes) -> tuple[int, Head | None]:
    """Return the last head that was written whole, and its turn."""
    found: list[tuple[int, Head]] = []
    for start in (0, COPY_BYTES):
        text, _, check = content[start : start + COPY_BYTES].strip().rpartition(b" ")
        if text and sha256(text).hexdigest().encode() == check:
            with suppress(DpspcaError):
                copy = decode(_HeadCopy, parse_json(text, "The head file"), STORED)
                found.append((copy.turn, Head(copy.ledger, copy.entries, copy.hash)))
    if found:
        return max(found, key=lambda each: each[0])
    return 0, (UNREADABLE if content.strip(b"\0") else None)
