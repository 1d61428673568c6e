"""Lines of text that are read one by one: a line that is far too long becomes an empty one."""

import io
from pathlib import Path

import numpy as np
import pytest

from dpspca.provider.data.files import text_files, text_lines
from dpspca.provider.data.files.text_lines import whole_lines
from dpspca.provider.data.offered_rows import read_offered


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "7"])
def test_lines_are_those_of_the_file_but_long_ones_are_empty(end: str, last: str) -> None:
    lines = ["1", "", "x" * 8, "y" * 9, "z" * 30, "2"]
    text = io.StringIO("".join(line + end for line in lines) + last, newline="")
    found = [line.rstrip("\r\n") for line in whole_lines(text, 10)]
    assert found == [line if len(line) < 10 else "" for line in lines] + [last] * bool(last)


def test_a_last_line_that_is_too_long_is_a_line() -> None:
    assert list(whole_lines(io.StringIO("1\n" + "x" * 25, newline=""), 10)) == ["1\n", ""]


def test_a_row_whose_line_is_too_long_counts_as_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "whole_lines", lambda text: text_lines.whole_lines(text, 50))
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3," + " " * 60 + "4\n5,6\n", encoding="utf-8")
    rows = read_offered(tmp_path / "rows.csv")
    assert (np.asarray(rows.part(slice(None))) == [[1, 2], [0, 0], [5, 6]]).all()
    assert rows.unusable is not None
