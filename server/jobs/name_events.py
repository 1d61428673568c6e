"""Events by name: a task that waits for one name is woken only by events of that name.

With one event for all names, 100 jobs that wait for 1,000 absent providers would wake 100,000 times whenever a provider
connects or leaves, and would delay all other jobs.
"""

import asyncio
from collections.abc import Collection


class NameEvents:
    """Tasks that wait for names. A name that no task waits for takes no memory."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """In the order in which they began to wait, so that every run wakes them in the same order."""

    async def wait_for(self, names: Collection[str]) -> None:
        """Wait until ``notify`` is called for one of these names."""
        event: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for name in names:
            self._waiting.setdefault(name, {})[event] = None
        try:
            await event
        finally:
            for name in names:
                waiting = self._waiting[name]
                waiting.pop(event, None)
                if not waiting:
                    del self._waiting[name]

    def notify(self, name: str) -> None:
        """Wake every task that waits for this name."""
        for event in list(self._waiting.get(name, ())):
            if not event.done():
                event.set_result(None)
