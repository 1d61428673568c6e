"""`dpspca coordinator show` lists who is connected, with or without a job; `run` says who is missing, and why."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from facts import names_facts
from files_in_use import put
from live import live_parties
from local_federation import now

from dpspca.client.findings import UNCENTRED
from dpspca.common.names import PartyName, Role
from dpspca.common.trust.authority import Authority

JOB = [
    "--components",
    "2",
    "--norm-bound",
    "12",
    "--unit",
    "row-replace-one",
    "--epsilon",
    "4",
    "--delta",
    "1e-6",
    "--centering",
    "none",
]
ASKED = ["run", *JOB, "--dimension", 20, "--config", "ada.toml", "--data-set", "cohort"]

Here = Callable[..., Ended]


@pytest.fixture(scope="module")
def enrolment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("town")
    with live_parties(folder):
        yield folder


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], enrolment: Path) -> Here:
    return commands_in(enrolment, monkeypatch, capfd)


def parties(here: Here) -> dict[str, dict[str, Any]]:
    facts = here("coordinator", "show", "--config", "hub-up.toml", "--json").facts
    assert facts["serving"]
    return {each["name"]: each for each in facts["parties"]}


def test_providers_are_listed_before_their_first_job(here: Here) -> None:
    found = parties(here)
    assert list(found) == ["north", "south"]
    for each in found.values():
        assert (each["state"], each["connected"], each["jobs"]) == ("connected", True, 0)
        assert each["data_sets"] == ["cohort"]
        assert each["since"] is not None
        assert each["certificate_until"] > each["since"]
    shown = here("coordinator", "show", "--config", "hub-up.toml").out
    assert shown.count("connected since ") == 2
    assert "west" not in shown


@pytest.fixture
def answered(here: Here, enrolment: Path) -> Ended | None:
    """Run a job once that north and south answer, and for which west is missing."""
    if (enrolment / "one").exists():
        return None
    names = [word for name in ("north", "south", "west") for word in ("--provider", name)]
    ended = here(*ASKED, "--answer-seconds", 2, *names, "--out", "one")
    assert ended.code == 0, ended.err
    assert re.search(r"west \(unknown\b.* since .*\d{4}-\d\d-\d\d ", ended.err)
    return ended


@pytest.mark.usefixtures("answered")
def test_a_name_in_a_job_makes_no_party_of_the_coordinator(here: Here) -> None:
    found = parties(here)
    assert "west" not in found, "it never connected: a job may also misspell a name"
    assert found["north"]["jobs"] >= 1
    assert found["north"]["state"] == "connected"
    assert (found["ada"]["role"], found["ada"]["jobs"]) == ("analyst", found["north"]["jobs"])


def away(here: Here, folder: Path) -> dict[str, Any]:
    """Show a coordinator that is not where its settings say."""
    settings = (folder / "hub-up.toml").read_text()
    (folder / "away.toml").write_text(settings.replace('listen = "127.0.0.1:', 'listen = "127.0.0.2:'))
    return here("coordinator", "show", "--config", "away.toml", "--json").facts


@pytest.mark.usefixtures("answered")
def test_a_coordinator_that_does_not_run_shows_what_its_journal_has(here: Here, enrolment: Path) -> None:
    facts = away(here, enrolment)
    assert (facts["serving"], bool(facts["problem"])) == (False, True)
    north = next(each for each in facts["parties"] if each["name"] == "north")
    assert (north["state"], north["connected"], north["since"], north["connection"]) == (None, None, None, "")
    assert north["certificate_until"] is not None


@pytest.mark.usefixtures("answered")
def test_a_revoked_provider_is_named_by_both(here: Here, enrolment: Path) -> None:
    """This comes last: south is revoked from here on."""
    authority = Authority.open(enrolment / "authority", now)
    authority.revoke(PartyName("town", Role.PROVIDER, "south"))
    put(enrolment / "revoked.pem", authority.revocation_list())
    begun = time.monotonic()
    refused = here(*ASKED, "--provider", "north", "--provider", "south", "--out", "two")
    uncentred, refusal = refused.err.splitlines()
    assert uncentred == UNCENTRED
    assert names_facts(refusal, "1 of these", "south", "certificate", "revoked")
    assert "Missing" not in refused.err, "nothing was sent, so nothing waits"
    assert not names_facts(refusal, "north")
    assert time.monotonic() - begun < 20
    south = parties(here)["south"]
    assert (south["state"], south["connected"]) == ("revoked", False)
    assert "certificate revoked" in here("coordinator", "show", "--config", "hub-up.toml").out
    south = next(each for each in away(here, enrolment)["parties"] if each["name"] == "south")
    assert (south["state"], south["connected"]) == ("revoked", None), "by the certificate in its last receipt"
