"""Tables of any library are prepared alike: missing values, masks, and columns that do not fit together."""

from collections.abc import Callable
from datetime import date
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from facts import facts

from dpspca.common.dictionary import Dictionary, prepare_table
from dpspca.common.errors import InvalidDataError, InvalidTypeError

KNOWN = Dictionary.parse(
    {
        "format": "dpspca-dictionary-1",
        "features": {
            "size": {"kind": "number", "unit": "cm", "range": [100, 200]},
            "colour": {"kind": "category", "levels": ["red", "green", "blue"]},
        },
    }
)
SIZES = [110.0, None, 190.0]
COLOURS = ["red", None, "blue"]
PREPARED = prepare_table(KNOWN, {"size": SIZES, "colour": COLOURS})


def coded() -> Any:
    return pa.table({"size": pa.array(SIZES).dictionary_encode(), "colour": pa.array(COLOURS).dictionary_encode()})


FORMS: dict[str, Callable[[], Any]] = {
    "table": coded,
    "batch": lambda: coded().to_batches()[0],
    "columns": lambda: {name: coded()[name] for name in KNOWN.names},
    "pandas": lambda: coded().to_pandas(),
    "pandas with types of Arrow": lambda: coded().to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda: pl.from_arrow(coded()),
}


def test_a_missing_value_is_the_public_centre() -> None:
    assert (PREPARED[1] == 0).all()
    assert (PREPARED[[0, 2]] != 0).any(axis=1).all()


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_null_in_coded_columns_is_missing(form: Callable[[], Any]) -> None:
    np.testing.assert_array_equal(prepare_table(KNOWN, form()), PREPARED)
    np.testing.assert_array_equal(prepare_table(KNOWN, coded(), by_position=True), PREPARED)


def test_values_that_a_mask_hides_are_missing() -> None:
    mask = [False, True, False]
    columns = {
        "size": np.ma.array([110, 999, 190], mask=mask),
        "colour": np.ma.array(["red", "green", "blue"], mask=mask),
    }
    np.testing.assert_array_equal(prepare_table(KNOWN, columns), PREPARED)


def test_numbers_that_a_mask_hides_are_missing_by_position() -> None:
    sizes = KNOWN.subset(["size"])
    rows = np.ma.array([[110.0], [150.0], [190.0]], mask=[[False], [True], [False]])
    for form in (rows, list(rows)):
        np.testing.assert_array_equal(prepare_table(sizes, form), PREPARED[:, :1])


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([110.0], (3, 1)),
        (110.0, 110.0),
        ([[110.0], [120.0], [130.0]], "(3, 1)"),
        ([[110.0], [120.0, 130.0], [140.0]], ()),
        (pl.Series([1, 2, 3], dtype=pl.Int128), "Int128"),
        (pa.array([date(2020, 1, 1)] * 3).dictionary_encode(), "date32"),
    ],
)
def test_what_is_no_column_is_refused_by_name(sizes: Any, said: Any) -> None:
    with pytest.raises((InvalidDataError, InvalidTypeError), match=facts("'size'", said)):
        prepare_table(KNOWN, {"colour": ["red", "green", "blue"], "size": sizes})


@pytest.mark.parametrize("by_position", [False, True])
def test_a_relation_has_to_be_computed_before_it_is_prepared(*, by_position: bool) -> None:
    rows = duckdb.sql("SELECT 110.0 AS size, 'red' AS colour")
    with pytest.raises(InvalidTypeError, match=facts("DuckDBPyRelation", "df()")):
        prepare_table(KNOWN, rows, by_position=by_position)
