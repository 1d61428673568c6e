"""Forbids core dumps, which would write rows, private keys and noise to disk. Calls the operating system.

Two settings forbid them, because either can be bypassed: the limit on core files, which the system ignores if it pipes
dumps to a program such as systemd-coredump; and, on Linux, the process's "not dumpable" flag. That flag also makes root
the owner of the process's folder in /proc, so that other programs of the same user can neither trace the process nor
read its memory. A child process inherits the limit and must set the flag again.
"""

import ctypes
import sys
from contextlib import suppress
from typing import Final

PR_SET_DUMPABLE: Final = 4
NOT_DUMPABLE: Final = 0


def forbid_core_dumps() -> None:
    """Prevent any crash of this process from writing its memory to disk. This cannot be undone."""
    with suppress(ImportError):  # a system without resource limits has no core dumps
        import resource  # noqa: PLC0415  # not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, NOT_DUMPABLE, 0, 0, 0)
