"""Rows of files become those of a model's dictionary, read as the settings say or by their positions."""

import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from facts import facts

from dpspca import Budget, Dictionary, simulate
from dpspca.client.files import rows_of_model, scores_of
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import InvalidDataError, InvalidParameterError, RowsWarning
from dpspca.common.storage import Reading

KNOWN = Dictionary.parse(
    tomllib.loads("""
format = "dpspca-dictionary-1"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features.bmi]
kind = "number"
unit = "kg/m²"
range = [10, 60]
[features.sex]
kind = "category"
levels = ["female", "male"]
""")
)
DRAWN = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": DRAWN.uniform(20, 100, 400).round(2),
        "bmi": DRAWN.uniform(15, 45, 400).round(2),
        "sex": DRAWN.choice(["female", "male"], 400),
    }
)
MODEL = simulate(
    [FRAME], KNOWN.job(unit="row-replace-one", budget=Budget(4.0, 1e-6), components=2), noise_seed=1, dictionary=KNOWN
)
SOME = FRAME[:5]
PLAIN = Reading()


def scores(path: Path, reading: Reading = PLAIN, *, by_position: bool = False) -> list[list[float]]:
    found: list[list[float]] = scores_of(
        MODEL, rows_of_model(MODEL, path, reading, by_position=by_position).matrix
    ).tolist()
    return found


def test_settings_without_dictionary_still_say_how_the_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    coded = SOME.assign(age=[-77.0, *SOME.age[1:]], note="text")
    coded.to_csv(path, index=False, sep=";", decimal=",")
    declared = Reading(delimiter=";", decimal=",", missing_codes=(-77,), leave_out=("note",))
    expected = MODEL.transform(SOME.assign(age=[np.nan, *SOME.age[1:]]))
    np.testing.assert_allclose(scores(path, declared), expected)


def test_a_model_projects_a_file_as_it_does_its_rows(tmp_path: Path) -> None:
    for name, write in (("rows.csv", SOME.to_csv), ("ROWS.PARQUET", SOME.to_parquet)):
        write(tmp_path / name, index=False)
        np.testing.assert_allclose(MODEL.transform(tmp_path / name), MODEL.transform(SOME))
        np.testing.assert_allclose(MODEL.transform(str(tmp_path / name), by_position=True), MODEL.transform(SOME))
    SOME.assign(bmi=SOME.bmi / 100).to_csv(tmp_path / "other.csv", index=False)
    with pytest.warns(RowsWarning, match=facts("bmi")):
        MODEL.transform(tmp_path / "other.csv")
    with pytest.raises(InvalidDataError, match=facts("none.csv")):
        MODEL.transform(tmp_path / "none.csv")


def test_what_the_settings_leave_out_is_read_if_the_model_has_it(tmp_path: Path) -> None:
    SOME.assign(more=1).to_csv(tmp_path / "rows.csv", index=False)
    for reading in (Reading(leave_out=("bmi",)), Reading(columns=("age",)), Reading(columns=("more",))):
        np.testing.assert_allclose(scores(tmp_path / "rows.csv", reading), MODEL.transform(SOME))


def test_a_file_needs_the_features_that_the_components_have_and_no_others(tmp_path: Path) -> None:
    job = KNOWN.job(unit="row-replace-one", budget=Budget(4.0, 1e-6), components=2, features=["age", "sex"])
    part = simulate([FRAME], job, noise_seed=1, dictionary=KNOWN)
    SOME[["sex", "age"]].to_csv(tmp_path / "rows.csv", index=False)
    found = scores_of(part, rows_of_model(part, tmp_path / "rows.csv", PLAIN, by_position=False).matrix)
    np.testing.assert_allclose(found, part.transform(SOME))
    with pytest.raises(InvalidParameterError, match=facts("rows.csv", "'bmi'", "--config")):
        scores(tmp_path / "rows.csv")


def test_a_number_for_missing_values_beside_a_dictionary_is_refused(tmp_path: Path) -> None:
    SOME.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(InvalidParameterError, match=facts("missing", "[reading]")):
        scores(tmp_path / "rows.csv", Reading(missing=50.0))


def test_columns_are_features_by_their_positions_if_asked(tmp_path: Path) -> None:
    SOME.set_axis(["bmi", "age", "c"], axis=1).to_csv(tmp_path / "rows.csv", index=False)
    SOME.set_axis(["x", "y", "z"], axis=1).to_parquet(tmp_path / "rows.parquet")
    for name in ("rows.csv", "rows.parquet"):
        np.testing.assert_allclose(scores(tmp_path / name, by_position=True), MODEL.transform(SOME))


def test_an_array_has_its_features_by_position(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", SOME.assign(sex=np.nan).to_numpy(dtype=float))
    expected = MODEL.transform(SOME.assign(sex=None))
    np.testing.assert_allclose(scores(tmp_path / "rows.npy", by_position=True), expected)


def test_positions_need_one_column_for_each_feature(tmp_path: Path) -> None:
    SOME.assign(more=1).to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(InvalidParameterError, match=facts("rows.csv", 4, 3, "'age', 'bmi', 'sex'")):
        scores(tmp_path / "rows.csv", by_position=True)


def test_positions_beside_mapped_columns_are_refused(tmp_path: Path) -> None:
    SOME.to_csv(tmp_path / "rows.csv", index=False)
    mapped = PLAIN.prepared(Preparation.parse(KNOWN, None, None))
    with pytest.raises(InvalidParameterError, match=facts("--by-position")):
        scores(tmp_path / "rows.csv", mapped, by_position=True)


def test_an_unreadable_file_is_no_file_without_names(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"")
    with pytest.raises(InvalidDataError, match=facts("rows.csv")):
        scores(tmp_path / "rows.csv", by_position=True)
