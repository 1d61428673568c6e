"""What a steward is told about triplets: lines that hold none, several numbers of one cell, and the first bad one."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from facts import facts, names_facts

from dpspca.client.steward.data_check import Examined, examine_settings
from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import read_settings
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.settings import DataSettings
from dpspca.common.storage.triplets import Triplets
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import read_rows

GOOD = "person,concept,val\np1,7,5\np2,7,6\np2,8,1\n"


def reading(folder: Path, **more: Any) -> Reading:
    (folder / "persons.list").write_text("p1\np2\n", encoding="utf-8")
    declared = Triplets(row="person", column="concept", value="val", rows=folder / "persons.list")
    return Reading(columns=("7", "8"), triplets=replace(declared, **more))


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_with_too_few_or_too_many_cells_are_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "long.csv", GOOD + 'broken\np1,8,6,x\n"p1,8,1\n\n')
    found = examine_rows(path, reading(tmp_path)).triplets
    assert found is not None
    assert (found.triplets, found.broken) == (3, 3)
    assert found.first_broken == f"{path}: Line 5 has 1 cell under 3 names"


def test_the_first_broken_line_of_a_folder_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "long").mkdir()
    written(tmp_path / "long" / "a.csv", GOOD)
    last = written(tmp_path / "long" / "b.csv", 'person,concept,val\n"p1,7,5\n')
    found = examine_rows(tmp_path / "long", reading(tmp_path)).triplets
    assert found is not None
    assert found.first_broken is not None
    assert found.first_broken.startswith(f"{last}: Line 2 has a quote")


def test_cells_with_several_numbers_are_counted_and_their_columns_named(tmp_path: Path) -> None:
    path = written(tmp_path / "long.csv", GOOD + "p1,7,1\np1,7,2\np2,7,1\n")
    found = examine_rows(path, reading(tmp_path)).triplets
    assert found is not None
    assert (found.several, found.columns_with_several, found.are_added) == (2, ("7",), True)
    other = examine_rows(path, reading(tmp_path, duplicates="unusable")).triplets
    assert other is not None
    assert (other.several, other.are_added) == (2, False)
    counted = examine_rows(path, reading(tmp_path, value=None)).triplets
    assert counted is not None
    assert counted.several == 0


COLUMNS = '[reading.x]\ncolumns = ["7", "8"]\n'


def checked(folder: Path, text: str, before: str = COLUMNS) -> Examined:
    written(folder / "long.csv", text)
    written(folder / "persons.list", "p1\np2\n")
    told = 'row = "person", column = "concept", value = "val", rows = "persons.list"'
    settings = f'[data_sets]\nx = "long.csv"\n{before}triplets = {{ {told} }}\n'
    path = written(folder / "north.toml", settings)
    return next(examine_settings(read_settings(DataSettings, path)))


def test_the_check_says_what_becomes_of_such_lines(tmp_path: Path) -> None:
    told = " ".join(checked(tmp_path, GOOD + "broken\np1,7,1\n").remarks)
    for fact in ("Line 5", "long.csv", "1 pair", "'7'", 'duplicates = "unusable"'):
        assert fact in told
    assert not any("names: 1, 2" in each for each in checked(tmp_path, GOOD).remarks)


def test_features_with_several_numbers_have_their_own_names(tmp_path: Path) -> None:
    written(
        tmp_path / "study.toml",
        'format = "dpspca-dictionary-1"\n[features.HbA1c]\nkind = "number"\nunit = "%"\nrange = [3, 15]\nconcept = 7\n',
    )
    before = '[dictionaries.x]\nfile = "study.toml"\n[reading.x]\n'
    told = " ".join(checked(tmp_path, GOOD + "p1,7,1\n", before).remarks)
    assert "'HbA1c'" in told


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ("p2,8,x\n", ("line 5", "'p2'", "'8'")),
        ("p1,8,\n", ("line 5", "'p1'", "'8'", "missing")),
        ("p1,8,NaN\n", ("line 5", "'p1'", "'8'")),
        ("p2,8,\np2,8,x\n", ("line 6", "'p2'", "'8'")),
    ],
)
def test_the_first_bad_triplet_has_file_line_row_and_column(bad: str, told: tuple[str, ...], tmp_path: Path) -> None:
    path = written(tmp_path / "long.csv", GOOD + bad)
    fault = examine_rows(path, reading(tmp_path)).first_fault
    assert fault is not None
    for fact in (str(path), *told):
        assert fact in fault


def test_two_numbers_of_an_unusable_cell_are_both_named(tmp_path: Path) -> None:
    path = written(tmp_path / "long.csv", GOOD + "p2,8,3\n")
    fault = examine_rows(path, reading(tmp_path, duplicates="unusable")).first_fault
    assert fault is not None
    for fact in ("line 4", "line 5", "'p2'", "'8'"):
        assert fact in fault


def test_the_first_bad_triplet_of_a_database_has_row_and_column(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "long.db")) as made, made:
        made.execute("CREATE TABLE long (person, concept, val)")
        made.executemany("INSERT INTO long VALUES (?, ?, ?)", [("p1", 7, 1), ("p2", 8, "x")])
    fault = examine_rows(tmp_path / "long.db", reading(tmp_path)).first_fault
    assert fault is not None
    assert names_facts(fault, "long.db", "Row 'p2'", "column 2", "'8'")


def test_a_check_logs_nothing_and_a_provider_logs_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "long.csv", GOOD + "p9,7,1\nbroken\np1,8,x\n")
    examine_rows(path, reading(tmp_path))
    assert not caplog.records
    read_offered(path, reading(tmp_path))
    assert len([each for each in caplog.records if "not declared" in each.message]) == 1
    assert len([each for each in caplog.records if "data check" in each.message]) == 1


def test_a_dictionary_leaves_missing_triplets_alone(tmp_path: Path) -> None:
    features = {"7": {"kind": "number", "unit": "%", "range": [3, 15]}}
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})
    plain = replace(reading(tmp_path), columns=None).prepared(Preparation.parse(known, None, None))
    path = written(tmp_path / "long.csv", "person,concept,val\np1,7,\np2,7,x\n")
    fault = examine_rows(path, plain).first_fault
    assert fault is not None
    assert "line 3" in fault
    with pytest.raises(InvalidDataError, match=facts("long.csv")):
        read_rows(written(tmp_path / "long.csv", "no,names\n"), plain)


def test_rows_without_a_triplet_are_missing_values_of_a_feature(tmp_path: Path) -> None:
    features = {name: {"kind": "number", "unit": "%", "range": [3, 15], "concept": name} for name in ("7", "8")}
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})
    plain = replace(reading(tmp_path), columns=None).prepared(Preparation.parse(known, None, None))
    facts_found = examine_rows(written(tmp_path / "long.csv", "person,concept,val\np1,7,5\np1,9,1\n"), plain)
    assert [(each.values, each.without_triplet) for each in facts_found.features] == [(1, 1), (0, 2)]
    examined = Examined(None, tmp_path, facts_found, None)
    assert any(names_facts(remark, "'8'", "dictionary") for remark in examined.remarks)
    assert not any(names_facts(remark, "'7'", "dictionary") for remark in examined.remarks)


def test_declared_rows_without_triplets_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "long.csv", "person,concept,val\np1,7,5\np3,7,5\np2,9,1\n")
    how = reading(tmp_path)
    written(tmp_path / "persons.list", "p1\n\np2\np3\n")
    found = examine_rows(path, how).triplets
    assert found is not None
    assert (found.used, found.rows_without) == (2, 1)
    assert found.first_without == f"{tmp_path / 'persons.list'}, line 3"


def test_a_data_set_of_which_no_triplet_is_used_fails_the_check(tmp_path: Path) -> None:
    examined = checked(tmp_path, "person,concept,val\n1,7,5\n2,7,6\n")
    assert not examined.passed
    assert any(names_facts(remark, "2 declared rows") for remark in examined.remarks)
    assert checked(tmp_path, GOOD).passed
