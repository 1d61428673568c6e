"""Genotypes in two bits a cell give the same bits as a dense table of the same numbers, whatever is asked."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from row_queries import BOUND, KINDS, make_query

from dpspca.common.queries.sketch import Projection
from dpspca.provider.data.checked.odd_rows import rows_or_zeros
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.memory.two_bits import MISSING
from dpspca.provider.evaluate.moments import DenseRows, StreamedMoments
from dpspca.provider.evaluate.packed_rows import PackedRows
from dpspca.provider.evaluate.products import MADE_AT_ONCE
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.evaluate.sketches import add_sketch, project
from dpspca.provider.evaluate.views import sign_scores, tied_scores

pytestmark = pytest.mark.usefixtures("compiled_or_not")


def packed(rows: int, columns: int, seed: int = 0) -> CheckedRows:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (rows, columns)).astype(np.uint8)
    table = Genotypes.of_codes(codes)
    scaled = table.mapped(lambda values: (np.nan_to_num(values, nan=0.7) - 0.9) * np.linspace(0.1, 2, columns))
    return rows_or_zeros(scaled.blanked(rng.random(rows) < 0.2))


def dense(rows: CheckedRows) -> CheckedRows:
    assert isinstance(rows.matrix, Genotypes)
    return CheckedRows(rows.matrix.toarray(), rows.names)


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (503, 7)])
def test_answers_have_the_same_bits(strategy: Strategy, kind: str, shape: tuple[int, int]) -> None:
    rows = packed(*shape)
    query = make_query(kind, np.random.default_rng(1), shape[1])
    shards = [Shard(each, BOUND, mean_bound=2.0, strategy=strategy) for each in (rows, dense(rows))]
    answers = [shard.evaluate(query) for shard in shards]
    assert (answers[0] == answers[1]).all()
    assert answers[0].dtype == answers[1].dtype


@pytest.mark.parametrize("kind", ["product", "covariance", "norms-in-ranges", "norms"])
def test_centred_answers_have_the_same_bits(kind: str) -> None:
    rows = packed(503, 7)
    query: Any = make_query(kind, np.random.default_rng(1), 7)
    basis = {"given": query.kept} if kind == "product" else {}
    centred = replace(query, center=np.linspace(-1, 1, 7), **basis)
    answers = [Shard(each, BOUND).evaluate(centred) for each in (rows, dense(rows))]
    assert (answers[0] == answers[1]).all()


def test_signs_and_sketches_have_the_same_bits() -> None:
    rows = packed(503, 7)
    view = make_query("view-axes", np.random.default_rng(1), 7).view  # type: ignore[attr-defined]
    integers = [Shard(each, BOUND)._sums.integers(BOUND) for each in (rows, dense(rows))]
    assert (sign_scores(integers[0]) == sign_scores(integers[1])).all()
    assert (tied_scores(integers[0], view) == tied_scores(integers[1], view)).all()
    omega = np.random.default_rng(2).integers(-9, 9, (7, 3)).astype(float)
    noises = [np.zeros((503, 3), dtype=np.int64) for _ in integers]
    for noise, each in zip(noises, integers, strict=True):
        add_sketch(noise, each, omega)
    assert (noises[0] == noises[1]).all()
    sketch = np.random.default_rng(3).integers(-(2**16), 2**16, (503, 3)).astype(np.int32)
    asked = Projection(np.random.default_rng(4).standard_normal((3, 3)) * 1e-5, 7, 1.0)
    assert (project(integers[0], sketch, asked) == project(integers[1], sketch, asked)).all()


def test_rows_stay_packed_while_they_are_asked_about() -> None:
    shard = Shard(packed(4000, 40), BOUND)
    shard.evaluate(make_query("product", np.random.default_rng(1), 40))
    held = shard._ready
    assert held is not None
    assert held.moments._rows._rows.packed.nbytes == 4000 * 10  # type: ignore[attr-defined]


def test_a_row_depends_on_itself_alone() -> None:
    """Whatever other rows hold, and wherever a row is, it becomes the same integers."""
    rows = packed(300, 9)
    integers = Shard(rows, BOUND)._sums.integers(BOUND)
    whole = integers.block(0, 300)
    for start, stop in [(0, 1), (17, 18), (250, 300)]:
        part = CheckedRows(rows.part(slice(start, stop)))
        assert (Shard(part, BOUND)._sums.integers(BOUND).block(0, stop - start) == whole[start:stop]).all()


def test_selected_columns_and_rows() -> None:
    table = packed(50, 11).matrix
    assert isinstance(table, Genotypes)
    numbers = table.toarray()
    places = np.array([10, 3, 3, 0, 7])
    assert (table.select(places).toarray() == numbers[:, places]).all()
    some = np.array([4, 4, 49, 0])
    assert (table[some].toarray() == numbers[some]).all()
    assert (np.concatenate([block.toarray() for block in table.blocks(40)]) == numbers).all()
    assert (table.stored().toarray() == numbers).all()
    assert table.counts().sum() == 50 * 11
    assert table.values.shape == (MISSING + 1, 11)


def test_of_a_wide_table_few_rows_are_made_at_once() -> None:
    made: list[int] = []

    def convert(block: Any) -> Any:
        made.append(block.size)
        return np.rint(block[:, :5] * 100).astype(np.int32)

    table = packed(1500, 4000).matrix
    assert isinstance(table, Genotypes)
    basis = np.rint(np.linalg.qr(np.random.default_rng(0).standard_normal((5, 2)))[0] * 2**20)
    product = StreamedMoments(PackedRows(table, 5, convert), 1).product(basis)
    whole = np.rint(table.toarray()[:, :5] * 100).astype(np.int32)
    assert np.array_equal(product, StreamedMoments(DenseRows(whole), 1).product(basis))
    assert max(made) <= MADE_AT_ONCE
