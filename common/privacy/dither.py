"""What rounding does to a mechanism that computes in floating point, and the integer noise that hides it.

A mechanism that draws real numbers is private by a theorem about real numbers. What a computer gives instead is one of
finitely many results, and which of them can occur depends on the rows: however small the rounding errors are, a set
of results may be possible over one data set and impossible over its neighbour. So the result itself is not released.
Discrete Gaussian noise, many times as wide as the rounding errors can be, is added to it first (``hidden``).

Model. The mechanism computes a symmetric matrix G of norm at most one, from random words and the rows. From the same
words, completed by infinitely many further bits, exact arithmetic would have made G*, which is private. ``drift``
bounds ||G - G*||_F, except for an event of probability ``MISSED`` at most: that a number was drawn from beyond where
they have all their places (``continuous.UNREACHED``: 2^35 numbers are expected at most), or that none of the proposals
for an axis was accepted (below 2^-189 an axis, see ``provider.bingham``).

Theorem. Let s = ``SHARE`` epsilon / 4, and let the noise have deviation ``DEVIATIONS`` drift / s. If G* is (e, p)-
private, then G plus the noise is (e + 2s, e^s p + (1 + e^epsilon) ``slack``)-private. Proof. G* plus the noise is
(e, p)-private, as post-processing. Given the words, G and G* are at most ``drift`` apart, so that with the same noise
on either they are (s, q)-close with q = ``gaussian_delta(s, s / DEVIATIONS)`` < 2^-165, in either direction (lemma in
``privacy.noise``); and so are their mixtures over all words. Three such steps, from G to G* over the one data set, to
G* over its neighbour, and to G over that, make P(G in S) <= e^s (e^e (e^s P'(G in S) + q) + p) + q. What the sampler
and ``MISSED`` add is a distance of either from such a G: it is slack.

The drift. A frame V that LAPACK computes is within sqrt(k) d 2^-50 of orthonormal columns (its bound, the modest
constant taken for 8 d), and these are the eigenvectors of a matrix close to the rows' (``smooth.smooth_bound``). Random
directions and normal numbers are within a relative 2^-46 (``continuous``), k reflections within k 2^-45, and a product
of matrices within d 2^-52. A frame plus noise, A = V R + s Z, is thus within d 2^-45 (sqrt(k) + ||s Z||) of the exact
one, and A / max(sqrt(k), ||A||) within six times d 2^-45; its square, A A^T, within twice that: below d 2^-41. Of k
axes drawn one after the other each is within d 2^-46 of an exact draw given the ones before it, and k reflections add
k d 2^-46. So both are within d k 2^-41.

A Bingham draw also decides whether to accept a proposal, by a comparison that is off by a relative 2^-42 k in all;
and what an axis is drawn for follows the rounded ones before it, which changes a density by less than epsilon 2^-13.
Such factors are losses of privacy, not drift. A mechanism is run with what ``left_for`` leaves it, an epsilon smaller
by ``SHARE``. The theorem takes 2s, which is one half of the difference; the other half pays for these factors and for
rounded eigenvalues. That is why no epsilon below ``least_epsilon`` can be asked for.

Trusted: LAPACK's published error bounds, and those of the special functions, which tests measure in 60 digits.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .calibration import round_up
from .events import ApproximateEvent
from .keystream import WordSource
from .noise import DRAW_SLACK, DiscreteGaussian, lattice_std

PLACES: Final = 50
"""Binary places that are kept of numbers of at most one, when they become integers."""
SHARE: Final = 2.0**-8
"""Of epsilon, what a mechanism leaves to what is said here."""
DEVIATIONS: Final = 15
"""The noise's deviation, in drifts, is this over the epsilon that hiding the drift may cost."""
MISSED: Final = Fraction(1, 2**160)

_PER_ENTRY: Final = 2.0**-41
_LEAST: Final = 2.0**-27


def drift(dimension: int, columns: int) -> float:
    """Bound how far rounding takes the square of a frame of so many columns, in Frobenius norm."""
    return dimension * columns * _PER_ENTRY


def least_epsilon(dimension: int, columns: int) -> float:
    """Give the smallest epsilon for which the noise is not wider than what it is added to."""
    return dimension * columns * _LEAST


def deviation(dimension: int, columns: int, epsilon: float) -> float:
    """Give the standard deviation of the noise that hides the drift, for a mechanism that costs this epsilon."""
    return DEVIATIONS * drift(dimension, columns) / (epsilon * SHARE / 4)


def left_for(event: ApproximateEvent) -> ApproximateEvent:
    """Give the epsilon and the delta that a mechanism may use itself, so that with its rounding it costs the event."""
    inside = math.exp(-event.epsilon * SHARE / 4) * (1 - 2.0**-40)
    return replace(event, epsilon=event.epsilon * (1 - SHARE), delta=event.delta * inside)


def slack(dimension: int) -> float:
    """Bound the distance of what is released from what the theorem above says of it: for every entry that is drawn.

    And for what was missed on either side and for q, which are four times 2^-160 at most.
    """
    drawn = dimension * (dimension + 1) // 2
    return round_up(drawn * Fraction(DRAW_SLACK) + 4 * MISSED)


def hidden(frame: FloatArray, epsilon: float, words: WordSource) -> NDArray[np.int64]:
    """Give the square of a frame, of norm one at most, in units of 2^-50, with noise that hides how it was rounded.

    The noise is drawn for the upper triangle, where a difference is at most as large as in the whole matrix.
    """
    dimension, columns = frame.shape
    scaled = frame / max(math.sqrt(columns), float(np.linalg.norm(frame)))
    places = np.triu_indices(dimension)
    exact = np.rint((scaled @ scaled.T)[places] * 2.0**PLACES).astype(np.int64)
    width = lattice_std(deviation(dimension, columns, epsilon) * 2.0**PLACES)
    noisy = exact + DiscreteGaussian.with_std_at_least(width).sample(len(exact), words)
    square = np.zeros((dimension, dimension), dtype=np.int64)
    square[places] = noisy
    square.T[places] = noisy
    return square
