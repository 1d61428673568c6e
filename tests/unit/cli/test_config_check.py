"""`dpspca config check` names the program or the kind of a file, also if keys of it are misspelt."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ended, commands_in
from facts import facts, names_facts

from dpspca.common.errors import InvalidParameterError
from dpspca.common.storage import read_any_settings

IDENTITY = 'identity = "identity"\n'
REVOCATIONS = IDENTITY + 'revocations = "revoked.pem"\n'
STUDY = """
federation = "town"
coordinator = "hub"
address = "hub.example:7443"
providers = ["north"]
analysts = ["ada"]
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (REVOCATIONS + 'lisen = ":7443"\nmetrics = "no address"', "coordinator"),
        (REVOCATIONS + 'lisen = ":7443"\njournal = "journal.db"', "coordinator"),
        (REVOCATIONS + 'coordinatr = "hub.example:7443"\npolicy = "policy.toml"', "provider"),
        (REVOCATIONS + 'coordinator = "hub.example:7443"', "provider"),
        ('[data_sets]\ncohort = "rows.csv"', "provider"),
        (IDENTITY + 'coordinatr = "hub.example:7443"', "analyst"),
    ],
)
def test_a_misspelt_key_does_not_change_the_program(
    text: str, program: str, here: Callable[..., Ended], tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text(text)
    checked = here("config", "check", "own.toml", "--json")
    assert (checked.code, json.loads(checked.out)["program"]) == (1, program)


def test_a_misspelt_listen_and_a_bad_address_are_both_named(here: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "hub.toml").write_text(REVOCATIONS + 'lisen = ":7443"\nmetrics = "nowhere"')
    problems = "\n".join(json.loads(here("config", "check", "hub.toml", "--json").out)["problems"])
    assert names_facts(problems, "'lisen'", "'listen'", "'nowhere'")
    assert "policy" not in problems


def test_a_study_file_is_checked(here: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    checked = here("config", "check", "study.toml", "--json")
    assert (checked.code, checked.facts["program"], checked.facts["problems"]) == (0, "study", [])
    (tmp_path / "study.toml").write_text(STUDY.replace("address", "adress") + "certificate_days = 91")
    checked = here("config", "check", "study.toml", "--json")
    assert (checked.code, json.loads(checked.out)["program"]) == (1, "study")
    assert names_facts("\n".join(json.loads(checked.out)["problems"]), "'adress'", "'address'", "certificate_days", 91)


def test_a_study_file_is_not_taken_for_settings(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY)
    with pytest.raises(InvalidParameterError, match=facts("study.toml", "--config")) as refused:
        read_any_settings(tmp_path / "study.toml")
    assert "'hub'" not in str(refused.value)
