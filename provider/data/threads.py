"""Threads for work that must not wait for answers that are made from rows (``provider/jobs/row_places.py``)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

Result = TypeVar("Result")
Part = TypeVar("Part")


_OPENINGS: Final = ThreadPoolExecutor(thread_name_prefix="openings")
"""Threads in which jobs are opened. That is free and leaves at fine moments, so it must not wait for work on rows."""
_FILE_CHECKS: Final = ThreadPoolExecutor(thread_name_prefix="file-checks")
"""Threads in which the names and stamps of arriving files are checked, before every query: also before one that is
repeated or refused, which costs nothing. So a check must wait neither for work on rows nor until a file is read."""
_FILE_READINGS: Final = ThreadPoolExecutor(thread_name_prefix="file-readings")
"""Threads in which a file that arrived is read and counted. No answer is made in them."""


_FREEING: Final = ThreadPoolExecutor(1, thread_name_prefix="freeing")
"""The thread that frees what was prepared of rows. How long that takes depends on how many there are."""


def free_in_thread(gone: list[object]) -> None:
    """Have a thread free what only this list holds."""
    _FREEING.submit(gone.clear)


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
