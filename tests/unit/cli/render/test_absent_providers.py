"""While a job waits, missing providers are reported, whatever a coordinator says of them."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from dpspca.cli.render import absent_providers
from dpspca.client.connection.errors import AwayError
from dpspca.client.connection.jobs import JobStatus, ParticipantStatus
from dpspca.common.errors import InvalidDataError

STATUS = JobStatus(
    *("a" * 64, "ada", "cohort", "running", "", 5, 0, "", 0),
    submitted=datetime.now(UTC),
    ended=None,
    participants=(ParticipantStatus("north", 1, 0, ""),),
)


@dataclass
class Lying:
    """A federation whose coordinator cannot be understood, or is gone."""

    problem: Exception

    async def data_sets(self) -> list[Any]:
        return []

    async def presence(self, _: list[str]) -> list[Any]:
        raise self.problem


@pytest.mark.parametrize(
    ("problem", "said"),
    [(InvalidDataError("It sent nan.", "Tell."), "It sent nan."), (AwayError("Gone.", "Wait."), "")],
)
def test_a_coordinator_that_says_nonsense_ends_the_reports_alone(
    problem: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(absent_providers, "FIRST_PAUSE", 0.0)
    federation: Any = Lying(problem)
    asyncio.run(absent_providers.report_while_waiting(federation, lambda: STATUS, 60))
    assert said in (err := capsys.readouterr().err)
    assert bool(said) == bool(err)
