"""How long tests wait, and a clock for them that stands still when the machine does.

A virtual processor with busy neighbours is taken away for seconds at a time. A party that has to answer within two
seconds is late then, and no fault of anybody's. A job, its providers and the time they are given stand still
together where they live in one process; where they live in several, they are given more time.

Work on rows is done in threads, which a busy machine slows down while the event loop goes on. So time there hardly
passes while another thread of the process works or wants to: a deadline is about who does nothing.
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

BUSY = 1 / 4
"""How fast time goes while another thread works: a test in which one always does still ends."""
LEAST_WORK = 0.1
"""The share of a moment that work takes which has hardly a processor to itself."""


class _Slices(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # which class that is depends on the system
    """Waits in slices, so that its owner looks at the clock again and again."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(SLICE if timeout is None else min(timeout, SLICE))


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose time goes on only as far as this process does, and hardly while other threads work."""

    def __init__(self) -> None:
        self._seen = self._steady = self._looked = time.monotonic()
        self._worked = _work_of_others()
        self._pace = 1.0
        super().__init__(_Slices())

    def time(self) -> float:
        now = time.monotonic()
        if now - self._looked > SLICE:
            worked = _work_of_others()
            self._pace = BUSY if worked - self._worked > LEAST_WORK * (now - self._looked) else 1.0
            self._looked, self._worked = now, worked
        self._steady += self._pace * min(now - self._seen, MOST)
        self._seen = now
        return self._steady


def _work_of_others() -> float:
    """Give the processor time of all threads of this process but the caller's."""
    return time.process_time() - time.thread_time()


def have_every_loop_steady() -> None:
    """Let `asyncio.run` use such loops from now on, in this process."""
    asyncio.events.new_event_loop = SteadyLoop  # policies of event loops will go from Python
