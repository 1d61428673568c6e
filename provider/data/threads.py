"""Threads for work whose time may depend on rows."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Result = TypeVar("Result")

_THREADS: Final = ThreadPoolExecutor(thread_name_prefix="rows")
"""Threads for work on rows and for nothing else. Everything else that a coordinator can time here (the end of a job, a
receipt, an answer that is stored) never waits for this work, and so does not show when it ends."""


def run_in_row_thread(work: Callable[..., Result], *arguments: object) -> "asyncio.Future[Result]":
    """Start work whose time may depend on rows, in a thread for such work."""
    return asyncio.get_running_loop().run_in_executor(_THREADS, work, *arguments)
