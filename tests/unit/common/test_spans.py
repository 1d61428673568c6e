"""A span is rows that a table has, and says in which rows of a product there is nothing of its provider's."""

import numpy as np
import pytest

from dpspca.common.errors import InvalidParameterError, InvalidTypeError
from dpspca.common.spans import Span


def test_the_others_rows_are_silent_and_one_s_own_and_the_columns_are_not() -> None:
    assert np.flatnonzero(Span(2, 3, 7).silent(9)).tolist() == [0, 1, 5, 6]
    assert not Span(0, 7, 7).silent(9).any()


def test_spans_that_divide_a_table_are_silent_everywhere_but_once() -> None:
    spans = [Span(0, 2, 7), Span(2, 4, 7), Span(6, 1, 7)]
    assert (sum(~each.silent(9) for each in spans) == [1] * 7 + [3] * 2).all()


@pytest.mark.parametrize("wrong", [(-1, 2, 5), (0, 0, 5), (0, 6, 5), (0, 1, 0), (5, 1, 5), (0, 1, 2**24), (0, -1, 5)])
def test_rows_that_no_table_has_are_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidParameterError, match="it must lie between"):
        Span(*wrong)


@pytest.mark.parametrize(("start", "rows", "of"), [(8, 20, 20), (4, 2, 5), (1, 5, 5)])
def test_an_end_in_place_of_a_number_of_rows_is_refused_and_the_arguments_are_explained(
    start: int, rows: int, of: int
) -> None:
    with pytest.raises(
        InvalidParameterError, match=rf"go up to row {start + rows - 1}, and the last of {of}"
    ) as caught:
        Span(start, rows, of)
    assert "rows (how many are own, and not where they end)" in str(caught.value)


@pytest.mark.parametrize("wrong", [(0.0, 1, 5), (0, "1", 5), (0, 1, True), (None, 1, 5)])
def test_what_is_no_whole_number_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidTypeError, match="not a whole number"):
        Span(*wrong)


def test_numbers_of_numpy_s_kind_are_as_good_as_others() -> None:
    assert repr(Span(*np.array([1, 2, 5]))) == repr(Span(1, 2, 5))
