"""A choice of pairs says what it is, and how far its scores move; its answer has no bound of its own."""

import math

import numpy as np
import pytest

from dpspca.common.errors import InvalidParameterError, InvalidQueryError
from dpspca.common.plan import Step
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import Extent, SignPairs, TiedColumns, View
from dpspca.common.transport.wire import QueryReader

KINDS = [SignPairs, TiedColumns]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_has_one_count_for_each_column(kind: type[SignPairs | TiedColumns]) -> None:
    assert kind.answer_shape(Extent(7, 2, 3)) == (7,)
    assert kind.unit_value(3.0) == 1.0


@pytest.mark.parametrize(
    ("unit", "rows", "moves"),
    [
        (PrivacyUnit.ROW_ADD_REMOVE, 1, 1),
        (PrivacyUnit.ROW_REPLACE_ONE, 1, 2),
        (PrivacyUnit.PERSON_ADD_REMOVE, 3, 3),
        (PrivacyUnit.PERSON_REPLACE_ONE, 3, 6),
    ],
)
def test_a_score_moves_by_the_signs_of_the_rows_that_change(unit: PrivacyUnit, rows: int, moves: int) -> None:
    for kind in KINDS:
        assert kind.score_movement(unit, rows) == moves
        assert kind.sensitivity_of(unit, Extent(7)) == kind.lattice_sensitivity(unit, Extent(7)) == math.inf


@pytest.mark.parametrize("kind", KINDS)
def test_a_choice_protects_no_entries_of_a_matrix(kind: type[SignPairs | TiedColumns]) -> None:
    with pytest.raises(InvalidParameterError):
        kind.sensitivity_of(PrivacyUnit.ENTRY, Extent(7))


def test_what_a_choice_announces_is_what_is_read_from_it() -> None:
    center = np.arange(4.0)
    view = View(4, [1, 3], axes=np.eye(2))
    for query in (
        SignPairs(4),
        SignPairs(4, center),
        SignPairs(4, center, among=[1, 3]),
        TiedColumns(view),
        TiedColumns(view, center),
    ):
        again = type(query).read(query.announcement, query.content(), "")
        assert again.digest() == query.digest()


def test_a_choice_among_some_columns_has_one_form_and_its_own_size() -> None:
    some = SignPairs(9, among=[2, 3, 8])
    assert some.extent == Extent(9, 0, 3)
    assert (SignPairs.columns_of(some.extent), SignPairs.columns_of(SignPairs(9).extent)) == (3, 9)
    assert len({each.digest() for each in (some, SignPairs(9), SignPairs(9, among=[2, 4, 8]))}) == 3
    for among in (range(9), [3, 2], [2, 2], [-1, 2], [2, 9], []):
        with pytest.raises(InvalidQueryError):
            SignPairs(9, among=np.array(list(among), dtype=int))


def test_t16_a_plan_for_some_columns_allows_no_choice_among_all() -> None:
    """Scores of all pairs may take a hundred times the memory and the time that the plan has room for."""
    step = Step("pairs", SignPairs, Extent(9, 0, 3), None)
    assert step.admits(SignPairs(9, among=[2, 3, 8]))
    for other in (SignPairs(9), SignPairs(9, among=[2, 3]), SignPairs(9, among=[1, 2, 3, 8])):
        assert not step.admits(other)
        with pytest.raises(InvalidQueryError):
            QueryReader(other.announcement, step)
    assert not Step("pairs", SignPairs, Extent(9), None).admits(SignPairs(9, among=[2, 3, 8]))


def test_a_choice_among_all_columns_has_the_digest_it_always_had() -> None:
    assert SignPairs(4, np.arange(4.0)).digest() == "458756862d1e4709ab96a091a94c89f162baa6157f85e12c378819c87c7c09a2"
