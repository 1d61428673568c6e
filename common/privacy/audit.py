"""Tests that hold the noise of answers against what was planned for it: pure functions of standardised numbers.

A residual is an answer less its exact value, divided by the planned standard deviation: were the noise as planned,
residuals would be independent standard normal numbers (integer noise is, to within its ``DRAW_SLACK`` and the width of
a lattice unit). Every test gives the probability of what was found, or worse, under noise that is as planned; a false
alarm of several tests together is at most the sum of their levels, whatever hangs together with what.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from scipy.special import chdtr, chdtrc, chdtri, ndtr

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


def _deviations(tail: float) -> float:
    """Give the number of standard deviations beyond which a normal number lies with this probability."""
    return math.sqrt(chdtri(1, 2 * tail))
