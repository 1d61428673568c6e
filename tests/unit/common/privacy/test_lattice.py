"""What rounding to the grid may add is priced, and where a bound is called tight one is shown that reaches it."""

import numpy as np
import pytest

from dpspca.common.privacy.lattice import BASIS_BITS, ORTHONORMALITY, basis_gain
from dpspca.common.queries.rows import CovarianceProduct

HALF_WAY = 2.0 ** (BASIS_BITS - 1) - 0.5 + 2.0**-20
"""Rounded up by half a unit; four of these make a column of length one, less a little."""


@pytest.mark.parametrize("offsets", [(1, 1, 0, 0), (90, -88, 0, 0)])
def test_the_longest_accepted_basis_reaches_but_keeps_within_its_gain(
    offsets: tuple[int, ...],
) -> None:
    """Every entry is rounded up by half a unit; the second basis is as long as the check lets through besides."""
    entries = HALF_WAY + np.array(offsets, dtype=float)
    asked = CovarianceProduct(entries[:, None] / 2**BASIS_BITS)
    rounded = np.linalg.norm(np.rint(asked.basis * 2**BASIS_BITS)) / 2**BASIS_BITS
    gain = basis_gain(4, 1)
    unused = ORTHONORMALITY / 2 if offsets[0] == 1 else ORTHONORMALITY / 2 / 25
    assert gain - unused - 2.0**-39 <= rounded <= gain
