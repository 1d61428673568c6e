"""A change within a span moves an answer within it, and no further than was paid for: the noise lies where it must."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from dpspca.client.matrices import dilation
from dpspca.common.job import Span
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.matrix import CappedProduct, MatrixProduct, SpectralProduct, SymmetricProduct
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.matrix_shard import MatrixShard, with_span

ENTRY, SPECTRAL = PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL
BOUND = 3.0
SIZES = {"seed": st.integers(0, 2**32 - 1), "columns": st.integers(1, 5), "width": st.integers(1, 3)}


@st.composite
def spans(draw: st.DrawFn) -> Span:
    of = draw(st.integers(1, 7))
    rows = draw(st.integers(1, of))
    return Span(draw(st.integers(0, of - rows)), rows, of)


def a_basis(rng: np.random.Generator, span: Span, columns: int, width: int) -> np.ndarray:
    """Draw one that is large where the span is, or where it is not, or anywhere."""
    size = span.of + columns
    silent = span.rows_of_others(size)[:, None]
    drawn = rng.standard_normal((size, min(width, size)))
    return thin_qr(drawn * rng.choice([np.ones_like(silent), silent + 0.05, ~silent + 0.05]))[0]


def moved(span: Span, table: np.ndarray, change: np.ndarray, unit: PrivacyUnit, query: Any) -> np.ndarray:
    """Say how far the answer moves; of one of two neighbours the share is dense, of the other sparse."""
    dense = check_rows(dilation(table, span.start, span.of).toarray(), least=1)
    sparse = check_rows(scipy.sparse.csr_array(dilation(table + change, span.start, span.of)), least=1)
    one, other = (MatrixShard(with_span(share, span), BOUND, unit).evaluate(query) for share in (dense, sparse))
    silent = span.rows_of_others(len(one))
    assert not one[silent].any()
    assert not other[silent].any()
    return (one - other).astype(float)


def check_paid(query: MatrixProduct, unit: PrivacyUnit, difference: np.ndarray) -> None:
    assert np.linalg.norm(difference) <= query.movement(unit, l1=False)
    assert np.abs(difference).sum() <= query.movement(unit, l1=True)


@pytest.mark.parametrize("capped", [False, True])
@given(span=spans(), **SIZES)
def test_an_entry_in_a_span_moves_only_the_span_within_its_price(
    capped: bool, span: Span, seed: int, columns: int, width: int
) -> None:
    rng = np.random.default_rng(seed)
    basis = a_basis(rng, span, columns, width)
    query = CappedProduct(basis, largest=float(np.abs(basis).max())) if capped else SymmetricProduct(basis)
    table = rng.standard_normal((span.rows, columns)) * 5
    for place in np.ndindex(table.shape):
        change = np.zeros_like(table)
        change[place] = rng.choice([-BOUND, BOUND])
        check_paid(query, ENTRY, moved(span, table, change, ENTRY, query))


@given(span=spans(), **SIZES)
def test_a_spectral_change_in_a_span_moves_only_the_span_within_its_price(
    span: Span, seed: int, columns: int, width: int
) -> None:
    """The dilation of a change has the spectral norm of the change: that of two orthonormal factors is one."""
    rng = np.random.default_rng(seed)
    query = SpectralProduct(a_basis(rng, span, columns, width))
    table = rng.standard_normal((span.rows, columns)) * 5
    left, _, right = np.linalg.svd(rng.standard_normal(table.shape), full_matrices=False)
    change = BOUND * (1 - 2.0**-40) * left @ right
    check_paid(query, SPECTRAL, moved(span, table, change, SPECTRAL, query))
