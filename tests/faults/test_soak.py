"""A thousand rounds of `make soak`: too few to measure the growth of memory, but enough for its other checks."""

import asyncio
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

SOAK = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("soak.py"))))
ROUNDS = 1000


@pytest.mark.nightly
def test_a_thousand_rounds_pass_all_checks(tmp_path: Path) -> None:
    report = asyncio.run(SOAK.soak(tmp_path, ROUNDS))
    assert report["rounds"] >= ROUNDS
    assert set(report["after_warm_up"]) == {"hub", *SOAK.SITES}
    assert [found for found in report["problems"] if "memory grows" not in found] == []
