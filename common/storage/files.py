"""Files for keys and certificates: private from the first byte, and replaced completely or not at all.

One system call creates a private file. It fails if anything of that name exists, even a link, and nobody else can read
the file at any moment. A private file is read only if it is still private.
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
LOCK_SECONDS: Final = 10.0
"""How long to wait for a lock. Work under a lock takes milliseconds."""

Stamp: TypeAlias = tuple[int, int, int]


def make_private_folder(folder: Path) -> None:
    """Make a folder that only this user can use. An existing folder must already be private."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise UnsafeFileError(f"{folder} cannot be created: {problem.strerror}.", "Choose another folder.") from None
    require_private_folder(folder)


def require_private_folder(folder: Path) -> None:
    """Refuse a folder in which somebody else could read or replace files."""
    try:
        found = folder.stat()
    except OSError as problem:
        raise UnsafeFileError(
            f"{folder} cannot be used: {problem.strerror}.", "Check the path of the folder."
        ) from None
    if not (stat.S_ISDIR(found.st_mode) and (posix.is_private(found) or posix.is_credential(folder, found))):
        raise UnsafeFileError(
            f"{folder} is not a folder that only this user can use.", f"Become its owner and run `chmod 700 {folder}`."
        )


def create(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Write a new file. Refuse, and change nothing, if anything of that name exists, even a link."""
    with _file_errors(path, "written"):
        try:
            _create(path, content, mode)
        except FileExistsError:
            raise UnsafeFileError(
                f"{path} already exists.", "Move it away, or choose another folder: it is never overwritten."
            ) from None


def replace(path: Path, content: bytes, mode: int = PRIVATE) -> None:
    """Replace a file in one step. A reader finds the old content or the new, even after a crash."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with _file_errors(path, "written"):
        try:
            _create(draft, content, mode)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        posix.flush_folder(path.parent)


def append(path: Path, content: bytes) -> None:
    """Append to an existing file, all or nothing, and wait until the content is on disk."""
    descriptor = _open(path, os.O_WRONLY | os.O_APPEND)
    with _file_errors(path, "written"), os.fdopen(descriptor, "ab", buffering=0) as file:
        before = os.fstat(descriptor).st_size
        try:
            _require_complete_write(content, file.write(content))
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, before)
            raise


@contextmanager
def exclusive_lock(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the lock of a file, so that no other process or thread holds it at the same time."""
    with os.fdopen(_open(path, os.O_RDONLY), "rb") as file:
        deadline = time.monotonic() + seconds
        while not posix.lock(file.fileno()):
            if time.monotonic() >= deadline:
                raise UnsafeFileError(
                    f"Another program has locked {path} for {seconds:g} seconds.",
                    "Wait until it finishes, or end it; then try again.",
                )
            time.sleep(0.01)
        yield  # closing the file releases the lock


def read(path: Path, *, private: bool = False, linked: bool = False) -> bytes:
    """Read a file. Refuse a link unless ``linked``, and, if ``private``, a file that others could read.

    Links are for what is believed by its signature alone. Kubernetes shows every file of a configuration as a link.
    """
    place = path.resolve() if linked else path
    with _file_errors(path, "read"), os.fdopen(_open(place, os.O_RDONLY), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
            raise UnsafeFileError(
                f"{path} is not a regular file, or longer than {MAX_FILE_BYTES} bytes.", "Check the path of the file."
            )
        if private and not (posix.is_private(found) or posix.is_credential(path, found)):
            raise UnsafeFileError(
                f"Other users can read {path}, or own it.",
                f"Run `chmod 600 {path}`. If somebody may have read a password in it, change the password. If "
                "it holds a key, ask the operator to revoke its certificate, and make a new key.",
            )
        return file.read(MAX_FILE_BYTES)


def stamp(path: Path, *, linked: bool = False) -> Stamp | None:
    """Return a cheap value that changes when the file is replaced or written to, or None if there is no file.

    If ``linked``, it also changes when a link on the way to the file leads elsewhere.
    """
    with _file_errors(path, "examined"):
        try:
            found = path.stat() if linked else path.lstat()
        except FileNotFoundError:
            return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _require_complete_write(content: bytes, written: int | None) -> None:
    """Treat an incomplete write as a full disk, which is what causes it."""
    if written != len(content):
        raise OSError(ENOSPC, os.strerror(ENOSPC))


@contextmanager
def _file_errors(path: Path, done: str) -> Iterator[None]:
    """Turn a system error into an ``UnsafeFileError``: callers that can go on without the file catch only that."""
    try:
        yield
    except OSError as problem:
        raise UnsafeFileError(
            f"{path} cannot be {done}: {problem.strerror}.", "Check the disk: free space, health, permissions."
        ) from problem


def _open(path: Path, flags: int) -> int:
    try:  # without O_NONBLOCK, a named pipe in the file's place would block this process
        return os.open(path, flags | posix.NO_LINKS | posix.DO_NOT_WAIT | posix.NOT_INHERITED)
    except OSError as problem:
        remedy = "Put the file itself there: links are not followed." if problem.errno == ELOOP else "Check its path."
        raise UnsafeFileError(f"{path} cannot be opened: {problem.strerror}.", remedy) from None


def _create(path: Path, content: bytes, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | posix.NO_LINKS | posix.NOT_INHERITED
    descriptor = os.open(path, flags, mode)
    try:
        _write(descriptor, content)
    except BaseException:
        path.unlink()
        raise
    posix.flush_folder(path.parent)


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
