"""What only POSIX systems have, imported where it is used, so that the analyst's side loads on every system.

Daemons need a POSIX system: locks keep a ledger and a journal to one writer. Analysts can work on Windows too. There,
permissions are access lists and not mode bits, so nothing is checked: keep the identity in the user's own profile.
"""

import os
import stat
import sys
from pathlib import Path
from typing import Final

from dpspca.common.errors import DpspcaError

HAS_OWNERS: Final = hasattr(os, "geteuid")

NO_LINKS: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""Flags for ``os.open``: refuse links; keep the file from programs that are started, and read bytes as they are."""
FOR_US: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
AT_ONCE: Final[int] = getattr(os, "O_NONBLOCK", 0)
"""Do not wait for the other end of a named pipe."""


class UnsupportedSystemError(DpspcaError):
    """This system lacks what is asked for."""

    code = "unsupported-system"


def lock(descriptor: int) -> bool:
    """Lock an open file for this process alone, without waiting. False if another process holds the lock."""
    try:
        import fcntl  # noqa: PLC0415  # not on every system
    except ImportError:
        raise UnsupportedSystemError(
            f"This needs a POSIX system; files cannot be locked on {sys.platform}.",
            "Run daemons, the authority and demonstrations on Linux or macOS.",
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_ours_alone(found: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, and nobody else may read it."""
    return not HAS_OWNERS or (found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077)


def flush_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where the system lets a folder be flushed."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
