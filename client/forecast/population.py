"""Assumptions about the rows that a job will see: public facts, and guesses where nothing is known.

Everything is in units of the mean squared length of a row. Without hints, the components together explain half of it
(and half of their even share more), and the rest is spread evenly over all other directions. Nothing here comes from
data.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from scipy.special import gammainc, gammaincc, gammaincinv

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.job import MAX_DIMENSION, PRIVATE_BOUND, Centering, JobSpec
from dpspca.common.privacy import MAX_PROVIDERS, MAX_ROWS

_ROUNDING: Final = 1.001
"""Hints are given in a few digits; their sum may be off by this much."""
_ROUGH: Final = 16.0
"""A bound that is found privately is known to a factor of 16 first: on average, 4 times too long."""
_STEEPEST: Final = 40
_GROUPS: Final = 200
"""Groups of neighbouring eigenvalues that stand for all eigenvalues if there are many columns."""
_SHORTEST: Final = 1e-60
_LONGEST: Final = 1e60
_MOST_CLIPPED: Final = 1000
"""If rows are more times as long as the norm bound, clipping leaves nothing but their directions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hints:
    """Public facts about the rows; None if nothing is known.

    ``rows`` are those of all ``providers`` together, in equal parts. ``leading``, ``following`` and ``largest`` are the
    k-th, the next and the first eigenvalue of the rows' second moments, divided by the mean squared length of a row.
    ``support`` is how many columns take part in the components. ``row_length`` is the root of that mean. If it is not
    given, it follows from the job's norm bound, and is 1 if the job leaves that to the method.
    """

    rows: int
    providers: int = 1
    leading: float | None = None
    following: float | None = None
    largest: float | None = None
    support: int | None = None
    row_length: float | None = None

    def __post_init__(self) -> None:
        check_whole("the number of providers", self.providers, least=1, most=MAX_PROVIDERS)
        check_whole("the number of rows", self.rows, least=1, most=MAX_ROWS * MAX_PROVIDERS)
        check(
            self.rows >= 2 * self.providers,
            f"There are {self.rows} rows for {self.providers} provider{'' if self.providers == 1 else 's'}.",
            "Each provider needs two rows or more: give more rows, or fewer providers.",
        )
        if self.support is not None:
            check_whole("support", self.support, least=1, most=MAX_DIMENSION)
        for name in ("leading", "following", "largest"):
            value = getattr(self, name)
            check(
                value is None or (isinstance(value, int | float) and 0 <= value <= 1),
                f"{name} is {value!r}.",
                "Give the eigenvalue divided by the mean squared length of a row: a number from 0 to 1.",
            )
        check(
            self.leading is not None or (self.following is None and self.largest is None),
            "following or largest is given without leading.",
            "Give leading too: the k-th eigenvalue divided by the mean squared length of a row.",
        )
        length = self.row_length
        check(
            length is None or (isinstance(length, int | float) and _SHORTEST <= length <= _LONGEST),
            f"row_length is {self.row_length!r}.",
            f"Give the root of the mean squared length of a row, a number from {_SHORTEST:g} to {_LONGEST:g}.",
        )

    def used(self, spec: JobSpec) -> "Hints":
        """Return the same for the rows that a job uses: differences of pairs are half as many as rows."""
        if spec.centering is not Centering.PAIRS:
            return self
        return replace(self, rows=self.providers * max(2, self.rows // self.providers // 2))


@dataclass(frozen=True, eq=False, slots=True)
class Population:
    """The assumed population. ``others`` are the eigenvalues beside the leading ones, ``counts`` how many of each."""

    rows: int
    providers: int
    dimension: int
    leading: FloatArray
    others: FloatArray
    counts: FloatArray
    support: int
    row_length: float
    limit: float
    """The squared norm bound, in units of the mean squared length of a row."""

    @classmethod
    def of(cls, spec: JobSpec, hints: Hints) -> Self:
        """Complete the hints. Refuse eigenvalues that cannot be those of any rows."""
        dimension, count = spec.schema.dimension, spec.components
        support = dimension if hints.support is None else hints.support
        check_whole("support (from the number of components to that of columns)", support, least=count, most=dimension)
        last = (1 / count + 1 / dimension) / 2 if hints.leading is None else hints.leading
        first = last if hints.largest is None else hints.largest
        leading = _between(first, last, count, 1 - (hints.following or 0.0))
        left = dimension - count
        others, counts = _others(left, 1 - float(leading.sum()), hints.following)
        highest = float(others[0]) if left else 0.0
        check(
            first >= last > highest and leading.sum() <= _ROUNDING,
            f"The eigenvalues are {first:.3g} (largest), {last:.3g} (k-th) and {highest:.3g} (next) of the mean "
            f"squared length of a row, and {count} components explain {leading.sum():.3g} of it.",
            "Give largest >= leading > following. The eigenvalues of all components must add up to at most 1.",
        )
        squares = float(np.square(leading).sum() + counts @ np.square(others))
        usual = _usual_limit(squares)
        if spec.norm_bound == PRIVATE_BOUND:
            length, limit = hints.row_length or 1.0, _ROUGH * usual
        else:
            length = hints.row_length or spec.norm_bound / math.sqrt(usual)
            check(
                length <= _MOST_CLIPPED * spec.norm_bound,
                f"row_length is {length:g}, and the norm bound {spec.norm_bound:g}: all rows would be clipped to a "
                "small part of their length.",
                'Give a norm_bound near the length of rows, or "private".',
            )
            limit = (spec.norm_bound / length) ** 2
        return cls(hints.rows, hints.providers, dimension, leading, others, counts, support, length, limit)

    @property
    def components(self) -> int:
        return len(self.leading)

    @property
    def usual(self) -> float:
        """The mean of the eigenvalues beside the leading ones."""
        return float(self.counts @ self.others / self.counts.sum()) if self.counts.size else 0.0

    @property
    def squares(self) -> float:
        """The sum of the squared eigenvalues. The variance of a row's squared length is twice that."""
        return float(np.square(self.leading).sum() + self.counts @ np.square(self.others))

    @property
    def tight_bound(self) -> float:
        """A norm bound that clips few rows, which somebody who knows how long rows are would give."""
        return self.row_length * math.sqrt(_usual_limit(self.squares))

    def clipped(self, limit: float) -> "Population":
        """Return the population with the eigenvalues that are left when rows are clipped to this squared length.

        A row that is long along a component is long altogether: seen with the square along it as a weight, squared
        lengths have mean 1 + 2 l and variance 2 sum l^2 + 4 l^2. A gamma law with these two stands for theirs.
        """

        def left(values: FloatArray) -> FloatArray:
            means = 1 + 2 * values
            scales = (2 * self.squares + 4 * np.square(values)) / means
            return np.asarray(values * _part_kept(means / scales, scales, limit))

        return replace(self, leading=left(self.leading), others=left(self.others))


def _usual_limit(squares: float) -> float:
    """Return a squared length that few rows exceed: two standard deviations more than the mean of 1."""
    return 1 + 2 * math.sqrt(2 * squares)


def length_quantile(part: float, mean: float, squares: float) -> float:
    """Return the squared length that a part of the rows does not exceed, for eigenvalues of these sums."""
    return float(length_quantiles(np.array(part), mean, squares))


def length_quantiles(parts: FloatArray, mean: float, squares: float) -> FloatArray:
    """Return the squared lengths that these parts of the rows do not exceed."""
    scale = 2 * squares / mean
    return np.asarray(scale * gammaincinv(mean / scale, parts))


def _part_kept(shape: FloatArray, scale: FloatArray, limit: float) -> FloatArray:
    """Return E min(1, limit / X) for a gamma law; a shape of one or less does not occur (see ``clipped``)."""
    at = limit / scale
    beyond = gammaincc(np.maximum(shape - 1, 1e-9), at) / (scale * np.maximum(shape - 1, 0.2))
    return np.asarray(np.minimum(1.0, gammainc(shape, at) + limit * beyond))


def _between(first: float, last: float, count: int, room: float) -> FloatArray:
    """Return eigenvalues that fall from the first to the last by a power law, as those of real tables mostly do.

    If they would add up to more than there is room for, they fall faster.
    """
    if count == 1 or not last:
        return np.full(count, last)
    places = np.arange(1, count + 1)
    values = first * places ** (math.log(last / first) / math.log(count))
    for power in range(1, _STEEPEST):
        if values.sum() <= room:
            break
        falling = places ** -float(power)
        values = last + (first - last) * (falling - falling[-1]) / (1 - falling[-1])
    return np.asarray(values)


def _others(left: int, total: float, following: float | None) -> tuple[FloatArray, FloatArray]:
    """Spread what the components do not explain over the other directions, the largest eigenvalue first.

    Eigenvalues are as those of F u^a for a uniform u, with a such that their mean is right: all equal for a = 0, from 0
    to F evenly for a = 1.
    """
    if left == 0:
        return np.zeros(0), np.zeros(0)
    mean = max(total, 0.0) / left
    highest = mean if following is None else following
    check(
        highest * _ROUNDING >= mean,
        f"following is {highest:.3g}, but what the components leave is {mean:.3g} for each other direction.",
        f"Give at least {mean:.3g}, a larger leading (or largest), or leave following out.",
    )
    if highest <= mean * _ROUNDING or mean == 0.0:
        return np.full(1, mean), np.full(1, float(left))
    edges = np.unique(np.round(np.geomspace(1, left + 1, _GROUPS)))
    middles, counts = (edges[1:] + edges[:-1]) / 2 - 1, np.diff(edges)
    others = highest * (1 - middles / left) ** (highest / mean - 1)
    others[0] = highest
    others[1:] *= max(0.0, left * mean - highest * counts[0]) / max(counts[1:] @ others[1:], 1e-300)
    return np.minimum(others, highest), counts
