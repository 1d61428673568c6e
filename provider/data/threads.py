"""Threads for work whose time may depend on rows."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Result = TypeVar("Result")
Part = TypeVar("Part")

_THREADS: Final = ThreadPoolExecutor(thread_name_prefix="rows")
"""Threads for work on rows and for nothing else. Everything else that a coordinator can time here (the end of a job, a
receipt, an answer that is stored) never waits for this work, and so does not show when it ends."""


_OPENINGS: Final = ThreadPoolExecutor(thread_name_prefix="openings")
"""Threads in which jobs are opened. That is free and leaves at fine moments, so it must not wait for work on rows."""


def run_in_row_thread(work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Start work whose time may depend on rows, in a thread for such work."""
    return asyncio.get_running_loop().run_in_executor(_THREADS, work, *arguments)


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
