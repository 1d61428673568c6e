"""Where to clip rows that were scaled: shorter rows need less noise, but each of them also counts for less.

A row y = (u, v) of the scaled release has its part u along k components and the rest v in m directions, both of about
the same length. What is wanted is by how much the components have to be turned into the rest. An entry of the cross
block, the sum of u_i v_j over the rows, shows this. Let rows be clipped to the squared length c, and let r be a row's
squared length. If directions do not depend on lengths, then

- a turn shows in proportion to E min(r, c) - c P(r > c) / (m + 1). The second term is there because a turn also makes
  rows longer, and these are clipped more;
- the sampling variance of an entry is in proportion to E min(r, c)^2;
- the standard deviation of the noise is in proportion to c.

So the error for a bound follows from a histogram of lengths that was released, from the numbers of rows and columns and
from the noise of the plan, which grows with the number of providers. Choosing the bound is post-processing.

If the two parts differ in length, which the last release of ``auto`` allows, this is a rougher guess.

Lengths alone do not show whether some rows are long because of heavy tails, or because few directions have most of the
variance. The second is assumed. For normal rows no bound is then the best one where there is no noise, as it should be:
the spread E r^2 / (E r)^2 of p equal directions is 1 + 2 / p, and then a turn loses 2 c P(r > c) / (p + 2).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray

CHOICES: Final = (0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Shares of rows that are not clipped. The assumptions about rows may be wrong, so most of them keep their length."""
_PLACES: Final = 8


@dataclass(frozen=True, eq=False, slots=True)
class Lengths:
    """How long rows are: numbers of rows, and the square of the length of each."""

    rows: FloatArray
    squares: FloatArray

    @classmethod
    def in_bins(cls, counts: FloatArray) -> "Lengths":
        """Spread rows over places in their bins, which are those of ``NormHistogram``.

        The density is that of the parabola with the right areas over a bin and the two bins beside it.
        """
        places = (np.arange(_PLACES) + 0.5) / _PLACES - 0.5
        longer, shorter = np.append(counts[:1], counts[:-1]), np.append(counts[1:], 0.0)
        slope, bend = (shorter - longer) / 2, shorter + longer - 2 * counts
        within = counts[:, None] + slope[:, None] * places + bend[:, None] * (np.square(places) / 2 - 1 / 24)
        within = np.maximum(within, 0.0)
        within *= (counts / np.maximum(within.sum(axis=1), np.finfo(float).tiny))[:, None]
        squares = np.minimum(2.0 ** (0.5 - places - np.arange(len(counts))[:, None]), 1.0)
        squares[-1] = 0.0
        return cls(within.ravel(), squares.ravel())

    def left(self, square: float) -> float:
        """Return which part of the sum of squares is left if rows are clipped to this squared length."""
        before = float(self.rows @ self.squares)
        return float(self.rows @ np.minimum(self.squares, square)) / before if before else 1.0


@dataclass(frozen=True, slots=True)
class Clip:
    """A bound on squared lengths, the shares of moments and rotation that remain below it, and the error."""

    square: float
    left: float
    turn: float
    error: float

    @classmethod
    def at(cls, square: float, lengths: Lengths, parts: tuple[int, int], noise: float) -> "Clip":
        """Compute it for parts of ``parts`` directions. ``noise`` is that of an entry, for a squared bound of one."""
        along, rest = parts
        count, squares = float(lengths.rows.sum()), lengths.squares
        shares, cut = lengths.rows / count, np.minimum(squares, square)
        mean = float(shares @ cut)
        spread = float(shares @ np.square(squares)) / float(shares @ squares) ** 2
        beyond = square * float(shares[squares > square].sum()) / mean
        shown = mean * (1 - (1 - 1 / spread) * beyond)
        sampling = float(shares @ np.square(cut)) / (4 * along * rest * spread * count)
        error = (sampling + (noise * square / count) ** 2) / shown**2
        return cls(square, lengths.left(square), 1 - beyond / (rest + 1), error)


def best_clip(squares: Iterable[float], lengths: Lengths, parts: tuple[int, int], noise: float) -> Clip:
    """Choose the bound with the least error."""
    return min((Clip.at(square, lengths, parts, noise) for square in squares), key=lambda clip: clip.error)
