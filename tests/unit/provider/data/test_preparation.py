"""Integer rows never exceed the bound, depend on their own row alone, and bad rows are refused before any job."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidTypeError
from dpspca.common.job import Schema
from dpspca.provider.data.checked.largest_entries import with_largest_entries
from dpspca.provider.data.checked.preparation import check_rows, check_size
from dpspca.provider.evaluate.integer_rows import (
    integer_columns,
    integer_csr,
    integer_csr_columns,
    integer_rows,
    row_norms,
)

BOUND = 2**17


def norms_in_python(rows: np.ndarray) -> list[int]:
    """Squared norms in Python's own integers."""
    return [sum(int(entry) ** 2 for entry in row) for row in rows]


@given(
    seed=st.integers(0, 2**32 - 1),
    dimension=st.integers(1, 40),
    scale=st.sampled_from([1e-140, 1e-9, 1e-3, 1.0, 1e3, 1e29]),
    norm_bound=st.sampled_from([1e-6, 0.37, 1.0, 74.2, 1e9]),
)
def test_no_integer_row_is_longer_than_the_bound(seed: int, dimension: int, scale: float, norm_bound: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((20, dimension)) * scale
    rows[:5] *= norm_bound / np.linalg.norm(rows[:5], axis=1, keepdims=True)
    assert max(norms_in_python(integer_rows(rows, norm_bound))) <= BOUND**2


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 100, 1000])
def test_a_row_of_exactly_the_bound_keeps_its_length(dimension: int) -> None:
    row = np.zeros((2, dimension))
    row[0, 0], row[1] = 2.5, 2.5 / np.sqrt(dimension)
    whole = integer_rows(row, 2.5)
    assert norms_in_python(whole)[0] == BOUND**2
    assert 0.99 * BOUND**2 < norms_in_python(whole)[1] <= BOUND**2


def test_rounding_to_nearest_is_kept_where_the_bound_allows_it() -> None:
    rows = np.array([[0.6, -0.6, 0.3], [0.4, 1.4, -1.6]]) / BOUND
    assert integer_rows(rows, 1.0).tolist() == [[1, -1, 0], [0, 1, -2]]


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 33))
def test_t19_an_integer_row_does_not_depend_on_where_it_lies(seed: int, dimension: int) -> None:
    """Were it otherwise, removing one row could change the others' rounding, and with it the sensitivity."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((300, dimension)) * 3
    whole = integer_rows(rows, 2.0)
    kept = np.sort(rng.choice(300, 117, replace=False))
    assert (integer_rows(rows[kept], 2.0) == whole[kept]).all()
    shuffled = rng.permutation(300)
    assert (integer_rows(rows[shuffled], 2.0) == whole[shuffled]).all()


@given(seed=st.integers(0, 2**32 - 1), norm_bound=st.sampled_from([0.5, 3.0, 100.0]))
def test_sparse_rows_are_rounded_as_dense_ones(seed: int, norm_bound: float) -> None:
    rng = np.random.default_rng(seed)
    sparse = scipy.sparse.random_array((50, 30), density=0.1, rng=rng, format="csr")
    from_sparse = integer_csr(sparse, norm_bound).toarray()
    from_dense = integer_rows(sparse.toarray(), norm_bound)
    # The norm may be summed in another order: a unit's difference, never a longer row.
    assert np.abs(from_sparse - from_dense).max() <= 1
    assert max(norms_in_python(from_sparse)) <= BOUND**2


def test_duplicates_in_sparse_rows_are_summed_before_the_norm_is_taken() -> None:
    doubled = scipy.sparse.csr_array((np.array([3.0, 3.0]), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 3))
    rows = check_rows(doubled).matrix
    assert isinstance(rows, scipy.sparse.csr_array)
    assert integer_csr(rows, 6.0).toarray().tolist() == [[0, BOUND, 0], [0, 0, 0]]


def test_duplicates_of_a_small_type_are_summed_without_overflow() -> None:
    places = (np.array([0, 0]), np.array([1, 1]))
    for kind, value in ((np.uint8, 200), (np.int8, 100)):
        doubled = scipy.sparse.coo_array((np.array([value, value], dtype=kind), places), shape=(2, 3))
        assert check_rows(doubled).matrix.toarray().tolist() == [[0, 2 * value, 0], [0, 0, 0]]


def test_duplicates_that_are_too_long_together_are_shortened_together() -> None:
    """One by one each is within the bound, and they point the same way."""
    doubled = scipy.sparse.csr_array((np.array([4.0, 4.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    rows = check_rows(doubled, least=1).matrix
    assert isinstance(rows, scipy.sparse.csr_array)
    assert integer_csr(rows, 4.0).toarray().tolist() == [[0, BOUND, 0]]


def test_the_caller_s_sparse_rows_are_left_alone() -> None:
    doubled = scipy.sparse.csr_array((np.array([3.0, 3.0]), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 3))
    check_rows(doubled)
    assert doubled.nnz == 2


def test_a_centre_is_subtracted_before_the_row_is_clipped() -> None:
    rows = np.array([[11.0, 0.0], [10.0, 1.0]])
    assert integer_rows(rows, 1.0, np.array([10.0, 0.0])).tolist() == [[BOUND, 0], [0, BOUND]]


BAD_ROWS: list[tuple[str, Any, type[DpspcaError], Any]] = [
    ("nan", np.array([[1.0, np.nan], [0.0, 1.0]]), InvalidDataError, "NaN"),
    ("infinity", np.array([[1.0, np.inf], [0.0, 1.0]]), InvalidDataError, "infinity"),
    ("no rows", np.empty((0, 3)), InvalidDataError, "0 sample(s)"),
    ("no columns", np.empty((3, 0)), InvalidDataError, "(3, 0)"),
    ("one row", np.ones((1, 3)), InvalidDataError, "n_samples = 1"),
    ("one dimension", np.ones(3), InvalidDataError, "1D"),
    ("three dimensions", np.ones((2, 2, 2)), InvalidDataError, "3D"),
    ("text", np.array([["a", "b"], ["c", "d"]]), InvalidTypeError, "<U1"),
    ("objects", np.array([[object(), 1], [2, 3]], dtype=object), InvalidTypeError, "Python"),
    ("complex", np.ones((2, 2)) * 1j, InvalidDataError, "Complex"),
    ("dates", np.array([["2020-01-01"], ["2021-01-01"]], dtype="datetime64[D]"), InvalidTypeError, "datetime64[D]"),
    ("too large", np.full((2, 2), 1e300), InvalidDataError, "1e+30"),
    ("wrong width", np.ones((2, 4)), InvalidDataError, ("4 columns", 3)),
    ("sparse nan", scipy.sparse.csr_array([[np.nan, 0, 0], [1.0, 0, 0]]), InvalidDataError, "NaN"),
    ("sparse one row", scipy.sparse.csr_array([[1.0, 0, 0]]), InvalidDataError, "n_samples = 1"),
    ("sparse complex", scipy.sparse.csr_array([[1j, 0, 0], [1, 0, 0]]), InvalidDataError, "Complex"),
]


@pytest.mark.parametrize(
    ("rows", "kind", "reason"), [case[1:] for case in BAD_ROWS], ids=[case[0] for case in BAD_ROWS]
)
def test_rows_that_cannot_be_used_are_refused(rows: Any, kind: type[DpspcaError], reason: Any) -> None:
    schema = Schema(3) if rows.ndim == 2 and rows.shape[1] in {3, 4} else None
    with pytest.raises(kind, match=facts(reason)) as caught:
        check_rows(rows, schema)
    assert caught.value.remedy


def test_more_rows_than_the_lattice_has_room_for_are_refused() -> None:
    check_size(2**31, 1, least=2)
    with pytest.raises(DpspcaError, match=facts(2**31 + 1, 2**31)):
        check_size(2**31 + 1, 1, least=2)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.float16, np.float32, bool])
def test_every_numeric_type_is_taken(kind: type) -> None:
    assert check_rows(np.ones((2, 2), dtype=kind)).matrix.dtype == np.float64


def test_constant_columns_are_rows_like_any_other() -> None:
    assert check_rows(np.zeros((5, 3))).count == 5
    assert not integer_rows(np.zeros((5, 3)), 1.0).any()


def test_t16_rows_spoiled_after_they_were_checked_still_keep_the_bound() -> None:
    """The bound rests on nothing that happened before: not on the check, not on the rows staying as they were."""
    rows = np.ones((4, 3))
    checked = check_rows(rows).matrix
    checked[1, 1], checked[2, 0], checked[3, 2] = np.nan, np.inf, 1e200
    with np.errstate(all="ignore"):
        whole = integer_rows(checked, 2.0)
    assert max(norms_in_python(whole)) <= BOUND**2
    assert not whole[1].any()
    sparse = scipy.sparse.csr_array(checked)
    with np.errstate(all="ignore"):
        assert np.abs(integer_csr(sparse, 2.0).toarray()).max() <= BOUND


def test_t04_subnormal_entries_are_zero_before_any_product() -> None:
    tiny = np.array([[5e-324, 1.0], [1e-160, 0.0]])
    assert integer_rows(tiny, 1.0).tolist() == [[0, BOUND], [0, 0]]
    assert integer_rows(tiny, 1.0, np.array([1e-160, 0.0])).tolist() == [[0, BOUND], [0, 0]]


@pytest.mark.parametrize("speck", [5e-324, 1e-310, 1e-160])
def test_no_subnormal_number_occurs_in_any_operation(speck: float) -> None:
    rows = np.array([[speck, 1.0], [-speck, 0.5]])
    with np.errstate(under="raise"):
        for scales in (None, np.full(2, 2.0**60)):
            integer_rows(rows, 1.0, None, scales)
            for bounds in ((1.0, 1.0), (1.0, 2.0**-80)):
                integer_columns(rows, np.arange(2), bounds, None, scales)
        stored = scipy.sparse.csr_array(rows)
        integer_csr(stored, 1.0)
        integer_csr_columns(stored, np.arange(2), (1.0, 2.0**-80))


def test_t16_rows_that_differ_in_anything_have_another_digest() -> None:
    rows = np.arange(12.0).reshape(4, 3)
    changed = rows.copy()
    changed[3, 2] = np.nextafter(changed[3, 2], 99)
    sparse = scipy.sparse.csr_array(rows)
    kinds = [
        check_rows(rows),
        check_rows(changed),
        check_rows(rows[::-1]),
        check_rows(rows[:3]),
        check_rows(rows.reshape(3, 4)),
        check_rows(sparse),
        check_rows(sparse[::-1]),
        replace(check_rows(rows), names=("a", "b", "c")),
        replace(check_rows(rows), names=("a", "bc", "")),
    ]
    assert len({each.digest() for each in kinds}) == len(kinds)
    assert check_rows(rows.copy(order="F")).digest() == check_rows(rows).digest()


@pytest.mark.parametrize("sparse", [False, True])
def test_norms_are_those_of_the_rows(sparse: bool) -> None:
    values = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [2.0**-250, 0.0, 2.0**-300], [2.0**99, 2.0**99, 0.0]])
    norms = row_norms(scipy.sparse.csr_array(values) if sparse else values)
    assert norms == pytest.approx([5.0, 0.0, 0.0, 2.0**99.5])


# --- A bound on the entries of a row ----------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), most=st.integers(1, 6))
def test_the_largest_entries_of_each_row_are_kept_sparse_or_dense(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, (8, 5)).astype(float)
    dense = with_largest_entries(check_rows(values), most).matrix
    sparse = with_largest_entries(check_rows(scipy.sparse.csr_array(values)), most).matrix
    assert isinstance(dense, np.ndarray)
    assert isinstance(sparse, scipy.sparse.csr_array)
    assert (sparse.toarray() == dense).all()
    assert np.diff(sparse.indptr).max() <= most
    for row, kept in zip(values, dense, strict=True):
        left = np.flatnonzero(kept)
        out = np.flatnonzero((row != 0) & (kept == 0))
        assert len(left) == min(most, np.count_nonzero(row))
        assert (kept[left] == row[left]).all()
        assert np.abs(row[out]).max(initial=0) <= np.abs(kept[left]).min(initial=9)


@given(seed=st.integers(0, 2**32 - 1))
def test_which_entries_are_kept_depends_on_their_own_row_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 4, (8, 5)).astype(float)
    order = rng.permutation(8)[:5]
    kept, alone = (with_largest_entries(check_rows(part), 2).matrix for part in (values, values[order]))
    assert (kept[order] == alone).all()


ROWS_TO_CUT = np.array([[1.0, 2.0, 3.0], [1.0, 0.0, 0.0]])


def test_rows_are_not_cut_where_they_are() -> None:
    for given_rows in (ROWS_TO_CUT.copy(), scipy.sparse.csr_array(ROWS_TO_CUT)):
        checked = check_rows(given_rows)
        with_largest_entries(checked, 1)
        assert checked.entries == 4


def test_rows_have_one_name_however_many_of_their_entries_count() -> None:
    for given_rows in (ROWS_TO_CUT.copy(), scipy.sparse.csr_array(ROWS_TO_CUT)):
        checked = check_rows(given_rows)
        cut = with_largest_entries(checked, 1)
        assert cut.fingerprints() == checked.fingerprints()
        assert cut.digest() != checked.digest()


def test_rows_of_persons_are_copied_whoever_has_how_many() -> None:
    """A copy is what takes time: whether there is one must not depend on whether somebody has more rows than m."""
    for persons in ([0, 1, 2], [0, 0, 1]):
        rows = replace(check_rows(np.eye(3)), persons=np.array(persons))
        assert rows.bounded(1).matrix is not rows.matrix
        assert not np.shares_memory(rows.bounded(2).matrix, rows.matrix)
