"""Histograms for all groups together are no more sensitive than one, whatever the rows and whoever names the groups."""

import math
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import InvalidQueryError
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import SIDE, GroupedScores, ScoreHistogram, View
from dpspca.provider.data import CheckedRows, check_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.memory.stored_rows import RowWriter
from dpspca.provider.evaluate import Shard

BOUND = 2.0
UNITS = [unit for unit in PrivacyUnit if unit.is_row]


def view_of(axes: np.ndarray, groups: list[int], dimension: int) -> View:
    """Look at all columns: scores along two axes, and groups by columns."""
    return View(dimension, np.arange(dimension), 1.0, np.hstack([axes, np.eye(dimension)[:, groups]]), 3.0)


def answer(query: GroupedScores | ScoreHistogram, rows: np.ndarray, *, sparse: bool = False) -> np.ndarray:
    table = scipy.sparse.csr_array(rows) if sparse else rows
    return Shard(check_rows(table), BOUND).evaluate(query).astype(np.int64)


SMALL = GroupedScores(view_of(np.array([[0.6, -0.8], [0.8, 0.6], [0.0, 0.0]]), [1, 2], 3), np.array([0.3, -0.2, 0.4]))
ALL_ROWS = [np.array(row) for row in product((-1.0, 0.0, 0.7, 5.0), repeat=3)]


def test_no_row_moves_all_histograms_further_than_declared() -> None:
    """Every row of a grid is replaced by every other one: 2,016 pairs of neighbours, and 64 removals."""
    others = np.array([[0.2, 0.9, -0.3], [0.0, 0.0, 0.0]])
    without = answer(SMALL, others)
    answers = [answer(SMALL, np.vstack([others, row])) for row in ALL_ROWS]
    removed = {float(np.linalg.norm(each - without)) for each in answers}
    replaced = {float(np.linalg.norm(one - other)) for one, other in combinations(answers, 2)}
    assert removed == {1.0}
    assert replaced == {0.0, math.sqrt(2)}
    for unit in UNITS:
        declared = GroupedScores.sensitivity_of(unit, SMALL.extent)
        assert max(removed if unit.is_add_remove else replaced) <= declared <= math.sqrt(2) * (1 + 1e-9)
        assert declared == ScoreHistogram.sensitivity_of(unit, SMALL.extent)


@given(seed=st.integers(0, 2**32 - 1), groups=st.integers(2, 5))
def test_each_row_is_in_one_cell_of_its_own_group(seed: int, groups: int) -> None:
    """The sum over groups is the histogram of all rows, and groups are read off the rows as they are."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-1, 2, (30, 6)) * rng.uniform(0.5, 2, (30, 6))
    axes, center = rng.uniform(-1, 1, (6, 2)), rng.uniform(-1, 1, 6)
    named = rng.permutation(6)[:groups].tolist()
    grouped = GroupedScores(view_of(axes, named, 6), center)
    plain = ScoreHistogram(View(6, np.arange(6), 1.0, axes, 3.0), center)
    counts = answer(grouped, rows)
    np.testing.assert_array_equal(counts.sum(axis=0), answer(plain, rows))
    entries = rows[:, named]
    own = np.where(entries.max(axis=1) > 0, entries.argmax(axis=1), groups)
    np.testing.assert_array_equal(counts.sum(axis=(1, 2)), np.bincount(own, minlength=groups + 1))
    for group in range(groups + 1):
        if (own == group).sum() > 1:
            np.testing.assert_array_equal(counts[group], answer(plain, rows[own == group]))


def test_sparse_rows_are_in_the_groups_of_dense_ones() -> None:
    rows = np.array(ALL_ROWS)
    asked = GroupedScores(SMALL.view)
    np.testing.assert_array_equal(answer(asked, rows, sparse=True), answer(asked, rows))
    assert answer(asked, rows).shape == (3, SIDE, SIDE)


def test_rows_in_scratch_are_in_the_groups_of_rows_in_memory(tmp_path: Path) -> None:
    rows = np.array(ALL_ROWS * 3)
    writer = RowWriter(Scratch(tmp_path / "scratch"), 3, np.dtype(np.float64))
    writer.add(rows, np.zeros(len(rows), dtype=np.bool_))
    stored = Shard(CheckedRows(writer.rows()), BOUND).evaluate(SMALL)
    np.testing.assert_array_equal(stored, answer(SMALL, rows))


def test_no_rows_at_all_are_in_no_group() -> None:
    assert not Shard(check_rows(np.zeros((0, 3)), least=0), BOUND).evaluate(SMALL).any()


@pytest.mark.parametrize(
    "axes",
    [
        np.eye(4),  # of two axes for groups, both are needed
        np.eye(4)[:, :3],
        np.eye(4)[:, [0, 1, 2, 2]],
        np.eye(4) * [1, 1, 0.5, 1],
        np.eye(4) * [1, 1, 0, 1],
        np.eye(4)[:, [0, 1, 2, 3]] + np.outer([1, 0, 0, 0], [0, 0, 1, 0]),
    ],
)
def test_groups_that_are_not_named_by_one_column_each_are_refused(axes: np.ndarray) -> None:
    view = View(4, np.arange(4), axes=axes)
    if np.array_equal(axes, np.eye(4)):
        assert GroupedScores(view).group_columns.tolist() == [2, 3]
        return
    with pytest.raises(InvalidQueryError, match=facts("1 groups" if axes.shape[1] == 3 else (1, 0))):
        GroupedScores(view)
