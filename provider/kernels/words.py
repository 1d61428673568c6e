"""Adds up hashes of rows for fingerprints, modulo 2^64, in one loop over the numbers. Pure.

The sums are those of ``provider/data/memory/row_words.py``, with the same bits.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .compiling import compiled, part, sparse

_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(32), np.uint64(29)
_ONE, _NOTHING = np.uint64(1), np.uint64(0)


@part
def _mixed(word: np.uint64) -> np.uint64:
    """Map a word one to one, and 0 to 0 (SplitMix64)."""
    word *= _FACTORS[0]
    word ^= word >> _SHIFTS[0]
    word *= _FACTORS[1]
    return word ^ (word >> _SHIFTS[1])


@part
def _write_words(
    numbers: FloatArray, row: int, rounded: NDArray[np.float32], bits: NDArray[np.uint32], words: NDArray[np.uint64]
) -> None:
    """Map the numbers of a row to words, and zeros of either sign to 0."""
    for column in range(len(words)):
        rounded[column] = np.float32(numbers[row, column]) + np.float32(0.0)
        words[column] = _mixed(np.uint64(bits[column]))


@compiled("(float64[:, ::1], boolean[::1], uint64[:, ::1], uint64[::1])")
def add_row_totals(
    numbers: FloatArray, blank: NDArray[np.bool_], labels: NDArray[np.uint64], totals: NDArray[np.uint64]
) -> None:
    """Add a hash of each row for each of both lanes, whose labels of columns are beside one another."""
    first_labels, second_labels = labels[:, 0].copy(), labels[:, 1].copy()
    rounded, words = np.empty(len(labels), np.float32), np.empty(len(labels), np.uint64)
    bits = rounded.view(np.uint32)
    for row in range(len(numbers)):
        _write_words(numbers, row, rounded, bits, words)
        first, second = _NOTHING, _NOTHING
        for column in range(len(words)):
            first += words[column] * first_labels[column]
            second += words[column] * second_labels[column]
        is_counted = _NOTHING if blank[row] else _ONE
        totals[0] += _mixed(first) * is_counted
        totals[1] += _mixed(second) * is_counted


@compiled("(float64[:, ::1], boolean[::1], uint64[::1], uint64[::1])")
def add_column_keys(
    numbers: FloatArray, blank: NDArray[np.bool_], labels: NDArray[np.uint64], keys: NDArray[np.uint64]
) -> None:
    """Add to each column's key its words, each with a hash of its row."""
    rounded, words = np.empty(len(labels), np.float32), np.empty(len(labels), np.uint64)
    bits = rounded.view(np.uint32)
    for row in range(len(numbers)):
        _write_words(numbers, row, rounded, bits, words)
        total = _NOTHING
        for column in range(len(words)):
            total += words[column] * labels[column]
        own = (_mixed(total) | _ONE) * (_NOTHING if blank[row] else _ONE)
        for column in range(len(words)):
            keys[column] += words[column] * own


@compiled("(float64[:, ::1], boolean[::1], uint64[:, ::1], uint64[::1], uint64[::1])")
def add_first_sums(
    numbers: FloatArray,
    blank: NDArray[np.bool_],
    labels: NDArray[np.uint64],
    totals: NDArray[np.uint64],
    keys: NDArray[np.uint64],
) -> None:
    """Add both in one pass, the keys with the label 1 for every column."""
    first_labels, second_labels = labels[:, 0].copy(), labels[:, 1].copy()
    rounded, words = np.empty(len(labels), np.float32), np.empty(len(labels), np.uint64)
    bits = rounded.view(np.uint32)
    for row in range(len(numbers)):
        _write_words(numbers, row, rounded, bits, words)
        first, second, plain = _NOTHING, _NOTHING, _NOTHING
        for column in range(len(words)):
            first += words[column] * first_labels[column]
            second += words[column] * second_labels[column]
            plain += words[column]
        is_counted = _NOTHING if blank[row] else _ONE
        totals[0] += _mixed(first) * is_counted
        totals[1] += _mixed(second) * is_counted
        own = (_mixed(plain) | _ONE) * is_counted
        for column in range(len(words)):
            keys[column] += words[column] * own


@part
def _longest(starts: NDArray[Any], first_row: int, last_row: int) -> int:
    """Return how many entries the longest of some rows has."""
    longest = 0
    for row in range(first_row, last_row):
        longest = max(longest, starts[row + 1] - starts[row])
    return longest


@part
def _write_entry_words(  # noqa: PLR0913, PLR0917
    data: FloatArray,
    start: int,
    stop: int,
    rounded: NDArray[np.float32],
    bits: NDArray[np.uint32],
    words: NDArray[np.uint64],
) -> None:
    """Map stored entries to words, and zeros of either sign to 0."""
    for place in range(stop - start):
        rounded[place] = np.float32(data[start + place]) + np.float32(0.0)
        words[place] = _mixed(np.uint64(bits[place]))


@compiled(*sparse("int64, int64, uint64[:, ::1], uint64[::1]"))
def add_sparse_row_totals(  # noqa: PLR0913, PLR0917
    data: FloatArray,
    columns: NDArray[Any],
    starts: NDArray[Any],
    first_row: int,
    last_row: int,
    labels: NDArray[np.uint64],
    totals: NDArray[np.uint64],
) -> None:
    """Do as ``add_row_totals`` does, for the stored entries of some sparse rows and their columns."""
    longest = _longest(starts, first_row, last_row)
    rounded, words = np.empty(longest, np.float32), np.empty(longest, np.uint64)
    bits = rounded.view(np.uint32)
    for row in range(first_row, last_row):
        start, stop = starts[row], starts[row + 1]
        _write_entry_words(data, start, stop, rounded, bits, words)
        first, second = _NOTHING, _NOTHING
        for place in range(stop - start):
            first += words[place] * labels[columns[start + place], 0]
            second += words[place] * labels[columns[start + place], 1]
        totals[0] += _mixed(first)
        totals[1] += _mixed(second)


@compiled(*sparse("int64, int64, uint64[::1], uint64[::1]"))
def add_sparse_column_keys(  # noqa: PLR0913, PLR0917
    data: FloatArray,
    columns: NDArray[Any],
    starts: NDArray[Any],
    first_row: int,
    last_row: int,
    labels: NDArray[np.uint64],
    keys: NDArray[np.uint64],
) -> None:
    """Do as ``add_column_keys`` does, for the stored entries of some sparse rows and their columns."""
    longest = _longest(starts, first_row, last_row)
    rounded, words = np.empty(longest, np.float32), np.empty(longest, np.uint64)
    bits = rounded.view(np.uint32)
    for row in range(first_row, last_row):
        start, stop = starts[row], starts[row + 1]
        _write_entry_words(data, start, stop, rounded, bits, words)
        total = _NOTHING
        for place in range(stop - start):
            total += words[place] * labels[columns[start + place]]
        own = _mixed(total) | _ONE
        for place in range(stop - start):
            keys[columns[start + place]] += words[place] * own


@compiled(*sparse("int64, int64, uint64[:, ::1], uint64[::1]"))
def add_sparse_first_sums(  # noqa: PLR0913, PLR0917
    data: FloatArray,
    columns: NDArray[Any],
    starts: NDArray[Any],
    first_row: int,
    last_row: int,
    labels: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> None:
    """Add both in one pass, totals before keys, which have the label 1 for every column."""
    longest = _longest(starts, first_row, last_row)
    rounded, words = np.empty(longest, np.float32), np.empty(longest, np.uint64)
    bits, keys = rounded.view(np.uint32), sums[labels.shape[1] :]
    for row in range(first_row, last_row):
        start, stop = starts[row], starts[row + 1]
        _write_entry_words(data, start, stop, rounded, bits, words)
        first, second, plain = _NOTHING, _NOTHING, _NOTHING
        for place in range(stop - start):
            first += words[place] * labels[columns[start + place], 0]
            second += words[place] * labels[columns[start + place], 1]
            plain += words[place]
        sums[0] += _mixed(first)
        sums[1] += _mixed(second)
        own = _mixed(plain) | _ONE
        for place in range(stop - start):
            keys[columns[start + place]] += words[place] * own
