"""A span lies within its table, and marks the rows of a product that belong to other providers."""

import numpy as np
import pytest

from dpspca.common.errors import InvalidParameterError, InvalidTypeError
from dpspca.common.spans import Span


def test_a_span_marks_the_rows_of_others_but_not_the_columns() -> None:
    assert np.flatnonzero(Span(2, 3, 7).rows_of_others(9)).tolist() == [0, 1, 5, 6]
    assert not Span(0, 7, 7).rows_of_others(9).any()


def test_each_row_of_a_divided_table_belongs_to_one_span() -> None:
    spans = [Span(0, 2, 7), Span(2, 4, 7), Span(6, 1, 7)]
    assert (sum(~each.rows_of_others(9) for each in spans) == [1] * 7 + [3] * 2).all()


@pytest.mark.parametrize("wrong", [(-1, 2, 5), (0, 0, 5), (0, 6, 5), (0, 1, 0), (5, 1, 5), (0, 1, 2**24), (0, -1, 5)])
def test_rows_outside_the_table_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidParameterError, match="it must lie between"):
        Span(*wrong)


@pytest.mark.parametrize(("start", "rows", "of"), [(8, 20, 20), (4, 2, 5), (1, 5, 5)])
def test_a_span_beyond_the_table_is_refused_and_its_arguments_explained(start: int, rows: int, of: int) -> None:
    with pytest.raises(InvalidParameterError, match=rf"end at row {start + rows - 1}, but the last of {of}") as caught:
        Span(start, rows, of)
    assert "rows (the number of own rows, not their end)" in str(caught.value)


@pytest.mark.parametrize("wrong", [(0.0, 1, 5), (0, "1", 5), (0, 1, True), (None, 1, 5)])
def test_spans_need_whole_numbers(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidTypeError, match="not a whole number"):
        Span(*wrong)


def test_spans_accept_numpy_integers() -> None:
    assert repr(Span(*np.array([1, 2, 5]))) == repr(Span(1, 2, 5))
