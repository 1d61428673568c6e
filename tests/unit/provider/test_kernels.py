"""Compiled kernels give the bits that numpy gives, whatever the sizes, and are used only where they can be."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.provider.data.checked import fingerprints, odd_rows, rows_or_zeros, usable_entries
from dpspca.provider.data.checked.fingerprints import of_table
from dpspca.provider.data.memory import row_words
from dpspca.provider.evaluate import compiled_products, integer_rows, moments
from dpspca.provider.evaluate.compiled_products import Tiles, compiled_sums
from dpspca.provider.evaluate.products import UNCOPIED, ArrayBlock, Division, integer_sums
from dpspca.provider.evaluate.wide_integers import WideIntegers
from dpspca.provider.kernels import SWITCH, forget, kernels, load

pytest.importorskip("numba")

SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True, scope="module")
def switched_on() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "on")
        forget()
        yield
    forget()


def module(name: str) -> Any:
    found = kernels(name)
    assert found is not None
    return found


class Source:
    def __init__(self, rows: Any) -> None:
        self.rows, self.dimension = rows, rows.shape[1]

    def opened(self, start: int, stop: int) -> ArrayBlock:
        return ArrayBlock(self.rows[start:stop])


def long_rows(rng: np.random.Generator, count: int, dimension: int) -> Any:
    """Draw integer rows of about the largest norm."""
    drawn = rng.standard_normal((count, dimension)) ** rng.choice([1, 3])
    return (drawn * (2**17 / np.linalg.norm(drawn, axis=1, keepdims=True))).astype(np.int32)


@given(SEEDS, st.integers(0, 70), st.integers(1, 150), st.integers(1, 9))
def test_products_have_the_same_bits(seed: int, count: int, dimension: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    rows = long_rows(rng, count, dimension)
    basis = np.rint(np.linalg.qr(rng.standard_normal((dimension + 9, columns)))[0][:dimension] * 2**20)
    expected = integer_sums(Source(rows), (0, count), basis, Division.of(dimension, columns))
    found = compiled_sums(
        module("passes"), lambda start, stop: rows[start:stop], (0, count), basis, int(rng.choice([7, 2**14]))
    )
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


@given(
    SEEDS, st.integers(1, 40), st.integers(1, 40), st.integers(2, 4),
    st.integers(1, 30), st.integers(1, 12), st.integers(1, 45),
)  # fmt: skip
def test_no_tiles_change_a_bit(
    seed: int, count: int, dimension: int, columns: int, block: int, height: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, basis = long_rows(rng, count, dimension), rng.integers(-(2**15), 2**15, (dimension, columns)).astype(float)
    image = rows.astype(np.int64) @ basis.astype(np.int64)
    high = np.rint(image / 2**19).astype(np.int64)
    expected = rows.astype(np.int64).T @ np.hstack([high, image - high * 2**19])
    sums = np.zeros((dimension, 2 * columns))
    module("passes").add_products(rows, basis, sums, block, min(height, block), width)
    assert np.array_equal(sums.astype(np.int64), expected)


@pytest.mark.parametrize("columns", [1, 2, 5, 20, 40, 300])
@pytest.mark.parametrize("dimension", [1, 50, 1000, 1025, 60_000, 10**6])
@pytest.mark.parametrize("always_copied", [False, True])
def test_tiles_fit_into_a_cache(dimension: int, columns: int, *, always_copied: bool) -> None:
    tiles = Tiles.of(dimension, columns, always_copied=always_copied)
    assert 1 <= tiles.height <= tiles.block
    assert tiles.height * tiles.width <= 2**19


@pytest.mark.parametrize(("processor", "copied"), [("Haswell", True), ("Zen", True), ("SkylakeX", False)])
def test_wide_tiles_fit_the_processor(processor: str, *, copied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    libraries = [{"user_api": "blas", "architecture": processor}, {"user_api": "openmp"}]
    monkeypatch.setattr(compiled_products, "threadpool_info", lambda: libraries)
    assert compiled_products.blas_copies_always.__wrapped__() is copied
    small = Tiles.of(60_000, 40, always_copied=False)
    assert 2 * 40 * small.height * small.width <= UNCOPIED
    assert Tiles.of(60_000, 40, always_copied=True).height > small.height


@pytest.mark.parametrize("columns", [1, 3])
def test_the_largest_sums_are_exact(columns: int) -> None:
    """More rows than one float holds the sum of, all alike, with all of their length in one column."""
    row, count, entry = 2**17 - 1, 3 * 2**14 + 5, 2**20 + 2**12 - 1
    rows = np.full((count, 1), row, dtype=np.int32)
    basis = np.full((1, columns), float(entry))
    sums = compiled_sums(module("passes"), lambda start, stop: rows[start:stop], (0, count), basis, 5000)
    high, low = sums.astype(object)[0, :columns], sums.astype(object)[0, columns:]
    assert (high * 2**19 + low == count * row * row * entry).all()


WIDE = st.lists(st.integers(-(2**61), 2**61), min_size=4, max_size=4)


@given(one=WIDE, other=WIDE, wide=st.booleans(), more=st.booleans())
def test_wide_integers_add_up_to_the_same_bits(one: list[int], other: list[int], *, wide: bool, more: bool) -> None:
    def made(numbers: list[int], *, carried: bool) -> WideIntegers:
        low = np.array(numbers).reshape(2, 2)
        return WideIntegers.of(low, np.full((2, 2), 5) if carried else None)

    total = made(one, carried=wide)
    total += made(other, carried=more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpspca.provider.evaluate.wide_integers.kernels", lambda _: None)
        expected = made(one, carried=wide)
        expected += made(other, carried=more)
    assert np.array_equal(total.low, expected.low)
    assert np.array_equal(total.high, expected.high)


@given(numbers=WIDE, wide=st.booleans())
def test_floors_have_the_same_bits(numbers: list[int], *, wide: bool) -> None:
    def halves() -> WideIntegers:
        return WideIntegers.of(np.array(numbers).reshape(2, 2) >> 8, np.full((2, 2), -3) if wide else None)

    found = moments.floor_product(halves())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "kernels", lambda _: None)
        assert np.array_equal(found, moments.floor_product(halves()))


@given(SEEDS, st.integers(0, 40), st.integers(1, 60))
def test_hashes_have_the_same_bits(seed: int, count: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    scales = rng.choice([0.0, -0.0, 1e-310, 1e-42, 1.0, 1e30, 1e300], (count, dimension))
    numbers, blank = rng.standard_normal((count, dimension)) * scales, rng.random(count) < 0.2
    labels, places = row_words.labels_of(np.arange(dimension)), row_words.labels_of(np.arange(dimension))[:, 0].copy()
    with np.errstate(over="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_words, "kernels", lambda _: None)
        first = row_words.FirstPass(dimension)
        first.add(numbers, blank)
        words = row_words.WordMaker()(numbers)
    compiled, totals, keys = module("words"), np.zeros(2, dtype=np.uint64), np.zeros(dimension, dtype=np.uint64)
    compiled.add_first_sums(numbers, blank, labels, totals, keys)
    assert np.array_equal(totals, first.sums.totals)
    assert np.array_equal(keys, first.sums.keys)
    totals[:], keys[:] = 0, 0
    compiled.add_row_totals(numbers, blank, labels, totals)
    compiled.add_column_keys(numbers, blank, places, keys)
    assert np.array_equal(totals, row_words.row_totals(words, labels, blank))
    assert np.array_equal(keys, row_words.column_keys(words, places, blank))


@given(SEEDS, st.integers(0, 40), st.integers(1, 60))
def test_hashes_of_sparse_rows_have_the_same_bits(seed: int, count: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.csr_array(rng.standard_normal((count, dimension)) * (rng.random((count, dimension)) < 0.3))
    rows.data[::3] = 0.0  # zeros that are stored do not count
    found = of_table(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprints, "kernels", lambda _: None)
        assert of_table(rows) == found
        assert of_table(rows.toarray()) == found


@given(SEEDS, st.integers(0, 40), st.integers(1, 60))
def test_usable_numbers_have_the_same_bits(seed: int, count: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    odd = rng.choice([np.nan, np.inf, -np.inf, 1e301, -1e101, 1e-320, -0.0, 0.0], (count, dimension))
    numbers = np.where(rng.random((count, dimension)) < 0.1, odd, rng.standard_normal((count, dimension)))
    usable, blank = usable_entries(numbers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(odd_rows, "kernels", lambda _: None)
        expected, marked = usable_entries(numbers)
    assert np.array_equal(usable.view(np.int64), expected.view(np.int64))
    assert np.array_equal(blank, marked)


@given(SEEDS, st.integers(0, 40), st.integers(1, 30), st.sampled_from([np.int32, np.int64]))
def test_usable_sparse_rows_have_the_same_bits(seed: int, count: int, dimension: int, kind: type) -> None:
    rng = np.random.default_rng(seed)
    rows = scipy.sparse.csr_array(rng.standard_normal((count, dimension)) * (rng.random((count, dimension)) < 0.3))
    rows.data[rng.random(rows.nnz) < 0.1] = rng.choice([np.nan, np.inf, -1e300, -0.0])
    rows.indices, rows.indptr = rows.indices.astype(kind), rows.indptr.astype(kind)
    found = rows_or_zeros(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(odd_rows, "kernels", lambda _: None)
        expected = rows_or_zeros(rows)
    assert np.array_equal(found.matrix.data.view(np.int64), expected.matrix.data.view(np.int64))
    assert (found.unusable is None) == (expected.unusable is None)
    if found.unusable is not None and expected.unusable is not None:
        assert found.unusable.count == expected.unusable.count
        assert np.array_equal(found.unusable.places, expected.unusable.places)
        assert np.array_equal(found.unusable.entries, expected.unusable.entries)


@given(SEEDS, st.integers(0, 40), st.one_of(st.integers(1, 300), st.integers(1, 3000)), st.sampled_from([1e-20, 1, 9]))
def test_integers_have_the_same_bits(seed: int, count: int, dimension: int, bound: float) -> None:
    """Also of rows that are rounded twice, because they are just as long as the bound, and of odd ones."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1e-50, 1e-3, 1.0, 1e30, 1e180], (count, 1))
    rows = rng.standard_normal((count, dimension)) * sizes * rng.choice([1, 1e-14, -0.0], (count, dimension))
    rows[rng.random((count, dimension)) < 0.2 / dimension] = rng.choice([np.nan, np.inf])
    columns = np.sort(rng.permutation(dimension)[: rng.integers(1, dimension + 1)])

    def made() -> list[Any]:
        with np.errstate(all="ignore"):
            center = np.linspace(-1, 1, dimension)
            whole = [integer_rows.integer_rows(rows, bound), integer_rows.integer_rows(rows, bound, center)]
            return [*whole, integer_rows.integer_columns(rows, columns, (bound, bound / 2))]

    found = made()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integer_rows, "kernels", lambda _: None)
        assert all(map(np.array_equal, found, made()))


def test_all_kernels_load() -> None:
    assert load()


def in_a_process(code: str, folder: Path, **variables: str) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    done = subprocess.run(  # noqa: S603  # this Python
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


LOADED = "from dpspca.provider.kernels import load; print(load())"


def test_kernels_are_not_used_where_they_are_switched_off(tmp_path: Path) -> None:
    assert in_a_process(LOADED, tmp_path, **{SWITCH: "off"}) == "False"


def test_without_numba_numpy_does_the_work(tmp_path: Path) -> None:
    code = f"import sys; sys.modules['numba'] = None; {LOADED}"
    assert in_a_process(code, tmp_path, **{SWITCH: "on"}) == "False"


def test_a_kernel_that_cannot_be_loaded_stops_nothing(tmp_path: Path) -> None:
    code = f"""
import llvmlite.binding, builtins
plain = builtins.__import__
def broken(name, *more):
    if name.startswith("numba"):
        raise OSError("Could not find or load shared library 'libllvmlite.so'.")
    return plain(name, *more)
builtins.__import__ = broken
import importlib
importlib.import_module = broken
{LOADED}
"""
    assert in_a_process(code, tmp_path, **{SWITCH: "on"}) == "False"


def test_shapes_that_do_not_fit_are_refused_before_a_kernel_sees_them() -> None:
    rows, basis = np.zeros((5, 3), dtype=np.int32), np.zeros((4, 2))
    for columns in (2, 1):
        with pytest.raises(ValueError, match=facts(3, 4)):
            compiled_sums(module("passes"), lambda start, stop: rows[start:stop], (0, 5), basis[:, :columns])
    total = WideIntegers.of(np.zeros((2, 3), dtype=np.int64))
    with pytest.raises(ValueError, match=facts("(2,3)")):
        total += WideIntegers.of(np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(ValueError, match=facts(2, 3)):
        row_words.FirstPass(3).add(np.zeros((4, 2)), np.zeros(4, dtype=np.bool_))


@pytest.mark.slow
@pytest.mark.parametrize(
    "problem", ["caching.CacheImpl._locator_classes = []", "caching.IndexDataCacheFile._load_index = lambda _: 1 / 0"]
)
def test_kernels_are_compiled_where_nothing_can_be_kept(problem: str, tmp_path: Path) -> None:
    """As in a container that is read-only, whose user has no folder, or with damaged files."""
    code = f"""
import numba.core.caching as caching
{problem}
{LOADED}
"""
    assert in_a_process(code, tmp_path, **{SWITCH: "on"}) == "True"
