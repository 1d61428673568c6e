"""How long tests wait, and a clock for them that stands still when the machine does.

A virtual processor with busy neighbours is taken away for seconds at a time. A party that has to answer within two
seconds is late then, and no fault of anybody's. A job, its providers and the time they are given stand still
together where they live in one process; where they live in several, they are given more time.
"""

import asyncio
import selectors
import time
from typing import Any

PATIENCE = 60
"""Seconds after which what is bound to come is given up. What has a time of its own names that instead."""
PROGRAM = 10 * PATIENCE
"""The same for a program that starts others: on a busy machine each of them needs its time to load."""
SLICE = 0.05
"""Seconds that an event loop waits at a time; when it wakes later, the machine stood still."""
MOST = 2 * SLICE
"""Seconds that count at the most between two looks at the clock."""


class _Slices(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # which class that is depends on the system
    """Waits in slices, so that its owner looks at the clock again and again."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(SLICE if timeout is None else min(timeout, SLICE))


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose time goes on only as far as this process does."""

    def __init__(self) -> None:
        self._seen = self._steady = time.monotonic()
        super().__init__(_Slices())

    def time(self) -> float:
        now = time.monotonic()
        self._steady += min(now - self._seen, MOST)
        self._seen = now
        return self._steady


def have_every_loop_steady() -> None:
    """Let `asyncio.run` use such loops from now on, in this process."""
    asyncio.events.new_event_loop = SteadyLoop  # policies of event loops will go from Python
