"""Statistical tests of the noise on answers against its plan: pure functions of standardised numbers.

A residual is an answer minus its exact value, divided by the planned standard deviation. If the noise is as planned,
residuals are independent standard normal numbers (integer noise is, up to its ``DRAW_SLACK`` and the width of a lattice
unit). Every test returns its p-value: the probability of the observed or a worse result under planned noise. The false
alarm probability of several tests together is at most the sum of their levels, however they depend on each other.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv, chdtr, chdtrc, chdtri, ndtr, ndtri, ndtri_exp

from dpspca.common.arrays import FloatArray

POWER: Final = 0.99
CELLS: Final = 32
"""Number of intervals of equal probability in which residuals are counted."""
FEWEST: Final = 32 * 32
"""Fewest residuals for a test of shape or correlation: with fewer, the limit law is not accurate enough."""


class AuditKind(StrEnum):
    """The properties that tests examine."""

    WIDTH = "width"
    SHAPE = "shape"
    RELATION = "relation"
    DISTANCE = "distance"
    EVENT = "event"
    TIME = "time"
    SILENCE = "silence"
    REACH = "reach"


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of one test: its p-value if the noise is as planned, and the level below which it fails."""

    kind: AuditKind
    name: str
    probability: float
    level: float
    draws: int
    measured: float
    planned: float
    catches: float | None = None
    """The fault that this test finds with probability ``POWER``, in the unit of ``planned``, if any."""

    @property
    def passed(self) -> bool:
        """Whether the p-value is at least the level."""
        return self.probability >= self.level


def width(name: str, residuals: FloatArray, level: float) -> AuditResult:
    """Test the width of noise, two-sided: the sum of squares of n residuals follows chi-square with n degrees.

    Noise of c < 1 times the planned width is found with probability ``POWER`` if c^2 is at most the quotient of the two
    quantiles below; ``catches`` is the largest such c.
    """
    draws = residuals.size
    total = float(np.square(residuals).sum())
    probability = 2 * min(float(chdtr(draws, total)), float(chdtrc(draws, total)))
    catches = math.sqrt(chdtri(draws, 1 - level / 2) / chdtri(draws, 1 - POWER))
    return AuditResult(
        AuditKind.WIDTH, name, min(1.0, probability), level, draws, math.sqrt(total / draws), 1.0, catches
    )


def shape(name: str, residuals: FloatArray, level: float) -> AuditResult:
    """Test that residuals are normal: chi-square of their counts in ``CELLS`` intervals of equal probability."""
    places = np.minimum((ndtr(residuals) * CELLS).astype(np.intp), CELLS - 1)
    expected = residuals.size / CELLS
    distance = float((np.square(np.bincount(places, minlength=CELLS) - expected) / expected).sum())
    return AuditResult(
        AuditKind.SHAPE, name, float(chdtrc(CELLS - 1, distance)), level, residuals.size, distance, CELLS - 1
    )


def silence(name: str, numbers: NDArray[np.int64], level: float) -> AuditResult:
    """Test that all numbers are zero, where a provider has no data: noise would be a mistake, data would be worse."""
    nonzero = int(np.count_nonzero(numbers))
    return AuditResult(AuditKind.SILENCE, name, 0.0 if nonzero else 1.0, level, numbers.size, float(nonzero), 0.0)


def reach(name: str, moved: float, sensitivity: float, level: float) -> AuditResult:
    """Test that exact answers over neighbours are no further apart than the sensitivity that is charged for.

    There is no noise in it, and so no false alarm. A sensitivity that is stated too small is found if it is below
    ``catches`` times the true one.
    """
    close = moved <= sensitivity
    return AuditResult(AuditKind.REACH, name, float(close), level, 1, moved, sensitivity, min(1.0, moved / sensitivity))


def correlation(name: str, some: FloatArray, others: FloatArray, level: float) -> AuditResult:
    """Test that paired residuals are uncorrelated: the sum of n products has variance n.

    Noise that is used twice has a correlation of one, which 1,024 pairs show beyond doubt.
    """
    measured = float((some * others).sum()) / some.size
    probability = 2 * float(ndtr(-abs(measured) * math.sqrt(some.size)))
    return AuditResult(AuditKind.RELATION, name, probability, level, some.size, measured, 0.0)


def distance(name: str, some: FloatArray, others: FloatArray, mu: float, level: float) -> AuditResult:
    """Test that answers about two neighbours are at most ``mu`` apart along the line on which they differ most.

    Both are projections divided by the planned width, so they have variance one. The means of mu-GDP releases are at
    most mu apart. A true distance of ``catches`` is found with probability ``POWER``.
    """
    spread = math.sqrt(1 / some.size + 1 / others.size)
    measured = abs(float(some.mean() - others.mean()))
    probability = min(1.0, 2 * float(ndtr((mu - measured) / spread)))
    catches = mu + spread * (_normal_quantile(level / 2) + _normal_quantile(1 - POWER))
    return AuditResult(AuditKind.DISTANCE, name, probability, level, some.size + others.size, measured, mu, catches)


MOST_SHARE: Final = 0.55
"""Largest share of pairs in which the same neighbour may take longer."""


def answer_time(name: str, longer: NDArray[np.bool_], level: float) -> AuditResult:
    """Test that the answer about the same neighbour takes longer in at most a ``MOST_SHARE`` of pairs.

    The order within each pair must have been chosen by a coin. If each pair has at most that probability, whatever the
    other pairs did, the count is at most binomial, in either direction. A true share of ``catches`` is found with
    probability ``POWER``; it is ``None`` if there are too few pairs to find anything.
    """
    pairs = longer.size
    most = max(int(longer.sum()), pairs - int(longer.sum()))
    probability = min(1.0, 2 * _binomial_tail(most, pairs, MOST_SHARE))
    found = (
        count for count in range(pairs // 2 + 1, pairs + 1) if 2 * _binomial_tail(count, pairs, MOST_SHARE) < level
    )
    least = next(found, None)
    catches = None if least is None else float(betaincinv(least, pairs - least + 1, POWER))
    return AuditResult(AuditKind.TIME, name, probability, level, pairs, most / pairs, MOST_SHARE, catches)


def _binomial_tail(count: int, pairs: int, share: float) -> float:
    """Return the probability that a binomial number is at least ``count``."""
    return 1.0 if count <= 0 else float(betainc(count, pairs - count + 1, share))


def event(
    name: str,
    some: NDArray[np.bool_],
    others: NDArray[np.bool_],
    claim: tuple[float, float],
    level: float,
) -> AuditResult:
    """Test the (epsilon, delta) ``claim`` on the probabilities of a set of answers over two neighbours.

    ``some`` and ``others`` say which answers over each neighbour were in the set, which must have been chosen without
    looking at these answers. By Clopper and Pearson's bounds, each at half a level, P >= l and P' <= u except with that
    level; l > e^epsilon u + delta then refutes the claim. The set or its complement and the order of the neighbours
    give four such tests at a quarter of the level each. ``probability`` is the least level at which one of them
    refutes.

    ``catches`` is the largest epsilon (for this delta) that this many answers can refute: the one refuted by a set with
    all answers over one neighbour and none over the other. It is ``None`` if they cannot refute any claim.
    """
    counts = [(int(part.sum()), part.size) for part in (some, others, ~some, ~others)]
    pairs = [(counts[at], counts[at ^ 1]) for at in range(4)]
    probability = min(1.0, 4 * min(_least_level(*pair, claim) for pair in pairs))
    measured = max(0.0, *(_epsilon_estimate(*pair, claim[1]) for pair in pairs))
    best = _epsilon_bound((some.size, some.size), (0, others.size), claim[1], level / 4)
    return AuditResult(
        AuditKind.EVENT,
        name,
        probability,
        level,
        some.size + others.size,
        measured,
        claim[0],
        best if best > 0 else None,
    )


_Count: TypeAlias = tuple[int, int]
"""A count, and the number that it is out of."""


def _least_level(some: _Count, others: _Count, claim: tuple[float, float]) -> float:
    """Bisect to the least level at which the bounds refute the claim; 1 if none does."""
    refutes, agrees = 0.0, -600.0
    if _epsilon_bound(some, others, claim[1], 1.0) <= claim[0]:
        return 1.0
    for _ in range(60):
        middle = (refutes + agrees) / 2
        found = _epsilon_bound(some, others, claim[1], math.exp(middle)) > claim[0]
        refutes, agrees = (middle, agrees) if found else (refutes, middle)
    return math.exp(refutes)


def _epsilon_bound(some: _Count, others: _Count, delta: float, level: float) -> float:
    """Return a lower confidence bound on epsilon at this level, minus infinity if there is none."""
    (held, of), (rest, among) = some, others
    least = float(betaincinv(held, of - held + 1, level / 2)) if held else 0.0
    most = 1 - float(betaincinv(among - rest, rest + 1, level / 2)) if rest < among else 1.0
    return math.log((least - delta) / most) if least > delta else -math.inf


def _epsilon_estimate(some: _Count, others: _Count, delta: float) -> float:
    """Return the epsilon of the observed frequencies."""
    frequency, other = some[0] / some[1], max(others[0], 1) / others[1]
    return math.log((frequency - delta) / other) if frequency > delta else -math.inf


def angles_as_normal(residuals: FloatArray, direction: FloatArray) -> FloatArray:
    """Turn the angle of each row of residuals to a direction into a number that is normal if no angle is preferred.

    If the direction of a vector is uniform in n dimensions and c is the cosine of its angle to a fixed line, (1 + c)/2
    follows Beta((n - 1)/2, (n - 1)/2). Its distribution function makes it uniform, and a normal quantile normal. The
    lengths of the vectors do not matter, so noise of the right width that avoids a direction shows here.
    """
    cosines = residuals @ direction / (np.linalg.norm(residuals, axis=1) * np.linalg.norm(direction))
    half = (direction.size - 1) / 2
    normal: FloatArray = ndtri(np.clip(betainc(half, half, (1 + cosines) / 2), 2.0**-53, 1 - 2.0**-53))
    return normal


def laplace_as_normal(residuals: NDArray[np.int64], scale: float, uniforms: FloatArray) -> FloatArray:
    """Turn discrete Laplace residuals of this scale into exactly normal ones, given a uniform number for each.

    With q = e^(-1/scale), P(x >= m) = q^m/(1 + q) for m >= 1. The uniform number splits the probability of the integer
    itself, so that the distribution function is uniform and its normal quantile normal.
    """
    ratio, sizes = math.exp(-1 / scale), np.abs(residuals).astype(np.float64)
    within = np.log1p(-uniforms * -math.expm1(-1 / scale))
    tails = -ndtri_exp(within - sizes / scale - math.log1p(ratio))
    at_zero = ndtri((ratio + uniforms * (1 - ratio)) / (1 + ratio))
    normal: FloatArray = np.where(sizes == 0, at_zero, np.sign(residuals) * tails)
    return normal


def _normal_quantile(tail: float) -> float:
    """Return the number that a standard normal exceeds with this probability."""
    return math.sqrt(chdtri(1, 2 * tail))
