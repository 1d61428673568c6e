"""Queries and answers arrive as they were sent; frames that do not fit the plan are refused when they arrive."""

import resource
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidAnswerError, InvalidQueryError, NotCanonicalQueryError
from dpspca.common.linalg import thin_qr
from dpspca.common.plan import Step
from dpspca.common.queries.base import Announcement, Extent, RowQuery
from dpspca.common.queries.groups import GroupedScores
from dpspca.common.queries.matrix import CappedProduct, EntryTotal, SpectralProduct, SymmetricProduct
from dpspca.common.queries.picks import SignPairs, TiedColumns
from dpspca.common.queries.ranges import ColumnSizes, NormRange
from dpspca.common.queries.rows import (
    ColumnSums,
    CompressedCovariance,
    Count,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
)
from dpspca.common.queries.sketch import SKETCH_QUERIES
from dpspca.common.queries.subspace import SUBSPACE_QUERIES
from dpspca.common.queries.views import (
    NormHistogram,
    ScoreHistogram,
    View,
    ViewCovariance,
    ViewProduct,
    ViewSquares,
)
from dpspca.common.transport import wire

LARGEST = 2**56 - 1


def basis(rows: int, columns: int, kept: int, seed: int = 0) -> FloatArray:
    rng = np.random.default_rng(seed)
    made = np.zeros((rows, columns))
    made[np.sort(rng.choice(rows, kept, replace=False))], _ = thin_qr(rng.standard_normal((kept, columns)))
    return made


def step_for(query: RowQuery) -> Step:
    return Step("a step", type(query), query.extent, None)


def read(query: RowQuery, step: Step | None = None) -> RowQuery:
    reader = wire.QueryReader(query.announcement, step or step_for(query))
    for sequence, frame in enumerate(wire.frames(query.content())):
        reader.add(sequence, bytes(frame))
    return reader.query()


QUERIES: list[RowQuery] = [
    Count(),
    ColumnSums(7),
    Covariance(3),
    Covariance(3, np.arange(3.0)),
    CovarianceProduct(basis(40, 3, 5)),
    CovarianceProduct(basis(40, 3, 40), np.linspace(-1, 1, 40)),
    CompressedCovariance(basis(40, 3, 5)),
    CovarianceProduct(basis(60_000, 4, 60_000), np.zeros(60_000)),
    CovarianceProduct(basis(40, 3, 5), block=2, blocks=3),
    CovarianceTriangle(3, np.arange(3.0)),
    SymmetricProduct(basis(40, 3, 5)),
    CappedProduct(basis(40, 3, 5), largest=1.0),
    SpectralProduct(basis(40, 3, 5)),
    EntryTotal(7),
    ViewCovariance(View.whole(5, 2.0)),
    ViewCovariance(View(40, np.array([3, 7, 39]), 0.5, np.eye(3)[:, :2], 4.0), np.linspace(-1, 1, 40)),
    ViewProduct(View(40, np.array([3, 7, 39]), 0.5, np.eye(3)[:, :2], 4.0), np.linspace(-1, 1, 40)),
    NormRange(4, np.arange(4.0)),
    ColumnSizes(4, np.arange(4.0)),
    ColumnSums(5, np.arange(1.0, 6)),
    ColumnSums(5, np.arange(1.0, 6), np.linspace(-1, 1, 5)),
    ColumnSums(5, None, np.linspace(-1, 1, 5)),
    ViewCovariance(View(40, np.array([3, 39]), 0.5, np.eye(2), 4.0), np.linspace(-1, 1, 40), np.linspace(1, 2, 40)),
    NormHistogram(View.whole(5), None, np.arange(1.0, 6), 2),
    SignPairs(4, np.arange(4.0), np.arange(1.0, 5)),
    TiedColumns(View(4, [0, 2], axes=np.eye(2)), None, np.arange(1.0, 5)),
    ViewSquares(View(40, np.array([3, 7, 39]), 0.5)),
    ScoreHistogram(View(40, np.array([3, 39]), 1.5, np.eye(2), 3.0), np.linspace(-1, 1, 40)),
    GroupedScores(View(40, np.array([3, 7, 38, 39]), 1.5, np.eye(4), 3.0), np.linspace(-1, 1, 40)),
    NormHistogram(View(40, np.array([0, 39]), 3.0), np.zeros(40), None, 2),
    SignPairs(4, np.arange(4.0)),
    SignPairs(40, np.arange(40.0), np.arange(1.0, 41), [3, 39]),
    TiedColumns(View(4, [0, 2], axes=np.eye(2)), np.arange(4.0)),
    *(query(3, center, 2) for query in SUBSPACE_QUERIES for center in (None, np.arange(3.0))),
]


def kinds(base: type[RowQuery]) -> set[str]:
    own = {base.kind} if "kind" in vars(base) and base.__module__.startswith("dpspca.") else set()
    return own.union(*(kinds(each) for each in base.__subclasses__()))


def test_every_kind_of_query_is_sent_here_or_in_the_sketch_tests() -> None:
    assert {query.kind for query in QUERIES} | {each.kind for each in SKETCH_QUERIES} == kinds(RowQuery)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.kind)
def test_a_query_arrives_exactly_as_it_was_sent(query: RowQuery) -> None:
    assert read(query) == query
    assert len(query.content()) == type(query).content_size(query.announcement)


@given(rows=st.integers(1, 30), data=st.data())
def test_any_sparse_basis_arrives_as_it_was_sent(rows: int, data: st.DataObject) -> None:
    columns = data.draw(st.integers(1, rows))
    query = CovarianceProduct(
        basis(rows, columns, data.draw(st.integers(columns, rows)), data.draw(st.integers(0, 99)))
    )
    assert read(query) == query


@pytest.mark.parametrize("kept", [5, 6, 50_000, 50_001])
@pytest.mark.parametrize("centred", [False, True])
def test_the_rows_of_a_basis_are_used_without_a_copy(kept: int, centred: bool) -> None:
    query = CovarianceProduct(basis(60_000, 3, kept), np.ones(60_000) if centred else None)
    arrived = read(query)
    assert isinstance(arrived, CovarianceProduct)
    assert arrived.kept.rows.flags.aligned
    assert not arrived.kept.rows.flags.owndata
    assert not arrived.kept.rows.flags.writeable
    assert CovarianceProduct(arrived.basis, arrived.center).digest() == arrived.digest() == query.digest()


def test_only_the_nonzero_rows_of_a_basis_are_sent() -> None:
    query = CovarianceProduct(basis(100_000, 5, 50))
    assert len(query.content()) == 50 * (4 + 5 * 8)


PRODUCT = CovarianceProduct(basis(40, 3, 5))


@pytest.mark.parametrize(
    "step",
    [
        Step("other", CompressedCovariance, Extent(40, 3, 5), None),
        Step("fewer rows", CovarianceProduct, Extent(40, 3, 4), None),
        Step("other columns", CovarianceProduct, Extent(40, 4, 5), None),
        Step("other dimension", CovarianceProduct, Extent(41, 3, 5), None),
    ],
)
def test_a_query_that_is_not_in_the_plan_is_refused_before_its_frames(step: Step) -> None:
    with pytest.raises(InvalidQueryError):
        wire.QueryReader(PRODUCT.announcement, step)


@pytest.mark.parametrize("change", [-1, 1, 8, -140, 2**20])
def test_t35_a_frame_of_another_length_is_refused(change: int) -> None:
    whole = bytes(PRODUCT.content())
    reader = wire.QueryReader(PRODUCT.announcement, step_for(PRODUCT))
    frame = whole[:change] if change < 0 else whole + bytes(change)
    with pytest.raises(InvalidQueryError, match=facts("Frame 0", f"{len(frame)} bytes")):
        reader.add(0, frame)
    with pytest.raises(InvalidQueryError, match=facts("0 of 140 bytes")):
        reader.query()


def test_frames_out_of_order_or_repeated_are_refused() -> None:
    query = CovarianceProduct(basis(60_000, 4, 60_000))
    parts = [bytes(frame) for frame in wire.frames(query.content())]
    assert len(parts) == 3
    reader = wire.QueryReader(query.announcement, step_for(query))
    with pytest.raises(InvalidQueryError):
        reader.add(1, parts[1])
    reader.add(0, parts[0])
    with pytest.raises(InvalidQueryError):
        reader.add(0, parts[0])
    reader.add(1, parts[1])
    reader.add(2, parts[2])
    with pytest.raises(InvalidQueryError):
        reader.add(3, b"")
    assert reader.query() == query


@pytest.mark.parametrize("rows", [[1, 0, 2, 3, 4], [0, 0, 2, 3, 4], [0, 1, 2, 3, 40], [0, 1, 2, 3, 2**32 - 1]])
def test_t34_rows_of_a_basis_must_be_in_ascending_order(rows: list[int]) -> None:
    whole = np.array(rows, dtype="<u4").tobytes() + bytes(PRODUCT.content())[20:]
    reader = wire.QueryReader(PRODUCT.announcement, step_for(PRODUCT))
    reader.add(0, whole)
    with pytest.raises(NotCanonicalQueryError, match=facts(40)):
        reader.query()


def test_a_basis_with_a_row_of_zeros_is_refused() -> None:
    whole = bytes(CovarianceProduct(basis(40, 3, 4)).content())
    padded = whole[:16] + np.uint32(40).tobytes() + whole[16:] + bytes(24)
    wider = Extent(41, 3, 5)
    reader = wire.QueryReader(Announcement("covariance-product", wider), Step("a step", CovarianceProduct, wider, None))
    reader.add(0, padded)
    with pytest.raises(NotCanonicalQueryError):
        reader.query()


@given(noise=st.binary(min_size=140, max_size=140))
def test_arbitrary_content_is_refused(noise: bytes) -> None:
    reader = wire.QueryReader(PRODUCT.announcement, step_for(PRODUCT))
    reader.add(0, noise)
    with pytest.raises(InvalidQueryError):
        reader.query()


def test_t35_a_huge_announcement_allocates_nothing() -> None:
    absurd = Announcement("covariance-product", Extent(2**32 - 1, 2**32 - 1, 2**32 - 1), centred=True)
    tracemalloc.start()
    with pytest.raises(InvalidQueryError):
        wire.QueryReader(absurd, step_for(PRODUCT))
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to measure the memory in use")
def test_a_query_uses_memory_only_as_its_frames_arrive() -> None:
    wide = Extent(2**24, 10, 2**24)
    before = resident()
    reader = wire.QueryReader(Announcement("covariance-product", wide), Step("a step", CovarianceProduct, wide, None))
    reader.add(0, bytes(wire.FRAME))
    assert resident() - before < 16 * 2**20  # of 1344 announced


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def send(reader: wire.AnswerReader, answer: Any) -> None:
    for sequence, frame in enumerate(wire.frames(wire.answer_content(answer))):
        reader.add(sequence, bytes(frame))


def test_an_answer_is_serialised_without_a_copy() -> None:
    answer = np.arange(6).reshape(2, 3)
    assert np.shares_memory(np.frombuffer(wire.answer_content(answer), "<i8"), answer)
    assert bytes(wire.answer_content(answer.T)) == answer.T.tobytes()


def test_answers_are_added_frame_by_frame_in_any_order() -> None:
    rng = np.random.default_rng(0)
    answers = [rng.integers(-(2**55), 2**55, (50_000, 5)) for _ in range(3)]
    total = np.zeros((50_000, 5), dtype=np.int64)
    readers = [wire.AnswerReader(total, LARGEST) for _ in answers]
    parts = [[bytes(frame) for frame in wire.frames(wire.answer_content(answer))] for answer in answers]
    for sequence in range(len(parts[0])):
        for reader, frames in zip(readers, parts, strict=True):
            reader.add(sequence, frames[sequence])
    assert all(reader.complete for reader in readers)
    assert (total == sum(answers)).all()


@pytest.mark.parametrize("value", [LARGEST + 1, -LARGEST - 1, 2**63 - 1, -(2**63)])
def test_t34_numbers_beyond_the_lattice_are_refused_and_add_nothing(value: int) -> None:
    total = np.zeros((2, 3), dtype=np.int64)
    answer = np.zeros((2, 3), dtype=np.int64)
    answer[1, 1] = value
    reader = wire.AnswerReader(total, LARGEST)
    with pytest.raises(InvalidAnswerError, match=facts(LARGEST)):
        send(reader, answer)
    assert not total.any()
    assert not reader.started


@pytest.mark.parametrize("size", [0, 1, 47, 49, 56, 2**20])
def test_t34_an_answer_of_another_length_is_refused(size: int) -> None:
    reader = wire.AnswerReader(np.zeros((2, 3), dtype=np.int64), LARGEST)
    with pytest.raises(InvalidAnswerError, match=facts("Frame 0", f"{size} bytes")):
        reader.add(0, bytes(size))


def test_a_frame_after_the_last_is_refused() -> None:
    reader = wire.AnswerReader(np.zeros((2, 3), dtype=np.int64), LARGEST)
    reader.add(0, bytes(48))
    assert reader.complete
    for sequence in (0, 1):
        with pytest.raises(InvalidAnswerError):
            reader.add(sequence, bytes(48))


def test_an_answer_sent_again_after_a_lost_connection_is_added_once() -> None:
    rng = np.random.default_rng(1)
    answer = rng.integers(-(2**55), 2**55, (150_000, 3))
    parts = [bytes(frame) for frame in wire.frames(wire.answer_content(answer))]
    total = np.zeros_like(answer)
    reader = wire.AnswerReader(total, LARGEST)
    reader.add(0, parts[0])
    reader.add(1, parts[1])
    assert reader.started
    assert not reader.complete
    reader.restart()
    for sequence, part in enumerate(parts):
        reader.add(sequence, part)
    assert reader.complete
    assert (total == answer).all()
