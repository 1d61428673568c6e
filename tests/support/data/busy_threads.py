"""Keeps every thread for work on rows busy, as answers to other jobs do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Event

from timeouts import TIMEOUT

from dpspca.provider.data.threads import queue_row_work

MORE_THAN_THREADS = 200


@asynccontextmanager
async def busy_row_threads() -> AsyncIterator[None]:
    """Keep the threads busy for a while, and check at the end that no work was done in them meanwhile."""
    let_go = Event()
    works = [queue_row_work(0.0, let_go.wait, TIMEOUT) for _ in range(MORE_THAN_THREADS)]
    try:
        yield
        assert not any(work.result.done() for work in works)
    finally:
        let_go.set()
        for work in works:
            assert await work.result
            work.left()
