"""Views are evaluated exactly: against real arithmetic, over dense and sparse rows, in any order and on any threads."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.linalg import thin_qr
from dpspca.common.queries.views import (
    BINS,
    MAX_FACTOR,
    MIN_FACTOR,
    SIDE,
    NormHistogram,
    ScoreHistogram,
    View,
    ViewCovariance,
    ViewProduct,
    ViewQuery,
    ViewSquares,
)
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate import block_sums
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.views import ViewedRows

BOUND = 4.0
RNG = np.random.default_rng(7)
ROWS = RNG.standard_normal((500, 12)) * np.linspace(0.2, 2, 12)
AXES = thin_qr(RNG.standard_normal((5, 2)))[0]
VIEWS = {
    "all columns": View.whole(12, 1.0),
    "all columns, clipped harder": View.whole(12, 3.0),
    "some columns": View(12, [1, 4, 5, 8, 11], 2.0),
    "some columns, turned": View(12, [1, 4, 5, 8, 11], 4.0, AXES, 0.5),
}


def shard(rows: np.ndarray = ROWS, threads: int = 1, *, sparse: bool = False) -> Shard:
    return Shard(check_rows(scipy.sparse.csr_array(rows) if sparse else rows), BOUND, threads=threads)


def viewed(view: View, rows: np.ndarray = ROWS) -> np.ndarray:
    """Return the view of rows, in multiples of the bound, before it is clipped a second time."""
    clipped = rows / np.maximum(np.linalg.norm(rows, axis=1), BOUND)[:, None]
    seen = clipped[:, view.columns]
    part = seen @ view.axes @ view.axes.T
    return view.factors[0] * (seen - part) + view.factors[1] * part


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_second_moments_are_those_of_the_clipped_view(view: View) -> None:
    seen = viewed(view)
    seen = seen / np.maximum(np.linalg.norm(seen, axis=1), 1)[:, None]
    answer = shard().evaluate(ViewCovariance(view)) * 2.0**-30
    np.testing.assert_allclose(answer, seen.T @ seen, atol=500 * 2.0**-15)


TURNED = {"all columns": View(12, range(12), 1.0, thin_qr(RNG.standard_normal((12, 3)))[0])}
TURNED |= {name: view for name, view in VIEWS.items() if view.axes_matrix.size}


@pytest.mark.parametrize("view", TURNED.values(), ids=TURNED)
def test_a_product_is_that_of_the_clipped_views_second_moments_with_its_axes(
    view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = viewed(view)
    seen = seen / np.maximum(np.linalg.norm(seen, axis=1), 1)[:, None]
    first = shard().evaluate(ViewProduct(view))
    np.testing.assert_allclose(first * 2.0**-30, seen.T @ seen @ view.axes_matrix, atol=500 * 2.0**-15)
    for other in (shard(threads=3), shard(sparse=True), shard(ROWS[::-1].copy())):
        np.testing.assert_array_equal(other.evaluate(ViewProduct(view)), first)
    monkeypatch.setattr(block_sums, "ROWS_IN_64_BITS", 64)
    np.testing.assert_array_equal(shard(threads=3).evaluate(ViewProduct(view)), first)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_squares_are_clipped_by_the_norm_of_the_squared_entries(view: View) -> None:
    squares = viewed(view) ** 2
    squares = squares / np.maximum(np.linalg.norm(squares, axis=1), 1)[:, None]
    answer = shard().evaluate(ViewSquares(view)) * 2.0**-30
    np.testing.assert_allclose(answer, squares.sum(axis=0), atol=500 * 2.0**-15)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_histogram_counts_each_row_once_by_its_norm(view: View, power: int) -> None:
    norms = np.linalg.norm(viewed(view) ** power, axis=1)
    answer = shard().evaluate(NormHistogram(view, power=power))
    assert answer.sum() == len(ROWS)
    above = [np.count_nonzero(norms >= 2.0 ** (-place / 2) * (1 - 2.0**-10)) for place in range(BINS - 1)]
    assert np.abs(np.cumsum(answer)[:-1] - above).max() <= 2  # rows within rounding of an edge


@pytest.mark.parametrize("query", [ViewCovariance, ViewSquares, NormHistogram])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_sparse_rows_and_more_threads_give_the_same_bits(query: type[ViewQuery], view: View) -> None:
    asked = query(view)
    first = shard().evaluate(asked)
    assert first.dtype == np.int64
    for other in (shard(threads=3), shard(sparse=True), shard(ROWS[::-1].copy())):
        np.testing.assert_array_equal(other.evaluate(asked), first)


PLANE = View(12, [1, 4, 5, 8, 11], 1.0, AXES, 3.0)


def cells(scores: np.ndarray) -> np.ndarray:
    """Count scores, in which 1 is the edge, by another way than the one under test."""
    return np.histogram2d(*np.clip(scores, -1, 1 - 1e-12).T, bins=SIDE, range=[[-1, 1], [-1, 1]])[0]


def test_scores_are_counted_once_each_in_their_own_cell() -> None:
    clipped = ROWS / np.maximum(np.linalg.norm(ROWS, axis=1), BOUND)[:, None]
    expected = cells(3.0 * clipped[:, PLANE.columns] @ AXES)
    answer = shard().evaluate(ScoreHistogram(PLANE))
    assert answer.sum() == len(ROWS)
    assert np.abs(answer - expected).sum() <= 4  # two rows within rounding of an edge


@pytest.mark.parametrize("center", [None, np.linspace(-0.5, 0.5, 12)])
def test_scores_of_sparse_rows_and_on_more_threads_have_the_same_cells(center: np.ndarray | None) -> None:
    asked = ScoreHistogram(PLANE, center)
    first = shard().evaluate(asked)
    others = [shard(threads=3), shard(ROWS[::-1].copy()), *([shard(sparse=True)] if center is None else [])]
    for other in others:
        np.testing.assert_array_equal(other.evaluate(asked), first)


@pytest.mark.parametrize("sparse", [False, True])
def test_scores_beyond_the_edge_are_in_the_cells_at_the_edge(*, sparse: bool) -> None:
    view = View(2, [0, 1], 1.0, np.eye(2), 1e30)
    rows = np.array([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0]])
    answer = shard(rows, sparse=sparse).evaluate(ScoreHistogram(view))
    assert answer[SIDE - 1, SIDE - 1] == answer[0, SIDE - 1] == answer[SIDE - 1, 0] == 1
    assert answer[0, 0] == 2
    assert answer.sum() == 5


FACTORS = st.just(0.0) | st.floats(MIN_FACTOR, MAX_FACTOR)


@given(seed=st.integers(0, 2**32 - 1), scale=FACTORS, along=FACTORS)
def test_each_row_is_in_one_cell_whatever_the_requester_sends(seed: int, scale: float, along: float) -> None:
    rng = np.random.default_rng(seed)
    view = View(6, [0, 2, 3, 5], scale, rng.uniform(-1, 1, (4, 2)), along)
    rows = rng.standard_normal((20, 6)) * 10.0 ** rng.integers(-60, 28)
    answer = shard(rows).evaluate(ScoreHistogram(view))
    twice = sum(shard(rows[[place, place]]).evaluate(ScoreHistogram(view)) for place in range(20))
    np.testing.assert_array_equal(twice, 2 * answer)
    assert answer.sum() == 20
    assert answer.min() == 0


def seen(rows: np.ndarray, view: View, start: int, stop: int) -> np.ndarray:
    """Make integer rows of a view as an answer does."""
    query = ViewCovariance(view)
    return ViewedRows(shard(rows)._sums._columns(query, slice(None)), view, query.lift).block(start, stop)


@given(seed=st.integers(0, 2**32 - 1), scale=FACTORS, along=FACTORS)
def test_t16_no_row_of_a_view_is_longer_than_the_bound(seed: int, scale: float, along: float) -> None:
    """Whatever the requester sends: axes that are not orthonormal, factors of any size."""
    rng = np.random.default_rng(seed)
    view = View(6, [0, 2, 3, 5], scale, rng.uniform(-1, 1, (4, 3)), along)
    block = seen(rng.standard_normal((20, 6)) * 10.0 ** rng.integers(-60, 28), view, 0, 20).astype(np.int64)
    assert (np.square(block).sum(axis=1) <= 2**34).all()


@given(seed=st.integers(0, 2**32 - 1), place=st.integers(0, 19))
def test_a_row_of_a_view_depends_on_its_own_row_alone(seed: int, place: int) -> None:
    rng = np.random.default_rng(seed)
    view = View(6, [0, 2, 3, 5], 3.0, rng.uniform(-1, 1, (4, 2)), 0.1)
    rows = rng.standard_normal((20, 6))
    np.testing.assert_array_equal(seen(rows[[place, place]], view, 0, 1)[0], seen(rows, view, 0, 20)[place])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("power", [1, 2])
def test_rows_far_below_the_bound_stay_precise(*, sparse: bool, power: int) -> None:
    """A view that multiplies rows by 2^50 sees what it would see of rows that are 2^50 times as long."""
    near, far = View(12, [1, 4, 5, 8], 6.0), View(12, [1, 4, 5, 8], 6.0 * 2.0**50)
    long = ROWS / 8  # within the bound
    short = np.ldexp(long, -50)
    for make in (ViewCovariance, ViewSquares, lambda view: NormHistogram(view, power=power)):
        answers = [shard(rows, sparse=sparse).evaluate(make(view)) for rows, view in ((long, near), (short, far))]
        np.testing.assert_allclose(answers[0], answers[1], rtol=2.0**-8, atol=2.0**24)


@pytest.mark.parametrize("query", [ViewCovariance, ViewSquares, NormHistogram, ScoreHistogram])
def test_no_rows_at_all_are_counted_nowhere(query: type[ViewQuery]) -> None:
    empty = Shard(check_rows(np.zeros((0, 12)), least=0), BOUND)
    assert not empty.evaluate(query(PLANE)).any()


EXTREMES = (0.0, MIN_FACTOR, 1.0, MAX_FACTOR)


@pytest.mark.parametrize("scale", [None, 2.0**-110, 2.0**110])
@pytest.mark.parametrize("sparse", [False, True])
def test_t04_no_number_underflows_whatever_view_is_asked_about(sparse: bool, scale: float | None) -> None:
    """A processor may be slower on such numbers, and the coordinator chooses factors, axes and scales."""
    axes = thin_qr(RNG.standard_normal((6, 2)))[0]
    rows = np.vstack([axes.T, np.eye(6), 2.0 ** RNG.integers(-220, 100, (60, 6)), 1e-310 * np.eye(6)])
    divided = None if scale is None else np.full(6, scale)
    with np.errstate(under="raise"):
        for factor in EXTREMES:
            for along in EXTREMES:
                view = View(6, range(6), factor, axes, along)
                asked = [
                    kind(view, None, divided) for kind in (ViewCovariance, ViewProduct, ViewSquares, ScoreHistogram)
                ]
                asked += [NormHistogram(view, None, divided, power=power) for power in (1, 2)]
                for query in asked:
                    shard(rows, sparse=sparse).evaluate(query)
