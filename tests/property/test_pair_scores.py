"""No neighbour moves the score of a column, or of a pair of them, further than a choice is paid for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.privacy.events import ChoiceEvent
from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.picks import SignPairs, TiedColumns
from dpspca.common.queries.views import View
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate import views
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.views import sign_scores, tied_scores

ADD_REMOVE, REPLACE = PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.ROW_REPLACE_ONE


def scores(rows: np.ndarray) -> np.ndarray:
    return np.abs(sign_scores(Shard(check_rows(rows, least=1), 1.0)._sums.integers(1.0)))


@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(2, 6), person=st.integers(1, 3))
def test_no_neighbour_moves_a_score_further_than_declared(seed: int, columns: int, person: int) -> None:
    rng = np.random.default_rng(seed)
    others = rng.standard_normal((4, columns))
    first, second = (rng.choice([-1.0, 0.0, 1e-9, 5.0], (person, columns)) for _ in range(2))
    both, without = scores(np.vstack([others, first])), scores(others)
    replaced = scores(np.vstack([others, second]))
    assert np.abs(both - without).max() <= SignPairs.score_movement(ADD_REMOVE, person)
    assert np.abs(both - replaced).max() <= SignPairs.score_movement(REPLACE, person)


@pytest.mark.parametrize(("unit", "change"), [(ADD_REMOVE, np.zeros((0, 2))), (REPLACE, np.array([[1.0, -1.0]]))])
def test_the_declared_movement_is_reached(unit: PrivacyUnit, change: np.ndarray) -> None:
    others = np.ones((3, 2))
    moved = scores(np.vstack([others, [[1.0, 1.0]]])) - scores(np.vstack([others, change]))
    assert np.abs(moved).max() == SignPairs.score_movement(unit, 1)


def ties(rows: np.ndarray, view: View) -> np.ndarray:
    return np.abs(tied_scores(Shard(check_rows(rows, least=1), 1.0)._sums.integers(1.0), view)).max(axis=0)


@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(3, 6), person=st.integers(1, 3), axes=st.integers(1, 3))
def test_no_neighbour_moves_a_tie_further_than_declared(seed: int, columns: int, person: int, axes: int) -> None:
    """Whatever the axes are, orthonormal or not: a requester may send any."""
    rng = np.random.default_rng(seed)
    seen = np.sort(rng.permutation(columns)[:2])
    view = View(columns, seen, axes=rng.choice([-1.0, 0.0, 1e-7, 0.3, 1.0], (2, axes)))
    others = rng.standard_normal((4, columns))
    first, second = (rng.choice([-1.0, 0.0, 1e-9, 5.0], (person, columns)) for _ in range(2))
    both, without = ties(np.vstack([others, first]), view), ties(others, view)
    replaced = ties(np.vstack([others, second]), view)
    assert np.abs(both - without).max() <= TiedColumns.score_movement(ADD_REMOVE, person)
    assert np.abs(both - replaced).max() <= TiedColumns.score_movement(REPLACE, person)


@pytest.mark.parametrize(("unit", "change"), [(ADD_REMOVE, np.zeros((0, 2))), (REPLACE, np.array([[1.0, -1.0]]))])
def test_the_declared_movement_of_a_tie_is_reached(unit: PrivacyUnit, change: np.ndarray) -> None:
    others, view = np.ones((3, 2)), View(2, [0], axes=np.ones((1, 1)))
    moved = ties(np.vstack([others, [[1.0, 1.0]]]), view) - ties(np.vstack([others, change]), view)
    assert np.abs(moved).max() == TiedColumns.score_movement(unit, 1)


def test_a_row_at_right_angles_to_an_axis_counts_for_nothing() -> None:
    """Products with axes are exact. Were they rounded, a row near zero would lean one way or the other by its place in
    memory, and so by how many other rows there are."""
    whole = np.random.default_rng(1).integers(-9000, 9000, (500, 39))
    rows = np.hstack([whole, -whole.sum(axis=1, keepdims=True), np.full((500, 1), 1000)]) * 2.0**-17
    view = View(41, np.arange(40), axes=np.full((40, 1), 0.1))
    assert (ties(rows, view) == 0).all()


def test_sparse_rows_have_the_scores_of_dense_ones() -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((30, 8)) * (rng.random((30, 8)) < 0.4)
    view = View(8, [1, 4, 6], axes=rng.uniform(-1, 1, (3, 2)))
    dense, sparse = (Shard(check_rows(each), 1.0)._sums.integers(1.0) for each in (rows, scipy.sparse.csr_array(rows)))
    np.testing.assert_array_equal(sign_scores(dense), sign_scores(sparse))
    np.testing.assert_array_equal(tied_scores(dense, view), tied_scores(sparse, view))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_pairs_of_some_columns_have_the_scores_that_they_have_among_all(form: Callable[[np.ndarray], Any]) -> None:
    rng = np.random.default_rng(3)
    rows = form(rng.standard_normal((30, 8)) * (rng.random((30, 8)) < 0.6))
    whole, some = Shard(check_rows(rows), 1.0)._sums.integers(1.0), np.array([1, 4, 6])
    assert np.array_equal(sign_scores(whole, some), sign_scores(whole)[np.ix_(some, some)])


@pytest.mark.parametrize("entries", [1, 40, 57, 200])
def test_scores_are_those_of_all_rows_however_many_are_taken_together(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(5).standard_normal((41, 8))
    integers, some = Shard(check_rows(rows), 1.0)._sums.integers(1.0), np.array([0, 2, 3, 7])
    signs = np.sign(rows)
    monkeypatch.setattr(views, "_SOME_ENTRIES", entries)
    assert np.array_equal(sign_scores(integers), signs.T @ signs)
    assert np.array_equal(sign_scores(integers, some), (signs.T @ signs)[np.ix_(some, some)])


def test_a_choice_among_some_columns_names_these_alone() -> None:
    """Those that are not asked about go together best."""
    rows = np.random.default_rng(4).standard_normal((200, 9))
    rows[:, 1], rows[:, 6] = rows[:, 0], rows[:, 4]
    event, words = ChoiceEvent(2, 2.0, 1), KeyStream.repeatable(0, "choice")
    votes = Shard(check_rows(rows), 1.0).release(SignPairs(9, among=[2, 4, 5, 6, 8]), event, words)
    assert np.flatnonzero(votes).tolist() == [4, 6]
