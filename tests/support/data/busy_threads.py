"""Takes every place for work on rows, as answers to other jobs do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from threading import Event

from timeouts import TIMEOUT

from dpspca.provider.jobs.row_places import PLACES, RowPlaces


@asynccontextmanager
async def busy_places(places: RowPlaces) -> AsyncIterator[None]:
    """Keep all places and their threads busy for a while."""
    let_go = Event()
    async with AsyncExitStack() as taken:
        for number in range(PLACES):
            await taken.enter_async_context(places.taken(places.ask(f"analyst {number}")))
        works = [places.start(let_go.wait, TIMEOUT) for _ in range(PLACES)]
        try:
            yield
        finally:
            let_go.set()
            assert all(await asyncio.gather(*works))
