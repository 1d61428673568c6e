"""Files without a name in a provider's scratch folder: they hold checked rows, so that memory does not have to.

A scratch file is private to this process. It has no name, so nobody can open it by a path, and the system frees it when
the process ends, however it ends. Where the system cannot make a file without a name, the name is removed while the
file is still empty. Rows are read by position into buffers, and never mapped into memory: pages of a map would count
as this process's memory.

Every dense data set is kept like this, however few rows it has. Which code runs must not follow from their number.
"""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL, EISDIR, ENOENT, EOPNOTSUPP
from pathlib import Path
from threading import Lock
from typing import Any, Final
from weakref import finalize

import numpy as np
from numpy.typing import NDArray

from dpspca.common.errors import RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about
from dpspca.common.storage import PRIVATE, files

_NOT_NAMELESS: Final = frozenset({EOPNOTSUPP, EISDIR, EINVAL, ENOENT})
"""How a system says that it cannot make a file without a name."""
_BYTES_A_CALL: Final = 2**30
"""Linux moves at most two gigabytes in one call."""
_LEAST_AHEAD: Final = 2**20
_MOST_AHEAD: Final = 2**26
"""Bytes that are reserved ahead of what is appended: a file system takes up to ten times as long to extend a file."""

DEFAULT_MEMORY: Final = 2**30
_BYTES_A_CELL: Final = 8 * 2**6
"""Of memory, for each number that is read at a time: it is there several times, and pyarrow holds more."""
_FEWEST_CELLS: Final = 2**16
MOST_CELLS: Final = 2**22

_log = logging.getLogger(__name__)


class ScratchError(RefusedError):
    """The scratch folder is full or cannot be used."""

    code = "no-scratch"


def machine_memory() -> int:
    """Return how much memory this program may have at most: the machine's, or that of its container."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such limit
        most = min(most, int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return most


def memory_cap(mebibytes: int | None) -> int:
    """Return how many bytes a provider's settings allow. By default, half of what there is."""
    return machine_memory() // 2 if mebibytes is None else mebibytes * 2**20


def cells_in(memory: int) -> int:
    """Return how many numbers of a source to read at a time, if ``memory`` bytes may be used."""
    return min(MOST_CELLS, max(_FEWEST_CELLS, memory // _BYTES_A_CELL))


class Scratch:
    """A folder for files without a name, and how much memory may be used."""

    def __init__(self, folder: Path, memory: int = DEFAULT_MEMORY) -> None:
        """``memory`` is in bytes, beside what the program itself takes."""
        self.folder: Final = folder
        self.memory: Final = memory
        self.cells: Final = cells_in(memory)
        """How many numbers of a source to read at a time."""
        self._held = 0
        self._holding = Lock()

    @property
    def room(self) -> int:
        """How many bytes of memory are left for rows that have to be in memory as a whole."""
        return max(0, self.memory - self._held)

    def hold(self, array: NDArray[Any], size: int) -> None:
        """Count memory that rows take, until this array of theirs is gone."""
        self._count(size)
        finalize(array, self._count, -size)

    def _count(self, size: int) -> None:
        with self._holding:
            self._held += size

    def file(self) -> "ScratchFile":
        """Make an empty file."""
        return ScratchFile(self.folder)


class ScratchFile:
    """A private file without a name. It is gone when nothing refers to it any more. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        with _scratch_errors(folder):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # of the ledger, which must be private, too
            files.make_private_folder(folder)
            self._descriptor = _nameless(folder)
        self._folder = folder
        self._end = self._reserved = 0
        self._appending = Lock()
        finalize(self, os.close, self._descriptor)

    def append(self, numbers: NDArray[Any]) -> None:
        """Write numbers after those that are there."""
        with self._appending:
            while self._reserved < self._end + numbers.nbytes:
                self._reserve(self._reserved + min(_MOST_AHEAD, max(_LEAST_AHEAD, self._reserved)))
            self.write(self._end, numbers)
            self._end += numbers.nbytes

    def finish(self) -> None:
        """Give back what was reserved beyond the last number that was appended."""
        with self._appending, _scratch_errors(self._folder):
            os.ftruncate(self._descriptor, self._end)
            self._reserved = self._end

    def write(self, start: int, numbers: NDArray[Any]) -> None:
        """Write numbers from byte ``start`` on."""
        content = numbers.reshape(-1).view(np.uint8).data
        with _scratch_errors(self._folder):
            while content:
                written = os.pwrite(self._descriptor, content[:_BYTES_A_CALL], start)
                start, content = start + written, content[written:]

    def reserve(self, size: int) -> None:
        """Take all the room that will be needed, so that a lack of it shows at once."""
        if size:
            self._reserve(size)

    def _reserve(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            with _scratch_errors(self._folder):
                os.posix_fallocate(self._descriptor, self._reserved, size - self._reserved)
        self._reserved = size

    def read(self, start: int, into: NDArray[Any]) -> None:
        """Fill an array with what is stored from byte ``start`` on."""
        content = into.reshape(-1).view(np.uint8).data
        with _scratch_errors(self._folder):
            while content:
                found = os.preadv(self._descriptor, [content[:_BYTES_A_CALL]], start)
                if not found:
                    raise OSError(EINVAL, "it is shorter than what was written to it")
                start += found
                content = content[found:]


def _nameless(folder: Path) -> int:
    """Open a file that has no name, for reading and writing."""
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_EXCL, PRIVATE)
        except OSError as problem:
            if problem.errno not in _NOT_NAMELESS:
                raise
    descriptor, name = tempfile.mkstemp(dir=folder)  # with the same rights
    Path(name).unlink()
    return descriptor


@contextmanager
def _scratch_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the system into one whose text is the same for all of them. The operator finds it in the log.

    A coordinator that asks again and again causes no more lines than it may cause of other kinds.
    """
    try:
        yield
    except OSError as problem:
        what = problem.strerror or problem
        _log.error("The scratch folder %s cannot be used: %s.", folder, what, extra=about(THE_COORDINATOR))
        raise ScratchError(
            "The provider's scratch folder is full or cannot be used.",
            "The operator must free space there, or name another folder as scratch in the provider's settings. Then "
            "ask again.",
        ) from problem
