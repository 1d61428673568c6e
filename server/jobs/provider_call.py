"""Asks one provider until it replies, whatever happens to its connection."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from dpspca.common.errors import DpspcaError

from .roster import Link, ProviderLostError, ProviderNotReadyError

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 30.0


def pauses() -> Iterator[float]:
    """Return after how many seconds each time a provider that was not ready is asked again."""
    pause = FIRST_PAUSE
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE)


async def ask_until_replied(
    wait: Callable[[], Awaitable[Link]],
    ask: Callable[[Link, asyncio.Timeout], Awaitable[None]],
    seconds: float,
    missing: Callable[[], str],
) -> str | None:
    """Ask until there is a reply or the deadline passes; return the reason if the provider drops out.

    If it loses its connection, wait for it and ask again. If it is not ready, ask again after a pause.
    """
    waits, not_ready = pauses(), ""
    try:
        async with asyncio.timeout(seconds) as deadline:
            while True:
                link = await wait()
                try:
                    await ask(link, deadline)
                except ProviderLostError:
                    continue
                except ProviderNotReadyError as problem:
                    not_ready = f" {problem}"
                    await asyncio.sleep(next(waits))
                else:
                    return None
    except TimeoutError:
        return missing() + not_ready
    except DpspcaError as problem:
        return str(problem)
