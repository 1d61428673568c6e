"""A coordinator's events about refused jobs, calls and connections, and their limit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from local_federation import Enrolment, RunningFederation, federation, spec

from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName, Role
from dpspca.server.events import EVENTS
from dpspca.server.refusal_events import PAUSE_SECONDS, RefusalEvents

EVE = PartyName("town", Role.ANALYST, "eve")


class Collected:
    """Events that were emitted."""

    def __init__(self) -> None:
        self.refused: list[dict[str, Any]] = []

    def __call__(self, event: str, /, **fields: Any) -> None:
        assert tuple(fields) == EVENTS[event]
        if event == "refused":
            self.refused.append(fields)


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[tuple[RunningFederation, Collected]]:
    events = Collected()
    async with federation(Enrolment.create(folder), [], events=events) as running:
        yield running, events


def test_a_refused_job_is_an_event_and_repetitions_are_counted(tmp_path: Path) -> None:
    async def scene() -> None:
        async with watched(tmp_path) as (running, events):
            eve = running.enrolment.identity(Role.ANALYST, "eve")
            stolen = running.enrolment.job(spec(), eve, ["site-0"])
            for _ in range(3):
                with pytest.raises(DpspcaError):
                    await running.analyst.submit_signed(stolen, spec())
            ada = "dpspca://town/analyst/ada"
            assert events.refused == [{"party": ada, "call": "Submit", "code": "refused", "repeated": 0}]

    asyncio.run(scene())


def test_a_revoked_caller_is_an_event(tmp_path: Path) -> None:
    async def scene() -> None:
        async with watched(tmp_path) as (running, events):
            eve = running.enrolment.identity(Role.ANALYST, EVE.name)
            async with AsyncFederation(running.coordinator.address, eve, retry_seconds=0) as before:
                await before.jobs()
                running.enrolment.authority.revoke(EVE)
                running.revoked.append(running.enrolment.revocations())
                with pytest.raises(DpspcaError):
                    await before.jobs()
            async with AsyncFederation(running.coordinator.address, eve, retry_seconds=0) as after:
                with pytest.raises(DpspcaError):
                    await after.jobs()
            assert events.refused == [{"party": EVE.uri, "call": "List", "code": "revoked", "repeated": 0}]

    asyncio.run(scene())


def test_a_connection_that_is_refused_is_an_event(tmp_path: Path) -> None:
    async def scene() -> None:
        async with watched(tmp_path) as (running, events):
            eve = running.enrolment.identity(Role.ANALYST, EVE.name)
            running.enrolment.authority.revoke(EVE)
            running.revoked.append(running.enrolment.revocations())
            async with AsyncFederation(running.coordinator.address, eve, retry_seconds=0) as after:
                with pytest.raises(DpspcaError):
                    await after.jobs()
            assert events.refused == [{"party": EVE.uri, "call": None, "code": "revoked", "repeated": 0}]

    asyncio.run(scene())


def test_t35_refusals_fill_the_events_once_a_minute_at_most() -> None:
    """For each party and code."""
    events, now = Collected(), [0.0]
    refusals = RefusalEvents(events, lambda: now[0])
    for _ in range(1000):
        refusals.note(EVE, "Submit", "refused")
    refusals.note(EVE, None, "revoked")
    refusals.note(None, None, "refused")
    now[0] += PAUSE_SECONDS
    refusals.note(EVE, "Get", "refused")
    assert [(each["party"], each["code"], each["repeated"]) for each in events.refused] == [
        (EVE.uri, "refused", 0),
        (EVE.uri, "revoked", 0),
        (None, "refused", 0),
        (EVE.uri, "refused", 999),
    ]
