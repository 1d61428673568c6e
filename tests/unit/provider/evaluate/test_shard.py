"""Answers are exact integers, the same bits however they are computed."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import InvalidParameterError, InvalidQueryError
from dpspca.common.linalg import thin_qr
from dpspca.common.queries.base import Extent, RowQuery
from dpspca.common.queries.rows import (
    ColumnSums,
    CompressedCovariance,
    Count,
    Covariance,
    CovarianceProduct,
)
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate import block_sums, moments, products
from dpspca.provider.evaluate.integer_rows import integer_rows
from dpspca.provider.evaluate.moments import DenseRows, StreamedMoments
from dpspca.provider.evaluate.products import Division
from dpspca.provider.evaluate.shard import Shard, Strategy

BOUND = 4.0


def in_python(rows: np.ndarray, query: RowQuery, times: int = 1) -> np.ndarray:
    """The definition, in Python's own integers: floors of exact sums, over the rows taken so many times."""
    whole = integer_rows(rows, BOUND).astype(object)
    gram = times * (whole.T @ whole)
    match query:
        case CovarianceProduct(basis=basis):
            return gram @ np.rint(basis * 2.0**20).astype(np.int64).astype(object) >> 24
        case CompressedCovariance(basis=basis):
            integer = np.rint(basis * 2.0**20).astype(np.int64).astype(object)
            square = (integer.T @ gram @ integer) >> 44
            return np.array([*square.ravel(), (np.trace(gram) >> 4) - np.trace(square)])
        case Covariance():
            return gram >> 4
        case _:
            return np.diagonal(gram) >> 4


def queries(rng: np.random.Generator, dimension: int, sparsity: int) -> list[RowQuery]:
    basis = np.zeros((dimension, min(3, sparsity)))
    kept = rng.choice(dimension, sparsity, replace=False)
    basis[kept], _ = thin_qr(rng.standard_normal((sparsity, min(3, sparsity))))
    return [
        CovarianceProduct(basis),
        CompressedCovariance(basis),
        Covariance(dimension),
    ]


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 40), rows=st.integers(2, 60), data=st.data())
def test_every_way_of_evaluation_gives_the_bits_of_the_definition(
    seed: int, dimension: int, rows: int, data: st.DataObject
) -> None:
    rng = np.random.default_rng(seed)
    sparsity = data.draw(st.integers(1, dimension))
    values = rng.standard_normal((rows, dimension)) * rng.choice([0.01, 1.0, 10.0], (rows, 1))
    for query in queries(rng, dimension, sparsity):
        expected = in_python(values, query)
        for strategy in Strategy:
            answer = Shard(check_rows(values), BOUND, strategy=strategy, threads=2).evaluate(query)
            assert answer.dtype == np.int64
            assert answer.shape == type(query).answer_shape(query.extent)
            assert (answer == expected).all()


@pytest.mark.parametrize(("rows", "dimension"), [(20_000, 40), (40_000, 7), (3_000, 400)])
def test_many_rows_of_full_length_stay_exact(rows: int, dimension: int) -> None:
    """Rows at the bound, all alike, make the largest sums; several flushes and blocks are gone through."""
    rng = np.random.default_rng(3)
    row = rng.standard_normal((1, dimension)) * 100
    values = np.tile(row, (rows, 1))
    for query in queries(rng, dimension, min(dimension, 5)):
        expected = in_python(row, query, times=rows)
        for strategy in Strategy:
            assert (Shard(check_rows(values), BOUND, strategy=strategy).evaluate(query) == expected).all()


def test_the_largest_sums_of_the_smallest_parts_are_exact() -> None:
    """Every product's low part is odd and the largest there is: more than 2^17 squares of it are beyond 2^53."""
    row, rows = 2**17 - 1, 2**17 + 2**14 + 1
    column = 2**19 + (2**18 - 1) * pow(row, -1, 2**19) % 2**19
    moments = StreamedMoments(DenseRows(np.full((rows, 1), row, dtype=np.int32)), threads=1)
    assert (row * column) % 2**19 == 2**18 - 1
    assert int(moments.compressed(np.array([[float(column)]]))[0, 0]) == rows * (row * column) ** 2


def test_t19_neither_order_nor_threads_nor_blocks_change_a_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    values = rng.standard_normal((5000, 30))
    for query in queries(rng, 30, 10):
        expected = in_python(values, query)
        for block_rows, threads in itertools.product((8, 100, 5000), (1, 2, 5)):
            monkeypatch.setattr(moments, "CACHED", block_rows * 30)
            for module in (block_sums, moments, products):
                monkeypatch.setattr(module, "EXACT_ROWS", 2 * block_rows)
            monkeypatch.setattr(Division, "of", lambda *_, rows=block_rows: Division(rows, 7))
            shuffled = Shard(check_rows(rng.permutation(values)), BOUND, threads=threads)
            assert (shuffled.evaluate(query) == expected).all()


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 30))
def test_sparse_rows_give_the_same_answers_without_being_made_dense(seed: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    # Entries a power of two: every way of summing a norm agrees to the last bit.
    pattern = rng.random((40, dimension)) < 0.2
    values = np.where(pattern, rng.choice([-0.5, 0.25, 1.0], pattern.shape), 0.0)
    for query in queries(rng, dimension, dimension):
        answer = Shard(check_rows(scipy.sparse.csr_array(values)), BOUND).evaluate(query)
        assert (answer == in_python(values, query)).all()


def test_a_sparse_block_is_never_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = scipy.sparse.random_array((3000, 2000), density=0.001, rng=np.random.default_rng(0), format="csr")
    basis, _ = thin_qr(np.random.default_rng(1).standard_normal((2000, 2)))

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("sparse rows were made dense")

    for name in ("toarray", "todense"):
        monkeypatch.setattr(scipy.sparse.csr_array, name, refuse)
    shard = Shard(check_rows(rows), 1.0)
    assert shard.evaluate(CovarianceProduct(basis)).any()
    assert shard.evaluate(CompressedCovariance(basis)).any()


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 60), density=st.sampled_from([0.0, 0.01, 0.1]))
def test_columns_without_entries_answer_zero_and_change_no_other_bit(seed: int, dimension: int, density: float) -> None:
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.random_array((20, dimension), density=density, rng=rng, format="csr")
    rows.data[:] = rng.choice([-0.5, 0.25, 1.0], rows.nnz)
    untouched = ~rows.toarray().any(axis=0)
    for query in queries(rng, dimension, int(rng.integers(1, dimension + 1))):
        answer = Shard(check_rows(rows), BOUND, threads=2).evaluate(query)
        assert (answer == in_python(rows.toarray(), query)).all()
        if not isinstance(query, CompressedCovariance):
            assert not answer[untouched].any()


@pytest.mark.parametrize("exact_rows", [1, 7, 100])
def test_the_blocks_that_sparse_rows_are_taken_in_change_no_bit(
    exact_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(8)
    rows = scipy.sparse.random_array((200, 500), density=0.002, rng=rng, format="csr")
    expected = [Shard(check_rows(rows), BOUND).evaluate(query) for query in queries(np.random.default_rng(9), 500, 9)]
    monkeypatch.setattr(block_sums, "EXACT_ROWS", exact_rows)
    for query, answer in zip(queries(np.random.default_rng(9), 500, 9), expected, strict=True):
        for threads in (1, 3):
            assert (Shard(check_rows(rows), BOUND, threads=threads).evaluate(query) == answer).all()


def test_the_answer_in_units_of_the_data_is_the_plain_product() -> None:
    rng = np.random.default_rng(6)
    values = rng.standard_normal((2000, 50))
    basis, _ = thin_qr(rng.standard_normal((50, 4)))
    bound = 12.0
    answer = Shard(check_rows(values), bound).evaluate(CovarianceProduct(basis))
    assert answer * CovarianceProduct.unit_value(bound) == pytest.approx(values.T @ (values @ basis), rel=1e-3, abs=0.5)


def test_counts_and_sums() -> None:
    values = np.array([[3.0, 4.0], [0.0, 1.0], [0.0, 0.0]])
    shard = Shard(check_rows(values), BOUND, mean_bound=5.0)
    assert shard.evaluate(Count()).tolist() == [3]
    assert (shard.evaluate(ColumnSums(2)) * ColumnSums.unit_value(5.0)).tolist() == pytest.approx([3.0, 5.0], abs=1e-4)


def test_the_mean_needs_a_bound_of_its_own() -> None:
    with pytest.raises(InvalidQueryError):
        Shard(check_rows(np.ones((2, 2))), BOUND).evaluate(ColumnSums(2))


def test_a_query_that_is_not_about_rows_is_refused() -> None:
    class Other(Count):
        kind = "other"

        @property
        def extent(self) -> Extent:
            return Extent(0)

    assert Shard(check_rows(np.ones((2, 2))), BOUND).evaluate(Other()).tolist() == [2]
    with pytest.raises(InvalidQueryError, match=facts("'unheard-of'")):
        Shard(check_rows(np.ones((2, 2))), BOUND).evaluate(RefusedQuery())  # type: ignore[arg-type]


class RefusedQuery:
    kind = "unheard-of"


def test_centring_sparse_rows_is_refused_with_the_reason() -> None:
    shard = Shard(check_rows(scipy.sparse.csr_array(np.eye(3))), BOUND)
    with pytest.raises(InvalidParameterError, match=facts("centering none")):
        shard.evaluate(CovarianceProduct(np.eye(3)[:, :1], np.ones(3)))


def test_a_gram_matrix_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts(2**14 + 1, 2**14)):
        Shard(check_rows(np.ones((2, 2**14 + 1))), BOUND, strategy=Strategy.GRAM)
