"""The sample settings in the docs are settings."""

import re
from pathlib import Path

import pytest

from dpspca.common.transport.config import AnalystConfig, CoordinatorConfig, ProviderConfig, read_config

DOCS = Path(__file__).parents[2] / "docs" / "federation.md"
SAMPLES = re.findall(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize(("number", "kind"), list(enumerate([CoordinatorConfig, ProviderConfig, AnalystConfig])))
def test_every_sample_of_settings_is_understood(number: int, kind: type, tmp_path: Path) -> None:
    path = tmp_path / "sample.toml"
    path.write_text(SAMPLES[number])
    assert read_config(kind, path).identity.parent == tmp_path


def test_every_sample_is_tried() -> None:
    assert len(SAMPLES) == 3
