"""Rows as 64-bit words, and what one pass over rows finds out of their fingerprints (``fingerprints.py``). Pure.

Dense rows are worked on in memory that is used again, some at a time. All sums are modulo 2^64, so neither the size of
blocks nor the order of rows nor the number of threads changes a bit.
"""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.provider.kernels import kernels

from .reused_memory import ReusedMemory

Words: TypeAlias = NDArray[np.uint64]
Blank: TypeAlias = NDArray[np.bool_] | None

LANES: Final = 2
BLOCK_CELLS: Final = 2**16
"""Numbers of a block: half a megabyte of words."""

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTORS: Final = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS: Final = np.uint64(32), np.uint64(29)


class WordMaker:
    """Maps numbers to words, in memory of its own that the next block overwrites."""

    def __init__(self) -> None:
        self._rounded, self._words, self._shifted = ReusedMemory(), ReusedMemory(), ReusedMemory()

    def __call__(self, values: NDArray[Any]) -> Words:
        """Map each number to a word, and zero to the word 0."""
        rounded = self._rounded.array(values.shape, np.float32)
        np.copyto(rounded, values, casting="unsafe")
        rounded += np.float32(0.0)  # turns -0.0 into 0.0
        words = self._words.array(values.shape, np.uint64)
        np.copyto(words, rounded.view(np.uint32))
        return mix(words, self._shifted.array(values.shape, np.uint64))


def mix(words: Words, memory: Words) -> Words:
    """Map 64-bit words one to one, and 0 to 0, in place. Sums of results do not follow from sums of words (SplitMix64).

    ``memory`` is overwritten.
    """
    for factor, shift in zip(_FACTORS, _SHIFTS, strict=True):
        words *= factor
        words ^= np.right_shift(words, shift, out=memory)
    return words


def mixed(words: Words) -> Words:
    """Do the same in new memory."""
    return mix(words.copy(), np.empty_like(words))


def labels_of(places: NDArray[np.intp]) -> Words:
    """Return an odd number for each place and lane."""
    numbers = (LANES * places[:, None] + np.arange(1, LANES + 1)).astype(np.uint64)
    return mixed(numbers * _STEP) | np.uint64(1)


def row_totals(words: Any, labels: Words, blank: Blank = None) -> Words:  # noqa: ANN401  # dense or sparse words
    """Sum a hash of each row, which depends on its words and their columns' labels. Of a row of zeros, it is zero.

    Rows that are marked as ``blank`` count as rows of zeros.
    """
    return _totals(words @ labels, blank)


def _totals(sums: Words, blank: Blank) -> Words:
    hashes = mixed(sums)
    return np.asarray((hashes if blank is None else hashes * ~blank[:, None]).sum(axis=0, dtype=np.uint64))


def column_keys(words: Any, labels: Words, blank: Blank = None) -> Words:  # noqa: ANN401  # dense or sparse words
    """Sum for each column its words, each with a hash of its row. Rows that are marked count as rows of zeros."""
    return _column_keys(words, words @ labels, blank)


def _column_keys(words: Any, sums: Words, blank: Blank) -> Words:  # noqa: ANN401
    hashes = mixed(sums) | np.uint64(1)
    return np.asarray(words.T @ (hashes if blank is None else hashes * ~blank))


def first_sums(words: Any, labels: Words, blank: Blank = None) -> Words:  # noqa: ANN401
    """Return the totals of rows, and the keys of columns whose labels are all 1, from one look at all words of rows."""
    sums = words @ np.column_stack([labels, np.ones(len(labels), dtype=np.uint64)])
    return np.concatenate([_totals(sums[:, :LANES], blank), _column_keys(words, sums[:, LANES], blank)])


class FirstSums(NamedTuple):
    """The result of one pass: totals with columns in the given order, and the first keys of columns."""

    totals: Words
    keys: Words


class FirstPass:
    """Adds up first sums. Rows are added in any order, some at a time."""

    def __init__(self, columns: int) -> None:
        self._labels = labels_of(np.arange(columns))
        self._plain = np.ones(columns, dtype=np.uint64)
        self.sums = FirstSums(np.zeros(LANES, dtype=np.uint64), np.zeros(columns, dtype=np.uint64))
        self._words = WordMaker()

    def add(self, numbers: FloatArray, blank: NDArray[np.bool_]) -> None:
        """Add rows. Those that are marked count as rows of zeros."""
        if (compiled := kernels("words")) and numbers.shape == (len(blank), len(self._labels)):
            compiled.add_first_sums(np.require(numbers, np.float64, ("C", "W")), blank, self._labels, *self.sums)
            return
        step = max(1, BLOCK_CELLS // numbers.shape[1])
        for start in range(0, len(numbers), step):
            part = slice(start, start + step)
            words, (totals, keys) = self._words(numbers[part]), self.sums
            totals += row_totals(words, self._labels, blank[part])
            keys += column_keys(words, self._plain, blank[part])
