"""Queries whose answer is a private mechanism: their form, and that no noise for a sum is taken to be enough."""

import math

import pytest
from facts import facts

from dpspca.common.errors import InvalidQueryError
from dpspca.common.queries.base import Extent
from dpspca.common.queries.subspace import SUBSPACE_QUERIES, SubspaceQuery


@pytest.mark.parametrize("query", SUBSPACE_QUERIES)
def test_no_noise_of_any_width_is_enough_for_a_subspace_that_was_added_to(query: type[SubspaceQuery]) -> None:
    assert query.sensitivity_of(min(query.units), Extent(6, 2)) == math.inf


@pytest.mark.parametrize("query", SUBSPACE_QUERIES)
@pytest.mark.parametrize("columns", [0, -1, 7])
def test_columns_that_there_cannot_be_are_refused(query: type[SubspaceQuery], columns: int) -> None:
    with pytest.raises(InvalidQueryError, match=facts(columns, 6, 2048)):
        query(6, None, columns)
