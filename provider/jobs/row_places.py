"""Places in which answers are made from rows: how many at once, and who is next.

How long an answer takes to make depends on rows, and it leaves on a schedule that hides this. If the next query could
begin when the work is done, its own answer would show that moment, on a schedule that may be far finer. So a place is
taken until its answer has left. Who is next follows from the order of queries, from their plans, and from when answers
left. All of this is known to whoever asks.

Everything else that a coordinator can time needs no place: the end of a job, a receipt, what is asked again or refused,
an answer that is stored.

One analyst can take half of the places. Otherwise a few of his jobs whose answers leave late, such as those about all
rows of a person, would stop all others for a price next to nothing. Two analysts together can take all.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

Result = TypeVar("Result")

PLACES: Final = min(32, (os.cpu_count() or 1) + 4)


@dataclass(eq=False, slots=True)
class _Wish:
    """A query that needs a place, or has one."""

    analyst: str
    memory: int
    granted: "asyncio.Future[None]"


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

    @asynccontextmanager
    async def place(self, analyst: str, memory: int = 0) -> AsyncIterator[None]:
        """Wait for a place, and keep it until the block ends.

        ``memory`` is how many bytes an answer takes. It must not depend on rows.
        """
        wish = _Wish(analyst, memory, asyncio.get_running_loop().create_future())
        self._waiting.append(wish)
        self._grant()
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
        """Give places to those that wait, in the order in which they came. None passes one that waits for memory."""
        for wish in list(self._waiting):
            if wish.granted.done() or sum(each.analyst == wish.analyst for each in self._taken) >= self._share:
                continue
            if not self._has_room(wish):
                return
            self._waiting.remove(wish)
            self._taken.append(wish)
            wish.granted.set_result(None)

    def _has_room(self, wish: _Wish) -> bool:
        if not self._taken or self._memory is None:
            return len(self._taken) < self._most
        needed = wish.memory + sum(each.memory for each in self._taken)
        return len(self._taken) < self._most and needed <= self._memory
