"""`dpspca ledger vouch` records what jobs of an earlier version protected."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ended, commands_in
from facts import names_facts
from steward import POLICY, Site

Here = Callable[..., Ended]
VOUCH = ("ledger", "vouch", "--config", "provider.toml", "--reason", "three from the start")
BUDGET = ("budget", "--config", "provider.toml")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A provider whose ledger does not show what its job protected. Its policy says that persons have 3 rows."""
    made = Site.made(tmp_path)
    with made.running() as ledger:
        made.answer(ledger, "a" * 64)
        ledger.close("a" * 64, "done")
    (tmp_path / "policy.toml").write_text(POLICY.replace("rows_per_person = 1", "rows_per_person = 3"))
    return made


@pytest.fixture
def here(site: Site, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Here:
    return commands_in(site.folder, monkeypatch, capfd)


def test_vouch_records_once_what_earlier_jobs_protected(here: Here) -> None:
    (before,) = here(*BUDGET, "--json").facts["data_sets"]
    assert names_facts(before["refused"], "'cohort'", "3 rows", "one row")
    facts = here(*VOUCH, "--data-set", "cohort", "--protects", "3", "--yes", "--json").facts
    assert (facts["data_set"], facts["protects"]) == ("cohort", 3.0)
    (after,) = here(*BUDGET, "--json").facts["data_sets"]
    assert after["refused"] is None
    last = here("ledger", "export", "--config", "provider.toml", "--json").facts["entries"][-1]
    assert (last["kind"], last["number"], last["reason"]) == ("vouched", facts["entry"], "three from the start")
    again = here(*VOUCH, "--data-set", "cohort", "--protects", "4", "--yes")
    assert names_facts(again.error_line, "'cohort'", "protected")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--data-set", "cohort", "--protects", "0"), "--protects"),
        (("--data-set", "cohort", "--protects", "nan"), "--protects"),
        (("--data-set", "labs", "--protects", "3"), "'labs'"),
    ],
)
def test_vouch_refuses_an_impossible_statement(here: Here, words: tuple[str, ...], message: str) -> None:
    assert message in here(*VOUCH, *words, "--yes").error_line


def test_vouch_needs_confirmation(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    ended = here(*VOUCH, "--data-set", "cohort", "--protects", "3")
    assert ended.code == 2
    assert "taken back" in ended.err
    assert "nothing was done" in ended.err
    (output,) = here(*BUDGET, "--json").facts["data_sets"]
    assert output["refused"]
