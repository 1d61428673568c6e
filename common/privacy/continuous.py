"""Real-valued random numbers from random words: uniform, normal, Cauchy, Student's t, and Haar-random matrices.

Only mechanisms that have no integer noise draw from here (``dpspca.provider.evaluate.mechanisms``). Every number is a
rounded value of the ideal one, even far out in the tails, so that all outcomes that a neighbour could give can occur:

- A uniform number is the midpoint of one of 2^62 equal cells of (0, 1). In the lowest 2^10 of 2^22 parts, where a cell
  would be wide compared with the number itself, 192 further bits divide it. So it is within a relative 2^-50 of the
  ideal number in its cell, down to 2^-204; the ideal one is below that with probability 2^-204 = ``UNREACHED``.
- A fair coin decides whether a normal number is computed from its distance to zero or from the tail beyond it: each
  time from the end at which the uniform number is accurate. It is within a relative 2^-47 of the ideal one, up to 16
  standard deviations from zero. So is a Cauchy number, up to 2^204 from zero.

These bounds allow for errors of the special functions in their last places (``tests/unit`` measures them in 60 digits).
``privacy.dither`` says what rounding does to a guarantee.

The number of words that a draw takes depends on its size and, for about one number in 4,096 that needs further bits, on
the random words; never on data.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfinv, ndtri

from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr

from .keystream import WordSource

UNREACHED: Final = 2.0**-204
"""A uniform number below this, and what is computed from it, has fewer correct places; also its probability."""

_COINS: Final = 2
_LOW_BITS: Final = 32 - _COINS
_CELL: Final = 2.0 ** -(32 + _LOW_BITS)
_FINE_BELOW: Final = 1 << 20  # of 2^32: high words below are completed by further ones
_FINE_WORDS: Final = 6


def uniforms(count: int, source: WordSource) -> FloatArray:
    """Draw midpoints of cells of (0, 1), which are finer close to zero; each takes two words or eight.

    A midpoint that is not a float becomes the nearest float, but never 1.
    """
    return _uniforms_and_coins(count, source)[0]


def _uniforms_and_coins(count: int, source: WordSource) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw uniform numbers, and for each two fair coins of +1 and -1 from the remaining bits of its words."""
    words = source.words(2 * count)
    high, low = words[0::2], words[1::2]
    inside = np.full(count, 0.5)
    fine = np.flatnonzero(high < np.uint32(_FINE_BELOW))
    more = source.words(_FINE_WORDS * len(fine)).reshape(len(fine), _FINE_WORDS).astype(np.float64)
    inside[fine] = (more @ 2.0 ** (-32.0 * np.arange(1, _FINE_WORDS + 1))) + 2.0 ** (-32 * _FINE_WORDS - 1)
    whole = high.astype(np.float64) * 2.0**_LOW_BITS + (low >> np.uint32(_COINS)).astype(np.float64)
    drawn: FloatArray = np.minimum((whole + inside) * _CELL, 1 - 2.0**-53)
    return drawn, _coin(low, 0), _coin(low, 1)


def _coin(words: NDArray[np.uint32], bit: int) -> FloatArray:
    fallen = (words >> np.uint32(bit)) & np.uint32(1)
    return 1 - 2 * fallen.astype(np.float64)


def normals(count: int, source: WordSource) -> FloatArray:
    """Draw standard normal numbers: a sign, and a distance from zero by the inverse of its distribution function.

    |Z| is below z with probability v = erf(z / sqrt(2)). For v = u/2, z is sqrt(2) erfinv(u/2); for v = 1 - u/2, the
    tail beyond z on one side is u/4. A fair coin chooses between these two halves of (0, 1).
    """
    drawn, sign, half = _uniforms_and_coins(count, source)
    near, far = half > 0, half < 0
    drawn[near] = math.sqrt(2) * erfinv(drawn[near] / 2)
    drawn[far] = -ndtri(drawn[far] / 4)
    return np.multiply(sign, drawn, out=drawn)


def cauchys(count: int, source: WordSource) -> FloatArray:
    """Draw numbers of density 1 / (pi (1 + z^2)): a sign, and a tangent between 0 and 1 or the reciprocal of one."""
    drawn, sign, half = _uniforms_and_coins(count, source)
    tangents = np.tan(math.pi / 4 * drawn)
    cauchy: FloatArray = sign * np.where(half > 0, tangents, 1 / tangents)
    return cauchy


def student_vector(count: int, source: WordSource) -> FloatArray:
    """Draw a spherical vector of Student's t with as many degrees of freedom as entries.

    Its density is proportional to (1 + ||z||^2 / D)^(-D) for D entries: D normal numbers, divided by the root mean
    square of D others.
    """
    drawn = normals(2 * count, source)
    spread = math.sqrt(float(np.square(drawn[count:]).mean()))
    return drawn[:count] / spread


def random_orthogonal(columns: int, source: WordSource) -> FloatArray:
    """Draw an orthogonal matrix uniformly (by Haar's measure), as a product of reflections (Stewart 1980).

    Each reflection maps an axis of the remaining space to a uniform direction in it, with a fair sign. Each direction
    is a new draw, and no matrix is factored, so that no near-singular matrix multiplies the rounding errors.
    """
    drawn = normals(columns * columns, source).reshape(columns, columns)
    turned = np.eye(columns)
    for place in reversed(range(columns)):
        direction = drawn[place, place:] / np.linalg.norm(drawn[place, place:])
        away = direction.copy()
        away[0] += math.copysign(1.0, direction[0])  # never close to zero
        left = turned[place:, place:]
        left -= np.outer(away, (away @ left) * (2 / (away @ away)))
        turned[place:, place] *= -math.copysign(1.0, direction[0])  # so that the column is the direction itself
    return turned


def random_frame(rows: int, columns: int, source: WordSource) -> FloatArray:
    """Draw orthonormal columns uniformly: their law does not change if the space or the columns are rotated."""
    return thin_qr(normals(rows * columns, source).reshape(rows, columns))[0]
