"""Looks up numbers for genotypes that are packed in two bits a cell, and adds up words of 64 bits. Pure.

Every cell takes the same steps, whatever its code is, and what is looked up stays in a first-level cache.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .compiling import BYTES, FLOATS, INTEGER, compiled, part

_TILE = 8
"""Bytes of a row that are taken together. What is looked up, or added to, takes 16 kilobytes."""
_TILES = 16
"""Tiles whose bytes are copied together: two lines of a cache."""
_GROUP = _TILE * _TILES
_ROWS = 2**9
"""Rows whose bytes are copied together. A tile of them takes 4 kilobytes."""
_LOOKED_UP = 32
"""Bytes of a row whose numbers are looked up together. For these, too, tables take 16 kilobytes."""
_BYTES = 256
_LINE = _BYTES + 8
"""Room for the sums of a byte. Were it 2 kilobytes, processors would take equal bytes of other columns for this one."""
_NOTHING, _HALF_BYTE = np.uint64(0), np.uint64(15)
_SIX, _EIGHT, _TWELVE, _SIXTEEN, _TWENTY_FOUR = (np.uint32(bits) for bits in (6, 8, 12, 16, 24))
_BYTE = np.uint32(255)
_FAR, _FARTHER = np.uint32(0x00CC00CC), np.uint32(0x0000F0F0)
"""Cells of a word of four bytes that are exchanged with those 6 bits, or 12, higher."""
_FOUR, _PAIRS = np.uint64(4), np.uint64(16)
"""Pairs of two codes, which half a byte holds."""


@part
def _copied(packed: NDArray[np.uint8], first: int, start: int, bytes_of: NDArray[np.uint8]) -> int:
    """Copy some bytes of some rows, tile by tile, with zeros beyond the last byte. Return how many rows these are."""
    rows, width = min(_ROWS, len(packed) - first), min(_GROUP, packed.shape[1] - start)
    if width < _GROUP:
        bytes_of[:] = 0
    for row in range(rows):
        for place in range(width):
            bytes_of[place // _TILE, row, place % _TILE] = packed[first + row, start + place]
    return rows


@part
def _add_up(words: NDArray[np.uint64], first: int, of_bytes: NDArray[np.uint64]) -> None:
    """Add up the words of the four cells of a byte, for each of its values. Beyond the last column words are zero."""
    columns = len(words)
    for high in range(16):
        above = _NOTHING
        if first + 2 < columns:
            above += words[first + 2, high & 3]
        if first + 3 < columns:
            above += words[first + 3, high >> 2]
        for low in range(16):
            of_bytes[16 * high + low] = above
    for low in range(16):
        below = words[first, low & 3] if first < columns else _NOTHING
        if first + 1 < columns:
            below += words[first + 1, low >> 2]
        for high in range(16):
            of_bytes[16 * high + low] += below


@compiled("(uint8[:, ::1], uint64[:, :, ::1], uint64[:, ::1])")
def add_packed_rows(packed: NDArray[np.uint8], words: NDArray[np.uint64], sums: NDArray[np.uint64]) -> None:
    """Add to each row's sums the words of its cells: a sum for each set of words, which are given by column and code.

    The words of the four cells of a byte are added up first.
    """
    of_bytes = np.empty((len(words), _TILES, _TILE, _BYTES), np.uint64)
    bytes_of = np.zeros((_TILES, _ROWS, _TILE), np.uint8)
    for start in range(0, packed.shape[1], _GROUP):
        for lane in range(len(words)):
            for place in range(_GROUP):
                _add_up(words[lane], 4 * (start + place), of_bytes[lane, place // _TILE, place % _TILE])
        for first in range(0, len(packed), _ROWS):
            rows = _copied(packed, first, start, bytes_of)
            for tile in range(_TILES):
                for lane in range(len(words)):
                    for row in range(rows):
                        total = sums[lane, first + row]
                        for place in range(_TILE):
                            total += of_bytes[lane, tile, place, bytes_of[tile, row, place]]
                        sums[lane, first + row] = total


@part
def _divide(of_bytes: NDArray[np.uint64], sums: NDArray[np.uint64]) -> None:
    """Divide the sums of a byte's values among its four cells and their codes."""
    for one in range(16):
        low, high = _NOTHING, _NOTHING
        for other in range(16):
            low += of_bytes[16 * other + one]
            high += of_bytes[16 * one + other]
        sums[0, one & 3] += low
        sums[1, one >> 2] += low
        sums[2, one & 3] += high
        sums[3, one >> 2] += high


@compiled("(uint8[:, ::1], uint64[::1], uint64[:, ::1])")
def add_weights(packed: NDArray[np.uint8], weights: NDArray[np.uint64], sums: NDArray[np.uint64]) -> None:
    """Add to each column's sums, of which it has one for each code, the weights of the rows with that code.

    ``sums`` has room for four columns of each byte. A weight is first added to the sum of a byte's value, and counts
    for four cells at once.
    """
    of_bytes = np.empty((_TILES, _TILE, _LINE), np.uint64)
    bytes_of = np.zeros((_TILES, _ROWS, _TILE), np.uint8)
    for start in range(0, packed.shape[1], _GROUP):
        of_bytes[:] = 0
        for first in range(0, len(packed), _ROWS):
            rows = _copied(packed, first, start, bytes_of)
            for tile in range(_TILES):
                for row in range(rows):
                    weight = weights[first + row]
                    for place in range(_TILE):
                        of_bytes[tile, place, bytes_of[tile, row, place]] += weight
        for place in range(min(_GROUP, packed.shape[1] - start)):
            _divide(of_bytes[place // _TILE, place % _TILE], sums[4 * (start + place) : 4 * (start + place) + 4])


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
    """Write each cell's number, of some columns of all rows at a time, so that what is looked up stays in a cache."""
    for start in range(0, packed.shape[1], _LOOKED_UP):
        for row in range(len(packed)):
            line = np.uint64(32 * start)
            for place in range(start, min(start + _LOOKED_UP, packed.shape[1])):
                byte, at = np.uint64(packed[row, place]), 4 * place
                low, high = line + (byte & _HALF_BYTE), line + _PAIRS + (byte >> _FOUR)
                numbers[row, at], numbers[row, at + 1] = pairs[low, 0], pairs[low, 1]
                numbers[row, at + 2], numbers[row, at + 3] = pairs[high, 0], pairs[high, 1]
                line += _PAIRS + _PAIRS


@part
def _four(
    columns: NDArray[np.uint8], quad: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8], np.uint32]:
    """Return four columns, and a mask of the bits of those that exist: the last one stands for those beyond it."""
    at, last = 4 * quad, len(columns) - 1
    known = np.uint32((1 << 8 * min(4, last + 1 - at)) - 1)
    return columns[at], columns[min(at + 1, last)], columns[min(at + 2, last)], columns[min(at + 3, last)], known


@compiled((BYTES, types.uint8[:, ::1], INTEGER))
def write_rows(columns: NDArray[np.uint8], rows: NDArray[np.uint8], first: int) -> None:
    """Write columns of cells, four rows in each byte, as rows with four columns in each, from the first byte on.

    A byte of four columns is a word of 4 x 4 cells, in which two exchanges of equally distant cells exchange rows and
    columns. Some bytes of some rows are written at a time, so that they stay in a cache.
    """
    width, height = -(-len(columns) // 4), columns.shape[1]
    for top in range(0, height, _TILES):
        for left in range(0, width, _GROUP):
            for quad in range(left, min(left + _GROUP, width)):
                one, two, three, four, known = _four(columns, quad)
                for place in range(top, min(top + _TILES, height)):
                    word = np.uint32(one[place]) | np.uint32(two[place]) << _EIGHT
                    word |= np.uint32(three[place]) << _SIXTEEN | np.uint32(four[place]) << _TWENTY_FOUR
                    word &= known
                    differing = (word ^ (word >> _SIX)) & _FAR
                    word ^= differing ^ (differing << _SIX)
                    differing = (word ^ (word >> _TWELVE)) & _FARTHER
                    word ^= differing ^ (differing << _TWELVE)
                    row = 4 * place
                    rows[row, first + quad] = word & _BYTE
                    if row + 3 < len(rows):
                        rows[row + 1, first + quad] = (word >> _EIGHT) & _BYTE
                        rows[row + 2, first + quad] = (word >> _SIXTEEN) & _BYTE
                        rows[row + 3, first + quad] = word >> _TWENTY_FOUR
                    else:
                        for more in range(1, len(rows) - row):
                            rows[row + more, first + quad] = (word >> np.uint32(8 * more)) & _BYTE
