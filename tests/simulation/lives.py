"""Processes that can die at any moment, and what outlasts them as they use it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

LEDGER_STEPS: Final = frozenset({"open", "reserve", "store", "close", "expire"})
JOURNAL_STEPS: Final = frozenset({"accept", "ask", "end"})


class Death(BaseException):
    """The end of a process: nothing handles it, nothing is tidied up."""


class Life:
    """A process: alive until it is struck, and from then on unable to do anything that lasts."""

    def __init__(self, happens: Callable[[], bool]) -> None:
        self._happens = happens
        self._over = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Tell whether it has been struck, or ended."""
        return self._over.is_set()

    def step(self) -> None:
        """Do one thing that lasts, or die."""
        if not self.is_over and self._happens():
            self._over.set()
        if self.is_over:
            raise Death

    def strike(self) -> None:
        """End it here."""
        self._over.set()
        raise Death

    async def of(self, work: Coroutine[Any, Any, None]) -> None:
        """Work until death."""
        working, dying = asyncio.ensure_future(work), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait({working, dying}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and not self._over.is_set():
                working.result()
        finally:
            self._over.set()
            await ended(working, dying)


class Mortal:
    """What outlives a process, as that process uses it: it may die before any step, or after it and before it knows."""

    def __init__(
        self, lasting: Any, steps: frozenset[str], life: Life, done: Callable[[], None] = lambda: None
    ) -> None:
        """``done`` is told of every step that came back, whether its process lives to know or not."""
        self._lasting = lasting
        self._steps = steps
        self._strike = life.step
        self._done = done

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._lasting, name)
        if name not in self._steps:
            return step

        def mortal(*args: Any) -> Any:
            self._strike()
            result = step(*args)
            self._done()
            self._strike()
            return result

        return mortal


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """End tasks, and wait until they have."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
