"""Tables as Python programs hold them: none is taken for another, and what cannot be read is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from facts import facts

from dpspca import DPSPCA, Budget, load_dictionary, load_model, save_model
from dpspca.client.simulation import simulate
from dpspca.common.dictionary import Dictionary, prepare_table
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidTypeError
from dpspca.common.frames import column_names

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((60, 4))
FRAME = pd.DataFrame(ROWS, columns=list("abcd"))
WHOSE = np.arange(60) // 2
STUDY = Dictionary.parse({
    "format": "dpspca-dictionary-1",
    "features": {
        "n": {"kind": "number", "unit": "", "range": [0, 4]},
        "sex": {"kind": "category", "levels": ["f", "m"], "shares": [0, 0]},
    },
})  # fmt: skip


def pca(**others: Any) -> DPSPCA:
    return DPSPCA(2, epsilon=5.0, norm_bound=6.0, random_state=3, **{"unit": "row-replace-one", **others})


def of_persons() -> DPSPCA:
    return pca(unit="person-replace-one")


@pytest.mark.parametrize(
    ("persons", "named"),
    [
        (dict(enumerate(WHOSE.tolist())), "dict"),
        (set(WHOSE.tolist()), "set"),
        ("a" * 60, "str"),
        (FRAME[["a"]], ("DataFrame", "(60, 1)")),
        ((WHOSE + 2**24).astype(np.float32), "rounded"),
        (pd.array(WHOSE, dtype="Float32"), "rounded"),
        (pd.Categorical((WHOSE + 2**24).astype(np.float32)), "rounded"),
        (5, "int"),
        ([np.ones(2)] * 60, "list"),
        (pa.array(WHOSE, pa.float32()), "rounded"),
        ([np.float16(each) for each in WHOSE], "rounded"),
        (WHOSE + 2.0**53, "rounded"),
        (pd.array([1, None] * 30, dtype="Int64"), "row 2"),
        (pd.array(["a", None] * 30, dtype="string"), "row 2"),
    ],
)
def test_persons_that_could_be_confused_are_refused(persons: Any, named: Any) -> None:
    """Privacy: two persons that are taken for one, or one for two, are not bounded as the statement says."""
    with pytest.raises(DpspcaError, match=facts(named)):
        of_persons().fit(ROWS, persons=persons)


def test_persons_in_another_order_than_the_rows_are_refused() -> None:
    turned, whose = FRAME.sort_values("a"), pd.Series(WHOSE)
    with pytest.raises(InvalidDataError, match=facts("to_numpy")):
        of_persons().fit(turned, persons=whose)
    assert of_persons().fit(ROWS.tolist(), persons=whose) is not None
    one = of_persons().fit(turned, persons=whose[turned.index])
    other = of_persons().fit(turned, persons=whose.to_numpy()[turned.index])
    assert (one.components_ == other.components_).all()


def test_a_public_mean_with_names_is_matched_by_them() -> None:
    mean = {"d": 4.0, "c": 3.0, "b": 2.0, "a": 1.0}
    for given in (mean, pd.Series(mean)):
        assert pca(centering="public", public_mean=given).fit(FRAME).mean_.tolist() == [1, 2, 3, 4]
    for given in (pd.Series([1.0, 2, 3, 4]), [1, 2, 3, 4]):
        assert pca(centering="public", public_mean=given).fit(FRAME).mean_.tolist() == [1, 2, 3, 4]
    for given, rows in (
        (mean | {"e": 0.0}, FRAME),
        (mean | {2: 0.0}, FRAME),
        (mean, ROWS),
        ({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, ROWS),
    ):
        with pytest.raises(DpspcaError, match=facts("public_mean")):
            pca(centering="public", public_mean=given).fit(rows)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
def test_a_model_projects_sparse_rows_of_any_form(form: str) -> None:
    sparse, fitted = scipy.sparse.csr_array(ROWS).asformat(form), pca().fit(ROWS)
    assert fitted.model_.transform(sparse) == pytest.approx(fitted.model_.transform(ROWS), abs=1e-12)
    bad = ROWS.copy()
    bad[7, 2] = np.nan
    with pytest.raises(InvalidDataError, match=facts("row 8, column 3")):
        fitted.model_.transform(scipy.sparse.csr_array(bad).asformat(form))


def test_numbers_of_any_type_give_scores_in_float64() -> None:
    model = pca().fit(ROWS).model_
    for given in (ROWS.astype(object), ROWS.astype(np.longdouble), ROWS.tolist()):
        assert model.transform(given) == pytest.approx(model.transform(ROWS))
        assert model.transform(given).dtype == np.float64


def test_rows_of_different_lengths_are_named() -> None:
    ragged, model = [[1.0, 2.0], [3.0]], pca().fit(ROWS).model_
    for use in (pca().fit, model.transform, lambda rows: prepare_table(STUDY, rows)):
        with pytest.raises(InvalidDataError, match=facts("Row 2", "row 1", 1, 2)):
            use(ragged)


@pytest.mark.parametrize("rows", ["b.csv", Path("b.csv"), b"b.csv", FRAME.groupby("a")])
def test_what_is_no_table_is_named(rows: Any) -> None:
    spec = STUDY.job(unit="row-replace-one", budget=Budget(1.0, 1e-6), components=1)
    named = "b.csv" if isinstance(rows, str | bytes | Path) else "DataFrameGroupBy"
    for use in (
        pca().fit,
        DPSPCA(1, unit="row-replace-one", dictionary=STUDY).fit,
        lambda each: simulate([each], spec, dictionary=STUDY),
        lambda each: simulate(each, spec, dictionary=STUDY),
    ):
        with pytest.raises(InvalidTypeError, match=facts(named)):
            use(rows)


@pytest.mark.parametrize(
    "shards",
    [None, 5, pl.DataFrame({"n": [1.0]}).lazy(), pa.RecordBatchReader.from_batches(pa.schema([]), [])],
    ids=["none", "number", "lazy", "reader"],
)
def test_shards_that_are_no_list_are_named(shards: Any) -> None:
    spec = STUDY.job(unit="row-replace-one", budget=Budget(1.0, 1e-6), components=1)
    with pytest.raises(InvalidTypeError, match=facts("list")):
        simulate(shards, spec, dictionary=STUDY)


def test_names_that_differ_in_an_accent_s_form_are_refused_at_once() -> None:
    frame = pd.DataFrame(ROWS, columns=["\u00e9", "e\u0301", "b", "c"])
    assert column_names(frame) is not None
    with pytest.raises(InvalidDataError, match=facts("'\u00e9'")):
        pca().fit(frame)


@pytest.mark.parametrize(
    "cells",
    [
        np.array(["f", "m"], dtype="S6"),
        np.array([b"f", b"m"], dtype=object),
        pa.array([b"f", b"m"]),
    ],
)
def test_levels_that_are_bytes_are_text(cells: Any) -> None:
    prepared = prepare_table(STUDY, {"n": [2.0, 2.0], "sex": cells})
    assert prepared[:, 1:].tolist() == [[1, 0], [0, 1]]


def test_arrays_of_pandas_with_missing_values_are_columns() -> None:
    """They have a mask of their own, which is not numpy's."""
    for kind in ("Int64", "Float64", "boolean"):
        prepared = prepare_table(STUDY, {"n": pd.array([1, None], dtype=kind), "sex": ["f", None]})
        assert prepared.tolist() == [[-0.5, 1, 0], [0, 0, 0]]


def test_a_forecast_counts_the_columns_of_levels() -> None:
    fit = DPSPCA(1, unit="row-replace-one", dictionary=STUDY)
    assert fit.plan(3, rows=1000) is not None
    with pytest.raises(DpspcaError, match=facts(2, 3)):
        fit.plan(2, rows=1000)


def test_no_number_of_a_table_is_in_an_error() -> None:
    for columns, rows in ((FRAME, 1000), (4, FRAME), (ROWS, 1000)):
        with pytest.raises(DpspcaError) as caught:
            pca().plan(columns, rows=rows)
        assert f"{ROWS[0, 0]:.4f}" not in str(caught.value)
        assert "(60, 4)" in str(caught.value)


def test_a_single_name_is_no_list_of_features() -> None:
    with pytest.raises(InvalidTypeError, match=facts("['sex']")):
        DPSPCA(1, unit="row-replace-one", dictionary=STUDY, features="sex").fit({"sex": ["f"]})


def test_advice_about_settings_names_the_way_without_them(tmp_path: Path) -> None:
    """A file that pandas wrote with its index has a column without a name."""
    FRAME.to_csv(tmp_path / "rows.csv")
    with pytest.raises(InvalidDataError, match=facts("leave_out", "pandas")):
        pca().fit(FRAME).model_.transform(tmp_path / "rows.csv")
    with pytest.raises(DpspcaError, match=facts("path")):
        pca().fit(FRAME).model_.transform("")


def test_paths_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    model = pca().fit(FRAME).model_
    save_model(model, "~/model.dpspca")
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    assert load_model("~/model.dpspca").transform("~/rows.csv") == pytest.approx(model.transform(FRAME))
    (tmp_path / "study.json").write_text(STUDY.to_json(), encoding="utf-8")
    assert load_dictionary("~/study.json") == STUDY
