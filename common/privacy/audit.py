"""Tests that hold the noise of answers against what was planned for it: pure functions of standardised numbers.

A residual is an answer less its exact value, divided by the planned standard deviation: were the noise as planned,
residuals would be independent standard normal numbers (integer noise is, to within its ``DRAW_SLACK`` and the width of
a lattice unit). Every test gives the probability of what was found, or worse, under noise that is as planned; a false
alarm of several tests together is at most the sum of their levels, whatever hangs together with what.
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
"""Of equal probability, in which residuals are counted."""
FEWEST: Final = 32 * 32
"""Residuals below which neither a fit nor a correlation is judged: its law would not be near enough to its limit."""


class Kind(StrEnum):
    """What a test looks at."""

    WIDTH = "width"
    SHAPE = "shape"
    RELATION = "relation"
    DISTANCE = "distance"
    EVENT = "event"
    TIME = "time"
    SILENCE = "silence"


@dataclass(frozen=True, slots=True)
class Finding:
    """One test: how probable what it found is if all is as planned, and the least probability that passes."""

    kind: Kind
    name: str
    probability: float
    level: float
    draws: int
    measured: float
    planned: float
    catches: float | None = None
    """The fault that this test would find with probability ``POWER``: a width, or a mu, as ``planned`` is one."""

    @property
    def passed(self) -> bool:
        """Tell whether this was to be expected."""
        return self.probability >= self.level


def width(name: str, residuals: FloatArray, level: float) -> Finding:
    """Test the width of noise, both ways: the sum of squares of n residuals follows chi-square with n degrees.

    Noise of c times the planned width, c below one, is found with probability ``POWER`` if c^2 is at most the quotient
    of the two quantiles below; that c is what ``catches`` says.
    """
    draws = residuals.size
    total = float(np.square(residuals).sum())
    probability = 2 * min(float(chdtr(draws, total)), float(chdtrc(draws, total)))
    catches = math.sqrt(chdtri(draws, 1 - level / 2) / chdtri(draws, 1 - POWER))
    return Finding(Kind.WIDTH, name, min(1.0, probability), level, draws, math.sqrt(total / draws), 1.0, catches)


def shape(name: str, residuals: FloatArray, level: float) -> Finding:
    """Test that residuals are normal: they fall into ``CELLS`` of equal probability equally often (chi-square)."""
    places = np.minimum((ndtr(residuals) * CELLS).astype(np.intp), CELLS - 1)
    expected = residuals.size / CELLS
    distance = float((np.square(np.bincount(places, minlength=CELLS) - expected) / expected).sum())
    return Finding(Kind.SHAPE, name, float(chdtrc(CELLS - 1, distance)), level, residuals.size, distance, CELLS - 1)


def silent(name: str, numbers: NDArray[np.int64], level: float) -> Finding:
    """Test that all numbers are zero: where nothing can be said noise is a mistake, and anything else is worse."""
    loud = int(np.count_nonzero(numbers))
    return Finding(Kind.SILENCE, name, 0.0 if loud else 1.0, level, numbers.size, float(loud), 0.0)


def unrelated(name: str, some: FloatArray, others: FloatArray, level: float) -> Finding:
    """Test that residuals have nothing to do with others, pair by pair: the sum of products has variance n.

    Noise that is used twice has a correlation of one, and is found among 1,024 pairs as surely as anything can be.
    """
    correlation = float((some * others).sum()) / some.size
    probability = 2 * float(ndtr(-abs(correlation) * math.sqrt(some.size)))
    return Finding(Kind.RELATION, name, probability, level, some.size, correlation, 0.0)


def told_apart(name: str, some: FloatArray, others: FloatArray, mu: float, level: float) -> Finding:
    """Test how far apart answers over two neighbours are, along the line on which they differ most: at most ``mu``.

    Both are projections divided by the planned width, hence of variance one. Of mu-GDP releases, the means are at most
    mu apart. A true distance of ``catches`` is found with probability ``POWER``.
    """
    spread = math.sqrt(1 / some.size + 1 / others.size)
    distance = abs(float(some.mean() - others.mean()))
    probability = min(1.0, 2 * float(ndtr((mu - distance) / spread)))
    catches = mu + spread * (_deviations(level / 2) + _deviations(1 - POWER))
    return Finding(Kind.DISTANCE, name, probability, level, some.size + others.size, distance, mu, catches)


MOST_AREA: Final = 0.55
"""What the time of one answer may tell: how often the neighbour that took longer is the same one."""


def timed(name: str, longer: NDArray[np.bool_], level: float) -> Finding:
    """Test how often the answer over the same one of two neighbours took longer: in at most ``MOST_AREA`` of pairs.

    Which of a pair was asked first must have been chosen by a coin. If each pair says so with at most that probability
    whatever the others did, the number that do is at most binomial, in either direction. A true share of ``catches``
    is found with probability ``POWER``; where there are too few pairs to find anything, there is none.
    """
    pairs = longer.size
    most = max(int(longer.sum()), pairs - int(longer.sum()))
    probability = min(1.0, 2 * _at_least(most, pairs, MOST_AREA))
    found = (count for count in range(pairs // 2 + 1, pairs + 1) if 2 * _at_least(count, pairs, MOST_AREA) < level)
    least = next(found, None)
    catches = None if least is None else float(betaincinv(least, pairs - least + 1, POWER))
    return Finding(Kind.TIME, name, probability, level, pairs, most / pairs, MOST_AREA, catches)


def _at_least(count: int, pairs: int, share: float) -> float:
    """Give the probability that a binomial number is at least so large."""
    return 1.0 if count <= 0 else float(betainc(count, pairs - count + 1, share))


def outdone(
    name: str,
    some: NDArray[np.bool_],
    others: NDArray[np.bool_],
    claim: tuple[float, float],
    level: float,
) -> Finding:
    """Test that a set of answers is as nearly as probable over both neighbours as (epsilon, delta) ``claim`` says.

    ``some`` and ``others`` say which answers over either were in the set, which must have been chosen without looking
    at these answers. With Clopper and Pearson's bounds, each at half a level, P >= l and P' <= u but for that level;
    l > e^epsilon u + delta is then found out. The set, its complement and the neighbours' order give four such tests,
    of which a quarter of the level goes to each. ``probability`` is the least level at which one of them speaks.

    ``catches`` is the largest epsilon (for this delta) of which a set could convict a mechanism, one that held all
    answers over the one and none over the other: a claim above it cannot be refuted with so few answers, and where
    there is none, no claim can.
    """
    counts = [(int(part.sum()), part.size) for part in (some, others, ~some, ~others)]
    pairs = [(counts[at], counts[at ^ 1]) for at in range(4)]
    probability = min(1.0, 4 * min(_least_level(*pair, claim) for pair in pairs))
    measured = max(0.0, *(_seen(*pair, claim[1]) for pair in pairs))
    best = _seen_at((some.size, some.size), (0, others.size), claim[1], level / 4)
    return Finding(
        Kind.EVENT, name, probability, level, some.size + others.size, measured, claim[0], best if best > 0 else None
    )


_Count: TypeAlias = tuple[int, int]
"""How many, of how many."""


def _least_level(some: _Count, others: _Count, claim: tuple[float, float]) -> float:
    """Bisect to the least level at which the bounds contradict the claim; 1 if none does."""
    contradicts, agrees = 0.0, -600.0
    if _seen_at(some, others, claim[1], 1.0) <= claim[0]:
        return 1.0
    for _ in range(60):
        middle = (contradicts + agrees) / 2
        found = _seen_at(some, others, claim[1], math.exp(middle)) > claim[0]
        contradicts, agrees = (middle, agrees) if found else (contradicts, middle)
    return math.exp(contradicts)


def _seen_at(some: _Count, others: _Count, delta: float, level: float) -> float:
    """Give the epsilon that is exceeded but for this level, minus infinity if none is."""
    (held, of), (rest, among) = some, others
    least = float(betaincinv(held, of - held + 1, level / 2)) if held else 0.0
    most = 1 - float(betaincinv(among - rest, rest + 1, level / 2)) if rest < among else 1.0
    return math.log((least - delta) / most) if least > delta else -math.inf


def _seen(some: _Count, others: _Count, delta: float) -> float:
    """Give the epsilon that the frequencies suggest."""
    frequency, other = some[0] / some[1], max(others[0], 1) / others[1]
    return math.log((frequency - delta) / other) if frequency > delta else -math.inf


def angles_as_normal(residuals: FloatArray, direction: FloatArray) -> FloatArray:
    """Turn the angles of residuals, a row each, to a direction into numbers that are normal if no angle is preferred.

    Of a vector whose direction is uniform in n dimensions the cosine c of its angle to any line has (1 + c)/2 follow
    Beta((n - 1)/2, (n - 1)/2); the distribution function of that makes it uniform, and a normal quantile normal. How
    long the vectors are plays no part: noise of the right width that avoids a direction shows here.
    """
    cosines = residuals @ direction / (np.linalg.norm(residuals, axis=1) * np.linalg.norm(direction))
    half = (direction.size - 1) / 2
    normal: FloatArray = ndtri(np.clip(betainc(half, half, (1 + cosines) / 2), 2.0**-53, 1 - 2.0**-53))
    return normal


def laplace_as_normal(residuals: NDArray[np.int64], scale: float, uniforms: FloatArray) -> FloatArray:
    """Turn discrete Laplace residuals of this scale into exactly normal ones, given as many uniform numbers.

    With q = e^(-1/scale), P(x >= m) = q^m/(1 + q) for m >= 1. A uniform number divides the probability of the integer
    itself, so that the distribution function is uniform, and its normal quantile normal.
    """
    ratio, sizes = math.exp(-1 / scale), np.abs(residuals).astype(np.float64)
    within = np.log1p(-uniforms * -math.expm1(-1 / scale))
    tails = -ndtri_exp(within - sizes / scale - math.log1p(ratio))
    at_zero = ndtri((ratio + uniforms * (1 - ratio)) / (1 + ratio))
    normal: FloatArray = np.where(sizes == 0, at_zero, np.sign(residuals) * tails)
    return normal


def _deviations(tail: float) -> float:
    """Give the number of standard deviations beyond which a normal number lies with this probability."""
    return math.sqrt(chdtri(1, 2 * tail))
