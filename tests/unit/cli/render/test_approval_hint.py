"""Before a job is signed, its analyst is told that a person may take longer to approve it than it is valid."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from facts import names_facts
from local_federation import spec

from dpspca.cli.render import approval_hint
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import RefusedError

if TYPE_CHECKING:
    from dpspca.client.federation import AsyncFederation


class Stated:
    """A federation whose providers ask for so many approvals. A negative number stands for a failure, 9 for silence."""

    def __init__(self, **needed: int) -> None:
        self.needed = needed

    async def terms(self, *_: object) -> Sequence[Any]:
        if -1 in self.needed.values():
            raise RefusedError("Nothing is stated.", "Ask later.")
        if 9 in self.needed.values():
            await asyncio.sleep(60)
        return [
            SimpleNamespace(party=SimpleNamespace(name=name), conditions=SimpleNamespace(approvals_needed=count))
            for name, count in self.needed.items()
        ]


def hinted(capsys: pytest.CaptureFixture[str], answer_seconds: int = 600, **needed: int) -> str:
    plan = catalogue.plan(spec(answer_seconds=answer_seconds))
    asyncio.run(approval_hint.hint_at_validity(cast("AsyncFederation", Stated(**needed)), plan, "cohort", None))
    return capsys.readouterr().err


def test_the_hint_names_who_asks_how_long_the_job_is_valid_and_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert names_facts(hinted(capsys, north=2, south=0, west=1), "north, west", 12, "--valid-hours", 168)


def test_nothing_is_said_without_need_and_no_failure_stops_the_job(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approval_hint, "SECONDS", 0.05)
    assert hinted(capsys, north=0) == ""
    assert hinted(capsys, north=-1) == ""
    assert hinted(capsys, north=9) == ""
    assert hinted(capsys, answer_seconds=86_400, north=1) == "", "it is valid as long as any job may be"
