"""While a job waits, missing providers are reported, whatever a coordinator says of them."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from facts import facts, names_facts

from dpspca.cli.render import absent_providers
from dpspca.client.connection import AWAY, CONNECTED, UNKNOWN, Presence
from dpspca.client.connection.errors import AwayError
from dpspca.client.connection.jobs import JobStatus, ParticipantStatus
from dpspca.common.errors import InvalidDataError, RefusedError
from dpspca.common.trust import REVOKED

STATUS = JobStatus(
    *("a" * 64, "ada", "cohort", "running", "", 5, 0, "", 0),
    submitted=datetime.now(UTC),
    ended=None,
    participants=(ParticipantStatus("north", 1, 0, ""),),
)


@dataclass
class Known:
    """A federation with some providers that offer the data set, and what its coordinator says of others."""

    offering: tuple[str, ...]
    states: dict[str, str]

    async def data_sets(self) -> list[Any]:
        return [SimpleNamespace(provider=name, data_set="cohort") for name in self.offering]

    async def presence(self, names: list[str]) -> list[Presence]:
        return [Presence("provider", name, self.states[name], None, False, (), None) for name in names]


def test_a_misspelt_provider_is_named_with_the_one_that_was_meant() -> None:
    federation: Any = Known(("north", "south"), {"nroth": UNKNOWN, "north2": AWAY})
    found = asyncio.run(absent_providers.absent(federation, "cohort", ["nroth", "north2"]))
    assert names_facts(found["nroth"], "'north'")
    assert not names_facts(found["north2"], "'north'"), "the coordinator knows this one"
    both = asyncio.run(absent_providers.absent(federation, "cohort", ["nroth", "north"]))
    assert not names_facts(both["nroth"], "'north'"), "north is in the job already"


def test_no_job_is_said_to_wait_for_a_revoked_provider(capsys: pytest.CaptureFixture[str]) -> None:
    federation: Any = Known(("north",), {"north": CONNECTED, "east": REVOKED})
    with pytest.raises(RefusedError, match=facts("east", "revoked")):
        asyncio.run(absent_providers.warn_before_job(federation, "cohort", ["north", "east"], 600))
    assert capsys.readouterr().err == ""


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
