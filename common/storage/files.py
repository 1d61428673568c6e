"""Files that keys and certificates live in: private from the first byte, replaced whole or not at all.

A private file is created by one system call that fails if anything of that name exists (a link included) and that
gives nobody else the right to read it, not even for a moment. It is read back only while that still holds.
"""

import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ELOOP, ENOSPC
from pathlib import Path
from typing import Final, TypeAlias

from dpspca.common.errors import UnsafeFileError

from . import posix

MAX_FILE_BYTES: Final = 1 << 24
PRIVATE: Final = 0o600
PUBLIC: Final = 0o644
PATIENCE: Final = 10.0
"""Seconds to wait for who holds a lock: what is done under one takes milliseconds."""

Stamp: TypeAlias = tuple[int, int, int]


def make_private_folder(folder: Path) -> None:
    """Make a folder for this user alone; one that exists must already be so."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise UnsafeFileError(f"{folder} cannot be made: {problem.strerror}.", "Choose another folder.") from None
    require_private_folder(folder)


def require_private_folder(folder: Path) -> None:
    """Refuse a folder in which somebody else could look, or put a file of theirs in the place of ours."""
    try:
        found = folder.stat()
    except OSError as problem:
        raise UnsafeFileError(f"{folder} cannot be used: {problem.strerror}.", "Name the right folder.") from None
    if not (stat.S_ISDIR(found.st_mode) and posix.is_ours_alone(found)):
        raise UnsafeFileError(f"{folder} is not a folder of this user alone.", f"Own it, and `chmod 700 {folder}`.")


def create(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write a new file; whatever bears that name already, a link included, is left alone and refused."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | posix.NO_LINKS | posix.FOR_US
    try:
        descriptor = os.open(path, flags, mode)
    except FileExistsError:
        raise UnsafeFileError(f"{path} exists.", "Nothing is overwritten: move it away, or choose a folder.") from None
    try:
        _write(descriptor, content)
    except BaseException:
        path.unlink()
        raise
    posix.flush_folder(path.parent)


def replace(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Replace a file in one step: a reader finds the old content or the new, after a crash too."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with _in_words(path, "written"):
        try:
            create(draft, content, mode)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        posix.flush_folder(path.parent)


def append(path: Path, content: bytes) -> None:
    """Add to the end of a file that exists, all or nothing, and wait until it is on the disk."""
    descriptor = _open(path, os.O_WRONLY | os.O_APPEND)
    with _in_words(path, "written"), os.fdopen(descriptor, "ab", buffering=0) as file:
        before = os.fstat(descriptor).st_size
        try:
            _all_of(content, file.write(content))
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, before)
            raise


@contextmanager
def alone(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Do something that no other process or thread does at the same time, as far as they ask for this file too."""
    with os.fdopen(_open(path, os.O_RDONLY), "rb") as file:
        until = time.monotonic() + patience
        while not posix.lock(file.fileno()):
            if time.monotonic() >= until:
                raise UnsafeFileError(
                    f"Another program has held {path} for {patience:g} seconds.", "Let it finish, or end it; try again."
                )
            time.sleep(0.01)
        yield  # closing the file lets go


def read(path: Path, *, private: bool = False) -> bytes:
    """Read a file of ours; a link is refused, and so is a private file that others could read."""
    with _in_words(path, "read"), os.fdopen(_open(path, os.O_RDONLY), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            raise UnsafeFileError(f"{path} is no file, or too long.", "Name the right file.")
        if private and not posix.is_ours_alone(found):
            raise UnsafeFileError(
                f"Others can read {path}, or own it.",
                f"`chmod 600 {path}`; if anyone may have read it, have its certificate revoked and make a new key.",
            )
        return file.read(MAX_FILE_BYTES)


def stamp(path: Path) -> Stamp | None:
    """Tell cheaply whether a file has been replaced or written to; None if it is not there."""
    with _in_words(path, "looked at"):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _all_of(content: bytes, written: int | None) -> None:
    """Take a part that was written for a disk that is full, which is what it comes of."""
    if written != len(content):
        raise OSError(ENOSPC, os.strerror(ENOSPC))


@contextmanager
def _in_words(path: Path, done: str) -> Iterator[None]:
    """Say what is wrong with a file: whoever goes on without it catches errors of ours, and no others."""
    try:
        yield
    except OSError as problem:
        raise UnsafeFileError(
            f"{path} cannot be {done}: {problem.strerror}.", "Look at the disk: its space, its health, its permissions."
        ) from problem


def _open(path: Path, flags: int) -> int:
    try:  # without O_NONBLOCK, a named pipe in the file's place would hang us
        return os.open(path, flags | posix.NO_LINKS | posix.AT_ONCE | posix.FOR_US)
    except OSError as problem:
        remedy = "Put the file itself there: links are not followed." if problem.errno == ELOOP else "Check its path."
        raise UnsafeFileError(f"{path} cannot be opened: {problem.strerror}.", remedy) from None


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
