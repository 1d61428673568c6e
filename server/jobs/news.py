"""Waiting for news under a name: whoever waits for one name is woken by news of that name alone.

With one bell for all, 100 jobs that wait for 1,000 absent providers would wake 100,000 times whenever anybody comes or
goes, and an honest job would wait for them.
"""

import asyncio
from collections.abc import Collection


class News:
    """Who waits for which names. A name for which nobody waits takes no memory."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """In the order in which they began to wait: so they are woken in the same order in every run."""

    async def of(self, names: Collection[str]) -> None:
        """Wait until there is news of one of these names."""
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for name in names:
            self._waiting.setdefault(name, {})[told] = None
        try:
            await told
        finally:
            for name in names:
                waiting = self._waiting[name]
                waiting.pop(told, None)
                if not waiting:
                    del self._waiting[name]

    def tell(self, name: str) -> None:
        """Wake everybody who waits for this name."""
        for told in list(self._waiting.get(name, ())):
            if not told.done():
                told.set_result(None)
