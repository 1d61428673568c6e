"""A query that exists is well formed; everything else is refused with the reason."""

import itertools
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.common.errors import InvalidParameterError, InvalidQueryError, NotCanonicalQueryError
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent, Query, RowSparse
from dpspca.common.queries.matrix import SpectralProduct, SymmetricProduct
from dpspca.common.queries.rows import (
    ColumnSums,
    CompressedCovariance,
    Count,
    Covariance,
    CovarianceProduct,
)

IDENTITY = np.eye(4)[:, :2]
WITH_BASIS = [CovarianceProduct, CompressedCovariance, SymmetricProduct, SpectralProduct]
MEASURE = "||Q^T Q - I||"
NOT_FINITE = [np.nan, -np.nan, np.inf, -np.inf, np.frombuffer(b"\x01\0\0\0\0\0\xf0\x7f", "<f8")[0]]


@pytest.mark.parametrize("query", WITH_BASIS)
@pytest.mark.parametrize("value", NOT_FINITE)
def test_t03_a_value_that_is_not_finite_is_refused(query: type, value: float) -> None:
    spoiled = IDENTITY.copy()
    spoiled[1, 1] = value
    with pytest.raises(InvalidQueryError, match=facts("NaN")):
        query(spoiled)


@pytest.mark.parametrize("query", WITH_BASIS)
@pytest.mark.parametrize("scale", [1.0001, 0.9999, 1e6, 1e300, 0.0, 1e-300])
def test_t01_a_basis_of_another_length_is_refused(query: type, scale: float) -> None:
    with pytest.raises(InvalidQueryError, match=facts(MEASURE)):
        query(IDENTITY * scale)


@pytest.mark.parametrize("query", WITH_BASIS)
@pytest.mark.parametrize("columns", range(2, 51))
def test_t02_equal_unit_columns_are_refused(query: type, columns: int) -> None:
    basis = np.zeros((60, columns))
    basis[3] = 1.0
    with pytest.raises(InvalidQueryError, match=facts(MEASURE)):
        query(basis)


@pytest.mark.parametrize("query", WITH_BASIS)
def test_rounding_in_an_honest_basis_is_tolerated(query: type) -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((5000, 20)))
    assert query(basis * (1 + 1e-10)).basis.shape == (5000, 20)


@pytest.mark.parametrize("query", WITH_BASIS)
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.ones(3), "(3,)"),
        (np.ones((2, 2, 2)), "(2, 2, 2)"),
        (np.ones((0, 2)), "(0, 2)"),
        (np.ones((2, 0)), "(2, 0)"),
        (np.eye(2) * 1j, "complex128"),
        (np.array([["a", "b"]]), "<U1"),
        (np.array([[object()]]), "object"),
    ],
)
def test_an_array_that_is_not_a_real_matrix_is_refused(query: type, values: np.ndarray, reason: str) -> None:
    with pytest.raises(InvalidQueryError, match=facts(reason)):
        query(values)


def test_more_columns_than_dimensions_are_refused() -> None:
    with pytest.raises(InvalidQueryError, match=facts(3, 2)):
        CovarianceProduct(np.ones((2, 3)))


@pytest.mark.parametrize("query", [ColumnSums, Covariance])
def test_a_dimension_below_one_is_refused(query: type) -> None:
    with pytest.raises(InvalidQueryError, match=facts(0, 1)):
        query(0)


@pytest.mark.parametrize(
    ("center", "reason"), [(np.ones(3), "(3,)"), (np.ones((4, 1)), "(4, 1)"), ([1, 2, 3, np.nan], "NaN")]
)
def test_a_centre_that_does_not_fit_is_refused(center: object, reason: str) -> None:
    for make in (lambda: CovarianceProduct(IDENTITY, center), lambda: Covariance(4, center)):
        with pytest.raises(InvalidQueryError, match=facts(reason)):
            make()


def test_a_query_cannot_be_changed_from_outside() -> None:
    values = IDENTITY.copy()
    query = CovarianceProduct(values)
    values[0, 0] = 100
    assert query.basis[0, 0] == 1
    with pytest.raises(ValueError, match=facts("read-only")):
        query.basis[0, 0] = 100


def rows_of(places: list[int], rows: np.ndarray, dimension: int = 4) -> RowSparse:
    return RowSparse(dimension, np.array(places, dtype=np.intp), np.array(rows, dtype=np.float64))


@pytest.mark.parametrize("query", [CovarianceProduct, CompressedCovariance])
def test_a_basis_given_by_its_rows_is_the_same_query_as_the_whole_basis(query: type) -> None:
    whole = np.zeros((6, 2))
    whole[[1, 4]] = [[0.6, 0.8], [-0.8, 0.6]]
    given = query(rows_of([1, 4], whole[[1, 4]], 6))
    assert given == query(whole)
    assert given.extent == Extent(6, 2, 2)
    assert (given.basis == whole).all()


def test_rows_that_were_given_can_not_be_changed_from_outside() -> None:
    rows = np.eye(2)
    query = CovarianceProduct(RowSparse(4, np.arange(2), rows))
    for array in (rows, query.kept.support, query.basis):
        with pytest.raises(ValueError, match=facts("read-only")):
            array[0] = 100


@pytest.mark.parametrize(
    ("places", "rows", "kind", "reason"),
    [
        ([1, 0], np.eye(2), NotCanonicalQueryError, 4),
        ([1, 1], np.eye(2), NotCanonicalQueryError, 4),
        ([-1, 1], np.eye(2), NotCanonicalQueryError, 4),
        ([1, 4], np.eye(2), NotCanonicalQueryError, 4),
        ([1], np.eye(2), NotCanonicalQueryError, ("(2, 2)", 1)),
        ([0, 1, 2], np.eye(2), NotCanonicalQueryError, ("(2, 2)", 3)),
        ([0, 1, 2], np.eye(3)[:, :2], NotCanonicalQueryError, ("(3, 2)", 3)),
        ([0, 1], np.eye(2) * 2, InvalidQueryError, MEASURE),
        ([0, 1], [[1.0, np.inf], [0.0, 1.0]], InvalidQueryError, "NaN"),
        ([0, 1], [[1.0, np.nan], [0.0, 1.0]], InvalidQueryError, "NaN"),
        ([0, 1], np.ones((2, 5)), InvalidQueryError, (5, 4)),
        ([], np.ones((0, 2)), InvalidQueryError, MEASURE),
    ],
)
def test_rows_that_are_not_a_basis_in_canonical_form_are_refused(
    places: list[int], rows: np.ndarray, kind: type[InvalidQueryError], reason: Any
) -> None:
    with pytest.raises(kind, match=facts(reason)):
        CovarianceProduct(rows_of(places, rows))


QUERIES: list[Query] = [
    Count(),
    ColumnSums(4),
    ColumnSums(5),
    Covariance(4),
    Covariance(4, np.ones(4)),
    CovarianceProduct(IDENTITY),
    CovarianceProduct(-IDENTITY),
    CovarianceProduct(IDENTITY[:, ::-1]),
    CovarianceProduct(IDENTITY, np.ones(4)),
    CompressedCovariance(IDENTITY),
    SymmetricProduct(IDENTITY),
    SpectralProduct(IDENTITY),
]


def test_queries_of_different_content_have_different_digests() -> None:
    assert len({query.digest() for query in QUERIES}) == len(QUERIES)
    assert all(first != second for first, second in itertools.combinations(QUERIES, 2))


def test_queries_of_equal_content_are_equal() -> None:
    assert CovarianceProduct(IDENTITY) == CovarianceProduct(np.asfortranarray(IDENTITY))
    assert hash(Count()) == hash(Count())


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.kind)
def test_a_query_is_priced_for_its_own_units_only(query: Query) -> None:
    for unit in PrivacyUnit:
        if unit in query.units:
            assert query.sensitivity(unit) >= 0
        else:
            with pytest.raises(InvalidParameterError, match=facts(f"'{query.kind}'", f"'{unit}'")):
                query.sensitivity(unit)


def test_the_laplace_price_of_a_spectral_product_needs_the_spectral_unit() -> None:
    with pytest.raises(InvalidParameterError, match=facts("'spectral-product'", "'entry'", "spectral")):
        SpectralProduct.lattice_l1_sensitivity(PrivacyUnit.ENTRY, Extent(4, 2, 4))


def test_the_number_of_rows_is_public_when_rows_are_replaced() -> None:
    assert Count().sensitivity(PrivacyUnit.ROW_REPLACE_ONE) == 0


def test_an_extent_counts_rows_that_are_not_exactly_zero() -> None:
    assert CovarianceProduct(IDENTITY).extent == Extent(4, 2, 2)
    tilted = IDENTITY.copy()
    tilted[3, 0] = 1e-300
    assert CovarianceProduct(tilted).extent.nonzero_rows == 3


def test_an_extent_covers_smaller_ones_of_its_own_shape() -> None:
    assert Extent(10, 2, 5).covers(Extent(10, 2, 4))
    assert not Extent(10, 2, 5).covers(Extent(10, 2, 6))
    assert not Extent(10, 2, 5).covers(Extent(10, 3, 4))
    assert not Extent(10, 2, 5).covers(Extent(11, 2, 4))


def test_a_count_is_in_ones_whatever_the_bound_on_the_rows() -> None:
    assert [Count.unit_value(bound) for bound in (0.1, 100.0)] == [1.0] * 2


@pytest.mark.parametrize(("block", "blocks"), [(3, 2), (1, 0), (0, 2), (-1, 2)])
def test_a_block_that_there_is_not_is_refused(block: int, blocks: int) -> None:
    with pytest.raises(InvalidQueryError, match=facts(f"{block} of {blocks}")):
        CovarianceProduct(IDENTITY, None, block, blocks)
