"""No cell of a written table is a formula, and escaped text can be read back."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Ended, commands_in
from hypothesis import given
from hypothesis import strategies as st

from dpspca import Budget, JobSpec, Schema, save_model, simulate
from dpspca.common.text import LEADING, escape, to_csv, unescape

FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)", "\t=1", "\r=1", "\n=1", "＝1+1", "'=1")


@given(st.text())
def test_escaped_text_is_not_a_formula_and_can_be_unescaped(text: str) -> None:
    written = escape(text)
    assert isinstance(written, str)
    assert unescape(written) == text
    assert not written.startswith(LEADING[:-5])
    (row,) = csv.reader(io.StringIO(to_csv([[text, 1]]), newline=""))
    assert row == [written, "1"]


def test_numbers_are_not_escaped() -> None:
    assert to_csv([["a", -0.5, -1]]) == "a,-0.5,-1\n"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


def test_an_exported_model_holds_no_formula(here: Callable[..., Ended], tmp_path: Path) -> None:
    job = JobSpec(
        schema=Schema.of(FORMULAS),
        unit="row-replace-one",  # type: ignore[arg-type]  # the name of one
        budget=Budget(1.0, 1e-6),
        norm_bound=1.0,
        components=1,
        method="analyze-gauss",
    )
    save_model(simulate([np.eye(9)], job), tmp_path / "model")
    here("model", "export", "model", "--out", "loadings.csv")
    with (tmp_path / "loadings.csv").open(newline="", encoding="utf-8") as file:
        names = [row[0] for row in csv.reader(file)][1:]
    assert not any(name.startswith(tuple("=+-@\t\r\n＝")) for name in names)
    assert tuple(map(unescape, names)) == FORMULAS
