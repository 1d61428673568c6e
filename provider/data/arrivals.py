"""A data set whose rows arrive while the daemon runs: a folder to which files are added over time. Reads files.

``folders.py`` reads a folder once. Here the folder is checked at every query, and a query about rows that are not there
yet waits for them. Such a data set only answers jobs that state how many rows, from the first, they are about, and
whose queries each name a block. ``arriving_rows.py`` ensures that every row has one position for good.

The time of an answer reveals when rows arrived, and how fast it came reveals how long the files are. Both count as
public, as the number of rows does under replace-one: a neighbour has its other row in the same file, which arrives at
the same time. So names, numbers of rows and times must not depend on the content of rows. If a line of text takes
longer to read than another, this is not hidden, because files are read when they are asked about. In .npy files all
rows have the same length.

For all waiting queries together, one check of the folder is in progress and one file is being read, each in a thread.
It runs to its end even if the queries that waited for it are gone, and later queries join it. A file is read only if
some query needs more rows than are counted. Other queries do not wait for it. Neither a check nor a reading waits for a
thread in which answers are made. Otherwise a query that is repeated, which costs nothing, would show when one is free.
To add a file safely, write it under a name that begins with a dot, and rename it when it is complete.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from dpspca.common.errors import BusyError, RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about

from .arriving_rows import CountedFiles, Read
from .checked import CheckedRows
from .cluster_rows import ClusterRows
from .offered_rows import read_arriving
from .threads import run_in_check_thread, run_in_reading_thread

PAUSE: Final = 1.0
"""Seconds between two checks of a folder while a query waits."""
LOOKS_PER_CHECK: Final = 30
"""Checks of the folder after which the permission of a waiting query is checked again. Permission is always checked
before an answer, so this only removes waiting queries that will be refused anyway."""

_log = logging.getLogger(__name__)


class Arrivals(CountedFiles):
    """Rows that are counted as they arrive, and that queries on one event loop can wait for."""

    def __init__(
        self, name: str, folder: Path, *, read: Read = read_arriving, pause: float = PAUSE, width: int = 0
    ) -> None:
        """Count the rows that are there. At least one file is needed, because it sets the columns.

        ``width`` is how many numbers of a row are read, if jobs use fewer.
        """
        super().__init__(name, folder, read=read)
        self.read_columns: Final = max(self.dimension, width)
        """How many numbers of a row are read for an answer."""
        self._pause = pause
        self._wanted: list[int] = []
        self._checks = _SharedWork(self._check)
        self._looks = _SharedWork(self._look)

    async def wait_for(self, rows: int, require_permission: Callable[[], None]) -> None:
        """Wait until ``rows`` rows are there, or until ``require_permission`` raises. It is always called at the end.

        Every query checks the folder at least once, so that even a query about rows that are there is refused if they
        changed. If something cannot be read at the moment, the query waits, as it does for rows.
        """
        well, looks = await self._checks.join(), 0
        with self._wanting(rows):
            while not self._has(rows, well=well):
                if looks == 0:
                    _log.info("A query waits for rows of '%s'.", self._name, extra=about(THE_COORDINATOR))
                if looks % LOOKS_PER_CHECK == 0:
                    require_permission()
                well, looks = await self._looks.join(), looks + 1
        require_permission()

    def _has(self, rows: int, *, well: bool) -> bool:
        self.require_no_fault()
        return well and self.count >= rows

    @contextmanager
    def _wanting(self, rows: int) -> Iterator[None]:
        self._wanted.append(rows)
        try:
            yield
        finally:
            self._wanted.remove(rows)

    async def _check(self) -> bool:
        """Check all files by names and stamps alone. Return whether that succeeded."""
        return await run_in_check_thread(_succeeds, self.check)

    async def _look(self) -> bool:
        """Count one file if a query needs it, or pause if there is none. Return whether reading succeeded."""
        before = self.files
        well = await run_in_reading_thread(_succeeds, partial(self.count_next, max(self._wanted, default=0)))
        if self.files == before:
            await asyncio.sleep(self._pause)
        return well


def _succeeds(look: Callable[[], None]) -> bool:
    try:
        look()
    except RefusedError:
        return False
    return True


class _SharedWork:
    """Work that runs once for all callers that ask while it is in progress, and to its end even if they are gone."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        self._work = work
        self._under_way: asyncio.Task[bool] | None = None

    async def join(self) -> bool:
        """Wait for the work in progress, or start it."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._work())
        return await asyncio.shield(self._under_way)


class WaitingQueries:
    """Bounds the number and size of queries that wait for rows, over all of a provider's data sets.

    They wait before anything is paid for. So one analyst can take half of the places, and half of the bytes.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._waiting: list[tuple[str, int]] = []

    @contextmanager
    def place(self, analyst: str, size: int) -> Iterator[None]:
        """Let an analyst's query of ``size`` bytes wait, or refuse it. One that waits alone may have any size."""
        own = [taken for by, taken in self._waiting if by == analyst]
        self._require_room("", [taken for _, taken in self._waiting], self._most, self._most_bytes, size)
        self._require_room(" of this analyst", own, max(1, self._most // 2), self._most_bytes // 2, size)
        self._waiting.append((analyst, size))
        try:
            yield
        finally:
            self._waiting.remove((analyst, size))

    @staticmethod
    def _require_room(whose: str, taken: Sequence[int], most: int, most_bytes: int, size: int) -> None:
        if taken and (len(taken) >= most or sum(taken) + size > most_bytes):
            raise BusyError(f"Too many queries{whose} wait for rows at this provider.", "Ask again later.")


DataSet: TypeAlias = CheckedRows | Arrivals | ClusterRows
"""The rows that a provider offers under one name."""
