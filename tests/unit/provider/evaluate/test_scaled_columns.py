"""Columns are divided by public scales before anything is clipped, and their sizes are counted exactly."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.privacy.events import ChoiceEvent
from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.queries import RowQuery
from dpspca.common.queries.picks import SignPairs, TiedColumns
from dpspca.common.queries.ranges import LARGEST_SIZE, SIZES, ColumnSizes
from dpspca.common.queries.rows import ColumnSums
from dpspca.common.queries.views import NormHistogram, ScoreHistogram, View, ViewCovariance, ViewSquares
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.integer_rows import integer_rows, placed
from dpspca.provider.evaluate.shard import Shard

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((400, 6)) * np.where(RNG.random((400, 6)) < 0.5, 0.0, 1.0)
SCALES = 2.0 ** np.array([-9.0, -3, 0, 1, 8, 20])
CENTER = np.linspace(-1, 1, 6)
BOUND = 3.0
CHOICE = ChoiceEvent(2.0, 20.0, 3)


def shard(rows: np.ndarray, *, sparse: bool = False) -> Shard:
    held = check_rows(scipy.sparse.csr_array(rows) if sparse else rows, least=0)
    return Shard(held, BOUND, mean_bound=BOUND, threads=1)


def queries(scales: np.ndarray | None, center: np.ndarray | None) -> list[RowQuery]:
    view, plane = View(6, [0, 2, 5], 1.5), View(6, [0, 5], 1.5, np.eye(2), 2.0)
    return [
        *(kind(view, center, scales) for kind in (ViewCovariance, ViewSquares, NormHistogram)),
        ScoreHistogram(plane, center, scales),
        NormHistogram(view, center, scales, 2),
    ]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("center", [None, CENTER], ids=["as they are", "centred"])
def test_scaled_rows_give_the_bits_that_rows_give_that_were_divided_before(
    center: np.ndarray | None, *, sparse: bool
) -> None:
    """Scales are powers of 2 here, so that a division is exact."""
    if sparse and center is not None:
        return  # which is refused
    moved = None if center is None else center * SCALES
    for scaled, plain in zip(queries(SCALES, moved), queries(None, center), strict=True):
        given, divided = shard(ROWS * SCALES, sparse=sparse), shard(ROWS, sparse=sparse)
        assert np.array_equal(given.evaluate(scaled), divided.evaluate(plain)), scaled.kind
    assert np.array_equal(shard(ROWS * SCALES).evaluate(ColumnSums(6, SCALES)), shard(ROWS).evaluate(ColumnSums(6)))


def test_choices_of_columns_look_at_scaled_rows() -> None:
    """Without scales, a column of much smaller numbers than the others would count as zeros."""
    view = View(6, [0, 1], axes=np.eye(2))
    given, divided = shard(ROWS * SCALES), shard(ROWS)
    for scaled, plain in (
        (SignPairs(6, None, SCALES), SignPairs(6)),
        (TiedColumns(view, None, SCALES), TiedColumns(view)),
    ):
        chosen = given.release(scaled, CHOICE, KeyStream.repeatable(7, "choice"))
        assert chosen.any()
        assert np.array_equal(chosen, divided.release(plain, CHOICE, KeyStream.repeatable(7, "choice")))


@given(st.integers(0, 2**32 - 1))
def test_whatever_scales_are_sent_no_row_is_longer_than_the_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((5, 6)) * 2.0 ** rng.integers(-100, 100, (5, 6))
    center, scales = rng.standard_normal(6) * 10.0 ** rng.integers(-300, 300, 6), 2.0 ** rng.uniform(-110, 110, 6)
    whole = integer_rows(rows, BOUND, center, scales).astype(object)
    assert ((whole**2).sum(axis=1) <= 2**34).all()
    assert np.isfinite(placed(rows, center, scales) ** 4).all()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_sizes_are_counted_for_each_column(*, sparse: bool) -> None:
    edges = LARGEST_SIZE * 4.0 ** -np.arange(SIZES - 1)
    table = np.zeros((7, 3))
    table[:, 0] = [LARGEST_SIZE, -edges[1], np.nextafter(edges[1], 0), -edges[-1], np.nextafter(edges[-1], 0), 0, 1.0]
    table[2, 1] = -5.0
    answer = shard(table, sparse=sparse).evaluate(ColumnSizes(3))
    assert answer.shape == (3, SIZES)
    assert answer.sum(axis=1).tolist() == [7, 7, 7]
    expected = [0, 1, 2, SIZES - 2, SIZES - 1, SIZES - 1, 50]
    assert answer[0].tolist() == np.bincount(expected, minlength=SIZES).tolist()
    assert answer[1, [49, SIZES - 1]].tolist() == [1, 6]
    assert answer[2, -1] == 7


def test_sizes_are_those_around_a_centre() -> None:
    rows = RNG.standard_normal((50, 6)) + CENTER
    around, moved = shard(rows).evaluate(ColumnSizes(6, CENTER)), shard(rows - CENTER).evaluate(ColumnSizes(6))
    assert np.array_equal(around, moved)


def test_no_rows_at_all_have_no_size() -> None:
    for center in (None, CENTER):
        assert not shard(np.empty((0, 6))).evaluate(ColumnSizes(6, center)).any()
