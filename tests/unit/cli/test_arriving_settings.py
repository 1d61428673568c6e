"""Arriving rows are offered under their name, and every command that reads settings knows them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Ended, commands_in
from facts import a_line_names, facts
from local_federation import permissive_policy

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.provider.data.arrivals import Arrivals
from dpspca.provider.startup import data_sets_of

SETTINGS = """
coordinator = "127.0.0.1:1"
identity = "identity"
revocations = "revoked.pem"
policy = "policy.toml"
[arriving]
measurements = "measurements"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "measurements").mkdir()
    (tmp_path / "provider.toml").write_text(SETTINGS)
    (tmp_path / "policy.toml").write_text(permissive_policy("row-replace-one", "other"))
    return tmp_path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], folder: Path) -> Callable[..., Ended]:
    return commands_in(folder, monkeypatch, capfd)


def test_arriving_rows_are_offered_and_shown_by_doctor(folder: Path, here: Callable[..., Ended]) -> None:
    np.save(folder / "measurements" / "2026-01.npy", np.eye(3))
    (rows,) = data_sets_of(read_settings(ProviderSettings, folder / "provider.toml")).values()
    assert isinstance(rows, Arrivals)
    assert (rows.count, rows.dimension) == (3, 3)
    assert here("config", "check", "provider.toml").code == 0
    output = here("doctor", "--config", "provider.toml").out
    assert a_line_names(output, "ok", "measurements", "3 rows", "3 columns")
    assert a_line_names(output, "ok", "policy.toml", "measurements")


def test_an_empty_folder_is_reported_by_doctor_and_at_start(folder: Path, here: Callable[..., Ended]) -> None:
    assert any(
        "measurements holds 0 files" in line for line in here("doctor", "--config", "provider.toml").failed_checks
    )
    with pytest.raises(InvalidDataError, match=facts("measurements", 0)):
        data_sets_of(read_settings(ProviderSettings, folder / "provider.toml"))
