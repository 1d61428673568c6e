"""Looks up numbers for cells of two bits, and adds them up, in tables that stay in a cache. Pure.

Every cell takes the same steps, whatever its code is.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.provider.kernels import kernels

from .processors import on_all_processors
from .two_bits import CELLS_A_BYTE, Bytes

Words = NDArray[np.uint64]

_CODES: Final = 4
_LINES: Final = _CODES * _CODES
"""Lines of a table of two columns: one for each pair of codes."""
_BYTES: Final = 2**8
_LINES_OF_BYTE: Final = np.stack([np.arange(_BYTES) % _LINES, np.arange(_BYTES) // _LINES], axis=1)
_TILE_BYTES: Final = 32
_TILE_ROWS: Final = 2**11


class Lookup:
    """Looks up numbers of any type for some columns, two columns at once."""

    def __init__(self, packed: Bytes, values: NDArray[Any], most_rows: int, table: NDArray[Any] | None = None) -> None:
        """Take whole bytes of columns, and the number of each code in each column.

        ``values`` may have fewer columns than the bytes. At most ``most_rows`` are looked up at once. Several threads
        may share the ``table`` that ``pair_table`` makes of the values.
        """
        self._packed = packed
        self._columns, self._pairs = values.shape[1], 2 * packed.shape[1]
        self._table = pair_table(values, packed.shape[1]) if table is None else table
        self._firsts = _LINES * np.arange(self._pairs).reshape(-1, 2)
        self._places = np.empty((most_rows, packed.shape[1], 2), dtype=np.intp)
        self._found = np.empty((most_rows, self._pairs, 2), dtype=values.dtype)

    def __call__(self, rows: slice) -> NDArray[Any]:
        """Return the numbers of some rows, in memory that the next call uses again."""
        packed = self._packed[rows]
        count = len(packed)
        if self._table.dtype == np.float64 and (compiled := kernels("genotypes")):
            numbers = self._found[:count].reshape(count, 2 * self._pairs)
            compiled.write_numbers(packed, self._table, numbers)
            return numbers[:, : self._columns]
        places = np.take(_LINES_OF_BYTE, packed, axis=0, out=self._places[:count], mode="clip")  # none is outside
        places += self._firsts
        lines = places.reshape(count, self._pairs)
        found = np.take(self._table, lines, axis=0, out=self._found[:count], mode="clip")
        return found.reshape(count, 2 * self._pairs)[:, : self._columns]

    def rounded(self, rows: slice, factors: FloatArray) -> FloatArray:
        """Return floating-point numbers of some rows, times each row's factor and rounded to nearest.

        They are in memory that the next call uses again.
        """
        if compiled := kernels("genotypes"):
            found = self._found[: len(factors)].reshape(len(factors), 2 * self._pairs)
            compiled.write_rounded(self._packed[rows], self._table, factors, found)
            return found[:, : self._columns]
        numbers: FloatArray = self(rows)
        np.multiply(numbers, factors, out=numbers)
        return np.rint(numbers, out=numbers)


def pair_table(values: NDArray[Any], width: int) -> NDArray[Any]:
    """Return lines of two numbers, for each pair of columns and each pair of their codes."""
    whole = np.zeros((_CODES, CELLS_A_BYTE * width), dtype=values.dtype)
    whole[:, : values.shape[1]] = values
    of_pairs = whole.T.reshape(-1, 2, _CODES)
    table = np.empty((len(of_pairs), _CODES, _CODES, 2), dtype=values.dtype)  # the second code is in higher bits
    table[..., 0] = of_pairs[:, 0, None, :]
    table[..., 1] = of_pairs[:, 1, :, None]
    return table.reshape(-1, 2)


class PackedWords:
    """A table of 64-bit words: one for each code of a column, and zeros where a row is blank. Sums are modulo 2^64.

    It multiplies as a dense table of the same words does.
    """

    def __init__(self, packed: Bytes, blank: NDArray[np.bool_], words: Words) -> None:
        """``words`` has a row for each code."""
        self._packed, self._blank, self._words = packed, blank, words

    @property
    def T(self) -> "_ColumnsOfWords":  # noqa: N802  # as numpy calls it
        """The table with its columns as rows."""
        return _ColumnsOfWords(self._packed, self._blank, self._words)

    def __matmul__(self, labels: Words) -> Words:
        """Add up each row, with a label, or several, for each column."""
        lanes = labels.reshape(len(labels), -1)
        sums = self._add_compiled(lanes) if kernels("genotypes") else self._add(lanes)
        return np.where(self._blank[:, None], np.uint64(0), sums).reshape(-1, *labels.shape[1:])

    def _add_compiled(self, lanes: Words) -> Words:
        """Add up with a kernel, on all processors."""
        compiled = kernels("genotypes")
        assert compiled is not None
        packed = np.require(self._packed, np.uint8, ("C", "W"))
        words = np.ascontiguousarray(self._words.T * lanes.T[:, :, None])

        def add(start: int, stop: int) -> Words:
            sums = np.zeros((len(words), stop - start), dtype=np.uint64)
            compiled.add_packed_rows(packed[start:stop], words, sums)
            return sums

        return np.concatenate(on_all_processors(add, len(packed)), axis=1).T

    def _add(self, lanes: Words) -> Words:
        sums = np.zeros((len(self._packed), lanes.shape[1]), dtype=np.uint64)
        for part, columns in _tiles(self._packed.shape[1], self._words.shape[1]):
            tables = [_byte_table(self._words[:, columns] * lane[columns]) for lane in lanes.T]
            firsts = _BYTES * np.arange(part.stop - part.start)
            for start in range(0, len(sums), _TILE_ROWS):
                rows = slice(start, start + _TILE_ROWS)
                places = self._packed[rows, part] + firsts
                for lane, table in enumerate(tables):
                    sums[rows, lane] += np.take(table, places, mode="clip").sum(axis=1, dtype=np.uint64)
        return sums


class _ColumnsOfWords:
    """The same words, column by column."""

    def __init__(self, packed: Bytes, blank: NDArray[np.bool_], words: Words) -> None:
        self._packed, self._blank, self._words = packed, blank, words

    def __matmul__(self, weights: Words) -> Words:
        """Add up each column, with a weight for each row."""
        counted = np.where(self._blank, np.uint64(0), weights)
        return self._add_compiled(counted) if kernels("genotypes") else self._add(counted[:, None])

    def _add_compiled(self, counted: Words) -> Words:
        """Add up with a kernel, on all processors."""
        compiled = kernels("genotypes")
        assert compiled is not None
        packed = np.require(self._packed, np.uint8, ("C", "W"))

        def add(start: int, stop: int) -> Words:
            sums = np.zeros((CELLS_A_BYTE * packed.shape[1], _CODES), dtype=np.uint64)
            compiled.add_weights(packed[start:stop], counted[start:stop], sums)
            return sums

        sums: Words = np.add.reduce(on_all_processors(add, len(packed)))[: self._words.shape[1]]
        return np.asarray((sums * self._words.T).sum(axis=1, dtype=np.uint64))

    def _add(self, counted: Words) -> Words:
        sums = np.zeros(self._words.shape[1], dtype=np.uint64)
        height = _TILE_ROWS // 8
        for part, columns in _tiles(self._packed.shape[1], len(sums)):
            lookup = Lookup(self._packed[:, part], self._words[:, columns], height)
            for start in range(0, len(counted), height):
                rows = slice(start, start + height)
                found = lookup(rows)
                found *= counted[rows]
                sums[columns] += found.sum(axis=0, dtype=np.uint64)
        return sums


def _tiles(width: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Divide a table into some bytes at a time, and the columns that are in them."""
    for start in range(0, width, _TILE_BYTES):
        stop = min(start + _TILE_BYTES, width)
        yield slice(start, stop), slice(CELLS_A_BYTE * start, min(CELLS_A_BYTE * stop, columns))


def _byte_table(words: Words) -> Words:
    """Return for each byte of a row and each of its values the sum of the words of its four cells."""
    whole = np.zeros((_CODES, -(-words.shape[1] // CELLS_A_BYTE) * CELLS_A_BYTE), dtype=np.uint64)
    whole[:, : words.shape[1]] = words
    first, second, third, fourth = whole.T.reshape(-1, CELLS_A_BYTE, _CODES).transpose(1, 0, 2)
    low = second[:, :, None] + first[:, None, :]
    high = fourth[:, :, None] + third[:, None, :]
    table: Words = high.reshape(-1, _LINES, 1) + low.reshape(-1, 1, _LINES)
    return table.reshape(-1)
