"""Threads for work whose time may depend on rows."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Result = TypeVar("Result")
Part = TypeVar("Part")


class RowThreads:
    """Threads for work on rows and for nothing else, and what waits for one of them.

    Everything else that a coordinator can time (the end of a job, a receipt, what is asked again or refused, an answer
    that is stored) never waits for this work, and so does not show when it ends. Work that has to wait for other work
    does show it. Each work ahead adds a time that depends on rows, but by at most a tenth of its own interval. So the
    result of work that may have to wait leaves at an interval that is the sum of its own and of those ahead.

    Work is ahead until its result has left. If it were ahead until it is done, the interval of the next query would
    show which of the two came first.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="rows")
        self._most = most
        self._lock = Lock()
        self._ahead: list[float] = []

    def submit(self, interval: float, work: Callable[..., Result], *arguments: object) -> "QueuedWork[Result]":
        """Queue work whose result would leave on a schedule of this interval, in seconds."""
        with self._lock:
            may_have_to_wait = len(self._ahead) >= self._most
            longer = interval + sum(self._ahead) if may_have_to_wait else interval
            self._ahead.append(interval)
        result = asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
        return QueuedWork(result, longer, partial(self._left, interval))

    def _left(self, interval: float) -> None:
        with self._lock:
            self._ahead.remove(interval)


@dataclass(frozen=True, slots=True)
class QueuedWork(Generic[Result]):
    """Work in a queue, and the interval of the schedule on which its result may leave."""

    result: "asyncio.Future[Result]"
    interval: float
    left: Callable[[], None]
    """Notes that the result has left, so that this work is no longer ahead of other work. Call it once."""


_ROWS: Final = RowThreads(min(32, (os.cpu_count() or 1) + 4))
_OPENINGS: Final = ThreadPoolExecutor(thread_name_prefix="openings")
"""Threads in which jobs are opened. That is free and leaves at fine moments, so it must not wait for work on rows."""
_FILE_CHECKS: Final = ThreadPoolExecutor(thread_name_prefix="file-checks")
"""Threads in which the names and stamps of arriving files are checked, before every query: also before one that is
repeated or refused, which costs nothing. So a check must wait neither for work on rows nor until a file is read."""
_FILE_READINGS: Final = ThreadPoolExecutor(thread_name_prefix="file-readings")
"""Threads in which a file that arrived is read and counted. No answer is made in them."""


def queue_row_work(interval: float, work: Callable[..., Result], *arguments: object) -> QueuedWork[Result]:
    """Start work whose time may depend on rows, in a thread for such work (``RowThreads``)."""
    return _ROWS.submit(interval, work, *arguments)


def run_in_opening_thread(work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Start to open a job, in a thread for that."""
    return asyncio.get_running_loop().run_in_executor(_OPENINGS, work, *arguments)


def run_in_check_thread(work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Start to check the names and stamps of arriving files, in a thread for that."""
    return asyncio.get_running_loop().run_in_executor(_FILE_CHECKS, work, *arguments)


def run_in_reading_thread(work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Start to read and count a file that arrived, in a thread for that."""
    return asyncio.get_running_loop().run_in_executor(_FILE_READINGS, work, *arguments)


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
