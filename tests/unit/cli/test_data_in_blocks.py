"""`dpspca data check` and `dpspca data preview` go through a source in blocks, under the memory cap of the settings."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpspca.cli.render import output
from dpspca.client.steward.data_check import reading_of_file
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.examination.preview import preview_row
from dpspca.provider.data.memory.scratch import MOST_CELLS, cells_in

CAP_MEBIBYTES = 64
ROWS, COLUMNS, FEATURES = 1_300_000, 24, 6
"""238 MiB in float64, almost four times the cap."""
SETTINGS = f"""
coordinator = "127.0.0.1:1"
identity = "provider-north"
revocations = "revoked.pem"
policy = "policy.toml"
memory_mebibytes = {CAP_MEBIBYTES}
[data_sets]
large = "large.npy"
small = "small.npy"
[dictionaries.large]
file = "dictionary.toml"
[dictionaries.small]
file = "dictionary.toml"
[reading.large]
names = {json.dumps([f"c{place}" for place in range(COLUMNS)])}
[reading.small]
names = {json.dumps([f"c{place}" for place in range(COLUMNS)])}
"""
CHILD = """
import contextlib, io, json, resource, sys
from dpspca.cli.app import app

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def run(*words):
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        app(list(words), standalone_mode=False)
    return json.loads(written.getvalue())

rows = sys.argv[2]
words = {"check": ("data", "check"), "preview": ("data", "preview", "--row", rows)}[sys.argv[1]]
run(*words[:2], "--config", sys.argv[3], "--data-set", "small", "--json")
before = peak()
found = run(*words, "--config", sys.argv[3], "--data-set", "large", "--json")
print(json.dumps({"grown": peak() - before, "found": found}))
"""


def dictionary(folder: Path) -> Path:
    features = "".join(
        f'[features.c{place}]\nkind = "number"\nunit = "mmol/l"\nrange = [0, 2]\n' for place in range(FEATURES)
    )
    (folder / "dictionary.toml").write_text(
        f'format = "dpspca-dictionary-1"\ntitle = "Blood"\n{features}', encoding="utf-8"
    )
    return folder / "dictionary.toml"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """Write a file that is mostly holes on the disk, whose last row has a value outside the range."""
    made = np.lib.format.open_memmap(tmp_path / "large.npy", "w+", np.float64, (ROWS, COLUMNS))
    made[-1, 3], made[ROWS // 2, 5], made[7, 0] = 9.0, np.nan, np.inf
    made.flush()
    np.save(tmp_path / "small.npy", np.ones((4, COLUMNS)))
    dictionary(tmp_path)
    (tmp_path / "north.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path / "north.toml"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["check", "preview"])
def test_a_source_larger_than_the_cap_takes_no_more_than_the_cap(command: str, settings: Path) -> None:
    ended = subprocess.run(  # noqa: S603  # this interpreter
        [sys.executable, "-c", CHILD, command, str(ROWS), str(settings)], capture_output=True, check=True, text=True
    )
    told: dict[str, Any] = json.loads(ended.stdout)
    assert told["grown"] < CAP_MEBIBYTES * 2**20
    if command == "preview":
        assert (told["found"]["row"], told["found"]["rows"]) == (ROWS, ROWS)
        assert told["found"]["features"][3]["read"] == 9.0
        return
    facts = told["found"]["data_sets"][0]["facts"]
    features = {each["name"]: each for each in facts["features"]}
    assert (facts["rows"], facts["rows_as_zeros"]) == (ROWS, 1)
    assert "Row 8, column 1 ('c0')" in facts["first_fault"]
    assert (features["c3"]["above"], features["c5"]["missing"], features["c0"]["unusable"]) == (1, 1, 1)
    assert facts["memory"]["start"] < CAP_MEBIBYTES * 2**20


def test_facts_do_not_depend_on_the_size_of_blocks(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 9, (40_000, 12)).astype(float)
    rows[:, 0], rows[:, 1], rows[random.random(len(rows)) < 0.1, 2] = np.arange(1, 40_001), 4.0, np.nan
    rows[38_500, 3], rows[39_999, 4], rows[:, 5], rows[17, 6] = np.inf, 999, rows[:, 5] % 2, 2.5
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "whose.txt").write_text("".join(f"p{place % 7}\n" if place % 50 else "\n" for place in range(40_000)))
    reading = Reading(names=tuple(f"c{place}" for place in range(12)))
    assert cells_in(2**26) < rows.size / 2 < MOST_CELLS
    few, many = (
        examine_rows(tmp_path / "rows.npy", reading, tmp_path / "whose.txt", memory=memory) for memory in (2**26, 2**34)
    )
    assert few.columns == many.columns
    assert (few.rows, few.rows_as_zeros, few.persons) == (many.rows, many.rows_as_zeros, many.persons)
    assert few.first_fault == many.first_fault
    columns = few.columns
    assert (columns[0].is_index, columns[1].is_constant, columns[4].codes) == (True, True, (999.0,))
    assert [each.type for each in columns[3:7]] == ["whole numbers", "whole numbers", "0 and 1", "numbers"]
    assert columns[2].missing == int(np.isnan(rows[:, 2]).sum())


def test_progress_is_reported_in_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((150_000, 2)))
    told: list[int] = []
    examine_rows(tmp_path / "rows.npy", Reading(), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 150_000
    assert len(told) > 1


def test_progress_is_a_line_every_ten_seconds_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(output, "monotonic", lambda: now[0])
    with output.show_rows("rows read", quiet=False) as show:
        for second in range(25):
            now[0] = float(second)
            show(1000 * second)
    assert capsys.readouterr().err.splitlines() == ["rows read: 10,000", "rows read: 20,000"]


def test_a_preview_finds_its_row_in_any_file_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(3):
        lines = "".join(f"{number},{place}\n" for place in range(5))
        (tmp_path / "rows" / f"{number}.csv").write_text(f"c0,c1\n{lines}", encoding="utf-8")
    reading = reading_of_file(tmp_path / "rows", dictionary(tmp_path))
    shown = preview_row(tmp_path / "rows", reading, 8)
    assert (shown.row, shown.rows) == (8, 15)
    assert [each.read for each in shown.features] == [1.0, 2.0]
