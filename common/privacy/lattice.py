"""The public integer grid on which every answer lies.

Rows, bases and answers are integers at scales that are fixed here for every party. So sums are exact, whatever the
order of rows, the number of threads or the linear-algebra library; the low bits of an answer disclose nothing about
rounding (which Mironov's attack of 2012 needs); and secure aggregation can later add masks without changing a method.

Scales, with C the bound on a row's Euclidean norm:

==================  =======================================  ==============================
what                one unit                                 bound, in units
==================  =======================================  ==============================
row                 C / 2^17                                 norm <= 2^17
basis               2^-20                                    column norm about 2^20
second moments      C^2 / 2^30                               2^30 a row
==================  =======================================  ==============================

A second-moment answer is *defined* as the floor of the exact integer sum. However a provider computes it (from streamed
rows, sparse rows, or a cached Gram matrix), it gets the same bits.
"""

import math
from typing import Final

ROW_BITS: Final = 17
BASIS_BITS: Final = 20
MOMENT_BITS: Final = 30

MAX_ROWS: Final = 2**31
"""Most rows of one provider: 2^31 rows of 2^30 units reach 2^61."""

MAX_SKETCHED_ROWS: Final = 2**24
"""Most rows of one provider in a sketch, which has noise for each row: the price covers this many draws."""

MAX_PROVIDERS: Final = 128
"""Most providers in one sum."""

MAX_STD: Final = 2.0**50
"""Largest standard deviation of noise, in units: its tails, cut within 20 of these, stay below 2^55."""

MAX_SCALE: Final = 2.0**48
"""Largest scale of Laplace noise, in units: its longer tails, cut within 116 scales, stay below 2^55 too."""

ORTHONORMALITY: Final = 2.0**-26
"""Largest distance of Q^T Q from the identity, in Frobenius norm, at which a basis is accepted; see ``basis_gain``."""


_SUM_BITS: Final = 63


def largest_answer(parties: int) -> int:
    """Return the largest number that one of this many answers may have, so that their sum fits in 64 bits."""
    return int(2 ** (_SUM_BITS - max(1, (parties - 1).bit_length())) - 1)


def most_rows(parties: int) -> int:
    """Return how many rows each of this many providers may have: together 2^32, and each at most ``MAX_ROWS``.

    Rows then take up to half of ``largest_answer``, and noise up to 2^55.
    """
    return min(MAX_ROWS, (largest_answer(parties) + 1) >> (MOMENT_BITS + 1))


def basis_gain(nonzero_rows: int, columns: int) -> float:
    """Bound the spectral norm of a rounded orthonormal basis, in units of 2^20.

    Rounding moves each of the (nonzero_rows x columns) entries by at most half a unit, hence the spectral norm by at
    most sqrt(nonzero_rows x columns) / 2 units; zero rows stay zero. The tolerance of the orthonormality check adds
    at most half of itself, as sqrt(1 + t) <= 1 + t/2. The last summand covers the floating-point errors of this line.
    """
    rounding = math.sqrt(nonzero_rows * columns) / 2 / 2**BASIS_BITS
    return 1 + rounding + ORTHONORMALITY / 2 + 2.0**-40


def moment_unit(norm_bound: float) -> float:
    """Value of one unit of a second-moment answer."""
    return norm_bound**2 * 2.0**-MOMENT_BITS


def row_unit(norm_bound: float) -> float:
    """Value of one unit of a row's entry, and of a column sum."""
    return norm_bound * 2.0**-ROW_BITS
