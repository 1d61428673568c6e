"""Exact alias tables: one lookup turns a random 32-bit word into an integer with a prescribed distribution.

A table has 2^m cells, each split between its own integer and an alias (Walker 1977; built by a sweep as in Vose 1991).
The low m bits of a word choose the cell; the other 32 - m bits, followed when needed by 160 further ones, are a
number U that is compared with the cell's threshold.

Promises, for a distribution given by exact weights on -reach..reach:

* Integer weights. The weights are in units of 2^-240 with an error of at most 2^31 units each (proved at each
  function), and the largest is at least 2^240 units, so 2^16 of them are wrong by at most 2^(31 + 16 - 240) = 2^-193
  in total variation. Rounding them to multiples of 2^-192 of their sum, with the remainder added to zero's weight,
  moves at most 2^16 units: 2^-176. ``TABLE_ERROR`` = 2^-175 bounds both together.
* Exact lookup. All thresholds are integers over 2^(192 - m). If the first 32 - m bits of U differ from those of the
  threshold, they decide the comparison. If not (a tie, with probability 2^-(32 - m)), 160 fresh bits complete U to as
  many bits as the threshold has. In both cases the comparison is exact, so a lookup follows the integer weights without
  further error.

The time of a lookup depends only on the words (on the number of ties), which are independent of any data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from .keystream import WordSource

LARGEST_REACH: Final = (1 << 15) - 1  # 2^16 cells of 4 bytes: a quarter of a common second-level cache
TABLE_ERROR: Final = Fraction(1, 1 << 175)

_POINT: Final = 240  # weights are built in units of 2^-240: eight of Python's 30-bit digits
_WORD: Final = 32
_TIE_WORDS: Final = 5
_RESOLUTION: Final = _WORD * (1 + _TIE_WORDS)  # weights of a table are in units of 2^-192
_DIGITS: Final = Context(prec=100)  # decimal digits: 2^-240 needs 73


def gaussian_weights(variance: Fraction, reach: int) -> list[int]:
    """Return exp(-x²/2v) for x = 0..reach in units of 2^-240.

    The ratio of adjacent weights, exp(-(2x + 1)/2v), shrinks by exp(-1/v) in each step. Constants are within 2 units; a
    step of the ratio adds at most 3, so it is within 3x + 2; a step of the weight adds that and 1 for its own
    truncation. Hence weight x is within 1.5 x (x + 1) <= 2^31 units.
    """
    ratio, shrink = scaled_exp(-1 / (2 * variance)), scaled_exp(-1 / variance)
    weights = [weight := 1 << _POINT]
    for _ in range(reach):
        weight = weight * ratio >> _POINT
        ratio = ratio * shrink >> _POINT
        weights.append(weight)
    return weights


def geometric_weights(ratio: int, reach: int) -> list[int]:
    """Return r^x for x = 0..reach in units of 2^-240, where r is known within 2 units.

    A step adds at most 2 for the ratio and 1 for truncation, hence weight x is within 3x <= 2^17 units.
    """
    weights = [weight := 1 << _POINT]
    for _ in range(reach):
        weight = weight * ratio >> _POINT
        weights.append(weight)
    return weights


def digit_difference_weights(ratio: int, base: int) -> list[int]:
    """Return P(d - d' = x), x = 0..base-1, up to a constant, for d, d' with P(d) proportional to r^d on 0..base-1.

    In units of 2^-240 it is v_x = sum over j < base - x of r^(2j + x), computed downwards by v_x = r^x + r v_{x+1}: all
    terms are positive, so nothing cancels. A step adds 3x for r^x, 2 v_{x+1} <= 2 base for the ratio and 1 for
    truncation, hence each is within 5 base² + base <= 2^31 units for base <= 2^14.
    """
    powers = geometric_weights(ratio, base - 1)
    weights, weight = powers.copy(), 0
    for x in reversed(range(base)):
        weight = powers[x] + (weight * ratio >> _POINT)
        weights[x] = weight
    return weights


def scaled_exp(exponent: Fraction) -> int:
    """Return exp(exponent) for a negative exponent in units of 2^-240, within 2 units."""
    quotient = _DIGITS.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return int(_DIGITS.multiply(_DIGITS.exp(quotient), Decimal(1 << _POINT)))


@dataclass(frozen=True, slots=True, eq=False)
class AliasTable:
    """A symmetric distribution on -reach..reach; the module docstring says what a lookup promises.

    An entry holds what a lookup reads of a cell in one memory access: in its upper 32 - m bits the first bits of the
    threshold, in its lower m bits the alias. ``remainders`` holds the threshold's last 160 bits, least significant word
    first.
    """

    reach: int
    bits: int
    entries: NDArray[np.uint32]
    remainders: NDArray[np.uint32]

    @classmethod
    def symmetric(cls, weights: Sequence[int]) -> Self:
        """Return the table for weights of 0, ±1, ..., ±reach, each given once and none above that of zero."""
        reach = len(weights) - 1
        bits = max(1, (2 * reach).bit_length())
        thresholds, aliases = _sweep(_scaled_weights(weights, 1 << bits), 1 << (_RESOLUTION - bits))
        split = _as_words(thresholds)
        entries = (split[:, _TIE_WORDS] << np.uint32(bits)) | np.array(aliases, np.uint32)
        table = cls(reach, bits, entries, split[:, :_TIE_WORDS].copy())
        for array in (table.entries, table.remainders):
            array.setflags(write=False)  # every thread reads the same table
        return table

    @property
    def thresholds(self) -> NDArray[np.uint32]:
        """The first bits of every threshold, above the m bits that choose a cell."""
        return self.entries & ~self._low

    @property
    def jumps(self) -> NDArray[np.int32]:
        """The distance from each cell to its alias."""
        jumps: NDArray[np.int32] = np.subtract(self.entries & self._low, np.arange(1 << self.bits), dtype=np.int32)
        return jumps

    @property
    def _low(self) -> np.uint32:
        """A mask of the bits of a word that choose the cell."""
        return np.uint32((1 << self.bits) - 1)

    def look_up(self, source: WordSource, scratch: "BatchBuffers") -> NDArray[np.uint32]:
        """Fill ``scratch.found`` with independent draws, each as the cell of its integer, ``reach`` above it.

        A word below the threshold is below the whole entry, and a word above the threshold is above it. So the last
        bits of the smaller of word and entry are the drawn cell.
        """
        words, cells, compared, found = source.words(len(scratch.cells)), scratch.cells, scratch.compared, scratch.found
        low = self._low
        cells[...] = np.bitwise_and(words, low, out=compared)
        self.entries.take(cells, out=found, mode="clip")
        np.bitwise_xor(words, found, out=compared)
        np.less_equal(compared, low, out=scratch.tied)  # the bits above the cell are those of the threshold
        np.minimum(words, found, out=found)
        found &= low
        self._settle(np.flatnonzero(scratch.tied), cells, found, source)
        return found

    def _settle(
        self, ties: NDArray[np.intp], cells: NDArray[np.intp], found: NDArray[np.uint32], source: WordSource
    ) -> None:
        """Decide each tie with 160 fresh bits."""
        fresh = source.words(_TIE_WORDS * len(ties)).reshape(-1, _TIE_WORDS)
        for tie, bits in zip(ties, fresh, strict=True):
            cell = cells[tie]
            kept = _as_integer(bits) < _as_integer(self.remainders[cell])
            found[tie] = cell if kept else self.entries[cell] & self._low


class BatchBuffers:
    """Buffers of one batch, allocated once and small enough to stay in cache."""

    def __init__(self, size: int) -> None:
        self.cells = np.empty(size, np.intp)
        self.found = np.empty(size, np.uint32)
        self.compared = np.empty(size, np.uint32)
        self.tied = np.empty(size, np.bool_)
        self.values = np.empty(size, np.int64)


def _scaled_weights(weights: Sequence[int], cells: int) -> list[int]:
    """Scale symmetric weights to integers that add up to exactly 2^192, one for each cell.

    The remainder of rounding is added to zero's weight. The cell of x is reach + x; cells beyond the support get 0.
    """
    total = 2 * sum(weights) - weights[0]
    half = [(weight << _RESOLUTION) // total for weight in weights]
    half[0] = (1 << _RESOLUTION) - 2 * sum(half[1:])
    mirrored = half[:0:-1] + half
    return mirrored + [0] * (cells - len(mirrored))


def _sweep(weights: Sequence[int], capacity: int) -> tuple[list[int], list[int]]:
    """Return the share that each cell keeps and the alias that gets the rest, so that every cell holds ``capacity``.

    Heavy cells take turns as donor. A donor fills light cells until it has given more than its surplus; the next donor
    then fills the donor's own cell. The weights add up to capacity times cells, so the last donor ends with exactly
    ``capacity``. A cell that needs no filling keeps 0 and is its own alias.
    """
    kept, aliases = list(weights), list(range(len(weights)))
    heavy = [cell for cell, weight in enumerate(weights) if weight >= capacity]
    for cell in heavy:
        kept[cell] = 0
    donors = iter(heavy)
    donor = next(donors)
    spare = weights[donor] - capacity
    for cell, weight in enumerate(weights):
        if weight >= capacity:
            continue
        aliases[cell] = donor
        spare += weight - capacity
        while spare < 0:
            heir = next(donors)
            kept[donor], aliases[donor] = capacity + spare, heir
            spare += weights[heir] - capacity
            donor = heir
    return kept, aliases


def _as_words(values: Sequence[int]) -> NDArray[np.uint32]:
    """Return 192-bit integers as rows of six words, least significant first."""
    size = _RESOLUTION // 8
    joined = b"".join([value.to_bytes(size, "little") for value in values])
    return np.frombuffer(joined, "<u4").astype(np.uint32).reshape(len(values), -1)


def _as_integer(words: NDArray[np.uint32]) -> int:
    return int.from_bytes(words.astype("<u4").tobytes(), "little")
