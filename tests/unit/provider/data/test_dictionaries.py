"""A provider's columns become the features of its dictionary, in every kind of file, and each row by itself."""

import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from facts import facts

from dpspca.common.dictionary import Dictionary, MappedFeature, Preparation
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, RefusedError
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.storage import ProviderSettings, Reading, read_settings
from dpspca.provider.data import Arrivals, names_in, read_arriving, read_offered, read_rows, require_unit

STUDY = """
format = "dpspca-dictionary-1"
[features.height]
kind = "number"
unit = "cm"
range = [100, 200]
[features.sex]
kind = "category"
levels = ["female", "male"]
[features.rs1]
kind = "genotype"
frequency = 0.5
missing_codes = [-9]
"""
COLUMNS = {
    "height": {"column": "Größe in", "factor": 2.54},
    "sex": {"column": "sex.code", "levels": {"f": "female", "2": "male"}},
}
FRAME = pd.DataFrame(
    {
        "rs1": [0, 2, -9, 1],
        "note": ["a", "b", "c", "d"],
        "sex.code": ["f", "2", None, "x"],
        "Größe in": [60.0, 70.0, None, 900.0],
    }
)
PREPARED = np.array(
    [
        [0.048, 0.5, -0.5, -np.sqrt(2)],
        [0.556, -0.5, 0.5, np.sqrt(2)],
        [0, 0, 0, 0],
        [1, 0, 0, 0],
    ]
)


def reading(columns: Any = None, absent: Any = None, **others: Any) -> Reading:
    known = Dictionary.parse(tomllib.loads(STUDY))
    return Reading(**others).prepared(Preparation.parse(known, COLUMNS if columns is None else columns, absent))


def csv(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def tabs(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_csv(folder / "rows.tsv.gz", index=False, sep="\t")
    return folder / "rows.tsv.gz"


def parquet(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def coded_parquet(folder: Path, frame: pd.DataFrame) -> Path:
    frame.assign(**{"sex.code": frame["sex.code"].astype("category")}).to_parquet(folder / "rows.parquet")
    return folder / "rows.parquet"


def feather(folder: Path, frame: pd.DataFrame) -> Path:
    frame.to_feather(folder / "rows.feather")
    return folder / "rows.feather"


def sqlite(folder: Path, frame: pd.DataFrame) -> Path:
    with closing(sqlite3.connect(folder / "rows.db")) as database:
        frame.to_sql("rows", database, index=False)
    return folder / "rows.db"


Write = Callable[[Path, pd.DataFrame], Path]
KINDS = [csv, tabs, parquet, coded_parquet, feather, sqlite]


@pytest.mark.parametrize("write", KINDS)
def test_all_kinds_of_files_give_the_same_prepared_rows(tmp_path: Path, write: Write) -> None:
    place = write(tmp_path, FRAME)
    rows = read_offered(place, reading())
    np.testing.assert_allclose(rows.part(slice(None)), PREPARED, atol=1e-12)
    assert rows.names == names_in(place, reading()) == ("height", "sex=female", "sex=male", "rs1")
    assert rows.unusable is None
    np.testing.assert_array_equal(read_rows(place, reading()).matrix, rows.matrix)
    np.testing.assert_array_equal(read_arriving(place, reading())[0].matrix, rows.matrix)


@pytest.mark.parametrize("write", KINDS)
@pytest.mark.parametrize("odd", [("sex.code", "ÿ\ud7ff"), ("sex.code", "9" * 400), ("Größe in", 1e308), ("rs1", 2**62)])
def test_an_odd_value_changes_its_own_row_alone(tmp_path: Path, write: Write, odd: tuple[str, Any]) -> None:
    """Privacy: preparation is a function of one row, and no row decides whether its provider starts."""
    frame = FRAME.copy()
    frame.loc[1, odd[0]] = odd[1]
    rows = read_offered(write(tmp_path, frame), reading())
    others = [0, 2, 3]
    np.testing.assert_allclose(rows.part(slice(None))[others], PREPARED[others], atol=1e-12)
    assert np.linalg.norm(rows.part(slice(None)), axis=1).max() <= 2


def test_text_that_is_not_utf_8_is_not_a_level_and_stops_no_reading(tmp_path: Path) -> None:
    raw = pa.array([b"f", b"\xff\xfe", b"2", None], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), 4, raw.buffers())
    table = pa.table({"sex.code": broken, "Größe in": FRAME["Größe in"], "rs1": FRAME["rs1"]})
    pq.write_table(table, tmp_path / "rows.parquet")
    rows = read_offered(tmp_path / "rows.parquet", reading())
    np.testing.assert_array_equal(rows.part(slice(None))[:, 1], [0.5, 0, -0.5, 0])


def test_booleans_in_a_typed_file_are_the_levels_true_and_false(tmp_path: Path) -> None:
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": {
        "ill": {"kind": "category", "levels": ["false", "true"]}}})  # fmt: skip
    pq.write_table(pa.table({"ill": [True, False, None]}), tmp_path / "rows.parquet")
    rows = read_offered(tmp_path / "rows.parquet", Reading().prepared(Preparation.parse(known, None, None)))
    np.testing.assert_array_equal(rows.part(slice(None)), [[-0.5, 0.5], [0.5, -0.5], [0, 0]])


def test_a_cell_that_is_not_a_number_makes_its_row_zero(tmp_path: Path) -> None:
    frame = FRAME.astype({"Größe in": object})
    frame.loc[1, "Größe in"] = "tall"
    rows = read_offered(csv(tmp_path, frame), reading())
    assert not np.asarray(rows.part(slice(1, 2))).any()
    assert rows.unusable is not None
    assert rows.unusable.count == 1
    with pytest.raises(InvalidDataError, match=facts("Line 3, column 4 ('Größe in')")):
        read_rows(tmp_path / "rows.csv", reading())


def test_features_without_a_column_are_all_named(tmp_path: Path) -> None:
    place = csv(tmp_path, FRAME.drop(columns=["rs1", "Größe in"]))
    with pytest.raises(InvalidDataError, match=facts("'height' (column 'Größe in'), 'rs1' (column 'rs1')")):
        read_offered(place, reading())
    columns = {"sex": COLUMNS["sex"]}
    assert read_offered(place, reading(columns, ["height", "rs1"])).names == ("sex=female", "sex=male")


def test_files_without_column_names_cannot_be_matched(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(3))
    with pytest.raises(InvalidDataError, match=facts("names", "[reading]", "dictionary")):
        read_offered(tmp_path / "rows.npy", reading())


def test_dates_are_refused_by_name(tmp_path: Path) -> None:
    frame = FRAME.assign(rs1=pd.to_datetime(["2001-01-01"] * 4))
    with pytest.raises(DpspcaError, match=facts("'rs1' (timestamp[us])")):
        read_offered(parquet(tmp_path, frame), reading())


def test_prepared_rows_keep_one_budget_and_protect_no_matrix(tmp_path: Path) -> None:
    """Another dictionary gives the rows no new budget, because the rows as they were read are recognised too."""
    place = csv(tmp_path, FRAME)
    other = {**COLUMNS, "height": {"column": "Größe in", "factor": 2.5}}
    one, two = read_offered(place, reading()), read_offered(place, reading(other))
    assert one.digest() != two.digest()
    assert one.fingerprints() & two.fingerprints()
    with pytest.raises(RefusedError):
        require_unit(PrivacyUnit.ENTRY, persons=False, cut=one.uncut is not None)


def test_arriving_rows_that_another_dictionary_prepares_keep_one_budget(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    csv(tmp_path / "rows", FRAME)
    other = {**COLUMNS, "height": {"column": "Größe in", "factor": 2.5}}
    one, two = (
        Arrivals("stream", tmp_path / "rows", read=partial(read_arriving, reading=each)).fingerprints()
        for each in (reading(), reading(other))
    )
    assert one & two
    assert one & read_offered(csv(tmp_path, FRAME), reading(other)).fingerprints()
    assert not one & read_offered(csv(tmp_path, FRAME[:-1]), reading()).fingerprints()


@pytest.mark.parametrize(
    ("columns", "absent", "said"),
    [
        ({"heigth": "h"}, None, "Did you mean 'height'"),
        ({"height": {"colum": "h"}}, None, "Did you mean 'column'"),
        ({"height": {"levels": {"a": "b"}}}, None, "levels are for categories"),
        ({"sex": {"factor": 2}}, None, "factor and offset are for numbers"),
        ({"sex": {"levels": {"f": "woman"}}}, None, "'woman', which is not a level"),
        ({"sex": {"levels": {"1": "female", "1.0": "male"}}}, None, "'1' and '1.0' of 'sex'"),
        ({"height": {"factor": 0}}, None, "factor is 0"),
        ({"height": {"factor": float("inf")}}, None, "finite"),
        ({"height": 5}, None, "Give a table"),
        ({"sex": "a", "height": "a"}, None, "Several features use the column"),
        ({}, ["weight"], "feature 'weight'"),
        ({"sex": "a"}, ["sex"], "columns and absent"),
        ({}, ["height", "sex", "rs1"], "Every feature is absent"),
    ],
)
def test_what_is_wrong_with_a_mapping_is_named(columns: Any, absent: Any, said: str) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        reading(columns, absent)
    assert said in str(refused.value)


def test_codes_convert_before_units_and_levels_before_codes() -> None:
    known = Dictionary.parse(tomllib.loads(STUDY)).features[0]
    mapped = MappedFeature.parse(known, {"factor": 2, "offset": 1, "missing_codes": [50]}, "x")
    np.testing.assert_array_equal(mapped.raw(np.array([50.0, 60.0, np.nan])), [np.nan, 121.0, np.nan])


SETTINGS = """
coordinator = "127.0.0.1:1"
identity = "north"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
cohort = "rows.csv"
"""


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[dictionaries.other]\nfile = 'study.toml'", "no data set"),
        ("[dictionaries.cohort]\nfiles = 'study.toml'", "unknown key"),
        ("[dictionaries.cohort]\nfile = 5", "file is 5"),
        ("[dictionaries.cohort]\nfile = 'absent.toml'", "cannot be read"),
        ("[dictionaries.cohort]\nfile = 'wrong.toml'", "not filled in"),
        ("[dictionaries.cohort]\nfile = 'study.toml'\n[reading.cohort]\ncolumns = ['a']", "columns, and a dictionary"),
        (
            "[dictionaries.cohort]\nfile = 'study.toml'\n[spans.cohort]\nstart = 0\nrows = 1\nof = 2",
            "a span and a dictionary",
        ),
    ],
)
def test_settings_that_contradict_a_dictionary_are_refused(tmp_path: Path, written: str, said: str) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "wrong.toml").write_text(STUDY.replace("[100, 200]", '["?", "?"]'), encoding="utf-8")
    (tmp_path / "north.toml").write_text(SETTINGS + written, encoding="utf-8")
    with pytest.raises(InvalidParameterError) as refused:
        read_settings(ProviderSettings, tmp_path / "north.toml")
    assert said in str(refused.value)
