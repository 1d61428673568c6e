"""No neighbour moves the score of a pair of columns further than a choice is paid for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.picks import SignPairs
from dpspca.provider.data.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.views import sign_scores

ADD_REMOVE, REPLACE = PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.ROW_REPLACE_ONE


def scores(rows: np.ndarray) -> np.ndarray:
    return np.abs(sign_scores(Shard(check_rows(rows, least=1), 1.0)._integers(1.0)))


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
