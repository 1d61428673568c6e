"""Warn about providers of a job that are not connected: before it is submitted, and whenever it makes no progress.

Neither warning stops the job, because such a provider may still connect.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import typer

from dpspca.client.federation import AsyncFederation, FederationError
from dpspca.client.jobs import JobStatus
from dpspca.common.text import printable

FIRST_PAUSE: Final = 2.0
"""Seconds without progress before the first check for absent providers. The pause doubles with each further check."""
LONGEST_PAUSE: Final = 60.0
"""The longest pause between two checks, in seconds."""


async def absent(federation: AsyncFederation, data_set: str, names: Iterable[str]) -> list[str]:
    """Return those of the named providers that do not offer a data set now."""
    there = {offer.provider for offer in await federation.data_sets() if offer.data_set == data_set}
    return [name for name in names if name not in there]


async def warn_before_job(federation: AsyncFederation, data_set: str, names: Iterable[str], seconds: int) -> None:
    """Warn about providers that a job names but that are absent now. A name may be misspelt."""
    missing = ", ".join(await absent(federation, data_set, names))
    if missing:
        print_message(
            f"Not connected, or not offering {data_set!r}: {missing}. Check the names. The job waits up to {seconds} "
            "seconds for an answer, then continues without them or fails."
        )


async def report_while_waiting(federation: AsyncFederation, latest: Callable[[], JobStatus]) -> None:
    """Report absent providers when a job makes no progress, and again when they change. Run until cancelled."""
    reported: list[str] = []
    pause, before = FIRST_PAUSE, latest()
    with suppress(FederationError):  # the caller, which follows the job, reports it
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE) if latest() is before else FIRST_PAUSE
            if latest() is before:
                asked = [each.name for each in before.participants if not each.reason]
                missing = await absent(federation, before.data_set, asked)
                if missing != reported:
                    waiting = f"Waiting for {', '.join(missing)}: not connected, or not offering the data set."
                    print_message(waiting if missing else "All providers are connected again.")
                reported = missing
            before = latest()


def print_message(text: str) -> None:
    """Print a message to standard error, apart from the command's result."""
    typer.echo(printable(text), err=True)
