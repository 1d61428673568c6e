"""`dpspca data check` describes files of rows, and `doctor` reads them as the settings declare."""

import errno
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts

from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.provider.startup import data_sets_of

Here = Callable[..., Ended]

TEXT = "patient;Alter;bmi\n7;50,5;24,5\n3;999;25\n9;60;\n"
SETTINGS = """
coordinator = "127.0.0.1:1"
identity = "provider-north"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
cohort = "rows.CSV"
labs = "labs-*.npy"
[persons]
cohort = "whose.txt"
[arriving]
visits = "visits"
[reading.cohort]
leave_out = ["patient"]
decimal = ","
missing_codes = { Alter = [999] }
missing = { Alter = 55, bmi = 24 }
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    (tmp_path / "rows.CSV").write_text(TEXT, encoding="utf-8")
    (tmp_path / "whose.txt").write_text("ann\nbob\nann\n", encoding="utf-8")
    for number in (1, 2):
        np.save(tmp_path / f"labs-{number}.npy", np.eye(3) + number)
    (tmp_path / "visits").mkdir()
    (tmp_path / "visits" / "1.csv").write_text("a,b\n1,0.5\n", encoding="utf-8")
    (tmp_path / "north.toml").write_text(SETTINGS, encoding="utf-8")
    return commands_in(tmp_path, monkeypatch, capfd)


def test_a_file_is_described_before_there_are_settings(here: Here) -> None:
    ended = here("data", "check", "rows.CSV")
    assert ended.code == 0
    for fact in (
        "3 rows of 3 columns",
        "2 rows count as zeros",
        "Line 2, column 2",
        "decimal",
        "'Alter', 'bmi'",
        "missing_codes",
        "Memory",
    ):
        assert fact in ended.out


def test_data_sets_are_read_as_the_settings_declare(here: Here, tmp_path: Path) -> None:
    ended = here("data", "check", "--config", "north.toml", "--json")
    assert (ended.code, ended.facts["passed"]) == (0, True)
    cohort, labs, visits = ended.facts["data_sets"]
    assert [each["name"] for each in (cohort, labs, visits)] == ["cohort", "labs", "visits"]
    assert [each["name"] for each in cohort["facts"]["columns"]] == ["Alter", "bmi"]
    assert [each["missing"] for each in cohort["facts"]["columns"]] == [1, 1]
    assert cohort["facts"]["rows_as_zeros"] == 0
    assert cohort["facts"]["persons"] == {
        "persons": 2, "most_rows": 2, "rows_of_nobody": 0, "alike": 0, "divided": 0, "unnamed": 0,
        "lacks_last_line": False, "differing": 0, "of_column": False,
    }  # fmt: skip
    assert (labs["facts"]["rows"], visits["facts"]["rows"]) == (6, 1)
    rows = data_sets_of(read_settings(ProviderSettings, tmp_path / "north.toml"))
    assert rows["cohort"].first(None).part(slice(0, 3)).tolist() == [[50.5, 24.5], [55, 25], [60, 24]]  # type: ignore[union-attr]
    text = here("data", "check", "--config", "north.toml", "--data-set", "cohort")
    assert text.code == 0
    assert a_line_names(text.out, "2 persons", "2 rows")
    assert "filled with 55.0" in text.out
    assert "labs" not in text.out


def test_rows_of_nobody_are_counted_with_what_makes_them(here: Here, tmp_path: Path) -> None:
    """A steward with large numbers of patients in Parquet sees why their rows count as zeros."""
    assert "nobody" not in here("data", "check", "--config", "north.toml").out
    (tmp_path / "whose.txt").write_text("ann\n\nann\n", encoding="utf-8")
    assert a_line_names(here("data", "check", "--config", "north.toml").out, "1 row", "line")
    pd.DataFrame({"id": [2**60, 7, 7], "a": [1.0, 2.0, 3.0]}).to_parquet(tmp_path / "rows.parquet")
    lines = '[data_sets]\nc = "rows.parquet"\n[reading.c]\nperson = "id"\n'
    (tmp_path / "large.toml").write_text(lines, encoding="utf-8")
    assert a_line_names(here("data", "check", "--config", "large.toml").out, "1 row", "2^52", "missing_codes")


def test_a_column_that_spoils_every_row_is_a_failure(here: Here, tmp_path: Path) -> None:
    lines = "name,a,b\nann,1,2\nbob,3,4\n"
    (tmp_path / "rows.csv").write_text(lines, encoding="utf-8")
    ended = here("data", "check", "rows.csv")
    assert ended.code == 1
    assert a_line_names(ended.out, "'name'", "leave_out")
    assert "ann" not in ended.out


def test_remarks_name_columns_or_their_places(here: Here, tmp_path: Path) -> None:
    np.save(tmp_path / "odd.npy", np.array([[np.nan, 1.0, 1.0], [np.inf, 3.0, 1.0]]))
    ended = here("data", "check", "odd.npy")
    assert ended.code == 1
    about_first = [line for line in ended.out.splitlines() if names_facts(line, "column 1")]
    assert [names_facts(line, "Row 1") for line in about_first] == [False, True]  # what to do, and the first such row
    assert "leave_out" not in ended.out  # that needs names
    assert a_line_names(ended.out, "column 3")
    (tmp_path / "two.csv").write_text("a,b,c\nx,y,1\nx,y,2\n", encoding="utf-8")
    assert a_line_names(here("data", "check", "two.csv").out, "'a'", "'b'", "leave_out")


def test_what_a_provider_would_refuse_is_listed_for_each_data_set(here: Here, tmp_path: Path) -> None:
    (tmp_path / "rows.CSV").unlink()
    ended = here("data", "check", "--config", "north.toml", "--json")
    facts = json.loads(ended.out)
    assert (ended.code, facts["passed"]) == (1, False)
    assert [each["passed"] for each in facts["data_sets"]] == [False, True, True]
    assert names_facts(facts["data_sets"][0]["problem"], "rows.CSV", os.strerror(errno.ENOENT))
    assert "FAILED" in here("data", "check", "--config", "north.toml").out


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        ((), "--config"),
        (("rows.CSV", "--config", "north.toml"), "--config"),
        (("rows.CSV", "--data-set", "cohort"), "--data-set"),
        (("--config", "north.toml", "--data-set", "labz"), "Available: cohort, labs, visits"),
        (("--config", "gone.toml"), "gone.toml cannot be read"),
    ],
)
def test_words_that_make_no_sense_are_refused(words: tuple[str, ...], fact: str, here: Here) -> None:
    ended = here("data", "check", *words)
    assert ended.code == 2
    assert fact in ended.err


def test_identifiers_are_pointed_out_before_they_are_offered(here: Here, tmp_path: Path) -> None:
    """Ids that do not begin at 0 or 1 are seen, and in a file with text, too. A slip in a name is no unknown ending."""
    lines = "".join(f"{5 * number + 1000};{number / 2};m\n" for number in range(60))
    (tmp_path / "ids.csv").write_text(f"patient;age;sex\n{lines}", encoding="utf-8")
    ended = here("data", "check", "ids.csv")
    assert "identifiers?" in ended.out
    assert "missing_codes" in ended.out
    assert a_line_names(here("data", "check", "idz").out, "FAILED", "idz")


def test_of_many_columns_those_with_something_to_say_are_shown(here: Here, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((5, 100))
    rows[2, 40] = np.nan
    np.save(tmp_path / "wide.npy", rows)
    ended = here("data", "check", "wide.npy")
    assert "column 41" in ended.out
    assert "99 more columns" in ended.out
    assert len(here("data", "check", "wide.npy", "--json").facts["data_sets"][0]["facts"]["columns"]) == 100


OF_THE_DAEMON = ("coordinator", "identity", "revocations", "policy")


def without_keys(path: Path, *keys: str) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line for line in lines if not line.startswith(keys)), encoding="utf-8")


def test_data_sets_are_checked_before_the_provider_joins(here: Here, tmp_path: Path) -> None:
    enrolled = here("data", "check", "--config", "north.toml", "--json")
    without_keys(tmp_path / "north.toml", *OF_THE_DAEMON)
    ended = here("data", "check", "--config", "north.toml", "--json")
    assert ended.code == enrolled.code == 0
    for before, after in zip(enrolled.facts["data_sets"], ended.facts["data_sets"], strict=True):
        assert (after["name"], after["facts"]["rows"]) == (before["name"], before["facts"]["rows"])
        assert after["facts"]["columns"] == before["facts"]["columns"]
    refused = here("provider", "start", "--config", "north.toml")
    assert all(key in refused.err for key in OF_THE_DAEMON)


def test_data_settings_with_a_mistake_are_refused_before_the_provider_joins(here: Here, tmp_path: Path) -> None:
    (tmp_path / "north.toml").write_text('data_set = "rows.CSV"\n[data_sets]\ncohort = 3\n', encoding="utf-8")
    told = here("data", "check", "--config", "north.toml")
    assert told.code == 2
    assert "'data_set'" in told.err
    assert "data_sets.cohort is 3" in told.err
    (tmp_path / "none.toml").write_text('coordinator = "127.0.0.1:1"\nrevocations = "r.pem"\n', encoding="utf-8")
    assert "no data set" in here("data", "check", "--config", "none.toml").err


def test_commands_about_data_do_not_look_at_what_else_the_settings_hold(here: Here, tmp_path: Path) -> None:
    """`dpspca doctor` is for that."""
    text = SETTINGS.replace('coordinator = "127.0.0.1:1"', 'coordinator = "not yet known"')
    (tmp_path / "north.toml").write_text("ledger = 3\nmemory_mebibytes = 100\n" + text, encoding="utf-8")
    assert here("data", "check", "--config", "north.toml").code == 0
    assert "coordinator: " in here("doctor", "--config", "north.toml").out


def test_a_file_without_rows_is_called_an_empty_shard(here: Here, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n", encoding="utf-8")
    assert "empty shard" in here("data", "check", "rows.csv").out


def test_labels_that_may_be_one_persons_are_remarked_on_but_not_shown(here: Here, tmp_path: Path) -> None:
    (tmp_path / "whose.txt").write_text('ann\n"Ann"\nann;2\n', encoding="utf-8")
    ended = here("data", "check", "--config", "north.toml", "--data-set", "cohort")
    assert ended.code == 0
    for fact in ("1 label differs", "1 label holds", "semicolon"):
        assert fact in ended.out
    assert "ann" not in ended.out.lower()


@pytest.mark.parametrize(
    ("code", "others", "is_suspected"),
    [
        (-9, range(101, 188), True),  # nearer to the others than they are to each other
        (-99, range(101, 188), True),
        (-1, range(18, 90), True),
        (-9, range(-40, 40), False),
        (9, range(101, 188), False),
        (-1, range(11), False),
        (-1, (1, 1), False),
    ],
)
def test_a_negative_code_among_positive_values_is_suspected(
    code: int, others: Iterable[int], is_suspected: bool, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "sbp.csv").write_text("\n".join(["sbp", *map(str, [*others] * 3), str(code), ""]), encoding="utf-8")
    ended = here("data", "check", "sbp.csv", "--json")
    (column,) = ended.facts["data_sets"][0]["facts"]["columns"]
    assert column["codes"] == ([code] if is_suspected else [])
    assert any("missing_codes" in each for each in ended.facts["data_sets"][0]["remarks"]) == is_suspected


def test_columns_with_the_same_numbers_are_remarked_on(here: Here, tmp_path: Path) -> None:
    """Also if one writes a missing value where the other does, and not if one number differs."""
    drawn = np.random.default_rng(0).integers(0, 3, (500, 3)).astype(float)
    table = np.column_stack([drawn, drawn[:, 1], drawn[:, 1], drawn[:, 2], np.ones((500, 2))])
    table[7, 5] += 1
    table[9, [1, 3, 4]] = np.nan
    lines = [",".join(f"{number:g}" for number in row) for row in table]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,e,f,g,h", *lines]) + "\n", encoding="utf-8")
    (found,) = here("data", "check", "rows.csv", "--json").facts["data_sets"]
    assert found["facts"]["equal"] == [["b", "d", "e"]]
    (remark,) = [each for each in found["remarks"] if "'d'" in each and "missing" not in each]
    assert names_facts(remark, "'b'", "'e'")
    assert found["reading_seconds"] > 0
    np.save(tmp_path / "rows.npy", table)
    (found,) = here("data", "check", "rows.npy", "--json").facts["data_sets"]
    assert found["facts"]["equal"] == [["2", "4", "5"]]
