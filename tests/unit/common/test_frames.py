"""Tables of any library become numbers. What is no number is named with its column and row."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidTypeError
from dpspca.common.frames import array_of, column_names

FORMS: dict[str, Callable[[Any], Any]] = {
    "pandas": pd.DataFrame,
    "polars": lambda columns: pl.DataFrame(columns, strict=False),
    "table": pa.table,
    "batch": lambda columns: pa.table(columns).to_batches()[0],
}
DATES = [date(2020, 1, 1), datetime(2020, 1, 1), timedelta(1), time(3)]  # noqa: DTZ001
HIDDEN = np.ma.masked_greater(np.array([[1.0, 2.0], [3.0, 999.0]]), 100.0)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_frames_of_any_library_have_names_and_numbers(form: Callable[[Any], Any]) -> None:
    frame = form({"b": [1.5, 2.5], "a": [True, None], "c": [Decimal("0.5"), Decimal(2)]})
    assert column_names(frame) == ("b", "a", "c")
    assert np.array_equal(array_of(frame), [[1.5, 1, 0.5], [2.5, np.nan, 2]], equal_nan=True)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("value", DATES, ids=[type(each).__name__ for each in DATES])
def test_dates_times_and_durations_are_refused_by_name(form: Callable[[Any], Any], value: Any) -> None:
    for frame in (form({"age": [1.0, 2.0], "when": [value] * 2}), form({"when": [value] * 2})):
        with pytest.raises(InvalidTypeError, match=facts("'when'")):
            array_of(frame)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("cell", ["1_0", "0x10", "x", b"7"])
def test_a_cell_that_is_no_number_is_named(form: Callable[[Any], Any], cell: str | bytes) -> None:
    good = "2" if isinstance(cell, str) else None
    with pytest.raises(InvalidTypeError, match=facts("Row 2", "'code'")):
        array_of(form({"age": [1.0, 2.0], "code": [good, cell]}))


def test_several_columns_of_one_name_are_refused_by_it() -> None:
    for frame in (
        pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"]),
        pa.Table.from_arrays([pa.array([1.0])] * 3, ["a", "b", "a"]),
    ):
        with pytest.raises(InvalidDataError, match=facts(2, "'a'")):
            array_of(frame)


@pytest.mark.parametrize("use", [column_names, array_of])
def test_a_lazy_frame_has_to_be_collected(use: Callable[[Any], Any]) -> None:
    with pytest.raises(DpspcaError, match=facts("LazyFrame", "collect()")):
        use(pl.LazyFrame({"a": [1.0]}))
    with pytest.raises(DpspcaError, match=facts("RecordBatchReader", "read_all()")):
        use(pa.table({"a": [1.0]}).to_reader())


def test_names_of_which_only_some_are_text_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match=facts("Column 2", 7)):
        column_names(pd.DataFrame([[1.0, 2.0]], columns=["a", 7]))


def test_a_mapping_is_no_table_without_a_dictionary() -> None:
    with pytest.raises(InvalidTypeError, match=facts("dict", "pandas.DataFrame(columns)")):
        array_of({"a": [1.0, 2.0]})


def test_labels_that_are_not_text_are_no_names_but_are_named() -> None:
    frame = pd.DataFrame({0: [1.0, 2.0], 1: ["x", "y"]})
    assert column_names(frame) is None
    with pytest.raises(InvalidTypeError, match=facts("Row 1", "column 1")):
        array_of(frame)


@pytest.mark.parametrize("form", [pa.table, lambda columns: pa.table(columns).to_batches()[0]], ids=["table", "batch"])
def test_a_null_in_a_dictionary_of_arrow_is_missing(form: Callable[[Any], Any]) -> None:
    coded = pa.array([1.5, None, 2.5]).dictionary_encode()
    frame = form({"a": [1.0, 2.0, 3.0], "b": coded})
    assert np.array_equal(array_of(frame), [[1, 1.5], [2, np.nan], [3, 2.5]], equal_nan=True)


def test_dates_in_a_dictionary_of_arrow_are_refused_by_name() -> None:
    dates = pa.array([date(2020, 1, 1)] * 2).dictionary_encode()
    with pytest.raises(InvalidTypeError, match=facts("'when'", "date32")):
        array_of(pa.table({"age": [1.0, 2.0], "when": dates}))


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128])
def test_integers_that_numpy_does_not_have_are_refused_by_name(kind: Any) -> None:
    with pytest.raises(InvalidTypeError, match=facts("'a'", str(kind))):
        array_of(pl.DataFrame({"b": [1.0], "a": [1]}, schema={"b": pl.Float64, "a": kind}))


@pytest.mark.parametrize("use", [column_names, array_of])
def test_a_relation_of_duckdb_has_to_be_computed(use: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidTypeError, match=facts("DuckDBPyRelation", "df()")):
        use(duckdb.sql("SELECT 1.0 AS a, 2 AS b"))


@pytest.mark.parametrize("rows", [HIDDEN, list(HIDDEN)], ids=["array", "list"])
def test_numbers_that_a_mask_hides_are_refused(rows: Any) -> None:
    with pytest.raises(InvalidDataError, match=facts("numpy.ma")):
        array_of(rows)
