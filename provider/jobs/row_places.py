"""Places in which answers are made from rows: how many at once, and which query is next.

How long it takes to make an answer depends on rows. The answer leaves on a schedule that hides this. If the next query
began as soon as the work is done, its own answer would show that moment, on a schedule that may be far finer. So a
place is taken until its answer has left. Which query is next follows from the order of queries, from their plans, and
from when answers left. The coordinator and the analysts know all of this.

Nothing else that a coordinator can time needs a place: the end of a job, a receipt, a query that is repeated or
refused, a stored answer.

Analysts take turns. One analyst may have half of the places, and half of the memory beyond the first answer. Otherwise
a few jobs whose answers leave late, such as those about all rows of a person, would stop all other analysts at a price
close to nothing. Another analyst may still have to wait for one of these answers.
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
class PlaceRequest:
    """A query that needs a place, or has one."""

    analyst: str
    memory: int
    granted: "asyncio.Future[None]"
    at_once: bool = False
    """Whether a place was free when it asked."""
    overtaken: int = 0
    """How many others got a place while this one waited for memory."""
    overtaken_by_own: int = 0
    """How many of the same analyst did, while it waited for that analyst's answers to leave."""

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
        self._waiting: list[PlaceRequest] = []
        self._taken: list[PlaceRequest] = []
        self._turn_of: dict[str, int] = {}
        self._turns = count(1)

    def ask(self, analyst: str, memory: int = 0) -> PlaceRequest:
        """Ask for a place. The caller must then wait for it with ``taken``.

        ``memory`` is how many bytes an answer takes. It must not depend on rows.
        """
        counted = 0 if self._memory is None or SMALL * memory <= self._memory else memory
        request = PlaceRequest(analyst, counted, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._grant()
        request.at_once = request.granted.done()
        return request

    @asynccontextmanager
    async def taken(self, request: PlaceRequest) -> AsyncIterator[None]:
        """Wait for a place, and keep it until the block ends. Raise the problem if the request is withdrawn."""
        try:
            await request.granted
            yield
        finally:
            (self._taken if request in self._taken else self._waiting).remove(request)
            self._grant()

    def start(self, work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
        """Start work on rows, in the thread of a place that the caller has."""
        return asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)

    def _grant(self) -> None:
        """Give places to those whose turn it is."""
        while len(self._taken) < self._most and (request := self._next()):
            self._waiting.remove(request)
            self._taken.append(request)
            self._turn_of[request.analyst] = next(self._turns)
            request.granted.set_result(None)

    def _next(self) -> PlaceRequest | None:
        """Choose the oldest query of the analyst whose turn was longest ago.

        Others overtake one that waits for memory, but only as often as there are places: then they wait, too. While it
        waits for the same analyst's answers alone, only other queries of that analyst are counted, and then wait.
        """
        passed: list[PlaceRequest] = []
        held_back = {request.analyst for request in self._waiting if self._is_overtaken_by_own(request)}
        for request in sorted(self._waiting, key=lambda each: self._turn_of.get(each.analyst, 0)):
            if request.granted.done() or self._places_of(request) >= self._share:
                continue
            if not self._has_own_memory(request):
                passed.append(request)
            elif request.analyst in held_back:
                continue
            elif self._memory_of(self._taken, request) <= (self._memory or 0):
                for each in passed:
                    if self._has_own_memory(each):
                        each.overtaken += 1
                    else:
                        each.overtaken_by_own += each.analyst == request.analyst
                return request
            elif request.overtaken >= self._most:
                return None
            else:
                passed.append(request)
        return None

    def _is_overtaken_by_own(self, request: PlaceRequest) -> bool:
        """Tell whether enough queries of the same analyst overtook it while it waited for that analyst's answers."""
        return (
            not request.granted.done() and request.overtaken_by_own >= self._most and not self._has_own_memory(request)
        )

    def _places_of(self, request: PlaceRequest) -> int:
        """Count its analyst's places."""
        return sum(each.analyst == request.analyst for each in self._taken)

    def _has_own_memory(self, request: PlaceRequest) -> bool:
        """Tell whether it is its analyst's first answer, or both then take at most half of the memory."""
        own = [each for each in self._taken if each.analyst == request.analyst]
        return 2 * self._memory_of(own, request) <= (self._memory or 0)

    @staticmethod
    def _memory_of(taken: Sequence[PlaceRequest], request: PlaceRequest) -> int:
        """Return how many bytes all of them take; 0 if the memory of at most one is counted."""
        counted = [each.memory for each in (*taken, request) if each.memory]
        return sum(counted) if request.memory and len(counted) > 1 else 0
