"""A basis on the lattice is the same numbers, whether all of its rows are written out or those that are met."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.question import RowSparse
from dpspca.provider.moments import LatticeBasis

DIMENSION = 12
PLACES = st.sets(st.integers(0, DIMENSION - 1)).map(sorted)


def basis(support: list[int]) -> LatticeBasis:
    rows = np.random.default_rng(len(support)).standard_normal((len(support), 2))
    return LatticeBasis(RowSparse(DIMENSION, np.array(support, dtype=np.intp), rows))


@given(support=PLACES.filter(bool), columns=PLACES)
def test_the_rows_that_are_met_are_those_of_the_whole(support: list[int], columns: list[int]) -> None:
    made = basis(support)
    met = np.array(columns, dtype=np.intp)
    assert made.at(met).tolist() == made.whole()[met].tolist()


@pytest.mark.parametrize("support", [[3], list(range(DIMENSION))])
def test_every_number_is_whole_and_at_most_half_a_step_away(support: list[int]) -> None:
    made = basis(support)
    assert (made.whole() == np.rint(made.whole())).all()
    assert np.abs(made.whole() - made.given.dense() * 2.0**20).max() <= 0.5
