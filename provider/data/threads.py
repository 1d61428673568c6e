"""Threads for work whose time may depend on rows."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Made = TypeVar("Made")

_THREADS: Final = ThreadPoolExecutor(thread_name_prefix="rows")
"""Threads for work on rows, and for nothing else: whatever else a coordinator can time here (the end of a job, a
receipt, an answer that is stored) never waits for such work, and so does not show when it ends."""


def in_a_thread_for_rows(work: Callable[..., Made], *arguments: object) -> "asyncio.Future[Made]":
    """Begin work whose time may depend on rows."""
    return asyncio.get_running_loop().run_in_executor(_THREADS, work, *arguments)
