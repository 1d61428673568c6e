"""Integer noise: discrete Gaussian and discrete Laplace draws, provably close to their ideal distributions.

Given uniform random words, every draw is within total variation ``DRAW_SLACK`` = 2^-160 of the ideal. At any scale it
takes 5 to 25 nanoseconds. Write rho_s(x) = exp(-x²/2s²); the discrete Gaussian D(s) has P(x) proportional to
rho_s(x) on the integers.

Poisson summation. For every real t, sum over integers x of rho_s(x - t) = sqrt(2 pi) s (1 + 2 sum over k >= 1 of
exp(-2 pi² s² k²) cos(2 pi k t)), hence is constant in t up to a factor 1 ± e(s), with e(s) = 2 exp(-2 pi² s²)(1 +
tiny). If a distribution is proportional to p(x)(1 + d(x)) with p a distribution and |d| <= e, its total variation
distance from p is at most e/(1 - e): half the mean of |d - mean d|/(1 + mean d) over p.

Wide Gaussians are sums (Peikert 2010; Micciancio & Walter 2017). With X ~ D(s_0), Y ~ D(s_1) independent and c an
integer, complete the square: P(X + cY = z) is proportional to rho_s(z) times the sum over y of rho_t(y - m(z)), where
s² = s_0² + c² s_1², 1/t² = c²/s_0² + 1/s_1². By the above X + cY is within e(t)/(1 - e(t)) of D(s). Here s_0 = 2048,
and c <= 835, s_1 >= 700 give t >= 2.45 and a distance below 2^-169. Y is split in the same way until it fits one alias
table. As rational numbers, the variances add up exactly to the requested one.

Wide Laplace draws are exact sums. A geometric G with ratio q satisfies P(G = d + B g) proportional to q^d q^(Bg) for
0 <= d < B: last digit and rest are independent, and the rest is geometric with ratio q^B. Discrete Laplace is the
difference of two such G, hence (d - d') + B times a discrete Laplace with ratio q^B; each d - d' is one lookup.

Tails. One table covers 15 s of a Gaussian: P(|x| > n) <= 2 integral from n of rho_s / (sqrt(2 pi) s) <= 2 phi(15)/15 <
2^-166. It covers 116 b of a Laplace: P(|x| >= n) = 2 q^n/(1 + q) <= 2 exp(-116) < 2^-166.

Slack. At most 6 tables, each cut and rounded (2^-175, see ``alias_tables``), and 5 sums: 6 (2^-166 + 2^-175) + 5
2^-169, and e(2.6) < 2^-191 for the lemma below: less than 2^-160 in all. Distances add along the sums because X + cY is
a function of independent parts. A vector of n draws is within n times that.

Lemma (discrete Gaussian noise is post-processing of continuous Gaussian noise). Let f be an integer. Draw T = f +
N(0, s_c²), then Z from the discrete Gaussian on the integers centred at T with parameter s_r: P(z | T = t) =
rho_{s_r}(z - t) / sum over x of rho_{s_r}(x - t). The denominator is sqrt(2 pi) s_r (1 ± e(s_r)) whatever t is, and
the integral of phi_{s_c}(t - f) rho_{s_r}(z - t) dt is proportional to rho_s(z - f) with s² = s_c² + s_r². So Z is
within 2^-191 of f + D(s) if s_r = 2.6. Releasing f + D(s) is therefore, up to the charged slack, a post-processing of
releasing f + N(0, s_c²), coordinate by coordinate: mu-GDP with mu = sensitivity/s_c exactly. ``lattice_std`` turns s_c
into s.

All draws are made in whole batches, before any data are read. Their time depends on the count and, for about one lookup
in 65,000 that needs further words, on the random words; never on data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from dpspca.common.errors import InvalidParameterError

from .alias_tables import (
    LARGEST_REACH,
    AliasTable,
    BatchBuffers,
    digit_difference_weights,
    gaussian_weights,
    geometric_weights,
    scaled_exp,
)
from .keystream import WordSource

DRAW_SLACK: Final = 2.0**-160
"""Bound on the total variation distance of a draw from its ideal distribution, including the lemma above."""

SMALLEST_SCALE: Final = 2.0**-3
LARGEST_STD: Final = 2.0**55
LARGEST_LAPLACE_SCALE: Final = 2.0**52  # its longer tails stay below 2^60, so sums of eight draws fit 64 bits
LATTICE_ROUNDING_STD: Final = Fraction(13, 5)  # the s_r of the lemma

_BATCH: Final = 1 << 15  # words at a time: buffers and one table share a second-level cache
_CACHED: Final = 16  # tables, of 2 MiB at most
_REMEMBERED: Final = 256  # widths, as a few numbers each

_GAUSSIAN_TAIL: Final = 15  # a table covers this many standard deviations
_LARGEST_TABLE_VARIANCE: Final = Fraction(LARGEST_REACH // _GAUSSIAN_TAIL) ** 2
_BASE_VARIANCE: Final = Fraction(2048) ** 2
_LARGEST_STRIDE: Final = 835

_LAPLACE_TAIL: Final = 116  # a table covers this many scales
_LAPLACE_REACH: Final = LARGEST_REACH // 2  # half the cells, because a new scale needs new tables at every level
_LARGEST_TABLE_SCALE: Final = _LAPLACE_REACH // _LAPLACE_TAIL


@dataclass(frozen=True, slots=True)
class _Term:
    """One independent summand of a draw: a table's value times a multiplier."""

    table: AliasTable
    multiplier: int


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """Noise with P(x) proportional to exp(-x²/2 std²) on the integers, within ``DRAW_SLACK``."""

    std: float

    def __post_init__(self) -> None:
        _require_between(self.std, SMALLEST_SCALE, LARGEST_STD, "standard deviation")

    @classmethod
    def with_std_at_least(cls, std: float) -> Self:
        """Return noise whose parameter ``std`` is at least the requested one; in fact it equals it."""
        return cls(float(std))

    def sample(self, count: int, source: WordSource) -> NDArray[np.int64]:
        """Return ``count`` independent draws."""
        return _sums(_gaussian_terms(self.std), count, source)


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """Noise with P(x) proportional to exp(-|x|/scale) on the integers, within ``DRAW_SLACK``."""

    scale: float

    def __post_init__(self) -> None:
        _require_between(self.scale, SMALLEST_SCALE, LARGEST_LAPLACE_SCALE, "scale")

    @classmethod
    def with_scale_at_least(cls, scale: float) -> Self:
        """Return noise whose ``scale`` is at least the requested one; in fact it equals it."""
        return cls(float(scale))

    def sample(self, count: int, source: WordSource) -> NDArray[np.int64]:
        """Return ``count`` independent draws."""
        return _sums(_laplace_terms(Fraction(self.scale)), count, source)


@lru_cache(maxsize=_REMEMBERED)
def lattice_std(continuous_std: float) -> float:
    """Return the least float not below sqrt(continuous_std² + 2.6²).

    By the lemma above, integer noise of this ``std`` is as private as N(0, continuous_std²).
    """
    if not 0 <= continuous_std < math.inf:
        raise InvalidParameterError(
            f"A standard deviation cannot be {continuous_std}.", "Give a finite number of at least 0."
        )
    variance = Fraction(continuous_std) ** 2 + LATTICE_ROUNDING_STD**2
    std = math.nextafter(math.hypot(continuous_std, float(LATTICE_ROUNDING_STD)), 0.0)
    while Fraction(std) ** 2 < variance:
        std = math.nextafter(std, math.inf)
    return std


def _sums(terms: Sequence[_Term], count: int, source: WordSource) -> NDArray[np.int64]:
    """Return ``count`` draws of the sum of the terms, a batch at a time."""
    if count < 0:
        raise InvalidParameterError(f"Cannot draw {count} numbers.", "Ask for zero or more.")
    draws = np.empty(count, np.int64)
    lowest = sum(term.multiplier * term.table.reach for term in terms)
    scratch = BatchBuffers(min(count, _BATCH))
    for start in range(0, count, _BATCH):
        batch = draws[start : start + _BATCH]
        if len(batch) != len(scratch.values):
            scratch = BatchBuffers(len(batch))
        batch[...] = terms[0].table.look_up(source, scratch)  # its multiplier is one
        for term in terms[1:]:
            np.multiply(term.table.look_up(source, scratch), term.multiplier, out=scratch.values, dtype=np.int64)
            batch += scratch.values
        batch -= lowest
    return draws


def _gaussian_terms(std: float) -> list[_Term]:
    """Return independent terms that add up to a discrete Gaussian."""
    return [_Term(_gaussian_table(variance), multiplier) for variance, multiplier in _gaussian_parts(std)]


@lru_cache(maxsize=_REMEMBERED)
def _gaussian_parts(std: float) -> tuple[tuple[Fraction, int], ...]:
    """Split a variance into the variances of the terms, each with its multiplier; they add up exactly."""
    parts, multiplier, variance = [], 1, Fraction(std) ** 2
    while variance > _LARGEST_TABLE_VARIANCE:
        parts.append((_BASE_VARIANCE, multiplier))
        rest = variance - _BASE_VARIANCE
        stride = min(_LARGEST_STRIDE, _root_above(rest / _LARGEST_TABLE_VARIANCE, 2))
        multiplier, variance = multiplier * stride, rest / stride**2
    return (*parts, (variance, multiplier))


@lru_cache(maxsize=_CACHED)
def _gaussian_table(variance: Fraction) -> AliasTable:
    reach = math.isqrt(math.ceil(_GAUSSIAN_TAIL**2 * variance) - 1) + 1
    return AliasTable.symmetric(gaussian_weights(variance, reach))


def _laplace_terms(scale: Fraction) -> list[_Term]:
    """Return independent terms that add up to a discrete Laplace of the scale, exactly.

    The base is the least that needs the fewest digits, because small tables are fast to build and to read.
    """
    digits = 0
    while scale > _LARGEST_TABLE_SCALE * (_LAPLACE_REACH + 1) ** digits:
        digits += 1
    base = _root_above(scale / _LARGEST_TABLE_SCALE, digits) if digits else 1
    terms = [_Term(_digit_table(scale / base**place, base), base**place) for place in range(digits)]
    return [*terms, _Term(_laplace_table(scale / base**digits), base**digits)]


@lru_cache(maxsize=_CACHED)
def _digit_table(scale: Fraction, base: int) -> AliasTable:
    return AliasTable.symmetric(digit_difference_weights(scaled_exp(-1 / scale), base))


@lru_cache(maxsize=_CACHED)
def _laplace_table(scale: Fraction) -> AliasTable:
    return AliasTable.symmetric(geometric_weights(scaled_exp(-1 / scale), math.ceil(_LAPLACE_TAIL * scale)))


def _root_above(value: Fraction, degree: int) -> int:
    """Return the least positive integer whose power is at least ``value``."""
    root = max(1, math.floor(math.pow(value, 1 / degree)) - 1)
    while root**degree < value:
        root += 1
    return root


def _require_between(value: float, least: float, largest: float, name: str) -> None:
    if not least <= value <= largest:
        raise InvalidParameterError(
            f"Integer noise cannot have {name} {value}.",
            f"Choose it between {least} and 2^{math.log2(largest):.0f}, or choose a different lattice unit.",
        )
