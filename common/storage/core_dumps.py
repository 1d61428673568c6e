"""Keeps what a process has in memory out of files. Edge: asks the operating system.

A core dump holds rows, private keys and noise. Two things forbid it, because either can be overruled: the limit on core
files, which does not count where the system hands dumps to a program (as systemd-coredump is); and, on Linux, the mark
that the process cannot be dumped. That mark also gives the process's folder in /proc to root, so that other programs of
the same user can neither trace the process nor read its memory. What a process starts inherits the limit, and sets the
mark anew.
"""

import ctypes
import sys
from contextlib import suppress
from typing import Final

PR_SET_DUMPABLE: Final = 4
NOT_DUMPABLE: Final = 0


def forbid_core_dumps() -> None:
    """Let no crash of this process write its memory to a disk; there is no way back."""
    with suppress(ImportError):  # a system without limits dumps no core either
        import resource  # noqa: PLC0415  # not on every system

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, NOT_DUMPABLE, 0, 0, 0)
