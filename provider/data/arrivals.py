"""A data set whose rows arrive while the daemon runs: a folder to which files are added, one after the other. Edge.

Where ``folders.py`` reads a folder once, this one is looked at again at every query, and a query about rows that
are not there yet waits for them. Such a data set answers jobs alone that say how many rows, from the first, they are
about, and of which each query names a block. That every row has one position, for good, is ``counting.py``'s.

When a query is answered tells when rows came, and how fast, how long the files are. Both are taken for public, as
the number of rows is under replace-one: the neighbour has its other row in the same file, which comes at the same time.
This asks of whoever writes files that neither names nor numbers of rows nor times follow from what rows say. Of text a
row more or less long to read is not hidden, for files are read as they are asked about; in .npy all rows are as long.

However many wait, one look is under way and one file is being read, in a thread that whoever waits next joins, even if
all who waited for it are gone. A file is read while somebody asks for more rows than are counted, and whoever asks for
no more than that waits for nobody's reading. A file is added whole by writing it under a name that begins with a dot,
and renaming it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from dpspca.common.errors import RefusedError
from dpspca.common.log_context import THE_COORDINATOR, about

from .arriving_rows import Read, Tally
from .preparation import CheckedRows
from .sources import read_arriving
from .threads import run_in_row_thread

PAUSE: Final = 1.0
"""Seconds from one look at a folder to the next, while a query waits."""
LOOKS_A_JUDGEMENT: Final = 30
"""Looks after which a query that waits is judged anew: a certificate is verified for each, and none is answered
without, so that this is only to let go of those that never will be."""

_log = logging.getLogger(__name__)


class Arrivals(Tally):
    """Rows that are counted as they arrive, and waited for on one event loop."""

    def __init__(self, name: str, folder: Path, *, read: Read = read_arriving, pause: float = PAUSE) -> None:
        """Count what is there: one file at least, for it says which columns there are."""
        super().__init__(name, folder, read=read)
        self._pause = pause
        self._wanted: list[int] = []
        self._checks = _Shared(partial(self._went_well, self.check))
        self._looks = _Shared(self._look)

    async def until(self, rows: int, still: Callable[[], None]) -> None:
        """Wait until so many rows are there, or ``still`` raises, which is asked last in any case.

        Every query looks at least once, so that one about rows that are there is refused as well if they changed.
        What cannot be read at the moment is waited for as rows are.
        """
        well, looks = await self._checks.join(), 0
        with self._wanting(rows):
            while not self._has(rows, well=well):
                if looks == 0:
                    _log.info("A query waits for rows of '%s'.", self._name, extra=about(THE_COORDINATOR))
                if looks % LOOKS_A_JUDGEMENT == 0:
                    still()
                well, looks = await self._looks.join(), looks + 1
        still()

    def _has(self, rows: int, *, well: bool) -> bool:
        self.require_order()
        return well and self.count >= rows

    @contextmanager
    def _wanting(self, rows: int) -> Iterator[None]:
        self._wanted.append(rows)
        try:
            yield
        finally:
            self._wanted.remove(rows)

    async def _look(self) -> bool:
        """Count one file if anybody needs it, and pause where there is none; tell whether all went well."""
        before = self.files
        well = await self._went_well(partial(self.more, max(self._wanted, default=0)))
        if self.files == before:
            await asyncio.sleep(self._pause)
        return well

    async def _went_well(self, look: Callable[[], None]) -> bool:
        return await run_in_row_thread(self._goes_well, look)

    def _goes_well(self, look: Callable[[], None]) -> bool:
        try:
            look()
        except RefusedError:
            return False
        return True


class _Shared:
    """Work that is done once for all who want it while it is under way, and to its end whoever is still there."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, bool]]) -> None:
        self._work = work
        self._under_way: asyncio.Task[bool] | None = None

    async def join(self) -> bool:
        """Wait for what is under way, or begin."""
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._work())
        return await asyncio.shield(self._under_way)


class WaitingQueries:
    """Bounds how many queries wait for rows, and what they hold, of all a provider's data sets together."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._sizes: list[int] = []

    @contextmanager
    def place(self, size: int) -> Iterator[None]:
        """Let a query of so many bytes wait, or refuse; one that waits alone may be of any size."""
        if self._sizes and (len(self._sizes) >= self._most or sum(self._sizes) + size > self._most_bytes):
            raise RefusedError("Too many queries wait for rows here.", "Ask again when some are answered.")
        self._sizes.append(size)
        try:
            yield
        finally:
            self._sizes.remove(size)


DataSet: TypeAlias = CheckedRows | Arrivals
"""What a provider offers under a name."""
