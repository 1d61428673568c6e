"""The thread that uses the journal, so that the event loop need not wait. After a failure it does no more work."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from .contract import Journal, JournalError, StoppingError

Value = TypeVar("Value")


class JournalThread:
    """Runs work with a journal, in order. After the first failure it runs nothing more."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._thread = ThreadPoolExecutor(1, "journal")
        self._problem: JournalError | None = None
        self._closing = False
        self.failed = asyncio.Event()

    @property
    def heartbeat_seconds(self) -> float:
        """How often ``check`` must be called for the hold to last."""
        return self._journal.heartbeat_seconds

    async def run(self, work: Callable[[Journal], Value]) -> Value:
        """Run work with the journal and wait for it. It is finished even if its caller is cancelled."""
        if self._closing:
            raise StoppingError("The coordinator is stopping.", "Try again after it has restarted.")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._attempt, loop, work)

    async def close(self) -> None:
        """Finish the work that has begun, and close the journal."""
        self._closing = True
        await asyncio.to_thread(self._thread.shutdown)
        await asyncio.to_thread(self._journal.close)

    def _attempt(self, loop: asyncio.AbstractEventLoop, work: Callable[[Journal], Value]) -> Value:
        if self._problem:
            raise self._problem
        try:
            return work(self._journal)
        except JournalError as problem:
            # Set in this thread, not on the loop: work that is already queued must not run.
            self._problem = problem
            loop.call_soon_threadsafe(self.failed.set)
            raise
