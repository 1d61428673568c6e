"""Features of POSIX systems, imported only where they are used, so that the analyst's side loads on every system.

Daemons need a POSIX system, because file locks keep each ledger and journal to one writer. Analysts can use Windows
too. Windows has access lists instead of mode bits, so permissions are not checked there: keep the identity in the
user's own profile.
"""

import os
import stat
import sys
from pathlib import Path
from typing import Final

from dpspca.common.errors import DpspcaError

HAS_OWNERS: Final = hasattr(os, "geteuid")

CREDENTIALS: Final = Path("/run/credentials")
"""Where systemd keeps a folder of credentials for each service. Only root can write there."""

NO_LINKS: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""Flag for ``os.open``: refuse to follow a link."""
NOT_INHERITED: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Flags for ``os.open``: child processes do not inherit the file, and bytes are read unchanged."""
DO_NOT_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0)
"""Flag for ``os.open``: do not wait for the other end of a named pipe."""


class UnsupportedSystemError(DpspcaError):
    """This operating system lacks a feature that is needed."""

    code = "unsupported-system"


def require() -> None:
    """Refuse a system without file locks. Daemons and demonstrations call this first."""
    try:
        import fcntl  # noqa: F401, PLC0415  # not on every system
    except ImportError:
        raise UnsupportedSystemError(
            f"Files cannot be locked on {sys.platform}; this needs a POSIX system.",
            "Run daemons, the authority and demonstrations on Linux or macOS.",
        ) from None


def lock(descriptor: int) -> bool:
    """Lock an open file for this process, without waiting. Return False if the file is already locked."""
    require()
    import fcntl  # noqa: PLC0415  # not on every system

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_private(found: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, and no other user has access to it."""
    return not HAS_OWNERS or (found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077)


def is_credential(path: Path, found: os.stat_result) -> bool:
    """Whether a file or folder is one that the service manager keeps for this user alone.

    systemd names the folder to the service (LoadCredential), and other commands of its user find it where systemd keeps
    them all. Depending on its version, what is in there belongs to root, with an access list that lets this user read,
    which shows as a right of the group.
    """
    named = os.environ.get("CREDENTIALS_DIRECTORY")
    known = any(each.parent == CREDENTIALS or str(each) == named for each in (path, path.parent))
    return HAS_OWNERS and known and found.st_uid in {0, os.geteuid()} and not stat.S_IMODE(found.st_mode) & 0o027


def flush_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on disk, if the system can flush folders."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
