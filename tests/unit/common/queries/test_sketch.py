"""Queries about a sketch: their form, their price, and how they are sent."""

import math

import numpy as np
import pytest
from facts import facts

from dpspca.common.errors import InvalidParameterError, InvalidQueryError
from dpspca.common.plan import Step
from dpspca.common.privacy.directions import NONCE_WORDS
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Announcement, Extent, RowQuery
from dpspca.common.queries.sketch import (
    MAX_COLUMNS,
    SEATS,
    SKETCH_QUERIES,
    Commit,
    Peaks,
    Projection,
    Reveal,
    Sketch,
    SketchQuery,
    read_seats,
)
from dpspca.common.transport import wire

REPLACE = PrivacyUnit.ROW_REPLACE_ONE
WORDS = np.random.default_rng(1).integers(0, 2**32, (SEATS, NONCE_WORDS), dtype=np.uint32)
MAP = np.random.default_rng(2).standard_normal((3, 3))
QUERIES: list[SketchQuery] = [
    Commit(),
    Reveal(WORDS),
    Sketch(WORDS, 40, 3),
    Peaks(MAP),
    Projection(MAP, 40, 1.25),
    Projection(np.random.default_rng(3).standard_normal((MAX_COLUMNS, MAX_COLUMNS)), 10**6, 16.0),
]


def arrived(query: RowQuery) -> RowQuery:
    reader = wire.QueryReader(query.announcement, Step("a step", type(query), query.extent, None))
    for sequence, frame in enumerate(wire.frames(query.content())):
        reader.add(sequence, bytes(frame))
    return reader.query()


def test_every_query_about_a_sketch_is_tried_here() -> None:
    assert {type(query) for query in QUERIES} == set(SKETCH_QUERIES)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.kind)
def test_a_query_is_decoded_exactly_from_as_many_bytes_as_announced(query: SketchQuery) -> None:
    assert arrived(query) == query
    announced = query.announcement
    assert announced == Announcement(query.kind, query.extent)
    assert len(query.content()) == type(query).content_size(announced)


def test_queries_of_other_content_are_other_queries() -> None:
    other = WORDS.copy()
    other[100, 7] ^= 1 << 31
    beside = np.nextafter(MAP, 9.0)
    made = [*QUERIES, Reveal(other), Sketch(other, 40, 3), Sketch(WORDS, 40, 4), Peaks(beside)]
    made += [Projection(beside, 40, 1.25), Projection(MAP, 40, 1.5), Projection(MAP, 41, 1.25)]
    assert len({query.digest() for query in made}) == len(made)


@pytest.mark.parametrize(
    "words",
    [
        WORDS.astype(np.uint64),
        WORDS.astype(float),
        WORDS[1:],
        WORDS[:, 1:],
        np.zeros((SEATS, NONCE_WORDS, 1), dtype=np.uint32),
    ],
)
def test_a_list_of_words_with_another_shape_or_type_is_refused(words: np.ndarray) -> None:
    for made in (lambda: Reveal(words), lambda: Sketch(words, 40, 3)):
        with pytest.raises(InvalidQueryError, match=facts(str(words.shape), "128 x 8")):
            made()


@pytest.mark.parametrize("given", [np.ones((3, 2)), np.ones(3), np.eye(MAX_COLUMNS + 1), [[np.nan]], [[np.inf]], []])
def test_a_map_of_another_form_is_refused(given: object) -> None:
    for made in (lambda: Peaks(given), lambda: Projection(given, 40, 1.0)):  # type: ignore[arg-type]
        with pytest.raises(InvalidQueryError):
            made()


@pytest.mark.parametrize(("dimension", "columns"), [(0, 1), (40, 0), (40, MAX_COLUMNS + 1)])
def test_a_sketch_of_an_impossible_size_is_refused(dimension: int, columns: int) -> None:
    with pytest.raises(InvalidQueryError):
        Sketch(WORDS, dimension, columns)


def test_a_query_does_not_change_with_the_array_that_it_was_made_of() -> None:
    words, given = WORDS.copy(), MAP.copy()
    asked = [Reveal(words), Sketch(words, 40, 3), Peaks(given), Projection(given, 40, 1.25)]
    before = [query.digest() for query in asked]
    words[:], given[:] = 0, 0
    assert [query.digest() for query in asked] == before


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.kind)
@pytest.mark.parametrize("unit", [unit for unit in PrivacyUnit if not unit.is_replace_one])
def test_no_other_unit_has_a_price(query: SketchQuery, unit: PrivacyUnit) -> None:
    for ask in (type(query).sensitivity_of, type(query).lattice_sensitivity):
        with pytest.raises(InvalidParameterError, match=facts(f"'{query.kind}'", f"'{unit}'")):
            ask(unit, query.extent)


def test_the_words_in_all_slots_are_read_from_the_sum_of_answers() -> None:
    assert (read_seats(WORDS.astype(float)) == WORDS).all()


@pytest.mark.parametrize("entry", [2.0**32, -1.0, 0.5, np.nan])
def test_a_sum_with_two_answers_in_one_slot_is_refused(entry: float) -> None:
    total = WORDS.astype(float)
    total[3, 3] = entry
    with pytest.raises(InvalidQueryError, match=facts("32-bit")):
        read_seats(total)


def test_no_query_moves_further_than_its_extent_says() -> None:
    for reach in (2.0**-20, 0.7, float(np.sqrt(3))):
        asked = Projection(MAP, 40, reach)
        assert asked.movement(REPLACE, l1=False) <= Projection.lattice_sensitivity(REPLACE, Extent(40, 3))
        assert asked.movement(REPLACE, l1=True) == Projection.lattice_l1_sensitivity(REPLACE, Extent(40, 3))
        assert asked.sensitivity(REPLACE) == pytest.approx(2 * reach)


def test_a_projection_is_moved_by_two_unit_rows_in_every_column() -> None:
    moved = Projection.sensitivity_of(REPLACE, Extent(40, 3))
    assert 2 * math.sqrt(3) <= moved < 2 * math.sqrt(3) * (1 + 2**-40)


def test_a_commitment_is_moved_by_no_row() -> None:
    assert Commit.sensitivity_of(REPLACE, Commit().extent) == 0


@pytest.mark.parametrize("query", SKETCH_QUERIES, ids=lambda query: query.kind)
def test_under_a_unit_that_no_sketch_is_priced_for_none_is(query: type[SketchQuery]) -> None:
    with pytest.raises(InvalidParameterError):
        query.sensitivity_of(PrivacyUnit.ROW_ADD_REMOVE, Extent(40, 3))
