"""Looks up numbers for genotypes that are packed in two bits a cell, and adds up words of 64 bits. Pure.

Every cell takes the same steps, whatever its code is, and what is looked up stays in a first-level cache.
"""

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .compiling import BYTES, FLOATS, compiled, part

_TILE = 64
"""Bytes of a row that are taken together. What is looked up takes 16 kilobytes, and what is added to takes 2."""
_NOTHING, _CODE, _HALF_BYTE = np.uint64(0), np.uint64(3), np.uint64(15)
_ONE, _TWO, _THREE, _FOUR, _SIX = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4), np.uint64(6)
_PAIRS = np.uint64(16)
"""Pairs of two codes, which half a byte holds."""


@part
def _labelled(words: NDArray[np.uint64], labels: NDArray[np.uint64], column: int, code: int) -> np.uint64:
    """Return a column's word for a code, times its label, or zero beyond the last column."""
    return words[column, code] * labels[column] if column < len(labels) else _NOTHING


@compiled("(uint8[:, ::1], uint64[:, ::1], uint64[::1], uint64[::1])")
def add_packed_rows(
    packed: NDArray[np.uint8], words: NDArray[np.uint64], labels: NDArray[np.uint64], sums: NDArray[np.uint64]
) -> None:
    """Add to each row's sum the words of its cells, each times its column's label. They are given by column and code.

    Words of two cells that share half a byte are added up first.
    """
    pairs = np.empty(32 * _TILE, np.uint64)
    for start in range(0, packed.shape[1], _TILE):
        stop = min(start + _TILE, packed.shape[1])
        for pair in range(2 * (stop - start)):
            column = 4 * start + 2 * pair
            for codes in range(16):
                low, high = (
                    _labelled(words, labels, column, codes & 3),
                    _labelled(words, labels, column + 1, codes >> 2),
                )
                pairs[16 * pair + codes] = low + high
        for row in range(len(packed)):
            own, line, low, high = packed[row, start:stop], _NOTHING, _NOTHING, _NOTHING
            for place in range(len(own)):
                byte = np.uint64(own[place])
                low += pairs[line + (byte & _HALF_BYTE)]
                high += pairs[line + _PAIRS + (byte >> _FOUR)]
                line += _PAIRS + _PAIRS
            sums[row] += low + high


@compiled("(uint8[:, ::1], int64, int64, uint64[:, ::1], uint64[::1], uint64[::1])")
def add_packed_columns(  # noqa: PLR0913, PLR0917
    packed: NDArray[np.uint8],
    first: int,
    last: int,
    words: NDArray[np.uint64],
    weights: NDArray[np.uint64],
    sums: NDArray[np.uint64],
) -> None:
    """Add to each column's sum its words, each times its row's weight, from the first byte to before the last.

    ``words``, by column and code, and ``sums`` have room for four columns of each byte.
    """
    of_codes = words.reshape(-1)
    for start in range(first, last, _TILE):
        stop = min(start + _TILE, last)
        for row in range(len(packed)):
            own, weight, at, column = packed[row, start:stop], weights[row], np.uint64(16 * start), np.uint64(4 * start)
            for place in range(len(own)):
                byte = np.uint64(own[place])
                sums[column] += of_codes[at + (byte & _CODE)] * weight
                sums[column + _ONE] += of_codes[at + _FOUR + ((byte >> _TWO) & _CODE)] * weight
                sums[column + _TWO] += of_codes[at + _FOUR + _FOUR + ((byte >> _FOUR) & _CODE)] * weight
                sums[column + _THREE] += of_codes[at + _PAIRS - _FOUR + (byte >> _SIX)] * weight
                at, column = at + _PAIRS, column + _FOUR


@compiled((BYTES, FLOATS, FLOATS, FLOATS))
def write_rounded(packed: NDArray[np.uint8], pairs: FloatArray, factors: FloatArray, numbers: FloatArray) -> None:
    """Write each cell's number, times its row's factor and rounded to nearest.

    ``pairs`` has 16 lines for each half byte: the numbers of both columns for each pair of their codes.
    """
    for row in range(len(packed)):
        factor, line = factors[row, 0], np.uint64(0)
        for place in range(packed.shape[1]):
            byte, at = np.uint64(packed[row, place]), 4 * place
            low, high = line + (byte & _HALF_BYTE), line + _PAIRS + (byte >> _FOUR)
            numbers[row, at] = np.rint(pairs[low, 0] * factor)
            numbers[row, at + 1] = np.rint(pairs[low, 1] * factor)
            numbers[row, at + 2] = np.rint(pairs[high, 0] * factor)
            numbers[row, at + 3] = np.rint(pairs[high, 1] * factor)
            line += _PAIRS + _PAIRS


@compiled((BYTES, FLOATS, FLOATS))
def write_numbers(packed: NDArray[np.uint8], pairs: FloatArray, numbers: FloatArray) -> None:
    """Write each cell's number."""
    for row in range(len(packed)):
        line = np.uint64(0)
        for place in range(packed.shape[1]):
            byte, at = np.uint64(packed[row, place]), 4 * place
            low, high = line + (byte & _HALF_BYTE), line + _PAIRS + (byte >> _FOUR)
            numbers[row, at], numbers[row, at + 1] = pairs[low, 0], pairs[low, 1]
            numbers[row, at + 2], numbers[row, at + 3] = pairs[high, 0], pairs[high, 1]
            line += _PAIRS + _PAIRS
