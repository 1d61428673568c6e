"""Questions whose answer is a private mechanism: their form, and that no noise for a sum is taken to be enough."""

import math

import pytest

from dpspca.common.errors import InvalidQueryError
from dpspca.common.question import Extent
from dpspca.common.subspace_queries import SUBSPACE_QUESTIONS, SubspaceQuery


@pytest.mark.parametrize("question", SUBSPACE_QUESTIONS)
def test_no_noise_of_any_width_is_enough_for_a_subspace_that_was_added_to(question: type[SubspaceQuery]) -> None:
    assert question.sensitivity_of(min(question.units), Extent(6, 2)) == math.inf


@pytest.mark.parametrize("question", SUBSPACE_QUESTIONS)
@pytest.mark.parametrize("columns", [0, -1, 7])
def test_columns_that_there_cannot_be_are_refused(question: type[SubspaceQuery], columns: int) -> None:
    with pytest.raises(InvalidQueryError, match="in 6 dimensions"):
        question(6, None, columns)
