"""Keeps the journal: one thread that uses it, off the event loop, and the end of everything when it fails."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .contract import Journal, JournalError

Found = TypeVar("Found")


class Keeper:
    """Does work with a journal, in order. After the first failure it does nothing more, ever."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._thread = ThreadPoolExecutor(1, "journal")
        self._problem: JournalError | None = None
        self._closing = False
        self.failed = asyncio.Event()

    @property
    def heartbeat_seconds(self) -> float:
        """How often the journal wants to be checked."""
        return self._journal.heartbeat_seconds

    async def do(self, work: Callable[[Journal], Found]) -> Found:
        """Wait for work with the journal; what has begun is finished even if nobody waits for it any more."""
        if self._closing:
            raise JournalError("The coordinator stops.", "Ask again when it is back.")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._attempt, loop, work)

    async def close(self) -> None:
        """Finish what was begun, and let go of the journal."""
        self._closing = True
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._journal.close)

    def _attempt(self, loop: asyncio.AbstractEventLoop, work: Callable[[Journal], Found]) -> Found:
        if self._problem:
            raise self._problem
        try:
            return work(self._journal)
        except JournalError as problem:
            # Here and not on the loop: what waits behind it in the queue must not be done.
            self._problem = problem
            loop.call_soon_threadsafe(self.failed.set)
            raise
