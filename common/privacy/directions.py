"""Random directions that many parties draw together and none can choose, and how far they stretch a fixed vector.

A party commits to a nonce by its hash, and reveals it when everybody has committed. All nonces together give the key
of a keystream, and the keystream gives Omega: integers, the same on every machine. The module that relies on it,
``provider/evaluate/sketches.py``, argues why nobody can choose Omega.
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
"""Number of 32-bit words in a nonce and in a hash, both as long as SHA-256."""
EMPTY_SEAT: Final = bytes(4 * NONCE_WORDS)
"""Fills the seat of a party that took no part from the beginning."""

DIRECTION_BITS: Final = 11
"""The entries of Omega are integers with standard deviation 2^11."""
STRETCH_TAIL: Final = 2.0**-100
"""Probability that Omega stretches a row's change further than the price allows.

It is small enough to fit into the part of delta that a filter keeps for imperfect noise, even at a lifetime budget of
epsilon = 20. A tail of 2^-64 would save a sixth of the noise on the sketch.
"""

_DRAWN_AT_ONCE: Final = 2**18
"""Numbers drawn at a time, so that the integers need memory for only this many before they become floats."""


@lru_cache(maxsize=256)
def stretch(columns: int, tail: float = STRETCH_TAIL) -> float:
    """Bound ||v^T Omega|| / ||v|| for a vector v on which Omega does not depend, except with probability ``tail``.

    Omega has p columns of independent entries, each discrete Gaussian with parameter s = 2^11; the result is in units
    of s. An entry X has E exp(tX) = exp(t^2 s^2 / 2) sum_x rho_s(x - t s^2) / sum_x rho_s(x) <= exp(t^2 s^2 / 2): by
    Poisson summation the sum is largest without a shift. So each of the p entries u of v^T Omega is subgaussian with
    parameter s ||v||, independent of the others, and with g standard normal, for l < 1/2,
    E exp(l u^2 / (s ||v||)^2) = E_g E_u exp(sqrt(2 l) g u / (s ||v||)) <= E_g exp(l g^2) = (1 - 2 l)^(-1/2). Hence
    Chernoff's bound for chi-square holds for these integers without any allowance for rounding:
    P(||v^T Omega||^2 > t (s ||v||)^2) <= (t/p)^(p/2) exp((p - t)/2) for t >= p. Bisection finds the least such t.
    """
    low, high = float(columns), columns + 4 * (math.sqrt(-columns * math.log(tail)) - math.log(tail))
    for _ in range(200):
        middle = (low + high) / 2
        exponent = (columns * math.log(middle / columns) + columns - middle) / 2
        low, high = (middle, high) if exponent > math.log(tail) else (low, middle)
    return math.sqrt(high) * (1 + 2.0**-30)


def commitment(job: str, seat: int, nonce: bytes) -> bytes:
    """Hash a nonce, so that a party can fix it before revealing it."""
    return sha256(b"dpspca commitment\0" + f"{job}\0{seat}\0".encode() + nonce).digest()


def directions_key(job: str, nonces: Words) -> bytes:
    """Derive the key of the keystream for Omega from the job and all nonces."""
    return sha256(b"dpspca directions\0" + f"{job}\0".encode() + bytes(nonces.astype("<u4").data)).digest()


def directions(key: bytes, dimension: int, columns: int) -> FloatArray:
    """Draw Omega: discrete Gaussian integers of standard deviation 2^11, the same on every machine."""
    law, stream = DiscreteGaussian(2.0**DIRECTION_BITS), KeyStream(key)
    drawn = np.empty(dimension * columns)
    for start in range(0, len(drawn), _DRAWN_AT_ONCE):
        piece = drawn[start : start + _DRAWN_AT_ONCE]
        piece[:] = law.sample(len(piece), stream)
    return drawn.reshape(dimension, columns)
