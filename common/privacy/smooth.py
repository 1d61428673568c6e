"""Noise scaled to a smooth bound on the local sensitivity of the data: when it is private, and how wide it has to be.

After Nissim, Raskhodnikova & Smith (2007, NRS below), with constants of our own. A mechanism adds s Z to f(S), Z of D
entries and s = U(S)/alpha, U a beta-smooth bound on the local sensitivity of f: on neighbours U is at least
||f(S) - f(S')||, and changes by a factor of at most e^beta. So the outputs on neighbours have centres at most alpha s
apart, whichever of the two scales s is, and scales whose logarithms are at most beta apart. Change the scale first and
then the centre: if the change of scale alone is (a, p)-private and the change of centre alone (b, q)-private, both
together are (a + b, p + e^a q)-private, because P <= e^a P' + p and P' <= e^b P'' + q.

Gaussian Z, L2. The change of centre is that of a Gaussian mechanism of sensitivity alpha (``gaussian_delta``). For the
change of scale from s to e^l s, with w = ||Z||^2 of law chi-square with D degrees, the loss is D l - w (1 - e^(-2l))/2
for l > 0 and, with m = -l > 0, w (e^(2m) - 1)/2 - D m. By Laurent & Massart (2000, Lemma 1), w is above
D + 2 sqrt(D t) + 2t with probability at most e^-t, and below D - 2 sqrt(D t) with at most the same. At these values of
w both losses are convex in |l| and zero at zero, so no change of scale up to beta loses more than the larger of 0 and
the loss at beta.

Spherical Student Z, D degrees of freedom, L2. With h proportional to (1 + ||z||^2/D)^(-D), the gradient of ln h has
norm 2 D ||z|| / (D + ||z||^2) <= sqrt(D): the change of centre loses at most sqrt(D) alpha. A change of scale by e^l
changes ln h by D l at the centre, by -D l far away, and by a value between these elsewhere: at most D beta. So it is
purely (sqrt(D) alpha + D beta)-private, with tails that are nearly normal.

Cauchy Z with independent entries, L1. |d/dz ln(1 + z^2)| = 2|z|/(1 + z^2) <= 1, so the change of centre loses at most
alpha; a change of scale loses at most beta for each entry, D beta in all.

As published (Gonen & Gilad-Bachrach, after NRS's Lemmas 2.7 and 2.10): Cauchy noise with alpha = eps/6 and beta =
eps/(6 D), which by the above is eps/3-private; and Gaussian noise with alpha = eps/(5 sqrt(2 ln(2/delta))) and beta =
eps/(4 (D + ln(2/delta))). For the latter the lemma's own halves (eps/2, delta/2) are not enough: composing them, as
above, gives delta/2 (1 + e^(eps/2)) > delta; and the lemma does not limit epsilon. ``keeps_promise`` tries divisions of
epsilon between the two changes. If none of them proves the promise, the constants are refused.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .calibration import GUARD, gaussian_delta, gaussian_mu

ROUNDING: Final = 2.0**-8
"""Relative allowance for computed eigenvalues and eigenvectors in place of exact ones; see ``smooth_bound``."""

_DIVISIONS: Final = tuple(part / 20 for part in range(1, 20))


@dataclass(frozen=True, slots=True)
class Constants:
    """Noise of scale U/alpha, where U is a beta-smooth bound."""

    alpha: float
    beta: float


@lru_cache(maxsize=256)  # every answer asks for the same
def gaussian_constants(entries: int, epsilon: float, delta: float) -> Constants:
    """Return constants for Gaussian noise on this many entries: half of epsilon and of delta for each change."""
    half = epsilon / 2
    alpha = gaussian_mu(half, delta / 2 * math.exp(-half) * (1 - GUARD))
    beta = _largest(lambda beta: scale_loss(entries, beta, delta / 2) <= half, half)
    return Constants(alpha, beta)


def student_constants(entries: int, epsilon: float) -> Constants:
    """Return constants for spherical Student noise: half of epsilon for each change."""
    part = epsilon / 2 * (1 - GUARD)
    return Constants(part / math.sqrt(entries), part / entries)


def published_gaussian_constants(entries: int, epsilon: float, delta: float) -> Constants:
    """Return the paper's constants for Gaussian noise; check them with ``keeps_promise`` before use."""
    tail = math.log(2 / delta)
    return Constants(epsilon / (5 * math.sqrt(2 * tail)), epsilon / (4 * (entries + tail)))


def published_cauchy_constants(entries: int, epsilon: float) -> Constants:
    """Return the paper's constants for Cauchy noise, for a sensitivity in L1."""
    return Constants(epsilon / 6, epsilon / (6 * entries))


def keeps_promise(constants: Constants, entries: int, epsilon: float, delta: float) -> bool:
    """Whether the argument above proves Gaussian noise with these constants to be (epsilon, delta)-private."""
    for part in _DIVISIONS:
        spent = part * epsilon
        for_scale = scale_loss(entries, constants.beta, delta / 2) <= spent
        if for_scale and math.exp(spent) * gaussian_delta(epsilon - spent, constants.alpha) <= delta / 2:
            return True
    return False


def scale_loss(entries: int, beta: float, probability: float) -> float:
    """Bound the privacy loss of a change of scale by at most e^beta, except with this probability."""
    tail = -math.log(probability)
    deviation = 2 * math.sqrt(entries * tail)
    least, most = max(0.0, entries - deviation), entries + deviation + 2 * tail
    wider = entries * beta + least * math.expm1(-2 * beta) / 2
    narrower = most * math.expm1(2 * beta) / 2 - entries * beta
    return max(wider, narrower, 0.0) * (1 + GUARD)


def _largest(holds: Callable[[float], bool], fails_at: float) -> float:
    """Bisect to the end of a condition that holds near zero; return only a point at which it was checked to hold."""
    good, bad = 0.0, fails_at
    for _ in range(100):
        middle = (good + bad) / 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def subspace_distance_bound(ratio: float, angles: int) -> float:
    """Bound how far apart the leading eigenvectors of neighbours are, given the gap over what the gap can move by.

    S is a sum of x x^T with ||x|| <= 1, g its gap between the k-th eigenvalue and the next, U its first k eigenvectors;
    the distance is that of the nearest frames of the two spaces, ||U - U' R|| in Frobenius norm for the best R.
    ``angles`` is m = min(k, d - k), the number of principal angles that may differ from zero.

    The gap. S' = S + E. By Weyl's inequalities every eigenvalue rises by at most the largest eigenvalue of E, and falls
    by at most that of -E. If a row is added or removed, E = +- x x^T has one of them at most 1 and the other 0, so the
    gap moves by at most 1. If a row is replaced, E = x x^T - y y^T has both at most 1, so the gap moves by at most 2;
    it does if x is the (k+1)-th eigenvector and y the k-th. ``ratio`` is r = g/step, where ``step`` is that 1 or 2.

    The distance, for r > 1 (this replaces the unnamed constant of the paper). Let P' project on U', J = 2P' - I, and
    N = J S J - S. As J and S' commute, N = E - J E J: twice the two blocks of E between U' and its complement. J S J
    has S's eigenvalues, and J U for U, so by Davis & Kahan's sin-theta theorem the angles between U and J U, which are
    twice those between U and U', satisfy ||sin 2T|| <= ||N||/g, in spectral and in Frobenius norm. For E = +- x x^T,
    with a and b the lengths of x's parts in U' and beside it, N has norms 2ab <= 1 and 2 sqrt(2) ab <= sqrt(2). For a
    replacement such a block has spectral norm at most half of E's spread, so ||N|| <= 2; and twice its squared
    Frobenius norm is at most ||E||^2 <= 2, so N has at most 2 sqrt(2). Both times: spectrally at most ``step``, and so
    in Frobenius norm, there being m angles, at most sqrt(min(m, 2)) step. Hence sin 2t <= 1/r for each angle t; along
    S + cE, c from 0 to 1, the gap stays positive and the angles move from zero without a jump, so 2t <= arcsin(1/r)
    too; up to there sin 2t >= 2t / (r arcsin(1/r)), because the sine is concave. The squared distance is the sum of
    4 sin^2(t/2) <= t^2, hence at most arcsin^2(1/r) min(m, 2)/4.

    For r <= 1 the bound is that for any two spaces: 4 sin^2(pi/4) = 2 for each angle.
    """
    return math.sqrt(min(angles, 2)) / 2 * math.asin(1 / ratio) if ratio > 1 else math.sqrt(2 * angles)


def smooth_bound(gap: float, step: int, angles: int, beta: float) -> float:
    """Return U = max over j = 0, 1, 2, ... of e^(-beta j) A(j), A(j) the distance bound at a gap smaller by j steps.

    It is at least the local sensitivity (j = 0). The gaps of neighbours differ by at most a step, so A(j) of one is at
    most A(j + 1) of the other, and U changes by at most e^beta (NRS, Definition 2.1).

    The maximum is exact with three candidates. ln arcsin(1/x) is convex for x > 1: its derivative is
    -1 / (x sqrt(x^2 - 1) arcsin(1/x)), which with y = arcsin(1/x) is -sin^2 y / (y cos y), increasing in x since
    1/y <= tan y + 2 cot y. So among the j that leave a ratio above 1 the maximum is at the first or at the last one;
    among the others, where A is constant, at the first.

    Rounding. Computed eigenvalues of a d x d matrix of norm at most n are off by at most 8 d n 2^-53 (LAPACK's bound,
    with its modest constant taken as 8 d), which is 2^-15 at the largest d and n allowed here; eigenvectors are those
    of a matrix no further away. So the steps and the distances are increased by ``ROUNDING``.
    """
    ratio = gap / (step * (1 + ROUNDING))
    beyond = max(0, math.ceil(ratio) - 1)
    candidates = (0, max(0, beyond - 1), beyond)
    reached = max(math.exp(-beta * j) * subspace_distance_bound(ratio - j, angles) for j in candidates)
    return reached * (1 + ROUNDING)
