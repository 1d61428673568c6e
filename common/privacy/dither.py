"""The effect of rounding on a mechanism that computes in floating point, and the integer noise that hides it.

A mechanism that draws real numbers is private by a theorem about real numbers. A computer returns one of finitely many
results instead, and the rows decide which of them can occur: however small the rounding errors are, a set of results
may be possible over one data set and impossible over its neighbour. So the result itself is not released. First,
``noisy_projection`` adds discrete Gaussian noise to it that is many times as wide as the rounding errors can be.

Model. The mechanism computes a symmetric matrix G of norm at most one, from random words and the rows. Exact arithmetic
with the same words, followed by infinitely many further bits, would have computed G*, which is private. ``drift``
bounds ||G - G*||_F, except for an event of probability at most ``MISS_PROBABILITY``: that a number was drawn from the
range where it has fewer correct places (``continuous.UNREACHED``; at most 2^35 numbers are expected), or that all
proposals for an axis were rejected (below 2^-189 for each axis, see ``provider.evaluate.bingham``).

Theorem. Let s = ``ROUNDING_SHARE`` epsilon / 4, and let the noise have standard deviation ``DEVIATIONS`` drift / s. If
G* is (e, p)-private, then G plus the noise is (e + 2s, e^s p + (1 + e^epsilon) ``slack``)-private. Proof. G* plus the
noise is (e, p)-private, as post-processing. Given the words, G and G* are at most ``drift`` apart. So with the same
noise on either they are (s, q)-close in both directions, with q = ``gaussian_delta(s, s / DEVIATIONS)`` < 2^-165 (lemma
in ``privacy.noise``), and so are their mixtures over all words. Three such steps, from G to G* over one data set, to G*
over its neighbour, and to G over that, give P(G in S) <= e^s (e^e (e^s P'(G in S) + q) + p) + q. The sampler's error
and ``MISS_PROBABILITY`` are a distance of either result from such a G: they are slack.

The drift. A frame V that LAPACK computes is within sqrt(k) d 2^-50 of orthonormal columns (its bound, with its modest
constant taken as 8 d), and these are the eigenvectors of a matrix close to that of the rows (``smooth.smooth_bound``).
Random directions and normal numbers are within a relative 2^-46 (``continuous``), k reflections within k 2^-45, and a
product of matrices within d 2^-52. So a frame plus noise, A = V R + s Z, is within d 2^-45 (sqrt(k) + ||s Z||) of the
exact one, and A / max(sqrt(k), ||A||) within six times d 2^-45; its square, A A^T, within twice that: below d 2^-41. Of
k axes drawn one after the other each is within d 2^-46 of an exact draw given the ones before it, and k reflections add
k d 2^-46. So both are within d k 2^-41.

A Bingham draw also accepts or rejects a proposal by a comparison that is off by a relative 2^-42 k in all; and the
density of an axis depends on the rounded axes before it, which changes it by less than a relative epsilon 2^-13. Such
factors are privacy losses, not drift. A mechanism runs with the budget that ``mechanism_event`` returns: an epsilon
that is smaller by ``ROUNDING_SHARE``. The theorem takes 2s, half of the difference. The other half pays for these
factors and for rounded eigenvalues. That is why nobody can ask for an epsilon below ``least_epsilon``.

Trusted: LAPACK's published error bounds, and those of the special functions, which tests measure in 60 digits.
"""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .calibration import float_above
from .events import ApproximateEvent
from .keystream import WordSource
from .noise import DRAW_SLACK, DiscreteGaussian, lattice_std

PLACES: Final = 50
"""Binary places kept when numbers of at most one become integers."""
ROUNDING_SHARE: Final = 2.0**-8
"""Share of epsilon that pays for rounding; the mechanism itself uses the rest."""
DEVIATIONS: Final = 15
"""Standard deviation of the noise, in drifts, times the epsilon that hiding the drift may cost."""
MISS_PROBABILITY: Final = Fraction(1, 2**160)
"""Bound on the probability that ``drift`` does not bound the rounding error."""

_PER_ENTRY: Final = 2.0**-41
_LEAST: Final = 2.0**-27


def drift(dimension: int, columns: int) -> float:
    """Bound how far rounding moves the square V V^T of a frame with this many columns, in Frobenius norm."""
    return dimension * columns * _PER_ENTRY


def least_epsilon(dimension: int, columns: int) -> float:
    """Return the smallest epsilon for which the noise is not wider than the matrix that it is added to."""
    return dimension * columns * _LEAST


def deviation(dimension: int, columns: int, epsilon: float) -> float:
    """Return the standard deviation of the noise that hides the drift, for a mechanism that costs this epsilon."""
    return DEVIATIONS * drift(dimension, columns) / (epsilon * ROUNDING_SHARE / 4)


def mechanism_event(event: ApproximateEvent) -> ApproximateEvent:
    """Return the epsilon and delta that the mechanism itself may use, so that with its rounding it costs the event."""
    inside = math.exp(-event.epsilon * ROUNDING_SHARE / 4) * (1 - 2.0**-40)
    return replace(event, epsilon=event.epsilon * (1 - ROUNDING_SHARE), delta=event.delta * inside)


def slack(dimension: int) -> float:
    """Bound the total variation distance of a release from one for which the theorem above holds exactly.

    It is ``DRAW_SLACK`` for each entry drawn; misses on either side, and q, add at most four times 2^-160.
    """
    drawn = dimension * (dimension + 1) // 2
    return float_above(drawn * Fraction(DRAW_SLACK) + 4 * MISS_PROBABILITY)


def noisy_projection(frame: FloatArray, epsilon: float, words: WordSource) -> NDArray[np.int64]:
    """Return V V^T of a frame V scaled to norm at most one, in units of 2^-50, plus noise that hides its rounding.

    Noise is drawn for the upper triangle, where a difference is at most as large as in the whole matrix.
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
