"""A share of a symmetric matrix answers exactly, whatever its form, and refuses what is no such share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, InvalidQueryError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.matrix import (
    LARGEST_TOTAL,
    CappedProduct,
    EntryTotal,
    SpectralProduct,
    SymmetricProduct,
    largest_entry,
)
from dpspca.common.queries.rows import Count
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate import matrix_shard
from dpspca.provider.evaluate.matrix_shard import MatrixShard
from dpspca.server.jobs.sums import LARGEST_ANSWER

ENTRY, SPECTRAL = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL
BOUND = 3.0


def symmetric(dimension: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal((dimension, dimension)) * scale
    return made + made.T


def basis_of(dimension: int, columns: int = 2) -> np.ndarray:
    return thin_qr(np.random.default_rng(9).standard_normal((dimension, columns)))[0]


def shard(values: Any, unit: PrivacyUnit = ENTRY, bound: float = BOUND) -> MatrixShard:
    return MatrixShard(check_rows(values, least=1), bound, unit)


def sign_unchecked(values: np.ndarray, basis: np.ndarray, bound: float = BOUND) -> list[list[int]]:
    """The same in Python's integers: another reading of what the answer is."""
    limit = 2**30 * largest_entry(len(values))
    whole = [[max(-limit, min(limit, round(entry * (2**30 / bound)))) for entry in row] for row in values.tolist()]
    columns = [[round(entry * 2**20) for entry in column] for column in basis.T.tolist()]
    return [[sum(a * b for a, b in zip(row, column, strict=True)) >> 20 for column in columns] for row in whole]


@pytest.mark.parametrize("dimension", [1, 2, 7, 40, 130])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e4, 1e12])
def test_an_answer_is_the_floor_of_the_exact_product_in_every_form(dimension: int, scale: float) -> None:
    values, basis = symmetric(dimension, scale), basis_of(dimension, min(2, dimension))
    expected = sign_unchecked(values, basis)
    for form in (values, np.asfortranarray(values), scipy.sparse.csr_array(values), scipy.sparse.coo_array(values)):
        for query in (SymmetricProduct(basis), CappedProduct(basis, largest=1.0)):
            answer = shard(form).evaluate(query)
            assert answer.dtype == np.int64
            assert answer.tolist() == expected


def test_the_forms_agree_where_rows_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values, basis = symmetric(90), basis_of(90)
    expected = sign_unchecked(values, basis)
    monkeypatch.setattr(matrix_shard, "BLOCK_ENTRIES", 300)
    assert shard(values).evaluate(SymmetricProduct(basis)).tolist() == expected


@pytest.mark.parametrize("dimension", [1, 16, 256, 1024])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_allowed_entries_neither_overflow_nor_lose_bits(dimension: int, sign: int) -> None:
    """All entries at the limit, against the column that adds them all up."""
    values = np.full((dimension, dimension), sign * BOUND * largest_entry(dimension))
    basis = np.full((dimension, 1), dimension**-0.5)
    expected = sum(sign * 2**30 * largest_entry(dimension) * round(dimension**-0.5 * 2**20) for _ in range(dimension))
    for form in (values, scipy.sparse.csr_array(values)):
        for unit, query in ((ENTRY, SymmetricProduct), (SPECTRAL, SpectralProduct)):
            answer = shard(form, unit).evaluate(query(basis))
            assert set(answer.ravel().tolist()) == {expected >> 20}
            assert abs(expected >> 20) <= LARGEST_ANSWER // 2


def test_a_wide_sparse_matrix_of_the_largest_entries_is_exact_as_well() -> None:
    """A million columns, of which one row has an entry in every hundredth."""
    dimension, limit = 10**6, largest_entry(10**6) * BOUND
    places = np.arange(100, dimension, 100)
    row = scipy.sparse.coo_array((np.full(len(places), limit), (np.zeros_like(places), places)), (dimension, dimension))
    values = scipy.sparse.csr_array(row + row.T)
    basis = np.zeros((dimension, 1))
    basis[places] = len(places) ** -0.5
    answer = shard(values).evaluate(SymmetricProduct(basis))
    entry = round(len(places) ** -0.5 * 2**20)
    assert answer[0, 0] == (len(places) * largest_entry(dimension) * 2**30 * entry) >> 20
    assert np.count_nonzero(answer) == 1


def test_too_large_entries_are_cut_for_entry_and_refused_for_spectral() -> None:
    values = np.diag([BOUND * largest_entry(4) * 1.5, 1.0, 1.0, 1.0])
    cut = np.diag([BOUND * largest_entry(4), 1.0, 1.0, 1.0])
    for form in (np.array, scipy.sparse.csr_array):
        asked = SymmetricProduct(basis_of(4))
        assert (shard(form(values)).evaluate(asked) == shard(form(cut)).evaluate(asked)).all()
        with pytest.raises(InvalidDataError, match=facts(2**20, "norm_bound")):
            shard(form(values), SPECTRAL)
        shard(form(cut), SPECTRAL)


def test_bounds_and_entries_as_far_apart_as_can_be_are_dealt_with() -> None:
    huge = np.full((2, 2), 2.0**100)
    answer = shard(huge, bound=2.0**-100).evaluate(SymmetricProduct(np.eye(2)))
    assert (answer == largest_entry(2) * 2**30).all()
    assert not shard(huge * 2.0**-130, bound=2.0**100).evaluate(SymmetricProduct(np.eye(2))).any()


def test_the_total_sums_absolute_values_up_to_the_lattice_s_limit() -> None:
    values = np.array([[1.0, -2.0], [-2.0, 0.5]])
    for form in (values, scipy.sparse.csr_array(values)):
        assert shard(form, bound=1.0).evaluate(EntryTotal(2)).tolist() == [16 + 32 + 32 + 8]
        assert shard(form, bound=4.0).evaluate(EntryTotal(2)) * EntryTotal.unit_value(4.0) == np.abs(values).sum()
    many = np.full((600, 600), 2.0**90)
    assert shard(many, bound=1.0).evaluate(EntryTotal(600)).tolist() == [600 * 600 * largest_entry(600) * 16]
    assert LARGEST_TOTAL == 2**54


@dataclass(frozen=True)
class Full:
    """A matrix whose sum is too large; none that fits into a test's memory is."""

    def total(self) -> int:
        return 2**60


def test_a_sum_beyond_the_lattice_counts_as_its_end() -> None:
    made = shard(np.eye(2))
    made._made = Full()  # type: ignore[assignment]
    assert made.evaluate(EntryTotal(2)).tolist() == [LARGEST_TOTAL]


@pytest.mark.parametrize("form", [np.array, scipy.sparse.csr_array])
def test_a_matrix_that_is_not_symmetric_is_refused_with_a_reason(form: Any) -> None:
    with pytest.raises(InvalidDataError, match=facts("3 rows", "4 columns")):
        shard(form(np.ones((3, 4))))
    values = symmetric(5)
    values[1, 2] = np.nextafter(values[1, 2], 9.0)
    with pytest.raises(InvalidDataError, match=facts("(M + M.T) / 2")):
        shard(form(values))


def test_an_entry_stored_as_zero_is_not_an_entry() -> None:
    stored = scipy.sparse.csr_array((np.array([0.0, 1.0, 1.0]), (np.array([0, 1, 2]), np.array([2, 2, 1]))), (3, 3))
    assert stored.nnz == 3
    shard(stored)


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(4),
        "unit": ENTRY,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": BOUND,
        "components": 1,
        "method": "noisy-power",
    }
    return JobSpec(**good | changes)


def test_a_job_with_another_bound_width_or_unit_is_refused() -> None:
    made = shard(symmetric(4))
    made.check(spec())
    for changes in ({"norm_bound": 4.0}, {"unit": SPECTRAL}, {"unit": "row-replace-one"}):
        assert not made.fits(spec(**changes))
        with pytest.raises(InvalidParameterError, match=facts("norm_bound", *(str(each) for each in changes.values()))):
            made.check(spec(**changes))
    with pytest.raises(InvalidParameterError, match=facts("4 columns", 5)):
        made.check(spec(schema=Schema(5)))


def test_columns_that_are_called_otherwise_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    named = pandas.DataFrame(symmetric(2), columns=["a", "b"])
    made = shard(named)
    made.check(spec(schema=Schema.of(["a", "b"])))
    with pytest.raises(DpspcaError, match=facts("column 1")):
        made.check(spec(schema=Schema.of(["b", "a"])))


def test_a_query_over_rows_is_refused() -> None:
    made = shard(symmetric(4))
    with pytest.raises(InvalidQueryError, match=facts("'count'")):
        made.evaluate(Count())
    with pytest.raises(InvalidQueryError, match=facts("'count'")):
        made.release(Count(), None, KeyStream(bytes(32)))


def test_a_matrix_of_50_000_columns_is_never_made_dense() -> None:
    """A million stored entries; written out it would fill 20 gigabytes. Against floating point, to the rounding."""
    rng, dimension = np.random.default_rng(4), 50_000
    places = rng.integers(0, dimension, (2, 500_000))
    half = scipy.sparse.coo_array((rng.standard_normal(500_000), places), (dimension, dimension))
    values = scipy.sparse.csr_array(half + half.T)
    basis = basis_of(dimension)
    answer = shard(values).evaluate(SymmetricProduct(basis)) * SymmetricProduct.unit_value(BOUND)
    assert np.abs(answer - values @ basis).max() < 1e-4


def test_refusing_a_spectral_share_does_not_depend_on_the_job_s_bound() -> None:
    """Else jobs of one bound after another would tell the largest entry. The policy's least bound decides for all."""
    large = check_rows(np.diag([2.0**20 * 3, 1.0]), least=1)
    for bound in (2.0, 4.0, 1000.0):
        with pytest.raises(InvalidDataError, match=facts(2**20, "norm_bound")):
            MatrixShard(large, bound, SPECTRAL, 2.0)
        MatrixShard(large, bound + 2, SPECTRAL, 4.0)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_t04_entries_next_to_zero_are_zero_before_they_are_multiplied(form: Any) -> None:
    """Under the unit spectral, a neighbour may have such an entry wherever there is a zero."""
    with np.errstate(under="raise"):
        made = shard(form(np.full((4, 4), 1e-310)), SPECTRAL, 2.0**100)
    assert not made.evaluate(SpectralProduct(basis_of(4))).any()
