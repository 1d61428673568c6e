"""Real-valued random numbers from random words: uniform, normal, Cauchy, and directions and turns that favour none.

Only mechanisms that have no integer noise draw from here (``dpspca.provider.mechanisms``), and what floating point does
to their guarantee has to be said. A uniform number here is one of 2^53 equally likely ones, the midpoints of a grid of
that many cells in (0, 1), where the theorems have a continuum. A normal or Cauchy number is a function of one such
number: within a relative 2^-50 or so of where the ideal would be, never beyond 8.3 deviations (a normal number; the
ideal goes there with probability 2^-53) nor beyond 2^53 (a Cauchy number). So the theorems hold for these draws in
real arithmetic alone. Three things keep the difference from being an obvious leak, and none is a proof: at no point
are numbers released as they are drawn, for they go through a factorisation and a projection; what is released is
rounded to a public lattice of 2^-30, some 2^22 times coarser than the rounding errors; and many numbers enter every
entry of it. Where that is not enough, use an algorithm with integer noise.

The number of words that a draw takes depends on its size alone.
"""

import math
from typing import Final

import numpy as np
from scipy.special import ndtri

from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import thin_qr

from .keystream import WordSource

_HIGH_BITS: Final = 27
_LOW_BITS: Final = 26
_WORD_BITS: Final = 32
_CELL: Final = 2.0 ** -(_HIGH_BITS + _LOW_BITS)


def uniforms(count: int, source: WordSource) -> FloatArray:
    """Draw from the midpoints of 2^53 cells of (0, 1): two words each, of which 53 bits count.

    The midpoint of a cell above 1/2 is no float; it becomes the even one of its two neighbours, which moves no number
    by more than half a cell. The last one would become 1, and stays below.
    """
    words = source.words(2 * count)
    high = (words[0::2] >> np.uint32(_WORD_BITS - _HIGH_BITS)).astype(np.float64)
    low = (words[1::2] >> np.uint32(_WORD_BITS - _LOW_BITS)).astype(np.float64)
    drawn: FloatArray = (high * 2.0**_LOW_BITS + low + 0.5) * _CELL
    return np.minimum(drawn, 1 - _CELL, out=drawn)


def normals(count: int, source: WordSource) -> FloatArray:
    """Draw standard normal numbers, by the inverse of their distribution function."""
    drawn: FloatArray = ndtri(uniforms(count, source))
    return drawn


def cauchys(count: int, source: WordSource) -> FloatArray:
    """Draw numbers of density 1 / (pi (1 + z^2))."""
    drawn: FloatArray = np.tan(math.pi * (uniforms(count, source) - 0.5))
    return drawn


def students(count: int, source: WordSource) -> FloatArray:
    """Draw a vector of Student's t with as many degrees of freedom as entries, the same in every direction.

    Its density is proportional to (1 + ||z||^2 / D)^(-D) for D entries: D normal numbers, divided by the root of the
    mean square of D others.
    """
    drawn = normals(2 * count, source)
    spread = math.sqrt(float(np.square(drawn[count:]).mean()))
    return drawn[:count] / spread


def turn(columns: int, source: WordSource) -> FloatArray:
    """Draw an orthogonal matrix uniformly (by Haar's measure): Q of a normal matrix, R's diagonal being positive."""
    return frame(columns, columns, source)


def frame(rows: int, columns: int, source: WordSource) -> FloatArray:
    """Draw orthonormal columns uniformly: any rotation of the space, or of the columns, leaves their law as it is."""
    return thin_qr(normals(rows * columns, source).reshape(rows, columns))[0]
