"""A provider's stream is checked for as long as it is open, and a bug in the checks ends it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_federation import Enrolment

from dpspca.common.errors import NotTrustedError, RefusedError
from dpspca.common.names import Role
from dpspca.server.jobs.roster import Link, Roster
from dpspca.server.rpc.provider_service import ProviderService

HEARTBEAT = 0.05
REVOKED = NotTrustedError("Its certificate was revoked.", "Enrol again.")


class OpenAdmission:
    """Raises the given problems one after the other, then none."""

    def __init__(self, *verdicts: Exception | None) -> None:
        self._verdicts = list(verdicts)

    def identify(self, *_: object) -> None:
        if self._verdicts and (problem := self._verdicts.pop(0)):
            raise problem


def checked(folder: Path, door: Any, each_heartbeat: Callable[[Link], None] = Link.note_activity) -> Link:  # a door
    """Check a stream for ten heartbeats."""
    me = Enrolment.create(folder).identity(Role.COORDINATOR, "hub")

    async def scene() -> Link:
        link = Link("north", {})
        service = ProviderService(door, Roster(), lambda: me, heartbeat_seconds=HEARTBEAT)  # type: ignore[arg-type]
        checks = asyncio.create_task(service._check_regularly(link, None))  # type: ignore[arg-type]
        for _ in range(10):
            await asyncio.sleep(HEARTBEAT)
            each_heartbeat(link)
        checks.cancel()
        await asyncio.gather(checks, return_exceptions=True)
        return link

    return asyncio.run(scene())


def test_a_stream_without_problems_stays_open(tmp_path: Path) -> None:
    assert not checked(tmp_path, OpenAdmission()).closed


def test_t33_revoking_a_provider_ends_its_stream(tmp_path: Path) -> None:
    assert checked(tmp_path, OpenAdmission(None, None, REVOKED)).ended_by is REVOKED


def test_the_stream_of_a_silent_provider_ends(tmp_path: Path) -> None:
    link = checked(tmp_path, OpenAdmission(), each_heartbeat=lambda _: None)
    assert link.closed
    assert isinstance(link.ended_by, RefusedError)


@pytest.mark.parametrize("fault", [OSError(20, "Not a directory"), ValueError("unforeseen")])
def test_t33_a_bug_in_the_checks_ends_the_stream(
    tmp_path: Path, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the stream would stay open without checks, even after a revocation."""
    link = checked(tmp_path, OpenAdmission(None, fault))
    assert link.closed
    assert isinstance(link.ended_by, RefusedError)
    assert "north" in caplog.text
