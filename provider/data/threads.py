"""Threads for work whose time may depend on rows."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Result = TypeVar("Result")
Part = TypeVar("Part")


class RowThreads:
    """Threads for work on rows and for nothing else, and what waits for one of them.

    Everything else that a coordinator can time (the end of a job, a receipt, what is asked again or refused, an answer
    that is stored) never waits for this work, and so does not show when it ends. Work that has to wait for other work
    does show it. So the result of such work leaves on the schedule of what is ahead of it, if its own is finer.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="rows")
        self._most = most
        self._lock = Lock()
        self._ahead: list[float] = []

    def submit(self, interval: float, work: Callable[..., Result], *arguments: object) -> "QueuedWork[Result]":
        """Queue work whose result would leave on a schedule of this interval, in seconds."""
        with self._lock:
            has_to_wait = len(self._ahead) >= self._most
            leaves_by = max(interval, *self._ahead) if has_to_wait and interval else interval
            self._ahead.append(leaves_by)
        result = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        result.add_done_callback(lambda _: self._done(leaves_by))
        return QueuedWork(result, leaves_by)

    def _done(self, interval: float) -> None:
        with self._lock:
            self._ahead.remove(interval)


@dataclass(frozen=True, slots=True)
class QueuedWork(Generic[Result]):
    """Work in a queue, and the interval of the schedule on which its result may leave."""

    result: "asyncio.Future[Result]"
    interval: float


_ROWS: Final = RowThreads(min(32, (os.cpu_count() or 1) + 4))
_OPENINGS: Final = ThreadPoolExecutor(thread_name_prefix="openings")
"""Threads in which jobs are opened. That is free and leaves at fine moments, so it must not wait for work on rows."""


def run_in_row_thread(work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Start work whose time may depend on rows, in a thread for such work."""
    return _ROWS.submit(0.0, work, *arguments).result


def queue_row_work(interval: float, work: Callable[..., Result], *arguments: object) -> QueuedWork[Result]:
    """Do the same, and say on which schedule the result may leave (``RowThreads``)."""
    return _ROWS.submit(interval, work, *arguments)


def run_in_opening_thread(work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Start to open a job, in a thread for that."""
    return asyncio.get_running_loop().run_in_executor(_OPENINGS, work, *arguments)


class OneBehind(Generic[Part]):
    """Works on one part after the other, in a thread of its own, while the next one is made. It raises what fails.

    At most two parts are in memory: one that is worked on, and one that waits.
    """

    def __init__(self, work: Callable[[Part], None]) -> None:
        self._work = work
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None

    def put(self, part: Part) -> None:
        """Wait for the part before this one, and start to work on this one."""
        self._wait()
        self._under_way = self._thread.submit(self._work, part)

    def _wait(self) -> None:
        if self._under_way is not None:
            self._under_way.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last part. If making parts failed, that is raised and nothing else."""
        with self._thread:
            if problem is None:
                self._wait()
