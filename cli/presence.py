"""Who of those that a job asks is not there: told before it is submitted, and whenever it stands still.

Neither stops the job: a provider that is not there may still come.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import typer

from dpspca.client.federation import AsyncFederation, FederationError
from dpspca.client.jobs import JobStatus

from .output import printable

FIRST_LOOK: Final = 2.0
"""Seconds without news after which it is asked who is there; each further time, twice as many."""
LAST_LOOK: Final = 60.0


async def absent(federation: AsyncFederation, data_set: str, names: Iterable[str]) -> list[str]:
    """Name those who do not offer a data set now."""
    there = {offer.provider for offer in await federation.data_sets() if offer.data_set == data_set}
    return [name for name in names if name not in there]


async def warn(federation: AsyncFederation, data_set: str, names: Iterable[str], seconds: int) -> None:
    """Say who of those that will be asked is not there: a name may be misspelt."""
    missing = ", ".join(await absent(federation, data_set, names))
    if missing:
        say(
            f"Not there now, or without {data_set!r}: {missing}. Check the names. The job waits up to {seconds} "
            "seconds for an answer, then goes on without or fails."
        )


async def tell(federation: AsyncFederation, latest: Callable[[], JobStatus]) -> None:
    """Say who is not there when a job stands still, and again when that has changed; for ever."""
    told: list[str] = []
    pause, before = FIRST_LOOK, latest()
    with suppress(FederationError):  # whoever follows the job says what is wrong
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LAST_LOOK) if latest() is before else FIRST_LOOK
            if latest() is before:
                asked = [each.name for each in before.participants if not each.reason]
                missing = await absent(federation, before.data_set, asked)
                if missing != told:
                    say(f"Waiting for {', '.join(missing)}: not there." if missing else "All are there again.")
                told = missing
            before = latest()


def say(text: str) -> None:
    """Tell a person, beside what a command prints."""
    typer.echo(printable(text), err=True)
