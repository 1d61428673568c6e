"""Directions that many parties draw together and none can choose, and how far they stretch what was there before.

A party commits to a nonce by its hash, and shows it when everybody has committed. Of all nonces together follows the
key of a keystream, and of that Omega: integers, the same on every machine. That nobody could choose Omega is argued
where it is relied on, in ``provider/evaluate/sketches.py``.
"""

import math
from functools import lru_cache
from hashlib import sha256
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .keystream import KeyStream
from .noise import DiscreteGaussian

Words: TypeAlias = NDArray[np.uint32]

NONCE_WORDS: Final = 8
"""Words of 32 bits: a nonce, and a hash, is as long as SHA-256."""
NOBODY: Final = bytes(4 * NONCE_WORDS)
"""Stands in the slot of whoever took no part from the beginning."""

DIRECTION_BITS: Final = 11
"""Omega is drawn as integers, with standard deviation 2^11."""
TAIL: Final = 2.0**-100
"""Probability with which chance may make Omega stretch a row's change further than was paid for.

So small that what a filter keeps back for imperfect noise has room for it, at a lifetime budget of epsilon = 20 too. A
tail of 2^-64 would save a sixth of the noise on the sketch.
"""

_DRAWN_AT_ONCE: Final = 2**18
"""Numbers: as whole ones, and before they are widened, they need room only so many at a time."""


@lru_cache(maxsize=256)
def stretch(columns: int, tail: float = TAIL) -> float:
    """Bound ||v^T Omega|| / ||v|| for a vector v that Omega does not depend on, but for a probability of ``tail``.

    Omega has p columns of independent entries, each discrete Gaussian with parameter s = 2^11; the result is in units
    of s. An entry X has E exp(tX) = exp(t^2 s^2 / 2) sum_x rho_s(x - t s^2) / sum_x rho_s(x) <= exp(t^2 s^2 / 2), for
    by Poisson summation no shift of the lattice has a larger sum than none. So each of the p entries u of v^T Omega is
    subgaussian with parameter s ||v||, independent of the others, and with g standard normal, for l < 1/2,
    E exp(l u^2 / (s ||v||)^2) = E_g E_u exp(sqrt(2 l) g u / (s ||v||)) <= E_g exp(l g^2) = (1 - 2 l)^(-1/2). Hence
    Chernoff's bound for chi-square holds for these integers as they are, with no allowance for rounding:
    P(||v^T Omega||^2 > t (s ||v||)^2) <= (t/p)^(p/2) exp((p - t)/2) for t >= p. The least such t is found by bisection.
    """
    low, high = float(columns), columns + 4 * (math.sqrt(-columns * math.log(tail)) - math.log(tail))
    for _ in range(200):
        middle = (low + high) / 2
        exponent = (columns * math.log(middle / columns) + columns - middle) / 2
        low, high = (middle, high) if exponent > math.log(tail) else (low, middle)
    return math.sqrt(high) * (1 + 2.0**-30)


def commitment(job: str, slot: int, nonce: bytes) -> bytes:
    """Hash a nonce, so that it can be shown to have been fixed without being shown."""
    return sha256(b"dpspca commitment\0" + f"{job}\0{slot}\0".encode() + nonce).digest()


def directions_key(job: str, nonces: Words) -> bytes:
    """Make the key of the keystream that Omega is drawn from: all nonces have a part in it, and the job."""
    return sha256(b"dpspca directions\0" + f"{job}\0".encode() + bytes(nonces.astype("<u4").data)).digest()


def directions(key: bytes, dimension: int, columns: int) -> FloatArray:
    """Draw Omega: discrete Gaussian integers of standard deviation 2^11, the same on every machine."""
    law, stream = DiscreteGaussian(2.0**DIRECTION_BITS), KeyStream(key)
    drawn = np.empty(dimension * columns)
    for start in range(0, len(drawn), _DRAWN_AT_ONCE):
        piece = drawn[start : start + _DRAWN_AT_ONCE]
        piece[:] = law.sample(len(piece), stream)
    return drawn.reshape(dimension, columns)
