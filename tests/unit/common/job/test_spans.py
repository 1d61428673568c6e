"""A span lies within its table, and marks the rows of a product that belong to other providers."""

import numpy as np
import pytest
from facts import facts

from dpspca.common.errors import InvalidParameterError, InvalidTypeError
from dpspca.common.job import Span


def test_a_span_marks_the_rows_of_others_but_not_the_columns() -> None:
    assert np.flatnonzero(Span(2, 3, 7).rows_of_others(9)).tolist() == [0, 1, 5, 6]
    assert not Span(0, 7, 7).rows_of_others(9).any()


def test_each_row_of_a_divided_table_belongs_to_one_span() -> None:
    spans = [Span(0, 2, 7), Span(2, 4, 7), Span(6, 1, 7)]
    assert (sum(~each.rows_of_others(9) for each in spans) == [1] * 7 + [3] * 2).all()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ((-1, 2, 5), ("start", -1, 0, 4)),
        ((0, 0, 5), ("rows", 0, 1, 5)),
        ((0, 6, 5), ("rows", 6, 1, 5)),
        ((0, 1, 0), ("of", 0, 1, 2**24 - 1)),
        ((5, 1, 5), ("start", 5, 0, 4)),
        ((0, 1, 2**24), ("of", 2**24, 1, 2**24 - 1)),
        ((0, -1, 5), ("rows", -1, 1, 5)),
    ],
)
def test_rows_outside_the_table_are_refused(wrong: tuple[int, int, int], named: object) -> None:
    with pytest.raises(InvalidParameterError, match=facts(named)):
        Span(*wrong)


@pytest.mark.parametrize(("start", "rows", "of"), [(8, 20, 20), (4, 2, 5), (1, 5, 5)])
def test_a_span_beyond_the_table_is_refused_and_its_arguments_explained(start: int, rows: int, of: int) -> None:
    with pytest.raises(InvalidParameterError, match=facts(start + rows - 1, of, of - 1)) as caught:
        Span(start, rows, of)
    assert all(f"{name} (" in caught.value.remedy for name in ("start", "rows", "of"))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ((0.0, 1, 5), ("start", 0.0)),
        ((0, "1", 5), ("rows", "'1'")),
        ((0, 1, True), ("of", True)),
        ((None, 1, 5), ("start", None)),
    ],
)
def test_spans_need_whole_numbers(wrong: tuple[int, int, int], named: object) -> None:
    with pytest.raises(InvalidTypeError, match=facts(named)):
        Span(*wrong)


def test_spans_accept_numpy_integers() -> None:
    assert repr(Span(*np.array([1, 2, 5]))) == repr(Span(1, 2, 5))
