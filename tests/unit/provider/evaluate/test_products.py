"""Products of integer rows are exact, for any shape of table, however it is divided."""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.privacy import basis_gain
from dpspca.provider.evaluate import block_sums, products
from dpspca.provider.evaluate.moments import PRODUCT_SHIFT, DenseRows, StreamedMoments
from dpspca.provider.evaluate.products import EXACT_ROWS, ArrayBlock, Division, product_sums, split

pytestmark = pytest.mark.usefixtures("compiled_or_not")

ROW, COLUMN = 2**17, 2**20
"""The norms of the longest rows, and of the longest columns of a basis, but for their rounding."""
GAIN = 1 + 2.0**-8
"""More than ``basis_gain`` allows on top of that for a million columns and forty vectors."""
DIVISIONS = (Division(1, 1), Division(3, 5), Division(8, 64), Division(100, 2), Division(256, 256), Division(20, 9, 6))


def lengthened(numbers: NDArray[Any], norm: int, axis: int) -> NDArray[np.int64]:
    """Scale rows or columns to a norm, and cut them to integers. Zeros stay zeros."""
    norms = np.sqrt((numbers.astype(float) ** 2).sum(axis=axis, keepdims=True))
    return np.trunc(numbers * (norm / np.maximum(norms, 1e-300))).astype(np.int64)


def of_full_length(rng: np.random.Generator, count: int, dimension: int, columns: int) -> tuple[Any, Any]:
    """Draw rows and a basis of the largest norms: spread out, or with all of it in one place, in many directions."""
    rows = rng.standard_normal((count, dimension)) ** rng.choice([1, 3, 21])
    basis = rng.standard_normal((dimension, columns)) ** rng.choice([1, 3, 21])
    return lengthened(rows, ROW, 1), lengthened(basis, int(COLUMN * GAIN), 0)


def in_python(rows: Any, basis: Any) -> Any:
    """X^T X Q in Python's own integers."""
    whole = rows.astype(object)
    return whole.T @ (whole @ basis.astype(object))


def joined(sums: NDArray[np.int64], columns: int) -> Any:
    """Put both parts of sums together."""
    exact = sums.astype(object)
    return exact[:, :columns] * 2**19 + exact[:, columns:]


class Source:
    """Rows that count how many are read together."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows, self.dimension = rows.astype(np.int32), rows.shape[1]
        self.read: list[int] = []

    def opened(self, start: int, stop: int) -> ArrayBlock:
        self.read.append(stop - start)
        return ArrayBlock(self.rows[start:stop])


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 70),
    dimension=st.integers(1, 90),
    columns=st.integers(1, 9),
    threads=st.sampled_from([1, 2, 5]),
)
def test_products_are_the_floor_of_exact_sums(
    seed: int, count: int, dimension: int, columns: int, threads: int
) -> None:
    rows, basis = of_full_length(np.random.default_rng(seed), count, dimension, columns)
    answer = StreamedMoments(DenseRows(rows.astype(np.int32)), threads).product(basis.astype(float))
    assert (answer == in_python(rows, basis) >> PRODUCT_SHIFT).all()


@given(seed=st.integers(0, 2**32 - 1), division=st.sampled_from(DIVISIONS), columns=st.integers(1, 5))
def test_no_division_changes_a_bit(seed: int, division: Division, columns: int) -> None:
    rng = np.random.default_rng(seed)
    rows, basis = of_full_length(rng, int(rng.integers(0, 40)), int(rng.integers(1, 80)), columns)
    parts = product_sums(Source(rows), (0, len(rows)), basis.astype(float), division)
    assert (joined(reduce(add, parts), columns) == in_python(rows, basis)).all()


ODD_LOW = 2**19 + (2**18 - 1) * pow(ROW - 1, -1, 2**19) % 2**19
"""What makes every low part odd and as large as it can be, if every row is one below the bound."""


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("division", [Division(EXACT_ROWS, 2), Division(1000, 1)])
@pytest.mark.parametrize("entry", [ODD_LOW, int(COLUMN * GAIN)])
def test_the_largest_sums_are_exact(columns: int, division: Division, entry: int) -> None:
    """All rows alike, with all of their length in one column."""
    row, count = ROW - 1, 2 * EXACT_ROWS + 3
    rows = np.zeros((count, 2), dtype=np.int64)
    rows[:, 0] = row
    basis = np.array([[entry], [0]]) * np.ones(columns)
    parts = list(product_sums(Source(rows), (0, count), basis, division))
    assert (joined(reduce(add, parts), columns)[0] == count * row * row * entry).all()
    assert max(np.abs(part).max() for part in parts) < 2**50
    assert (ROW - 1) * ODD_LOW % 2**19 == 2**18 - 1


def test_a_basis_is_no_longer_than_the_widths_allow() -> None:
    assert basis_gain(10**6, 40) < GAIN


@given(st.lists(st.integers(-(2**38), 2**38), min_size=1), st.sampled_from([None, 2]))
def test_both_parts_make_up_the_whole(numbers: list[int], rows: int | None) -> None:
    image = np.array([numbers] * (rows or 1), dtype=float).T
    high, low = split(image)
    assert (high * 2.0**19 + low == image).all()
    assert np.abs(low).max() <= 2**18
    assert (high == np.rint(high)).all()


@pytest.mark.parametrize("dimension", [1, 7, 50, 1000, 12_000, 60_000, 100_000, 10**6])
@pytest.mark.parametrize("columns", [1, 2, 5, 20, 40, 300])
def test_blocks_fit_into_memory_and_are_read_in_order(dimension: int, columns: int) -> None:
    division, made = Division.of(dimension, columns), Division.of(dimension, columns, 2**21)
    assert (division.height or division.rows) * min(division.width, dimension) <= max(2**19, 8 * dimension)
    assert made.rows <= max(8, 2**21 // dimension)
    assert division.rows <= EXACT_ROWS
    assert min(division.width, dimension) == min(made.width, dimension)


def test_blocks_are_as_large_whatever_the_number_of_rows() -> None:
    """Only the last is smaller: no number of rows makes any other code run, or another division."""
    for count in (1, 99, 100, 101, 2500):
        source = Source(np.zeros((count, 3)))
        list(product_sums(source, (0, count), np.zeros((3, 2)), Division(100, 2)))
        assert source.read == [min(100, count - at) for at in range(0, count, 100)]


def patched(monkeypatch: pytest.MonkeyPatch, exact_rows: int) -> Callable[[Any, FloatArray], Any]:
    for module in (block_sums, products):
        monkeypatch.setattr(module, "EXACT_ROWS", exact_rows)
    return lambda rows, basis: StreamedMoments(DenseRows(rows.astype(np.int32)), 2).product(basis.astype(float))


@pytest.mark.parametrize("exact_rows", [1, 7, 100])
def test_sums_may_be_moved_to_64_bits_at_any_row(exact_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, basis = of_full_length(np.random.default_rng(5), 333, 21, 4)
    expected = in_python(rows, basis) >> PRODUCT_SHIFT
    assert (patched(monkeypatch, exact_rows)(rows, basis) == expected).all()
