"""A basis on the lattice is the basis that was asked about, to half a step."""

import numpy as np
import pytest

from dpspca.common.queries.base import RowSparse
from dpspca.provider.evaluate.moments import LatticeBasis

pytestmark = pytest.mark.usefixtures("compiled_or_not")

DIMENSION = 12


def basis(support: list[int]) -> LatticeBasis:
    rows = np.random.default_rng(len(support)).standard_normal((len(support), 2))
    return LatticeBasis(RowSparse(DIMENSION, np.array(support, dtype=np.intp), rows))


@pytest.mark.parametrize("support", [[3], list(range(DIMENSION))])
def test_every_number_is_whole_and_at_most_half_a_step_away(support: list[int]) -> None:
    made = basis(support)
    assert (made.whole() == np.rint(made.whole())).all()
    assert np.abs(made.whole() - made.given.dense() * 2.0**20).max() <= 0.5
