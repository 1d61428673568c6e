"""Timeouts of tests, and an event loop whose clock stops while the machine stands still.

A virtual machine with busy neighbours may lose its processor for seconds. A party that must answer within two seconds
is then late without any bug. If a job and its providers run in one process, the clock of their timeouts stops with
them. If they run in several processes, their timeouts are longer.

Threads do the work on rows. A busy machine slows them down while the event loop goes on. So the clock runs slowly while
another thread of the process works or wants to: a deadline measures idleness.
"""

import asyncio
import selectors
import time
from typing import Any

TIMEOUT = 60
"""Seconds to wait for something that must happen. Tests with another timeout name it."""
PROGRAM_TIMEOUT = 10 * TIMEOUT
"""The same for a program that starts others, because each takes time to load on a busy machine."""
SLICE = 0.05
"""Seconds that an event loop waits at a time. If it wakes later, the machine stood still."""
LONGEST_STEP = 2 * SLICE
"""The most seconds that count between two readings of the clock."""

BUSY = 1 / 4
"""Speed of the clock while another thread works. It is not zero, so a test whose threads always work still ends."""
LEAST_WORK = 0.1
"""Share of processor time above which another thread counts as working, even if it hardly gets a processor."""


class _Slices(selectors.DefaultSelector):  # type: ignore[misc, valid-type]  # which class that is depends on the system
    """Waits in slices, so that the event loop reads the clock often."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(SLICE if timeout is None else min(timeout, SLICE))


class SteadyLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock runs only while this process runs, and slowly while other threads work."""

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
        self._steady += self._pace * min(now - self._seen, LONGEST_STEP)
        self._seen = now
        return self._steady


def _work_of_others() -> float:
    """Return the processor time of all threads of this process except the calling one."""
    return time.process_time() - time.thread_time()


def use_steady_loops() -> None:
    """Make `asyncio.run` use such loops in this process from now on."""
    asyncio.events.new_event_loop = SteadyLoop  # Python will remove event loop policies
