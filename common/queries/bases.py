"""Checks a basis before it becomes a query: it must be in its canonical form, and orthonormal."""

from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray, refuse
from dpspca.common.errors import NotCanonicalQueryError
from dpspca.common.privacy import ORTHONORMALITY

from .base import RowSparse

_MOST_MEASURED: Final = ORTHONORMALITY * (1 - 2.0**-6)
"""Largest accepted measurement; the rest, 2e-10, covers its rounding (at most 6e-12 was seen, at 2^24 rows)."""


def check_support(basis: RowSparse) -> None:
    """Refuse indices that are not strictly ascending, and zero rows, so that equal bases have one encoding."""
    support = basis.support
    if (support[1:] <= support[:-1]).any() or (support[:1] < 0).any() or (support[-1:] >= basis.dimension).any():
        refuse(
            f"The row indices of the basis are not ascending below the dimension, {basis.dimension}.",
            "Send each index once, in order.",
            NotCanonicalQueryError,
        )
    if basis.rows.shape[:1] != support.shape or basis.has_zeros:
        refuse(
            f"The basis has rows of shape {basis.rows.shape} for {len(support)} indices, or a row of zeros.",
            "Send exactly the rows that are not zero.",
            NotCanonicalQueryError,
        )


def check_orthonormal(rows: FloatArray, dimension: int) -> None:
    """Refuse a basis with these nonzero rows unless its columns are finite and orthonormal.

    Equal unit columns, or columns slightly too long, would let one row move the answer further than declared. Only the
    whole Gram matrix shows both, so it is what is tested.
    """
    columns = rows.shape[1]
    if columns > dimension:
        refuse(f"A basis has {columns} columns in {dimension} dimensions.", f"Send at most {dimension} columns.")
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow or NaN is refused below
        deviation = np.linalg.norm(rows.T @ rows - np.eye(columns))
    if deviation <= _MOST_MEASURED:  # NaN is refused
        return
    if not np.isfinite(rows).all():
        refuse("The basis has values that are not finite.", "Send neither NaN nor infinity.")
    refuse(
        f"The basis is not orthonormal by {deviation:.1e}.", f"Send Q with ||Q^T Q - I|| up to {_MOST_MEASURED:.1e}."
    )
