"""The page on reloading says of each key of a daemon's settings whether a reload takes it up, as the code has it."""

import re
from pathlib import Path

import pytest

from dpspca.common.decoding import keys_of
from dpspca.common.storage import CoordinatorSettings, DataSettings, ProviderSettings
from dpspca.provider import reload as of_provider
from dpspca.server import reload as of_coordinator

PAGE = Path(__file__).parents[2] / "docs" / "federation.md"
OF_DATA_SETS = keys_of(DataSettings) - {*of_provider.NEEDS_RESTART}
"""The page says what happens to a data set, and not to each key that declares how it is read."""


def keys_with(outcome: str) -> set[str]:
    """Return the keys in the one row of the page with this outcome."""
    (keys,) = re.findall(rf"^\| ([^|]+) \| {outcome}[^|]*\|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", keys))


def test_keys_that_need_a_restart_are_those_of_the_page() -> None:
    assert keys_with("the change needs a restart") == {*of_provider.NEEDS_RESTART, *of_coordinator.NEEDS_RESTART}


@pytest.mark.parametrize(
    ("settings", "restart"),
    [(ProviderSettings, of_provider.NEEDS_RESTART), (CoordinatorSettings, of_coordinator.NEEDS_RESTART)],
)
def test_every_other_key_is_taken_up_at_once(settings: type[object], restart: tuple[str, ...]) -> None:
    assert {*restart} <= keys_of(settings)
    taken_up = keys_of(settings) - OF_DATA_SETS - {*restart}
    assert taken_up <= keys_with("the change takes effect at once")
