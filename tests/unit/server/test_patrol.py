"""A stream is watched for as long as it is open, whatever the watching meets."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from town import Town

from dpspca.common.errors import NotTrustedError, RefusedError
from dpspca.common.names import Role
from dpspca.server.jobs.roster import Link, Roster
from dpspca.server.rpc.provider_service import ProviderService

HEARTBEAT = 0.05
REVOKED = NotTrustedError("Its certificate was revoked.", "Enrol again.")


class Door:
    """Judges as it is told to, one time after the other; when nothing more is told, all is well."""

    def __init__(self, *verdicts: Exception | None) -> None:
        self._verdicts = list(verdicts)

    def identify(self, *_: object) -> None:
        if self._verdicts and (problem := self._verdicts.pop(0)):
            raise problem


def patrolled(folder: Path, door: Any, heard: Callable[[Link], None] = Link.heard) -> Link:  # a door
    """Watch a stream for ten heartbeats."""
    me = Town.found(folder).identity(Role.COORDINATOR, "hub")

    async def scene() -> Link:
        link = Link("north", {})
        service = ProviderService(door, Roster(), lambda: me, heartbeat_seconds=HEARTBEAT)  # type: ignore[arg-type]
        patrol = asyncio.create_task(service._patrol(link, None))  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.sleep(HEARTBEAT)
            heard(link)
        patrol.cancel()
        await asyncio.gather(patrol, return_exceptions=True)
        return link

    return asyncio.run(scene())


def test_a_stream_of_which_all_is_well_stays_open(tmp_path: Path) -> None:
    assert not patrolled(tmp_path, Door()).closed


def test_t33_a_party_that_was_revoked_meanwhile_is_shown_out(tmp_path: Path) -> None:
    assert patrolled(tmp_path, Door(None, None, REVOKED)).ended_by is REVOKED


def test_a_party_that_says_nothing_any_more_is_given_up(tmp_path: Path) -> None:
    ended = patrolled(tmp_path, Door(), heard=lambda _: None).ended_by
    assert "Nothing was heard" in str(ended)


@pytest.mark.parametrize("fault", [OSError(20, "Not a directory"), ValueError("unforeseen")])
def test_t33_a_fault_while_it_is_watched_ends_a_stream_and_not_the_watching(
    tmp_path: Path, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """It would stay open, and whoever is revoked later with it."""
    link = patrolled(tmp_path, Door(None, fault))
    assert link.closed
    assert isinstance(link.ended_by, RefusedError)
    assert str(link.ended_by) == "The coordinator met a fault. Connect again."
    assert "watched north" in caplog.text
