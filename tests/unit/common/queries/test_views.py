"""A view is refused unless it has its one form, and a query about it says how large its answer is."""

from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.common.errors import InvalidQueryError, NotCanonicalQueryError
from dpspca.common.plan import Step
from dpspca.common.privacy.events import GaussianEvent
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent
from dpspca.common.queries.picks import TiedColumns
from dpspca.common.queries.ranges import RANGES, NormRange
from dpspca.common.queries.views import (
    BINS,
    MAX_AXES,
    MAX_FACTOR,
    MIN_FACTOR,
    NormHistogram,
    ScoreHistogram,
    View,
    ViewCovariance,
    ViewProduct,
    ViewSquares,
)


@pytest.mark.parametrize("columns", [[], [1, 0], [2, 2], [-1, 2], [0, 5], [0.5], [[1]], None], ids=str)
def test_columns_out_of_order_or_range_are_refused(columns: Any) -> None:
    with pytest.raises(InvalidQueryError):
        View(5, columns)


@pytest.mark.parametrize("factor", [-1.0, np.nan, np.inf, 2 * MAX_FACTOR, MIN_FACTOR / 2, 5e-324])
@pytest.mark.parametrize("place", ["scale", "along"])
def test_a_factor_out_of_range_is_refused(place: str, factor: float) -> None:
    with pytest.raises(InvalidQueryError, match=facts(factor, f"{MAX_FACTOR:g}")):
        View(5, [1, 2], axes=np.eye(2)[:, :1], **{place: factor})


@pytest.mark.parametrize(
    ("axes", "named"),
    [
        (np.zeros((3, 1)), ("(3, 1)", MAX_AXES)),
        (np.zeros(2), ("(2,)", MAX_AXES)),
        (np.full((2, 1), 1.5), (-1, 1)),
        (np.full((2, 1), np.nan), (-1, 1)),
        (np.zeros((2, MAX_AXES + 1)), (f"(2, {MAX_AXES + 1})", MAX_AXES)),
    ],
)
def test_axes_of_another_shape_or_size_are_refused(axes: Any, named: Any) -> None:
    with pytest.raises(InvalidQueryError, match=facts(named)):
        View(5, [1, 2], axes=axes)


def test_a_power_other_than_one_or_two_is_refused() -> None:
    with pytest.raises(InvalidQueryError, match=facts("1", "2")):
        NormHistogram(View.whole(3), power=3)


@pytest.mark.parametrize("axes", [None, np.eye(3)[:, :1], np.eye(3)])
def test_a_histogram_of_scores_on_other_than_two_axes_is_refused(axes: Any) -> None:
    with pytest.raises(InvalidQueryError, match=facts(0 if axes is None else axes.shape[1], 2)):
        ScoreHistogram(View(3, [0, 1, 2], axes=axes))


def test_a_smaller_view_than_planned_has_a_smaller_answer_and_the_same_noise() -> None:
    event = GaussianEvent(1.0, 3.0)
    step = Step("block", ViewCovariance, Extent(9, 0, 9), event)
    asked = ViewCovariance(View(9, [0, 4, 8]))
    assert step.admits(asked)
    fitted = step.fit_to(asked, PrivacyUnit.ROW_REPLACE_ONE)
    assert (fitted.shape, fitted.event) == ((3, 3), event)


@pytest.mark.parametrize("view", [View.whole(10), View(9, [0], axes=np.ones((1, 1)))])
def test_a_view_of_another_width_or_with_other_axes_is_not_admitted(view: View) -> None:
    assert not Step("block", ViewCovariance, Extent(9, 0, 9), None).admits(ViewCovariance(view))


def test_queries_about_different_views_have_different_digests() -> None:
    views = [
        View.whole(4),
        View(4, [0, 1]),
        View(4, [0, 2]),
        View.whole(4, 2.0),
        View(4, range(4), 1.0, np.eye(4)[:, :1], 2.0),
        View(4, range(4), 1.0, np.eye(4)[:, 1:2], 2.0),
        View(4, range(4), 1.0, np.eye(4)[:, :1], 3.0),
    ]
    asked = [ViewCovariance(view) for view in views] + [ViewSquares(views[0]), NormHistogram(views[0])]
    asked += [NormHistogram(views[0], power=2), ViewCovariance(views[0], np.zeros(4))]
    assert len({query.digest() for query in asked}) == len(asked)
    assert ViewCovariance(View.whole(4)) == asked[0]


def test_the_axes_of_a_product_must_be_orthonormal() -> None:
    with pytest.raises(InvalidQueryError, match=facts("||Q^T Q - I||")):
        ViewProduct(View(3, range(3), axes=np.eye(3)[:, [0, 0]]))
    with pytest.raises(InvalidQueryError, match=facts("0 axes")):
        ViewProduct(View.whole(3))
    extent = ViewProduct(View(9, [0, 4, 8], axes=np.eye(3)[:, :2])).extent
    assert ViewProduct.answer_shape(extent) == (3, 2)


def test_the_shape_of_an_answer_follows_from_the_view() -> None:
    extent = View(9, [0, 4, 8]).extent
    assert ViewCovariance.answer_shape(extent) == (3, 3)
    assert ViewSquares.answer_shape(extent) == (3,)
    assert NormHistogram.answer_shape(extent) == (BINS,)


def test_a_view_has_one_form() -> None:
    with pytest.raises(NotCanonicalQueryError, match=facts(2.0, 3.0)):
        View(5, [1], 2.0, None, 3.0)
    with pytest.raises(InvalidQueryError, match=facts(2**15, 182, 181)):
        View(2**15, np.arange(2**15), axes=np.zeros((2**15, 182)))
    zeros = View(2, [0, 1], axes=np.array([[-0.0], [1.0]])), View(2, [0, 1], axes=np.array([[0.0], [1.0]]))
    assert zeros[0].content() == zeros[1].content()
    with pytest.raises(NotCanonicalQueryError, match=facts(2.0)):
        TiedColumns(View(5, [1], 2.0))


def test_a_range_of_norms_counts_rows() -> None:
    assert NormRange.answer_shape(Extent(9)) == (RANGES,)
    assert NormRange.unit_value(3.0) == 1.0
