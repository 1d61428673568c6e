"""`dpspca data check` and `preview` show rows of nobody, lists of other persons, and cells that cannot be read."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
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
    assert a_line_names(ended.out, "1 line", "too few")
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


CATEGORY = """
format = "dpspca-dictionary-1"
[features.sex]
kind = "category"
levels = ["0", "1"]
unknown = "0"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
"""


def saved(folder: Path, kind: str) -> tuple[str, ...]:
    """Write a category whose second row holds what is no level, and declare how the rows are read."""
    if kind == "parquet":
        pd.DataFrame({"sex": [0, np.inf, 1], "age": [41.0, 52.0, 67.0]}).to_parquet(folder / "rows.parquet")
        return "[data_sets]", 'cohort = "rows.parquet"'
    if kind == "sqlite":
        with closing(sqlite3.connect(folder / "rows.sqlite")) as made, made:
            made.execute("CREATE TABLE rows (sex, age)")
            made.executemany("INSERT INTO rows VALUES (?, ?)", [(0, 41), (b"x", 52), (1, 67)])
        return "[data_sets]", 'cohort = "rows.sqlite"'
    (folder / "names.txt").write_text("a\nb\nc\n", encoding="utf-8")
    lines = "a,sex,0\nb,sex,not asked\nc,sex,1\na,age,41\nb,age,52\nc,age,67\n"
    (folder / "long.csv").write_text(f"who,what,value\n{lines}", encoding="utf-8")
    triplets = 'triplets = { row = "who", column = "what", value = "value", rows = "names.txt" }'
    return "[data_sets]", 'cohort = "long.csv"', "[reading.cohort]", triplets


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "triplets"])
def test_what_is_no_level_costs_no_row(kind: str, here: Here, tmp_path: Path) -> None:
    """Whatever is in a category, the other cells of its row count. The dictionary says which level it is."""
    (tmp_path / "study.toml").write_text(CATEGORY, encoding="utf-8")
    words = settings(tmp_path, *saved(tmp_path, kind), "[dictionaries.cohort]", 'file = "study.toml"')
    found = here("data", "check", *words, "--json").facts["data_sets"][0]["facts"]
    assert (found["rows"], found["rows_as_zeros"], found["broken_rows"]) == (3, 0, 0)
    assert found["features"][0]["unknown"] == 1
    first, second = (here("data", "preview", *words, "--row", row, "--json").facts for row in (1, 2))
    assert second["features"][0]["prepared"] == first["features"][0]["prepared"]
    assert "is used" in second["features"][0]["remark"]


def test_several_levels_of_a_person_are_unusable_if_that_is_declared(here: Here, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(CATEGORY, encoding="utf-8")
    lines = saved(tmp_path, "triplets")
    with (tmp_path / "long.csv").open("a", encoding="utf-8") as file:
        file.write("c,sex,0\n")
    declared = [line.replace(" }", ', duplicates = "unusable" }') for line in lines]
    words = settings(tmp_path, *declared, "[dictionaries.cohort]", 'file = "study.toml"')
    assert here("data", "check", *words, "--json").facts["data_sets"][0]["facts"]["rows_as_zeros"] == 1
    shown = here("data", "preview", *words, "--row", "3", "--json").facts
    assert (shown["is_usable"], shown["length"], shown["features"][0]["value"]) == (False, 0, "(no number)")


def test_numbers_that_cannot_be_read_are_counted_by_feature(here: Here, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(CATEGORY.replace('kind = "category"\nlevels = ["0", "1"]\nunknown = "0"',
                                         'kind = "number"\nunit = ""\nrange = [0, 1]'), encoding="utf-8")  # fmt: skip
    (tmp_path / "rows.csv").write_text("sex;age\n0,5;41,5\n1,5;30,5\n", encoding="utf-8")
    ended = here("data", "check", "rows.csv", "--dictionary", "study.toml", "--json")
    found = json.loads(ended.out)["data_sets"][0]["facts"]
    assert [each["unusable"] for each in found["features"]] == [2, 2]
    assert found["broken_rows"] == 0


def test_samples_of_one_name_in_two_families_may_have_a_list_of_persons(here: Here, tmp_path: Path) -> None:
    write_bed(tmp_path / "panel", np.array([[0, 1], [1, 2]]), [("A", "G"), ("C", "T")])
    (tmp_path / "panel.fam").write_text("F1 1 0 0 0 -9\nF2 1 0 0 0 -9\n", encoding="utf-8")
    (tmp_path / "who.fam").write_text("F1 a 0 0 0 -9\nF2 b 0 0 0 -9\n", encoding="utf-8")
    lines = (
        "[data_sets]",
        'cohort = "panel.bed"',
        "[persons]",
        'cohort = "who.fam"',
        "[reading.cohort]",
        "missing = 0",
    )
    ended = here("data", "check", *settings(tmp_path, *lines))
    assert (ended.code, a_line_names(ended.out, "samples", 2)) == (0, True)
