"""Choose columns, or pairs of them, by their scores: exponential mechanisms in integers, exact up to ``PICK_SLACK``.

A choice of whole score u is made with probability proportional to exp(u / scale). Equal scores are taken together, as a
level: first a level is drawn, by weights that are integers, and then one of its members, each as likely as the next.

Why each choice is within ``PICK_SLACK`` = 2^-180 of the exponential mechanism in total variation. Weights are
exp((u - m) / scale) for the largest score m that is left, in units of 2^-240, each within 2 units
(``alias_tables.scaled_exp``). What is below one unit counts as 0. At most 2^27 choices are wrong by 3 units each, and
the whole is at least 2^240 units: 2^29 / 2^240. The draw is floor(U total / 2^512) for 512 uniform bits U, which
favours an outcome by at most total / 2^512 < 2^(267 - 512). No random number is drawn again, so the time of a draw does
not depend on the weights.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .alias_tables import scaled_exp
from .keystream import WordSource

PICK_SLACK: Final = 2.0**-180
_UNIT_BITS: Final = 240
_DRAW_WORDS: Final = 16
_NEGLIGIBLE: Final = 170
"""exp(-170) is below 2^-240."""


Scores = NDArray[np.int32]


def pick_pairs(scores: Scores, picks: int, scale: float, words: WordSource) -> list[tuple[int, int]]:
    """Choose pairs i < j of columns, each choice among the pairs that add a column to those chosen before.

    ``scores`` is symmetric and not negative. Fewer pairs are chosen if no more columns are left.
    """
    left = np.where(np.tri(len(scores), dtype=bool), np.int32(-1), scores)
    levels = np.bincount(left[left >= 0], minlength=1)
    weight = _weights(1 / Fraction(scale))
    chosen: list[tuple[int, int]] = []
    columns: set[int] = set()
    for _ in range(picks):
        if not levels.any():
            break
        chosen.append(divmod(_pick(left.reshape(-1), levels, weight, words), len(left)))
        for column in set(chosen[-1]) - columns:
            columns.add(column)
            _take_out(left, levels, column, columns)
    return chosen


def pick_columns(scores: Scores, picks: int, scale: float, words: WordSource) -> list[int]:
    """Choose columns, each choice among those not chosen before. A negative score takes a column out of the choice."""
    left = scores.copy()
    levels, weight = np.bincount(left[left >= 0], minlength=1), _weights(1 / Fraction(scale))
    chosen: list[int] = []
    for _ in range(picks):
        if not levels.any():
            break
        chosen.append(_pick(left, levels, weight, words))
        levels[left[chosen[-1]]] -= 1
        left[chosen[-1]] = -1
    return chosen


def _pick(left: Scores, levels: NDArray[np.int64], weight: Callable[[int], int], words: WordSource) -> int:
    """Draw a level, and a member of it."""
    used = np.flatnonzero(levels)[::-1].tolist()
    weights = [weight(used[0] - score) for score in used]
    totals = [int(levels[score]) * each for score, each in zip(used, weights, strict=True)]
    place = _below(sum(totals), words)
    for score, each, total in zip(used, weights, totals, strict=True):
        if place < total:
            return int(np.flatnonzero(left == score)[place // each])
        place -= total
    raise AssertionError  # the place is below the sum of all totals


def _weights(rate: Fraction) -> Callable[[int], int]:
    """Return the weight of a level by its distance from the highest; each is computed once."""

    @cache
    def weight(distance: int) -> int:
        if not distance:
            return 1 << _UNIT_BITS
        return 0 if rate * distance > _NEGLIGIBLE else scaled_exp(-rate * distance)

    return weight


def _below(total: int, words: WordSource) -> int:
    """Draw a whole number below the total."""
    return int.from_bytes(words.words(_DRAW_WORDS).astype("<u4").tobytes(), "little") * total >> (32 * _DRAW_WORDS)


def _take_out(left: Scores, levels: NDArray[np.int64], column: int, columns: set[int]) -> None:
    """Leave out the pairs of which both columns are chosen."""
    for other in columns:
        first, second = min(column, other), max(column, other)
        if left[first, second] >= 0:  # which no entry on or below the diagonal is
            levels[left[first, second]] -= 1
            left[first, second] = -1
