"""Sums wider than 64 bits are exact, and do not change those that fit."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from hypothesis import example, given
from hypothesis import strategies as st

from dpspca.common.errors import RefusedError
from dpspca.common.privacy.lattice import MAX_ROWS, ROW_BITS
from dpspca.common.queries.rows import Covariance, CovarianceTriangle
from dpspca.common.queries.sketch import Sketch
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate import block_sums, moments, products
from dpspca.provider.evaluate.block_sums import ROWS_IN_64_BITS
from dpspca.provider.evaluate.moments import DenseRows, GramMoments, SparseRows, StreamedMoments
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.wide_integers import RunningSum, WideIntegers

pytestmark = pytest.mark.usefixtures("compiled_or_not")

WHOLE = st.integers(-(2**62), 2**62)
LARGEST = 2**69
"""Of 2^31 rows, no sum is larger."""


def wide(*numbers: int) -> WideIntegers:
    return WideIntegers(np.array([each >> 32 for each in numbers]), np.array([each & (2**32 - 1) for each in numbers]))


@given(st.lists(st.tuples(WHOLE, st.integers(0, ROWS_IN_64_BITS)), min_size=1, max_size=20))
@example([(2**62, ROWS_IN_64_BITS)] * 3)
def test_sums_are_those_of_whole_numbers(parts: list[tuple[int, int]]) -> None:
    total = RunningSum(ROWS_IN_64_BITS)
    fitting = [(number * rows // ROWS_IN_64_BITS, rows) for number, rows in parts]
    for number, rows in fitting:
        total.add(np.array([number]), rows)
    assert total.total().exact().tolist() == [sum(number for number, _ in fitting)]


@given(st.integers(-LARGEST, LARGEST), st.integers(-LARGEST, LARGEST), st.integers(0, 32))
def test_arithmetic_is_that_of_whole_numbers(one: int, other: int, bits: int) -> None:
    both = wide(one, other)
    assert both.exact().tolist() == [one, other]
    assert (both[:1] + both[1:]).exact().tolist() == [one + other]
    assert (both >> bits).exact().tolist() == [one >> bits, other >> bits]
    assert both.floats().tolist() == [float(one), float(other)]
    low = np.array([one >> 8])
    assert WideIntegers.of(low.copy()).narrow().tolist() == low.tolist()


@pytest.mark.parametrize("dimension", [1, 2, 64, 1000])
def test_the_largest_matrix_answers_exactly(dimension: int) -> None:
    """Of 2^31 rows of full length in one direction: what answers is as exact as for few rows."""
    largest = MAX_ROWS * 2 ** (2 * ROW_BITS)
    high = np.zeros((dimension, dimension), dtype=np.int64)
    high[0, 0] = largest >> 32
    held = GramMoments(WideIntegers(high, np.zeros_like(high)))
    column = np.zeros((dimension, 1))
    column[0] = 2**20 - 1
    assert int(held.product(column)[0, 0]) == (largest * (2**20 - 1)) >> moments.PRODUCT_SHIFT
    assert held.compressed(column).tolist() == [[largest * (2**20 - 1) ** 2]]
    assert held.trace() == largest
    assert int((held.gram() >> moments.SQUARE_SHIFT).narrow()[0, 0]) == largest >> moments.SQUARE_SHIFT


class LongRows:
    """As many rows as are allowed, all of full length. Their products are as large as they can be."""

    count = MAX_ROWS
    dimension = 1
    block_rows = 1
    gain_by_threads = True
    a_row: Any = np.array([[2**35 + 2**28, -(2**35)]])

    def __init__(self) -> None:
        self.most = 0

    def parts(self, *_: Any) -> Any:
        raise NotImplementedError

    def block(self, *_: Any) -> Any:
        raise NotImplementedError

    def products(self, span: tuple[int, int], basis: Any) -> Any:
        self.most = max(self.most, span[1] - span[0])
        return self.a_row * (span[1] - span[0])


@pytest.mark.parametrize("threads", [1, 3])
def test_products_of_the_most_rows_are_exact(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_sums, "SMALL_PRODUCT", 0)
    rows = LongRows()
    streamed = StreamedMoments(rows, threads)
    high, low = (MAX_ROWS * int(each) for each in LongRows.a_row[0])
    assert high > 2**65
    assert streamed.halves(np.ones((1, 1))).exact().tolist() == [[high, low]]
    whole = (high << products.LOW_BITS) + low
    assert streamed.product(np.ones((1, 1))).tolist() == [[whole >> moments.PRODUCT_SHIFT]]
    assert rows.most == -(-ROWS_IN_64_BITS // threads)


@pytest.mark.parametrize("rows_in_64_bits", [1, 5, 64])
@pytest.mark.parametrize("threads", [1, 3])
def test_carrying_changes_no_bit(rows_in_64_bits: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    integers = rng.integers(-(2**15), 2**15, (200, 6)).astype(np.int32)
    basis = np.rint(np.linalg.qr(rng.standard_normal((6, 2)))[0] * 2**20)
    forms = DenseRows(integers), SparseRows(scipy.sparse.csr_array(integers.astype(float)))
    expected = [
        (each.product(basis), each.compressed(basis), each.gram().exact(), each.trace())
        for each in (StreamedMoments(form, 1) for form in forms)
    ]
    monkeypatch.setattr(block_sums, "ROWS_IN_64_BITS", rows_in_64_bits)
    for module in (block_sums, products):
        monkeypatch.setattr(module, "EXACT_ROWS", min(rows_in_64_bits, 7))
    monkeypatch.setattr(moments, "SPARSE_BLOCKS", 3)
    for form, (product, compressed, gram, trace) in zip(forms, expected, strict=True):
        again = StreamedMoments(form, threads)
        assert (again.product(basis) == product).all()
        assert (again.compressed(basis) == compressed).all()
        assert (again.gram().exact() == gram).all()
        assert again.trace() == trace


@pytest.mark.parametrize(("kind", "shape"), [(Covariance, (600, 600)), (CovarianceTriangle, (180_300,))])
def test_answers_that_take_more_memory_than_allowed_are_refused(kind: type, shape: tuple[int, ...]) -> None:
    """What counts are the plan and the settings, and never the rows."""
    step: Any = SimpleNamespace(query=kind, shape=shape, extent=SimpleNamespace(dimension=600))
    for rows in (3, 500):
        held = check_rows(np.zeros((rows, 600)))
        Shard(held, 1.0, threads=2, memory=120 * 600**2).require_sums([step], 1)
        with pytest.raises(RefusedError, match=facts("memory_mebibytes")):
            Shard(held, 1.0, threads=2, memory=8 * 600**2).require_sums([step], 1)


def test_more_rows_than_can_be_added_up_are_refused_before_anything_is_paid() -> None:
    def shard(count: int) -> Shard:
        rows: Any = SimpleNamespace(count=count, dimension=2)
        return Shard(rows, 1.0)

    sketch: Any = SimpleNamespace(query=Sketch)
    shard(2**31).require_sums([], 2)
    shard(2**25).require_sums([], 128)
    shard(2**24).require_sums([sketch], 128)
    for count, plan, parties in ((2**25 + 1, [], 128), (2**30 + 1, [], 3), (2**24 + 1, [sketch], 1)):
        with pytest.raises(RefusedError):
            shard(count).require_sums(plan, parties)
