"""The samples in deploy/ are part of the installed program."""

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ended, commands_in

SAMPLES = Path(__file__).parents[3] / "deploy" / "samples"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize("what", ["coordinator", "provider", "analyst", "policy", "job", "dictionary"])
def test_config_sample_prints_every_shipped_sample(what: str, here: Callable[..., Ended]) -> None:
    assert here("config", "sample", what).out == (SAMPLES / f"{what}.toml").read_text(encoding="utf-8")
    assert here("config", "sample", what, "--json").facts["of"] == what
