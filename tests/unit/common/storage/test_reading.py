"""What a steward declares about the files of a data set is checked key by key."""

from pathlib import Path

import pytest
from facts import facts

from dpspca.common.decoding import decode
from dpspca.common.errors import InvalidParameterError
from dpspca.common.storage.reading import KEYS, Reading
from dpspca.common.storage.settings import ProviderSettings, faults, read_settings, read_toml
from dpspca.common.storage.triplets import Triplets

SETTINGS = 'coordinator = "hub:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'


def settings(folder: Path, lines: str, rows: str = "rows.csv") -> Path:
    path = folder / "north.toml"
    path.write_text(f'{SETTINGS}[data_sets]\ncohort = "{rows}"\n{lines}\n', encoding="utf-8")
    return path


def test_everything_that_may_be_declared_is_read(tmp_path: Path) -> None:
    lines = """[reading.cohort]
    columns = ["age", "bmi"]
    names = ["bmi", "age"]
    delimiter = ";"
    decimal = ","
    encoding = "cp1252"
    missing_codes = [-9, 999, "NA"]
    missing = { age = 50, bmi = 24.5 }
    array = "x"
    table = "visits"
    order_by = ["visit"]
    triplets = { row = "person", column = "concept", rows = "~/persons.txt" }
    alleles = "panel.bim"
    """
    read = read_settings(ProviderSettings, settings(tmp_path, lines)).reading_of("cohort")
    assert read == Reading(
        columns=("age", "bmi"),
        names=("bmi", "age"),
        delimiter=";",
        decimal=",",
        encoding="cp1252",
        missing_codes=(-9, 999, "NA"),
        missing={"age": 50.0, "bmi": 24.5},
        array="x",
        table="visits",
        order_by=("visit",),
        triplets=Triplets(row="person", column="concept", rows=Path.home() / "persons.txt"),
        alleles=tmp_path / "panel.bim",
    )
    assert read.declared == KEYS - {"leave_out", "person", "query"}
    assert read_settings(ProviderSettings, settings(tmp_path, "")).reading_of("cohort") == Reading()


def test_codes_may_be_declared_for_each_column() -> None:
    read = decode(Reading, {"missing_codes": {"age": [999], "bmi": [-9, "NA"]}, "leave_out": ["", "id"]})
    assert [read.codes_of(name) for name in ("age", "bmi", "sex")] == [(999,), (-9, "NA"), ()]
    assert read.leave_out == ("", "id")


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ('delimeter = ";"', ("unknown key 'delimeter'", "mean 'delimiter'")),
        ("hue = 1", ("unknown key 'hue'", "columns, leave_out, names")),
        ('delimiter = ":"', ("delimiter is ':'", "';'")),
        ("decimal = 1", ("decimal is 1",)),
        ('encoding = "utf-7"', ("encoding is 'utf-7'", "'utf-8'", "cp1252")),
        ("columns = []", ("columns is []",)),
        ('columns = "age"', ("/age, which cannot be read",)),
        ('columns = ["age", "age"]', ("columns is ['age', 'age']",)),
        ('columns = ["age", " "]', ("columns[1] is ' '",)),
        ('columns = ["age", ["b"]]', ("columns[1] is ['b']",)),
        ('columns = ["a"]\nleave_out = ["b"]', ("Both columns and leave_out",)),
        ('table = "a"\nquery = "select 1"', ("Both table and query",)),
        ("missing_codes = 9", ("missing_codes is 9",)),
        ("missing_codes = [nan]", ("missing_codes[0] is nan",)),
        ("missing_codes = { age = 9 }", ("missing_codes.age is 9",)),
        ('missing = "50"', ("missing is '50'",)),
        ("alleles = 1", ("alleles is 1",)),
        ("missing = { age = true }", ("missing.age is True",)),
        ("missing = { age = inf }", ("missing.age is inf",)),
        ('query = " "', ("query is ' '",)),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_by_name(
    line: str, facts: tuple[str, ...], tmp_path: Path
) -> None:
    path = settings(tmp_path, f"[reading.cohort]\n{line}")
    (fault,) = faults(ProviderSettings, path, read_toml(path))
    for fact in ("reading.cohort", *facts):
        assert fact in str(fault)


@pytest.mark.parametrize(
    ("lines", "fact"),
    [
        ("[reading.labs]", "reading names 'labs', which is no data set"),
        ("[reading]\ncohort = 3", "reading.cohort is 3"),
        (
            "[spans]\ncohort = { start = 0, rows = 2, of = 4 }\n[reading.cohort]\nmissing_codes = [-9]",
            "'cohort' has a span, and missing or missing_codes",
        ),
    ],
)
def test_a_declaration_needs_a_data_set_of_rows(lines: str, fact: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        read_settings(ProviderSettings, settings(tmp_path, lines))
    assert fact in str(caught.value)


def test_a_tilde_stands_for_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = settings(tmp_path, '[persons]\ncohort = "~/whose.txt"', "~/data/rows.csv")
    path.write_text(path.read_text().replace('"policy.toml"', '"~/policy.toml"'))
    read = read_settings(ProviderSettings, path)
    assert read.data_sets == {"cohort": tmp_path / "home" / "data" / "rows.csv"}
    assert (read.persons, read.policy) == ({"cohort": tmp_path / "home" / "whose.txt"}, tmp_path / "home/policy.toml")
    path = settings(tmp_path, "", "~nobody-of-this-name/rows.csv")
    assert read_settings(ProviderSettings, path).data_sets["cohort"].name == "rows.csv"


@pytest.mark.parametrize("other", ["data/a.csv", "data/*.csv", "data/a*", "data", "link.csv", "data/../data/?.csv"])
def test_a_pattern_and_a_file_that_it_matches_are_the_same_rows(other: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv", "c.tsv"):
        (tmp_path / "data" / name).touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "data" / "b.csv")
    with pytest.raises(InvalidParameterError, match=facts("'cohort'", "'other'", "data_sets")):
        read_settings(ProviderSettings, settings(tmp_path, f'other = "{other}"', "data/*.csv"))
    read = read_settings(ProviderSettings, settings(tmp_path, 'other = "data/*.tsv"\nmore = "*.npy"', "data/*.csv"))
    assert read.names == {"cohort", "other", "more"}
