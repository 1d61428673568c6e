"""No change of a matrix may beat what is declared of it, in exact arithmetic or in the integers that are sent."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.matrix import (
    CappedProduct,
    EntryTotal,
    MatrixProduct,
    SpectralProduct,
    SymmetricProduct,
    largest_entry,
)
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.matrix_shard import MatrixShard

ENTRY, SPECTRAL = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL
BOUND = 3.0
SIZES = {"seed": st.integers(0, 2**32 - 1), "dimension": st.integers(1, 8)}


def a_basis(rng: np.random.Generator, dimension: int, columns: int) -> np.ndarray:
    """Draw a basis: some without, some with large entries, and some that has rows of zeros."""
    drawn = rng.standard_normal((dimension, min(columns, dimension))) * rng.choice([1.0, 1.0, 40.0], (dimension, 1))
    if rng.random() < 0.3:
        drawn[min(columns, dimension) :] = 0.0
    return thin_qr(drawn)[0]


def changed_entries(dimension: int) -> Iterator[np.ndarray]:
    """Every change of an entry and its mirror image by one."""
    for row in range(dimension):
        for column in range(row, dimension):
            change = np.zeros((dimension, dimension))
            change[row, column] = change[column, row] = 1.0
            yield change


def answer(values: Any, unit: PrivacyUnit, query: Any) -> np.ndarray:
    return MatrixShard(check_rows(values, least=1), BOUND, unit).evaluate(query).astype(float)


def symmetric(rng: np.random.Generator, dimension: int, scale: float) -> np.ndarray:
    made = rng.standard_normal((dimension, dimension)) * scale
    return made + made.T


@given(**SIZES, columns=st.integers(1, 4))
def test_no_changed_entry_beats_the_declared_sensitivity_and_one_reaches_it(
    seed: int, dimension: int, columns: int
) -> None:
    basis = a_basis(np.random.default_rng(seed), dimension, columns)
    declared = SymmetricProduct(basis).sensitivity(ENTRY)
    moved = max(np.linalg.norm(change @ basis) for change in changed_entries(dimension))
    assert 0.999 * declared <= moved
    assert moved <= declared
    assert declared <= math.sqrt(2 * basis.shape[1]) * np.abs(basis).max() * (1 + 1e-12)


@given(**SIZES, columns=st.integers(1, 4), scale=st.sampled_from([1e-3, 1.0, 1e3, 2.0**25]))
def test_no_changed_entry_beats_the_movement_of_a_provider_s_own_integers(
    seed: int, dimension: int, columns: int, scale: float
) -> None:
    """Changes of the whole bound and of parts of it, either way; where entries are cut, and where they are sparse."""
    rng = np.random.default_rng(seed)
    basis, values = a_basis(rng, dimension, columns), symmetric(rng, dimension, scale)
    queries = [SymmetricProduct(basis), CappedProduct(basis, largest=min(1.0, float(np.abs(basis).max())))]
    for query in queries:
        before = answer(values, ENTRY, query)
        for change in changed_entries(dimension):
            sign = rng.choice([-1.0, 1.0, 0.999, -0.3])
            moved = answer(scipy.sparse.csr_array(values + BOUND * sign * change), ENTRY, query) - before
            assert np.linalg.norm(moved) <= query.movement(ENTRY, l1=False)
            assert np.abs(moved).sum() <= query.movement(ENTRY, l1=True)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_movement_is_reached_on_the_lattice_too(columns: int) -> None:
    """By the entry between the two largest rows, to a millionth; a forgotten mirror image would show."""
    rng = np.random.default_rng(3)
    basis = thin_qr(rng.standard_normal((6, columns)))[0]
    query = SymmetricProduct(basis)
    for norm in (1, 2):
        first, second = np.argsort(np.linalg.norm(basis, norm, axis=1))[-2:]
        change = np.zeros((6, 6))
        change[first, second] = change[second, first] = BOUND
        moved = answer(change, ENTRY, query) - answer(0 * change, ENTRY, query)
        length = np.abs(moved).sum() if norm == 1 else np.linalg.norm(moved)
        assert length >= (1 - 1e-6) * query.movement(ENTRY, l1=norm == 1)


def changes_in_spectral_norm(rng: np.random.Generator, dimension: int) -> list[np.ndarray]:
    """Symmetric matrices of spectral norm one, rotations and reflections among them."""
    made = []
    for _ in range(6):
        axes = thin_qr(rng.standard_normal((dimension, dimension)))[0]
        change = axes * rng.choice([-1.0, 1.0, 1.0], dimension) @ axes.T
        made.append((change + change.T) / 2)
    return [*made, np.eye(dimension), -np.eye(dimension)]


@given(**SIZES, columns=st.integers(1, 4), scale=st.sampled_from([1e-3, 1.0, 1e3, 1e5]))
def test_no_change_in_spectral_norm_beats_the_declared_sensitivity(
    seed: int, dimension: int, columns: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    basis, values = a_basis(rng, dimension, columns), symmetric(rng, dimension, scale)
    query, before = SpectralProduct(basis), answer(values, SPECTRAL, SpectralProduct(basis))
    for change in changes_in_spectral_norm(rng, dimension):
        exact = change @ basis
        assert np.linalg.norm(exact) <= query.sensitivity(SPECTRAL) * (1 + 1e-12)
        moved = answer(values + BOUND * (1 - 1e-12) * change, SPECTRAL, query) - before
        assert np.linalg.norm(moved) <= query.lattice_sensitivity(SPECTRAL, query.extent)
        assert np.abs(moved).sum() <= query.lattice_l1_sensitivity(SPECTRAL, query.extent)
    assert np.linalg.norm(basis) >= 0.999 * query.sensitivity(SPECTRAL)


def test_the_constants_for_spectral_changes_are_reached() -> None:
    """In L2 by the identity; in L1 by a reflection that sends an axis to entries of one size, as Hadamard's does."""
    hadamard = np.array([[1.0, 1.0, 1.0, 1.0], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    query = SpectralProduct(np.eye(4))
    moved = answer(BOUND * hadamard, SPECTRAL, query)
    assert np.linalg.norm(moved) >= 0.99999 * query.lattice_sensitivity(SPECTRAL, query.extent)
    assert np.abs(moved).sum() >= 0.99999 * query.lattice_l1_sensitivity(SPECTRAL, query.extent)


@given(**SIZES, scale=st.sampled_from([1e-2, 1.0, 100.0, 2.0**25]))
def test_no_changed_entry_beats_the_sensitivity_of_the_sum_of_all_entries(
    seed: int, dimension: int, scale: float
) -> None:
    rng = np.random.default_rng(seed)
    values, query = symmetric(rng, dimension, scale), EntryTotal(dimension)
    before = answer(values, ENTRY, query)
    for change in changed_entries(dimension):
        moved = answer(values + BOUND * rng.choice([-1.0, 1.0]) * change, ENTRY, query) - before
        assert abs(moved[0]) <= query.lattice_sensitivity(ENTRY, query.extent)


def test_a_cut_entry_brings_no_two_values_further_apart() -> None:
    """What makes cutting harmless where a refusal would tell: either side of the limit, and far beyond."""
    query = SymmetricProduct(np.eye(2))
    limit = BOUND * largest_entry(2)
    for entry in (limit - BOUND / 2, limit, limit + BOUND, 1e9 * limit):
        low, high = (np.diag([each, 0.0]) for each in (entry, entry + BOUND))
        moved = answer(high, ENTRY, query) - answer(low, ENTRY, query)
        assert np.linalg.norm(moved) <= query.movement(ENTRY, l1=False)


@pytest.mark.parametrize("kind", [SymmetricProduct, SpectralProduct])
def test_a_basis_that_rounding_made_longer_moves_no_further_than_declared(kind: type[MatrixProduct]) -> None:
    """Each of its entries is rounded up by half a unit, and the change is along it."""
    entries = np.array([2.0**19 + 0.5, 2.0**19 + 0.5, 2.0**19 - 0.5, 2.0**19 - 0.5]) + 2.0**-20
    query = kind(entries[:, None] / 2**20)
    unit = next(iter(kind.units))
    for change in (*changed_entries(4), np.eye(4)):
        if unit is ENTRY and np.count_nonzero(change) > 2:
            continue
        moved = answer(BOUND * change, unit, query)
        assert np.linalg.norm(moved) <= query.movement(unit, l1=False)
