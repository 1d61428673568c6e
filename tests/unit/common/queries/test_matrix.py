"""Queries about matrices: what they are made of, and what their own content lets noise be."""

import math

import numpy as np
import pytest
from facts import facts

from dpspca.common.errors import InvalidParameterError, InvalidQueryError, NotCanonicalQueryError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.plan import Noise, PlannedQuery, events, price
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent, Query, RowSparse
from dpspca.common.queries.matrix import (
    CappedProduct,
    EntryTotal,
    MatrixProduct,
    SpectralProduct,
    SymmetricProduct,
    largest_entry,
)

ENTRY, SPECTRAL = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL


def flat(dimension: int) -> np.ndarray:
    """A basis of one column whose entries are all of one size."""
    return np.full((dimension, 1), dimension**-0.5)


def random_basis(dimension: int, columns: int, seed: int = 0) -> np.ndarray:
    return thin_qr(np.random.default_rng(seed).standard_normal((dimension, columns)))[0]


def job(unit: PrivacyUnit = ENTRY) -> JobSpec:
    return JobSpec(
        schema=Schema(64),
        unit=unit,
        budget=Budget(1.0, 1e-6),
        norm_bound=1.0,
        components=1,
        method="dps-pca",
    )


@pytest.mark.parametrize("query", [SymmetricProduct, SpectralProduct])
def test_a_basis_that_is_not_orthonormal_is_refused(query: type[MatrixProduct]) -> None:
    with pytest.raises(InvalidQueryError, match=facts("||Q^T Q - I||")):
        query(np.ones((4, 2)))
    with pytest.raises(InvalidQueryError, match=facts("NaN")):
        query(np.full((4, 1), np.nan))
    with pytest.raises(NotCanonicalQueryError, match=facts(4)):
        query(RowSparse(4, np.array([1, 0]), np.eye(2)))


@pytest.mark.parametrize("largest", [0.0, -1.0, 1.5, math.nan])
def test_an_invalid_bound_on_entries_is_refused(largest: float) -> None:
    with pytest.raises(InvalidQueryError, match=facts(largest)):
        CappedProduct(flat(4), largest=largest)


def test_an_entry_above_its_bound_is_refused() -> None:
    CappedProduct(flat(4), largest=0.5)
    with pytest.raises(InvalidQueryError, match=facts(0.4999)):
        CappedProduct(flat(4), largest=0.4999)


def test_a_sum_over_no_columns_is_refused() -> None:
    with pytest.raises(InvalidQueryError, match=facts(0, 1)):
        EntryTotal(0)


@pytest.mark.parametrize("query", [SymmetricProduct(flat(4)), CappedProduct(flat(4), largest=0.5), EntryTotal(4)])
def test_queries_about_entries_have_no_price_for_other_units(query: Query) -> None:
    for unit in set(PrivacyUnit) - {ENTRY}:
        with pytest.raises(InvalidParameterError, match=facts(f"'{query.kind}'", f"'{unit}'", ENTRY)):
            query.sensitivity(unit)


def test_a_bound_is_part_of_what_is_asked() -> None:
    assert CappedProduct(flat(4), largest=0.5) != CappedProduct(flat(4), largest=0.6)
    assert CappedProduct(flat(4), largest=0.5) != SymmetricProduct(flat(4))


@pytest.mark.parametrize("l1", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 3, 8])
def test_a_query_never_moves_further_than_its_extent_says(columns: int, l1: bool) -> None:
    for basis in (random_basis(64, columns), np.eye(64, columns), np.eye(columns)):
        symmetric, capped = SymmetricProduct(basis), CappedProduct(basis, largest=1.0)
        for query in (symmetric, capped, CappedProduct(basis, largest=min(1.0, np.abs(basis).max()))):
            bound = query.lattice_l1_sensitivity if l1 else query.lattice_sensitivity
            assert 0 < query.movement(ENTRY, l1=l1) <= bound(ENTRY, query.extent)
        assert symmetric.movement(ENTRY, l1=l1) <= capped.movement(ENTRY, l1=l1) * (1 + 1e-9)


def test_without_large_entries_noise_is_taken_in_at_the_same_price() -> None:
    """A flat vector of 64 entries moves an eighth as far as an axis: sqrt(2) / 8 against 1."""
    for noise in Noise:
        (step,) = price(job(), [PlannedQuery("product", SymmetricProduct, Extent(64, 1, 64), 1.0, noise=noise)])
        axis, even = (step.fit_to(SymmetricProduct(basis), ENTRY) for basis in (np.eye(64, 1), flat(64)))
        least = math.sqrt(2) / 8 if noise is Noise.GAUSSIAN else 2 / 8
        assert even.noise_std / axis.noise_std == pytest.approx(least, rel=1e-6)
        mus = [compose(events([each])).gdp_bound for each in (step, axis, even)]
        assert max(mus[1:]) <= mus[0] * (1 + 1e-9)
        assert mus[2] == pytest.approx(mus[0], rel=1e-6)


def test_noise_of_a_spectral_product_does_not_follow_its_basis() -> None:
    (step,) = price(job(SPECTRAL), [PlannedQuery("product", SpectralProduct, Extent(64, 1, 64), 1.0)])
    assert step.fit_to(SpectralProduct(flat(64)), SPECTRAL) == step


@pytest.mark.parametrize("dimension", [1, 2, 3, 255, 256, 257, 50_000, 2**14, 2**24 - 1, 2**24])
def test_products_with_the_largest_entry_are_in_range_for_every_width(dimension: int) -> None:
    largest = largest_entry(dimension)
    assert 1 <= largest <= 2**20
    assert largest * math.sqrt(dimension) <= 2**24
    assert largest == 2**20 or largest * math.sqrt(dimension) > 2**22
