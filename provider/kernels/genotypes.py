"""Adds up words for genotypes that are packed in two bits a cell, modulo 2^64. Pure.

Every cell takes the same steps, whatever its code is, in tables that stay in a cache.
"""

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .compiling import BYTES, FLOATS, compiled, part

_TILE = 32
"""Bytes of a row that are taken together: their tables take 64 kilobytes."""
_NOTHING, _HALF_BYTE, _FOUR = np.uint64(0), np.uint64(15), np.uint64(4)
_PAIRS, _TABLE = np.uint64(16), np.uint64(256)


@part
def _labelled(words: NDArray[np.uint64], labels: NDArray[np.uint64], column: int, code: int) -> np.uint64:
    """Return a column's word for a code, times its label, or zero beyond the last column."""
    return words[code, column] * labels[column] if column < len(labels) else _NOTHING


@part
def _write_table(words: NDArray[np.uint64], labels: NDArray[np.uint64], byte: int, table: NDArray[np.uint64]) -> None:
    """Write for each value of a byte the sum of the labelled words of its four cells."""
    low, high = np.empty(16, np.uint64), np.empty(16, np.uint64)
    for codes in range(16):
        one, other = codes & 3, codes >> 2
        low[codes] = _labelled(words, labels, 4 * byte, one) + _labelled(words, labels, 4 * byte + 1, other)
        high[codes] = _labelled(words, labels, 4 * byte + 2, one) + _labelled(words, labels, 4 * byte + 3, other)
    for value in range(256):
        table[value] = low[value & 15] + high[value >> 4]


@compiled("(uint8[:, ::1], uint64[:, ::1], uint64[::1], uint64[::1])")
def add_packed_rows(
    packed: NDArray[np.uint8], words: NDArray[np.uint64], labels: NDArray[np.uint64], sums: NDArray[np.uint64]
) -> None:
    """Add to each row's sum the words of its cells, each times its column's label. They are given by code and column.

    Words of cells that share a byte are added up first.
    """
    tables = np.empty(256 * _TILE, np.uint64)
    for start in range(0, packed.shape[1], _TILE):
        stop = min(start + _TILE, packed.shape[1])
        for byte in range(start, stop):
            at = 256 * (byte - start)
            _write_table(words, labels, byte, tables[at : at + 256])
        for row in range(len(packed)):
            own, table, total = packed[row, start:stop], _NOTHING, _NOTHING
            for place in range(len(own)):
                total += tables[table + np.uint64(own[place])]
                table += _TABLE
            sums[row] += total


@compiled("(uint8[:, ::1], int64, int64, uint64[::1], uint64[::1])")
def add_weights_of_pairs(
    packed: NDArray[np.uint8], first: int, last: int, weights: NDArray[np.uint64], sums: NDArray[np.uint64]
) -> None:
    """Add each row's weight to a sum for each of its half bytes, from the first to before the last byte.

    The two columns of a half byte have 16 sums, one for each pair of their codes.
    """
    for start in range(first, last, _TILE):
        stop = min(start + _TILE, last)
        for row in range(len(packed)):
            own, weight, pair = packed[row, start:stop], weights[row], np.uint64(32 * (start - first))
            for place in range(len(own)):
                byte = np.uint64(own[place])
                sums[pair + (byte & _HALF_BYTE)] += weight
                sums[pair + _PAIRS + (byte >> _FOUR)] += weight
                pair += _PAIRS + _PAIRS


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
