"""Persons of rows as any library gives them."""

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from facts import facts

from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.checked.persons import with_persons
from dpspca.provider.data.checked.preparation import check_rows

ROWS = check_rows(np.ones((3, 2)))
LABELS = ["b", "a", "b"]
FORMS: dict[str, Any] = {
    "array": np.array(LABELS),
    "polars": pl.Series(LABELS),
    "Arrow": pa.array(LABELS),
    "chunks": pa.chunked_array([LABELS[:1], LABELS[1:]]),
    "coded chunks": pa.chunked_array([pa.array(LABELS).dictionary_encode()]),
}


@pytest.mark.parametrize("labels", FORMS.values(), ids=FORMS)
def test_persons_of_any_library_are_told_apart(labels: Any) -> None:
    persons = with_persons(ROWS, labels).persons
    assert persons is not None
    assert persons.tolist() == [1, 0, 1]


def test_a_row_of_nobody_is_refused_in_any_form() -> None:
    coded = pa.array(["b", None, "b"]).dictionary_encode()
    for labels in (pa.chunked_array([coded]), np.ma.array(LABELS, mask=[False, True, False])):
        with pytest.raises(InvalidDataError, match=facts("row 2", "missing")):
            with_persons(ROWS, labels)
