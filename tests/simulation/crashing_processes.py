"""Processes that can crash at any step, and stores that outlast them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

LEDGER_STEPS: Final = frozenset({"open", "reserve", "store", "close", "expire"})
JOURNAL_STEPS: Final = frozenset({"accept", "ask", "end"})


class ProcessCrash(BaseException):
    """The crash of a process. Nothing handles it, and no cleanup runs."""


class CrashingProcess:
    """A simulated process. After it has crashed, it cannot store anything."""

    def __init__(self, happens: Callable[[], bool]) -> None:
        self._happens = happens
        self._over = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """Whether the process has crashed or ended."""
        return self._over.is_set()

    def step(self) -> None:
        """Do one step that is stored, or crash."""
        if not self.has_ended and self._happens():
            self._over.set()
        if self.has_ended:
            raise ProcessCrash

    def crash(self) -> None:
        """Crash here."""
        self._over.set()
        raise ProcessCrash

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work until it ends or the process crashes."""
        working, dying = asyncio.ensure_future(work), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and not self._over.is_set():
                working.result()
        finally:
            self._over.set()
            await cancel_all(working, dying)


class CrashingStore:
    """A ledger or journal as its process uses it. The process may crash right before or after each step."""

    def __init__(
        self, store: Any, steps: frozenset[str], process: CrashingProcess, done: Callable[[], None] = lambda: None
    ) -> None:
        """``done`` is called after every step, even if the process crashes right after it."""
        self._store = store
        self._steps = steps
        self._step = process.step
        self._done = done

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._store, name)
        if name not in self._steps:
            return step

        def crashing(*args: Any) -> Any:
            self._step()
            result = step(*args)
            self._done()
            self._step()
            return result

        return crashing


async def cancel_all(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
