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
class Wish:
    """A query that needs a place, or has one."""

    analyst: str
    memory: int
    granted: "asyncio.Future[None]"
    at_once: bool = False
    """Whether a place was free when it asked."""
    passed: int = 0
    """How many others got a place while this one waited for memory."""
    passed_by_own: int = 0
    """How many of the same analyst did, while it waited for his own answers to leave."""

    def withdraw(self, problem: Exception) -> None:
        """Stop waiting, because of this problem. A place that was given is kept."""
        if not self.granted.done():
            self.granted.set_exception(problem)


class RowPlaces:
    """Places, each with a thread, and the queries that wait for one. For use on one event loop."""

    def __init__(self, places: int | None = None, memory: int | None = None) -> None:
        """``memory`` is how many bytes all answers may take that are made at once. One alone may take more."""
        self._most = places or PLACES
        self._share = max(1, self._most // 2)
        self._memory = memory
        self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="rows")
        self._waiting: list[Wish] = []
        self._taken: list[Wish] = []
        self._turn_of: dict[str, int] = {}
        self._turns = count(1)

    def ask(self, analyst: str, memory: int = 0) -> Wish:
        """Ask for a place. Whoever asks must then wait for it with ``taken``.

        ``memory`` is how many bytes an answer takes. It must not depend on rows.
        """
        counted = 0 if self._memory is None or SMALL * memory <= self._memory else memory
        wish = Wish(analyst, counted, asyncio.get_running_loop().create_future())
        self._waiting.append(wish)
        self._grant()
        wish.at_once = wish.granted.done()
        return wish

    @asynccontextmanager
    async def taken(self, wish: Wish) -> AsyncIterator[None]:
        """Wait for a place, and keep it until the block ends. Raise the problem if the wish is withdrawn."""
        try:
            await wish.granted
            yield
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

    def _next(self) -> Wish | None:
        """Choose the oldest query of the analyst whose turn was longest ago.

        Others pass one that waits for memory, but only as often as there are places: then they wait, too. While it
        waits for its own analyst's answers alone, only his queries pass it, and only they wait.
        """
        passed: list[Wish] = []
        held_back = {wish.analyst for wish in self._waiting if self._is_passed_by_own(wish)}
        for wish in sorted(self._waiting, key=lambda each: self._turn_of.get(each.analyst, 0)):
            if wish.granted.done() or self._places_of(wish) >= self._share:
                continue
            if not self._has_own_memory(wish):
                passed.append(wish)
            elif wish.analyst in held_back:
                continue
            elif self._memory_of(self._taken, wish) <= (self._memory or 0):
                for each in passed:
                    if self._has_own_memory(each):
                        each.passed += 1
                    else:
                        each.passed_by_own += each.analyst == wish.analyst
                return wish
            elif wish.passed >= self._most:
                return None
            else:
                passed.append(wish)
        return None

    def _is_passed_by_own(self, wish: Wish) -> bool:
        """Tell whether enough of its analyst's queries passed one that waits for his other answers."""
        return not wish.granted.done() and wish.passed_by_own >= self._most and not self._has_own_memory(wish)

    def _places_of(self, wish: Wish) -> int:
        """Count its analyst's places."""
        return sum(each.analyst == wish.analyst for each in self._taken)

    def _has_own_memory(self, wish: Wish) -> bool:
        """Tell whether it is its analyst's first answer, or he then has at most his half of the memory."""
        own = [each for each in self._taken if each.analyst == wish.analyst]
        return 2 * self._memory_of(own, wish) <= (self._memory or 0)

    @staticmethod
    def _memory_of(taken: Sequence[Wish], wish: Wish) -> int:
        """Return how many bytes all of them take; 0 if the memory of at most one is counted."""
        counted = [each.memory for each in (*taken, wish) if each.memory]
        return sum(counted) if wish.memory and len(counted) > 1 else 0
