"""`dpspca data check` and `preview` show rows of nobody, lists of other persons, and lines that cannot be read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts
from plink import write_bed

Here = Callable[..., Ended]

STUDY = """
format = "dpspca-dictionary-1"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features.smoking]
kind = "category"
levels = ["0", "1"]
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    return commands_in(tmp_path, monkeypatch, capfd)


def settings(folder: Path, *lines: str) -> tuple[str, str]:
    (folder / "own.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "--config", "own.toml"


def described(folder: Path, rows: str, *lines: str) -> tuple[str, str]:
    (folder / "rows.csv").write_text(rows, encoding="utf-8")
    dictionary = ("[dictionaries.cohort]", 'file = "study.toml"')
    return settings(folder, "[data_sets]", 'cohort = "rows.csv"', *lines, *dictionary)


@pytest.mark.parametrize(("persons", "is_told"), [("a\nb\nb\n", True), ("a\na\nb\nb\n", False), ("a\na\nb\n\n", False)])
def test_a_persons_file_that_lacks_a_line_is_remarked_on(
    persons: str, is_told: bool, here: Here, tmp_path: Path
) -> None:
    """It is not refused: a last row without a person looks alike, and no row may keep the provider from starting."""
    (tmp_path / "whose.txt").write_text(persons, encoding="utf-8")
    words = described(tmp_path, "age,smoking\n41,0\n52,1\n33,1\n30,1\n", "[persons]", 'cohort = "whose.txt"')
    ended = here("data", "check", *words)
    assert ended.code == 0
    assert a_line_names(ended.out, "persons file", "fewer") == is_told
    assert (
        here("data", "check", *words, "--json").facts["data_sets"][0]["facts"]["persons"]["lacks_last_line"] == is_told
    )


@pytest.mark.parametrize(("change", "count"), [(reversed, 4), (lambda lines: [*lines[:-1], "F9 S9 0 0 0 -9"], 1)])
def test_a_list_of_other_samples_is_remarked_on(
    change: Callable[[list[str]], list[str]], count: int, here: Here, tmp_path: Path
) -> None:
    write_bed(tmp_path / "panel", np.array([[0, 1], [1, 2], [2, 0], [0, 0]]), [("A", "G"), ("C", "T")])
    lines = (tmp_path / "panel.fam").read_text(encoding="utf-8").splitlines()
    (tmp_path / "own.fam").write_text("\n".join(change(lines)) + "\n", encoding="utf-8")
    data_set, reading = ("[data_sets]", 'cohort = "panel.bed"', "[persons]"), ("[reading.cohort]", "missing = 0")
    same = here("data", "check", *settings(tmp_path, *data_set, 'cohort = "panel.fam"', *reading))
    assert (same.code, "list of samples" in same.out) == (0, False)
    other = here("data", "check", *settings(tmp_path, *data_set, 'cohort = "own.fam"', *reading))
    assert a_line_names(other.out, "samples", count)


def test_a_preview_of_a_row_of_nobody_shows_zeros(here: Here, tmp_path: Path) -> None:
    rows = "pid,age,smoking\na,41,0\n,52,1\n"
    words = described(tmp_path, rows, "[reading.cohort]", 'person = "pid"')
    first, second = (here("data", "preview", *words, "--row", row, "--json").facts for row in (1, 2))
    assert (first["is_usable"], first["is_of_nobody"]) == (True, False)
    assert (second["is_usable"], second["is_of_nobody"], second["length"]) == (False, True, 0)
    assert set(second["features"][0]["prepared"].values()) == {0}
    assert "belongs to no person" in here("data", "preview", *words, "--row", "2").out
    (tmp_path / "whose.txt").write_text("\na\n", encoding="utf-8")
    words = described(tmp_path, "age,smoking\n41,0\n52,1\n", "[persons]", 'cohort = "whose.txt"')
    assert "belongs to no person" in here("data", "preview", *words, "--row", "1").out
    words = described(tmp_path, rows, "[reading.cohort]", 'person = "pidd"')
    assert names_facts(here("data", "preview", *words).error_line, "'pidd'", "'pid'")


@pytest.mark.parametrize("features", ["age,smoking", "note,smoking"])
def test_a_line_with_too_few_cells_is_told_as_that(features: str, here: Here, tmp_path: Path) -> None:
    """No value of a feature is made up from it, whether the features are numbers or categories."""
    study = STUDY.replace('[features.age]\nkind = "number"\nunit = "years"\nrange = [0, 110]', '[features.note]\n'
                          'kind = "category"\nlevels = ["41", "52"]')  # fmt: skip
    (tmp_path / "study.toml").write_text(study if "note" in features else STUDY, encoding="utf-8")
    words = described(tmp_path, f"{features}\n41,0\n52,1\n44\n52,1\n")
    ended = here("data", "check", *words)
    assert "inf" not in ended.out.replace("information", "")
    assert a_line_names(ended.out, "1 row", "usable", "too few")
    assert "not a level" not in ended.out
    shown = here("data", "preview", *words, "--row", "3")
    assert a_line_names(shown.out, "rows.csv", "Line 4", "1 cell", "2 names")
    assert "(text)" not in shown.out
    assert here("data", "preview", *words, "--row", "3", "--json").facts["features"] == []
    assert here("data", "preview", *words, "--row", "4", "--json").facts["fault"] is None


def test_a_preview_names_features_that_are_not_there(here: Here, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age,smoker\n41,0\n", encoding="utf-8")
    ended = here("data", "preview", "rows.csv", "--dictionary", "study.toml")
    assert a_line_names(ended.out, "'smoking'", "refused")
    assert here("data", "preview", "rows.csv", "--dictionary", "study.toml", "--json").facts["absent"] == ["smoking"]


def test_a_preview_says_that_a_row_is_longer_than_the_bound(here: Here, tmp_path: Path) -> None:
    lines = 'format = "dpspca-dictionary-1"\n[features.g]\nkind = "genotype"\nfrequency = 0.05\n'
    (tmp_path / "rare.toml").write_text(lines, encoding="utf-8")
    (tmp_path / "rows.csv").write_text("g\n2\n0\n", encoding="utf-8")
    longer, shorter = (
        here("data", "preview", "rows.csv", "--dictionary", "rare.toml", "--row", row).out for row in (1, 2)
    )
    assert a_line_names(longer, "Length", "shorten")
    assert not a_line_names(shorter, "shorten")
