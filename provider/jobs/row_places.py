"""Places in which answers are made from rows: how many at once, and who is next.

How long an answer takes to make depends on rows, and it leaves on a schedule that hides this. If the next query could
begin when the work is done, its own answer would show that moment, on a schedule that may be far finer. So a place is
taken until its answer has left. Who is next follows from the order of queries, from their plans, and from when answers
left. All of this is known to whoever asks.

Everything else that a coordinator can time needs no place: the end of a job, a receipt, what is asked again or refused,
an answer that is stored.

Analysts take turns, and one can have half of the places, and half of the memory beyond his first answer. Otherwise a
few of his jobs whose answers leave late, such as those about all rows of a person, would stop all others for a price
next to nothing. Who asks beside him may still have to wait for one of his answers.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Final, TypeVar

Result = TypeVar("Result")

PLACES: Final = min(32, (os.cpu_count() or 1) + 4)


SMALL: Final = 64
"""An answer that takes at most this part of the memory is not counted: it need not wait until a large one has left."""


@dataclass(eq=False, slots=True)
class _Wish:
    """A query that needs a place, or has one."""

    analyst: str
    memory: int
    granted: "asyncio.Future[None]"
    passed: int = 0
    """How many others got a place while this one waited for memory."""


class RowPlaces:
    """Places, each with a thread, and the queries that wait for one. For use on one event loop."""

    def __init__(self, places: int | None = None, memory: int | None = None) -> None:
        """``memory`` is how many bytes all answers may take that are made at once. One alone may take more."""
        self._most = places or PLACES
        self._share = max(1, self._most // 2)
        self._memory = memory
        self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="rows")
        self._waiting: list[_Wish] = []
        self._taken: list[_Wish] = []
        self._turn_of: dict[str, int] = {}
        self._turns = count(1)

    @asynccontextmanager
    async def place(self, analyst: str, memory: int = 0) -> AsyncIterator[bool]:
        """Wait for a place, and keep it until the block ends. Tell whether it was there at once.

        ``memory`` is how many bytes an answer takes. It must not depend on rows.
        """
        counted = 0 if self._memory is None or SMALL * memory <= self._memory else memory
        wish = _Wish(analyst, counted, asyncio.get_running_loop().create_future())
        self._waiting.append(wish)
        self._grant()
        at_once = wish.granted.done()
        try:
            await wish.granted
            yield at_once
        finally:
            (self._taken if wish in self._taken else self._waiting).remove(wish)
            self._grant()

    def start(self, work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
        """Start work on rows, in the thread of a place that the caller has."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def _grant(self) -> None:
        """Give places to those whose turn it is."""
        while len(self._taken) < self._most and (wish := self._next()):
            self._waiting.remove(wish)
            self._taken.append(wish)
            self._turn_of[wish.analyst] = next(self._turns)
            wish.granted.set_result(None)

    def _next(self) -> _Wish | None:
        """Choose the oldest query of the analyst whose turn was longest ago.

        Others pass one that waits for memory, but only as often as there are places: then they wait, too.
        """
        passed: list[_Wish] = []
        for wish in sorted(self._waiting, key=lambda each: self._turn_of.get(each.analyst, 0)):
            if wish.granted.done() or not self._is_fair(wish):
                continue
            if self._memory_of(self._taken, wish) <= (self._memory or 0):
                for each in passed:
                    each.passed += 1
                return wish
            if wish.passed >= self._most:
                return None
            passed.append(wish)
        return None

    def _is_fair(self, wish: _Wish) -> bool:
        """Tell whether its analyst has less than his share of places and memory."""
        own = [each for each in self._taken if each.analyst == wish.analyst]
        return len(own) < self._share and 2 * self._memory_of(own, wish) <= (self._memory or 0)

    @staticmethod
    def _memory_of(taken: Sequence[_Wish], wish: _Wish) -> int:
        """Return how many bytes all of them take; 0 if the memory of at most one is counted."""
        counted = [each.memory for each in (*taken, wish) if each.memory]
        return sum(counted) if wish.memory and len(counted) > 1 else 0
