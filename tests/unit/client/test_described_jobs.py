"""Jobs with a dictionary: the bound follows, rows are prepared, and the model prepares new rows in the same way."""

import re
import tomllib
import warnings
from datetime import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from facts import facts

import dpspca
from dpspca import DPSPCA, Budget, Dictionary, JobSpec, load_dictionary, simulate
from dpspca.client.findings import UNCENTRED
from dpspca.common.dictionary import prepare_table
from dpspca.common.dictionary.unlikely_values import unlikely_values_in
from dpspca.common.errors import (
    CorruptModelError,
    DpspcaError,
    InvalidDataError,
    InvalidParameterError,
    InvalidTypeError,
    RowsWarning,
)
from dpspca.common.job import PRIVATE_BOUND, Centering
from dpspca.common.results import Model

STUDY = """
format = "dpspca-dictionary-1"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features."mean area (µm²)"]
kind = "number"
unit = "µm²"
range = [0, 3000]
[features.sex]
kind = "category"
levels = ["female", "male"]
missing_codes = ["unknown"]
[features.stage]
kind = "category"
levels = [1, 2, 3]
"""
KNOWN = Dictionary.parse(tomllib.loads(STUDY))
DRAWN = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "note": "free text",
        "stage": DRAWN.integers(1, 4, 400),
        "sex": DRAWN.choice(["female", "male", "unknown"], 400),
        "age": DRAWN.integers(20, 100, 400),
        "mean area (µm²)": DRAWN.uniform(100, 2900, 400),
    }
)
FEATURES = ("age", "sex", "stage")
JOB: dict[str, Any] = {"unit": "row-replace-one", "budget": Budget(4.0, 1e-6), "components": 2}


def job(*features: str, **changes: Any) -> JobSpec:
    return KNOWN.job(features or None, **JOB | changes)


def model(**changes: Any) -> Model:
    return simulate([FRAME[:200], FRAME[200:]], job(*FEATURES, **changes), noise_seed=1, dictionary=KNOWN)


MODEL = model()


def test_a_job_needs_no_norm_bound_and_takes_another_if_it_is_given() -> None:
    made = job("age", "sex")
    assert made.norm_bound == KNOWN.subset(["age", "sex"]).norm_bound() == np.sqrt(1.5)
    assert made.schema.names == ("age", "sex=female", "sex=male")
    assert made.dictionary == KNOWN.digest()
    assert job("age", "sex", norm_bound=7.0).norm_bound == 7.0
    assert job("age", "sex", norm_bound="private").norm_bound == PRIVATE_BOUND
    assert job("age", centering="private", components=1).mean_bound == 1.0
    assert job("age", centering="private", components=1, mean_bound=0.5).mean_bound == 0.5
    with pytest.raises(InvalidParameterError, match=facts("'weight'", "age")):
        job("weight")


def test_the_statement_and_the_model_say_how_rows_were_prepared() -> None:
    assert MODEL.dictionary == KNOWN.subset(FEATURES)
    assert MODEL.feature_names == MODEL.dictionary.columns
    assert MODEL.statement.dictionary == KNOWN.digest()
    assert f"shared dictionary whose digest is {KNOWN.digest()}" in MODEL.statement.text
    assert UNCENTRED not in MODEL.statement.warnings
    again = Model.from_bytes(MODEL.to_bytes())
    assert again.dictionary == MODEL.dictionary
    assert again.statement == MODEL.statement


def prepared(rows: pd.DataFrame) -> np.ndarray:
    return prepare_table(KNOWN.subset(FEATURES), rows)


@pytest.mark.parametrize(
    "table",
    [
        FRAME,
        FRAME[["stage", "age", "sex"]],
        FRAME.assign(sex=FRAME["sex"].astype("category"), age=FRAME["age"].astype("Int64")),
        pl.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        {name: FRAME[name].to_list() for name in FEATURES},
        FRAME[list(FEATURES)].to_numpy(dtype=object),
    ],
    ids=["pandas", "other order", "pandas types", "polars", "arrow", "mapping", "numpy"],
)
def test_a_model_prepares_raw_rows_of_any_library(table: Any) -> None:
    np.testing.assert_array_equal(MODEL.transform(table), prepared(FRAME) @ MODEL.components.T)


def test_raw_numbers_without_names_are_features_in_their_order() -> None:
    numbers = simulate([FRAME], job("stage", "age"), noise_seed=1, dictionary=KNOWN)
    rows = FRAME[["stage", "age"]]
    np.testing.assert_array_equal(numbers.transform(rows.to_numpy()), numbers.transform(rows))
    with pytest.raises(InvalidDataError, match=facts("2 features", "(3, 4)")):
        numbers.transform(np.ones((3, 4)))


def test_missing_unknown_and_distant_values_are_prepared_as_declared() -> None:
    rows = pd.DataFrame({"age": [None, 1e6], "sex": ["unknown", "other"], "stage": [None, 9]}, dtype=object)
    np.testing.assert_array_equal(prepared(rows)[:, 0], [0, 1])
    assert not prepared(rows)[:, 1:].any()


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        (FRAME[["age", "sex"]], InvalidDataError, ("no column", "'stage'")),
        (pd.concat([FRAME, FRAME[["age"]]], axis=1), InvalidDataError, "'age'"),
        (FRAME.assign(age="old"), InvalidDataError, ("'age'", "row 1")),
        (FRAME.assign(age=["5"] * 399 + ["1_0"]), InvalidDataError, ("'age'", "row 400")),
        (FRAME.assign(age=np.inf), InvalidDataError, ("'age'", "row 1")),
        (FRAME.assign(age=pd.Timestamp("2001-01-01")), InvalidTypeError, ("'age'", "datetime64")),
        (pl.from_pandas(FRAME).with_columns(age=time(3)), InvalidTypeError, ("'age'", "Time")),
        (pl.from_pandas(FRAME).lazy(), InvalidTypeError, ("LazyFrame", "collect()")),
    ],
)
def test_rows_that_cannot_be_prepared_are_refused(rows: Any, kind: type[DpspcaError], said: object) -> None:
    with pytest.raises(kind, match=facts(said)):
        MODEL.transform(rows)


ODD = FRAME.assign(sex=FRAME["sex"].str.upper(), age=FRAME["age"] * 365)


def test_whoever_holds_rows_is_warned_if_most_values_cannot_be_meant() -> None:
    for use in (MODEL.transform, DPSPCA(2, unit="row-replace-one", dictionary=KNOWN, features=FEATURES).fit):
        with pytest.warns(RowsWarning, match=facts("400 of 400")) as caught:
            use(ODD)
        about = [str(each.message) for each in caught if each.category is RowsWarning]
        assert len(about) == 1
        assert re.search(facts("400 of 400", "'age'", "110 years", "'sex'", "'female'", "'male'"), about[0])
        assert {each.filename for each in caught} == {__file__}


def test_a_warning_about_many_features_names_the_first_ones() -> None:
    features = {f"x{place:02}": {"kind": "number", "unit": "", "range": [0, 1]} for place in range(20)}
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})
    doubt = unlikely_values_in(known, {name: np.full(40, 7.0) for name in features})
    assert re.search(facts("40 of 40", "'x00'", "'x02'", "'x10'", "9 more"), doubt)
    assert "'x11'" not in doubt
    assert not unlikely_values_in(known, {name: np.ones(40) for name in features})


def test_a_warning_about_rows_is_in_no_model_and_few_odd_values_give_none() -> None:
    made = DPSPCA(2, unit="row-replace-one", dictionary=KNOWN, features=FEATURES).fit(ODD)
    for text in (made.privacy_.text, made.model_.to_bytes().decode("latin-1"), *made.privacy_.warnings):
        assert "400 of 400" not in text
    few = FRAME.assign(age=[1000] * 20 + [50] * 380, sex=["other"] * 20 + ["male"] * 380)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RowsWarning)
        MODEL.transform(few)
        MODEL.transform(FRAME.assign(sex="unknown", age=None))
    some = FRAME.assign(age=[1000] * 21 + [50] * 379)
    with pytest.warns(RowsWarning, match=facts("21 of 400", "'age'", "missing values")):
        MODEL.transform(some)


def test_a_model_without_its_dictionary_asks_for_it() -> None:
    bare = Model(MODEL.components, MODEL.statement, feature_names=MODEL.feature_names)
    with pytest.raises(InvalidDataError, match=facts("with_dictionary(load_dictionary(FILE))", "--dictionary")):
        bare.transform(FRAME)
    np.testing.assert_array_equal(bare.with_dictionary(KNOWN).transform(FRAME), MODEL.transform(FRAME))
    np.testing.assert_array_equal(bare.transform(prepared(FRAME), prepared=True), MODEL.transform(FRAME))
    with pytest.raises(InvalidParameterError, match=facts(KNOWN.digest(), KNOWN.subset(FEATURES).digest())):
        bare.with_dictionary(KNOWN.subset(FEATURES))


def test_a_stored_dictionary_that_does_not_fit_is_refused() -> None:
    stored = MODEL.to_bytes().replace(b'"sex": {"kind"', b'"xes": {"kind"')
    with pytest.raises(CorruptModelError, match=facts("'xes=", "dictionary")):
        Model.from_bytes(stored)


def test_a_simulation_needs_the_dictionary_that_the_job_names() -> None:
    with pytest.raises(InvalidParameterError, match=facts(KNOWN.digest()[:12], "dictionary=")):
        simulate([FRAME], job("age", "sex"))
    other = KNOWN.subset(["age", "sex"])
    with pytest.raises(InvalidParameterError, match=facts(KNOWN.digest(), other.digest())):
        simulate([FRAME], job("age", "sex"), dictionary=other)
    with pytest.raises(DpspcaError, match=facts("Shard 2 of 2", "'age'")):
        simulate([FRAME, FRAME.drop(columns="age")], job("age", "sex"), dictionary=KNOWN)


def test_a_private_mean_is_subtracted_from_prepared_rows() -> None:
    centred = model(centering=Centering.PRIVATE)
    assert centred.mean is not None
    np.testing.assert_allclose(
        centred.transform(FRAME), (prepared(FRAME) - centred.mean) @ centred.components.T, atol=1e-12
    )


def test_the_estimator_takes_a_dictionary_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    assert load_dictionary(tmp_path / "study.toml") == KNOWN
    for given in (KNOWN, tmp_path / "study.toml", str(tmp_path / "study.toml")):
        pca = DPSPCA(
            2, epsilon=4.0, unit="row-replace-one", random_state=0, dictionary=given, features=["age", "stage"]
        )
        scores = pca.fit(FRAME).transform(FRAME[:5])
        np.testing.assert_array_equal(scores, pca.model_.transform(FRAME[:5]))
        assert pca.feature_names_in_.tolist() == ["age", "stage"]
        assert pca.n_features_in_ == 2
        assert pca.privacy_.norm_bound == KNOWN.subset(["age", "stage"]).norm_bound()
        assert pca.components_.shape == (2, 4)
    with pytest.raises(InvalidParameterError, match=facts("features", "dictionary=")):
        DPSPCA(2, unit="row-replace-one", features=["age"]).fit(FRAME)
    with pytest.raises(DpspcaError, match=facts("dictionary", "int", "Dictionary")):
        DPSPCA(2, unit="row-replace-one", dictionary=5).fit(FRAME)  # type: ignore[arg-type]
    private = DPSPCA(2, unit="row-replace-one", random_state=0, dictionary=KNOWN, centering="private").fit(FRAME)
    assert private.privacy_.mean_bound == KNOWN.norm_bound()
    assert dpspca.Dictionary is Dictionary


def test_a_column_in_wrong_units_cannot_become_a_component_of_its_own() -> None:
    """A site whose areas were divided by 100 is clipped into the public range: no component is about that column."""
    site = FRAME.assign(**{"mean area (µm²)": FRAME["mean area (µm²)"] * 1000})
    spec = job("age", "mean area (µm²)", "stage", components=1)
    rows = prepare_table(KNOWN.subset(["age", "mean area (µm²)", "stage"]), site)
    assert np.linalg.norm(rows, axis=1).max() <= spec.norm_bound + 1e-12
