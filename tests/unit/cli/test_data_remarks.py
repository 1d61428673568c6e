"""What `dpspca data check` says about files of everyday life is right, and helps if it is followed to the letter."""

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts

Here = Callable[..., Ended]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    return commands_in(tmp_path, monkeypatch, capfd)


def settings(folder: Path, file: str, *reading: str) -> tuple[str, str]:
    lines = ["[data_sets]", f'cohort = "{file}"', "[reading.cohort]", *reading]
    (folder / "own.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "--config", "own.toml"


def remarks(ended: Ended) -> list[str]:
    found: list[str] = json.loads(ended.out)["data_sets"][0]["remarks"]
    return found


@pytest.mark.parametrize("code", ["-99", '"-99"', '"none"'])
def test_a_declared_code_without_a_number_in_its_place_is_named(code: str, here: Here, tmp_path: Path) -> None:
    cell = code.strip('"')
    (tmp_path / "tiny.csv").write_text(f"a,b,c\n1,2,3\n4,{cell},6\n7,8,9\n", encoding="utf-8")
    words = settings(tmp_path, "tiny.csv", f"missing_codes = [{code}]", 'leave_out = ["c"]')
    ended = here("data", "check", *words)
    assert a_line_names(ended.out, "Line 3, column 2 ('b')", "declared code", "missing")
    assert "3 cells" not in ended.out
    words = settings(tmp_path, "tiny.csv", f"missing_codes = [{code}]", "missing = { b = 5 }")
    assert a_line_names(here("data", "check", *words).out, "3 rows", "0 rows")


def test_codes_are_proposed_for_the_columns_that_have_them(here: Here, tmp_path: Path) -> None:
    """Copied to the letter: a 9 of another column stays what it is."""
    lines = [f"{20 + place % 60},{1 + place % 2},{place % 12}" for place in range(40)]
    lines += ["30,9,3", "-9,1,4"]
    (tmp_path / "mc.csv").write_text("\n".join(["my age,sex,visits", *lines, ""]), encoding="utf-8")
    (remark,) = [each for each in remarks(here("data", "check", "mc.csv", "--json")) if "missing_codes" in each]
    declared = re.search(r"missing_codes = \{.*\}", remark)
    assert declared is not None
    words = settings(tmp_path, "mc.csv", declared[0], "missing = 1")
    found = here("data", "check", *words, "--json").facts["data_sets"][0]["facts"]["columns"]
    assert [each["missing"] for each in found] == [1, 1, 0]


def test_what_each_column_holds_is_listed_at_once(here: Here, tmp_path: Path) -> None:
    head, *rows = (
        "Nr;Geburtsdatum;Größe;CRP",
        *(f"{place};0{place}.02.1970;1,7{place};<0,{place}" for place in range(1, 6)),
    )
    (tmp_path / "labor.csv").write_text("\n".join([head, *rows, ""]), encoding="utf-8")
    ended = here("data", "check", "labor.csv")
    assert ended.code == 1
    assert a_line_names(ended.out, "'Größe'", "comma", 'decimal = ","')
    assert a_line_names(ended.out, "'CRP'", "comparison")
    (line,) = [line for line in ended.out.splitlines() if "leave_out" in line and "No row" in line]
    assert line.count("'Geburtsdatum'") == 2  # it makes all rows unusable, and may not be meant to be numbers
    assert line.count("'Größe'") == 1  # this is


@pytest.mark.parametrize("name", ["a date", "holds text,", "Gro\u0308\u00dfe"])
def test_a_name_of_a_column_hides_no_remark_on_another(name: str, here: Here, tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text(f'"{name}",b\n,text\n1,01.02.1970\n2,3\n', encoding="utf-8")
    made = remarks(here("data", "check", "odd.csv", "--json"))
    assert any(names_facts(each, "'b'", "text", "missing_codes") for each in made if "count" not in each)
    (tmp_path / "odd.csv").write_text(f'"{name}",b\n1,\ntext,5\n', encoding="utf-8")
    made = remarks(here("data", "check", "odd.csv", "--json"))
    assert any(names_facts(each, unicodedata.normalize("NFC", name), "text") for each in made if "count" not in each)


def test_a_point_between_thousands_is_not_called_a_decimal_mark(here: Here, tmp_path: Path) -> None:
    (tmp_path / "th.csv").write_text("a;b\n3,5;250.000\n4,5;180.500\n", encoding="utf-8")
    ended = here("data", "check", *settings(tmp_path, "th.csv", 'decimal = ","'))
    assert a_line_names(ended.out, "'b'", "point", "thousands", "remove it")
    assert 'decimal = ","' not in ended.out


def test_footnotes_hide_neither_identifiers_nor_an_index(here: Here, tmp_path: Path) -> None:
    rows = [f"{place},{100_001 + 3 * place},{place * 37 % 50}" for place in range(60)]
    for notes in ([], ["Source: lab,,", ",,"], ["Source: lab"]):
        lines = ["row,patnr,age", *rows[:30], *notes, *rows[30:], *notes, ""]
        (tmp_path / "foot.csv").write_text("\n".join(lines), encoding="utf-8")
        ended = here("data", "check", "foot.csv")
        assert a_line_names(ended.out, "'patnr'", "identifiers")
        assert a_line_names(ended.out, "'row'", "leave_out")
        assert not a_line_names(ended.out, "'age'", "identifiers")
    few = ["late,b", *(f"{place if place % 4 == 0 else ''},{place * 7 % 11}" for place in range(60)), ""]
    (tmp_path / "late.csv").write_text("\n".join(few), encoding="utf-8")
    assert "identifiers" not in here("data", "check", "late.csv").out


def test_a_public_number_is_proposed_for_missing_values_alone(here: Here, tmp_path: Path) -> None:
    for name, cell, is_proposed in (("gap.csv", "", True), ("odd.csv", "<5", False)):
        (tmp_path / name).write_text(f"a,b\n1,2\n3,{cell}\n5,6\n", encoding="utf-8")
        made = remarks(here("data", "check", name, "--json"))
        assert any(names_facts(each, "1 row", "A public number") for each in made) == is_proposed
        assert not any("line ends" in each for each in made)


@pytest.mark.parametrize(("value", "is_warned"), [("1.5", True), ("2", False)])
def test_measurements_in_triplets_without_a_dictionary_are_warned_of(
    value: str, is_warned: bool, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "labs.csv").write_text(f"person,test,value\nA,HB,14\nA,CREA,{value}\nB,HB,13\n", encoding="utf-8")
    (tmp_path / "people.txt").write_text("A\nB\n", encoding="utf-8")
    form = '{ row = "person", column = "test", value = "value", rows = "people.txt" }'
    words = settings(tmp_path, "labs.csv", f"triplets = {form}", 'columns = ["HB", "CREA"]')
    made = remarks(here("data", "check", *words, "--json"))
    assert any(names_facts(each, "0", "measurements", "dictionary") for each in made) == is_warned


def test_a_preview_without_a_dictionary_says_so_at_once(here: Here, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    ended = here("data", "preview", *settings(tmp_path, "rows.csv"))
    assert ended.code == 2
    assert a_line_names(ended.err, "dictionary", "`dpspca data check`")
    assert here("dictionary", "init", "rows.csv", *settings(tmp_path, "rows.csv")).code == 0


@pytest.mark.parametrize(("highest", "is_told"), [(2**53 + 1, True), (2**53 - 1, False)])
def test_whole_numbers_that_were_rounded_are_remarked_on(
    highest: int, is_told: bool, here: Here, tmp_path: Path
) -> None:
    """2^53 + 1 is read as 2^53, which is as large as the first number that may have been another one."""
    numbers = np.array([highest - 2 * place for place in range(20)][::-1], dtype=np.int64)
    pd.DataFrame({"code": np.random.default_rng(0).permutation(numbers)}).to_parquet(tmp_path / "rows.parquet")
    assert a_line_names(here("data", "check", "rows.parquet").out, "'code'", "exact") == is_told
