"""Say which providers of a job are missing, since when and why: before it is submitted, and while it waits for them.

Neither stops the job, because such a provider may still connect. Only one whose certificate was revoked is refused, as
``AsyncFederation.submit`` refuses it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Final

import typer

from dpspca.client.connection import (
    AWAITING_APPROVAL,
    UNKNOWN,
    FederationError,
    JobStatus,
    Presence,
    require_admissible,
)
from dpspca.client.federation import AsyncFederation
from dpspca.common.choices import near_miss
from dpspca.common.errors import DpspcaError
from dpspca.common.text import printable

FIRST_PAUSE: Final = 2.0
"""Seconds without progress before the first check for absent providers. The pause doubles with each further check."""
LONGEST_PAUSE: Final = 60.0
"""The longest pause between two checks, in seconds."""


async def absent(federation: AsyncFederation, data_set: str, names: Collection[str]) -> dict[str, str]:
    """Return those of the named providers that do not offer a data set now, each with the reason."""
    there = {offer.provider for offer in await federation.data_sets() if offer.data_set == data_set}
    missing = [name for name in names if name not in there]
    known = {each.name: each for each in await federation.presence(missing)}
    found = {}
    for name in missing:
        if name not in known:  # a coordinator of an earlier version
            found[name] = "not connected, or does not offer the data set"
        elif known[name].is_connected:
            found[name] = f"connected, but does not offer {data_set!r}"
        else:
            found[name] = f"{known[name].absence}{_meant(known[name], there - {*names})}"
    return found


def _meant(unknown: Presence, offering: Iterable[str]) -> str:
    """Return which provider of the data set was probably meant, if the coordinator does not know the name."""
    near = near_miss(unknown.name, sorted(offering)) if unknown.state == UNKNOWN else None
    return f"; did you mean {near!r}?" if near else ""


async def warn_before_job(federation: AsyncFederation, data_set: str, names: Collection[str], seconds: int) -> None:
    """Warn about providers that a job names but that are absent now. A name may be misspelt.

    A job that is refused for a revoked provider does not wait for anybody, so refuse it before the warning.
    """
    require_admissible(await federation.presence([*names]))
    missing = await absent(federation, data_set, names)
    if missing:
        print_message(
            f"Missing now: {_listed(missing)}. The job waits up to {seconds} seconds for an answer, then continues "
            "without them or fails."
        )


async def report_while_waiting(
    federation: AsyncFederation, latest: Callable[[], JobStatus], answer_seconds: int
) -> None:
    """Report absent providers whenever a job made no progress for longer. Run until cancelled."""
    reported = False
    pause, before, since = FIRST_PAUSE, latest(), monotonic()
    with _reported():
        while True:
            await asyncio.sleep(pause)
            if latest() is not before:
                pause, before, since = FIRST_PAUSE, latest(), monotonic()
                continue
            pause = min(2 * pause, LONGEST_PAUSE)
            asked = [each.name for each in before.participants if not each.reason]
            missing = await absent(federation, before.data_set, asked)
            if missing:
                print_message(f"Waiting for {_listed(missing)}. {_so_far(before, monotonic() - since, answer_seconds)}")
            elif reported:
                print_message("All providers are connected again.")
            reported = bool(missing)


@contextmanager
def _reported() -> Iterator[None]:
    """Print why nothing more is reported. The caller, which follows the job, reports calls that fail."""
    try:
        yield
    except FederationError:
        pass
    except DpspcaError as problem:  # what a coordinator says that is not trusted
        print_message(f"Missing providers are no longer reported. {problem}")


def _so_far(status: JobStatus, seconds: float, answer_seconds: int) -> str:
    waited = f"No progress for {seconds:.0f} seconds"
    if status.state == AWAITING_APPROVAL:
        return f"{waited}."
    return f"{waited}; after {answer_seconds} the job continues without them or fails."


def _listed(missing: Mapping[str, str]) -> str:
    return ", ".join(f"{name} ({why})" for name, why in missing.items())


def print_message(text: str) -> None:
    """Print a message to standard error, apart from the command's result."""
    typer.echo(printable(text), err=True)
