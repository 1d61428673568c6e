"""Choose columns, or pairs of them, by their scores: exponential mechanisms in integers, exact up to ``PICK_SLACK``.

A choice of whole score u is made with probability proportional to exp(u / scale). Equal scores are taken together, as a
level: first a level is drawn, by weights that are integers, and then one of its members, each as likely as the next.

Why each choice is within ``PICK_SLACK`` = 2^-180 of the exponential mechanism in total variation. Weights are
exp((u - m) / scale) for the largest score m that is left, in units of 2^-240, each a product of two that are within 2
units (``alias_tables.scaled_exp``). What is below one unit counts as 0. At most 2^27 choices are wrong by 6 units each,
and the whole is at least 2^240 units: 2^30 / 2^240. The draw is floor(U total / 2^512) for 512 uniform bits U, which
favours an outcome by at most total / 2^512 < 2^(267 - 512). No random number is drawn again, so the time of a draw does
not depend on the weights.

Time: the number of levels that a draw looks at follows from the scale and from the number of rows. One row more adds at
most one level. Nothing is kept from one query to the next. A list that was ready because somebody had asked about as
many rows before would show how many rows there are.
"""

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .alias_tables import scaled_exp
from .keystream import WordSource
from .lattice import MAX_ROWS

PICK_SLACK: Final = 2.0**-180
_UNIT_BITS: Final = 240
_DRAW_WORDS: Final = 16
_NEGLIGIBLE: Final = 170
"""exp(-170) is below 2^-240."""
_STEP: Final = 256
_COUNTED: Final = 2**22
"""Scores that are counted at a time."""


Scores = NDArray[np.int32]


def pick_pairs(
    scores: Scores, picks: int, scale: float, words: WordSource, *, largest: int = MAX_ROWS
) -> list[tuple[int, int]]:
    """Choose pairs i < j of columns, each choice among the pairs that add a column to those chosen before.

    ``scores`` is symmetric and not negative. Fewer pairs are chosen if no more columns are left.
    ``largest`` is a bound on scores, the number of rows. The work follows from it and from the scale.
    """
    left = np.full_like(scores, -1)
    for column in range(len(left)):
        left[column, column + 1 :] = scores[column, column + 1 :]
    levels = _levels(left)
    weights = _weights(scale, largest)
    chosen: list[tuple[int, int]] = []
    columns: set[int] = set()
    for _ in range(picks):
        if not levels.any():
            break
        chosen.append(divmod(_pick(left.reshape(-1), levels, weights, words), len(left)))
        for column in set(chosen[-1]) - columns:
            columns.add(column)
            _take_out(left, levels, column, columns)
    return chosen


def _levels(left: Scores) -> NDArray[np.int64]:
    """Count the pairs of each score, some columns at a time: numpy makes 64 bits of each number that it counts."""
    levels = np.zeros(max(0, int(left.max(initial=0))) + 1, dtype=np.int64)
    step = max(1, _COUNTED // max(1, len(left)))
    for start in range(0, len(left), step):
        block = left[start : start + step]
        levels += np.bincount(block[block >= 0], minlength=len(levels))
    return levels


def pick_columns(scores: Scores, picks: int, scale: float, words: WordSource, *, largest: int = MAX_ROWS) -> list[int]:
    """Choose columns, each choice among those not chosen before. A negative score takes a column out of the choice."""
    left = scores.copy()
    levels, weights = np.bincount(left[left >= 0], minlength=1), _weights(scale, largest)
    chosen: list[int] = []
    for _ in range(picks):
        if not levels.any():
            break
        chosen.append(_pick(left, levels, weights, words))
        levels[left[chosen[-1]]] -= 1
        left[chosen[-1]] = -1
    return chosen


def _pick(left: Scores, levels: NDArray[np.int64], weights: list[int], words: WordSource) -> int:
    """Draw a level, and a member of it. The work follows from the number of weights, not from what the scores are."""
    top = int(np.flatnonzero(levels)[-1])
    counts = np.zeros(len(weights), dtype=np.int64)
    seen = levels[max(0, top + 1 - len(weights)) : top + 1][::-1]
    counts[: len(seen)] = seen
    sums = list(accumulate(map(mul, counts.tolist(), weights)))
    place = _below(sums[-1], words)
    level = bisect_right(sums, place)
    within = (place - (sums[level - 1] if level else 0)) // weights[level]
    return int(np.flatnonzero(left == top - level)[within])


def most_levels(scale: float) -> int:
    """Count the levels whose weight is not 0, for any number of rows."""
    return int(_NEGLIGIBLE * Fraction(scale)) + 1


def _weights(scale: float, largest: int) -> list[int]:
    """List the weights of levels by their distance from the highest: as far as any is not 0, or as scores can be.

    Two short lists are multiplied, because an exponential takes a hundred times as long as a product.
    """
    rate, count = 1 / Fraction(scale), min(most_levels(scale), largest + 1)
    fine = [_weight(rate, distance) for distance in range(min(count, _STEP))]
    coarse = [_weight(rate, distance) for distance in range(0, count, _STEP)]
    return [one * other >> _UNIT_BITS for one in coarse for other in fine][:count]


def _weight(rate: Fraction, distance: int) -> int:
    return scaled_exp(-rate * distance) if distance else 1 << _UNIT_BITS


def _below(total: int, words: WordSource) -> int:
    """Draw a whole number below the total."""
    return int.from_bytes(words.words(_DRAW_WORDS).astype("<u4").tobytes(), "little") * total >> (32 * _DRAW_WORDS)


def _take_out(left: Scores, levels: NDArray[np.int64], column: int, columns: set[int]) -> None:
    """Leave out the pairs with two chosen columns."""
    for other in columns:
        first, second = min(column, other), max(column, other)
        if left[first, second] >= 0:  # which no entry on or below the diagonal is
            levels[left[first, second]] -= 1
            left[first, second] = -1
