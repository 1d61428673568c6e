"""Exact draws from Bingham distributions: a unit vector x with density proportional to exp(x^T A x).

Kent, Ganeiban & Mardia (2013), *A new method to simulate the Bingham and related distributions in directional data
analysis*, by rejection from an angular central Gaussian. In the axes of A, with a_i = its largest eigenvalue less its
i-th, the density is proportional to f(x) = e^-u, u = sum a_i x_i^2 >= 0. The proposal is y/||y|| for y_i normal of
variance 1/w_i, w_i = 1 + 2 a_i/b: its density is proportional to g(x) = (sum w_i x_i^2)^(-q/2) = (1 + 2u/b)^(-q/2).

For any b in (0, q], f/g = e^-u (1 + 2u/b)^(q/2) is largest at u = (q - b)/2, where it is M = e^-((q-b)/2) (q/b)^(q/2).
So a proposal is accepted with probability e^-u (1 + 2u/b)^(q/2) / M. The envelope's factor MULTIPLIES here. Dividing
by it, as some implementations do, gives another distribution. The draw is exact for any b. The best b is the root of
sum 1/(b + 2 a_i) = 1, which lies in [1, q].

How many proposals are needed. Let c_i = 1/(b + 2 a_i), which add up to 1 for the best b, and S = sum c_i Z_i^2 for
independent standard normal Z_i: its mean is 1. Writing both normalising constants as integrals over the radius of the
proposal gives the probability of acceptance as Gamma(q/2) (2e/q)^(q/2) times the density of S at 1, and the factor is
at least sqrt(4 pi/q) by Stirling's formula. The density of S at 1 is at least .0006. Proof. S is a sum of independent
scaled Gamma variables, hence self-decomposable, hence unimodal (Yamazato 1978). X = S - 1 has variance v = 2 sum c_i^2
and E X^4 <= 15 v^2, so E|X| >= sqrt(v/15), and P(X > 0) and P(X < 0) are at least (E|X|/2)^2/v >= 1/60. If the mode
is above 1, the density rises up to 1 and is there at least P(S < 1) >= 1/60. Otherwise it falls from 1 on, and
P(X > 14.5) <= e^-5 (Laurent & Massart 2000, Lemma 1), so it is at least (1/60 - e^-5)/14.5 at 1. So at least
.002/sqrt(q) of the proposals are accepted, for every A. (The worst case that was found is one axis far above the rest,
with a fraction that tends to .86/sqrt(q). If A is flat, all are accepted.)

``TRIES`` sqrt(q) proposals are always made and tested, and the first accepted one is taken. So the number of words and
operations of a draw reveals nothing about the data (the time of an eigendecomposition may). If none is accepted, which
has a probability below 2^-150 at a fraction of .86/sqrt(q), as many are made again, at most ``ROUNDS`` times. That none
of all these is accepted has a probability below 2^-189 by the proof. The draw then ends with an error that says so. By
then the query is paid for but not answered, so it may be answered again at no price.

``dpspca.common.privacy.dither`` explains which floating-point numbers are used here, and what hides their rounding. A
proposal is compared with a uniform number that reaches down to 2^-204, so that only negligible proposals are excluded.
"""

import math
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import AskAgainError
from dpspca.common.privacy import WordSource, normals, uniforms

TRIES: Final = 128
"""Proposals in a round, divided by the square root of the dimension."""
ROUNDS: Final = 512
"""The most rounds of proposals. More than one is almost never needed."""
_HURRIED: Final = 4
"""Proposals at a time if the first accepted one ends the draw, divided by the square root of the dimension."""
_BLOCK_ENTRIES: Final = 2**18
_HALVINGS: Final = 50


def draw_axis(matrix: FloatArray, words: WordSource, *, hurry: bool = False) -> FloatArray:
    """Draw a unit vector with density proportional to exp(x^T matrix x), the matrix being symmetric.

    With ``hurry``, no proposals are made after one was accepted, so the time and the number of words depend on the
    matrix.
    """
    values, vectors = np.linalg.eigh(matrix)
    axis: FloatArray = vectors @ draw_in_axes(values[-1] - values, words, hurry=hurry)
    return axis


def draw_in_axes(falls: FloatArray, words: WordSource, *, hurry: bool = False) -> FloatArray:
    """Draw a unit vector with density proportional to exp(-sum falls_i x_i^2), one of the falls being zero."""
    size = len(falls)
    envelope = envelope_of(falls)
    tries, chosen = math.ceil(TRIES * math.sqrt(size)), None
    step = math.ceil(_HURRIED * math.sqrt(size)) if hurry else max(1, _BLOCK_ENTRIES // size)
    for _ in range(ROUNDS):
        for start in range(0, tries, step):
            accepted = _accepted(falls, envelope, min(step, tries - start), words)
            if chosen is None and len(accepted):
                chosen = accepted[0]
            if hurry and chosen is not None:
                break
        if chosen is not None:
            break
    if chosen is None:
        raise AskAgainError(
            "No proposal for a random axis was accepted, which almost never happens.",
            "Ask the same query again. It is paid for but was not answered, so it costs nothing more.",
        )
    axis: FloatArray = chosen / np.linalg.norm(chosen)
    return axis


def _accepted(falls: FloatArray, envelope: float, count: int, words: WordSource) -> FloatArray:
    """Make ``count`` proposals, and return the accepted ones in order."""
    size = len(falls)
    proposed = normals(count * size, words).reshape(count, size) / np.sqrt(1 + 2 * falls / envelope)
    squares = np.square(proposed)
    falling = squares @ falls / squares.sum(axis=1)
    accepted: FloatArray = proposed[np.log(uniforms(count, words)) < log_acceptance(falling, envelope, size)]
    return accepted


def envelope_of(falls: FloatArray) -> float:
    """Find the b of the best proposal: the root of sum 1/(b + 2 a_i) = 1, which decreases in b."""
    least, most = 0.0, float(len(falls))
    for _ in range(_HALVINGS):
        middle = (least + most) / 2
        least, most = (middle, most) if (1 / (middle + 2 * falls)).sum() > 1 else (least, middle)
    return most


def log_acceptance(falling: FloatArray, envelope: float, size: int) -> FloatArray:
    """Return ln(f/(g M)) for proposals with u = ``falling``. It is never above zero."""
    most = (size - envelope) / 2
    logs: FloatArray = most - falling + size / 2 * (np.log1p(2 * falling / envelope) - math.log(size / envelope))
    return logs
