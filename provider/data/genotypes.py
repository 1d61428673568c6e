"""Genotypes in memory: two bits a cell, and for each column the four numbers that these bits stand for. Pure.

A cell is 0, 1 or 2 copies of an allele, or missing. Whatever is done to a column entry by entry (a number in place of
missing ones, a scale) is done to its four numbers, so the cells are never widened together. Rows become floating-point
numbers only some at a time, when they are asked for, with the same bits as a dense table of the same numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import InvalidDataError

Codes = NDArray[np.uint8]
"""One number for each cell: how many copies, or ``MISSING``."""

MISSING: Final = 3
CELLS_A_BYTE: Final = 4
_COUNTS: Final = (0.0, 1.0, 2.0, np.nan)
_BITS: Final = 2
_BLANK_LINE: Final = 16
_LINES: Final = _BLANK_LINE + 1
"""Lines of a table of two columns: one for each pair of codes, and one for a row that counts as zeros."""
_BLANK_BYTE: Final = 256
_PAIRS_OF_BYTE: Final = np.array([*((each & 15, each >> 4) for each in range(_BLANK_BYTE)), (_BLANK_LINE,) * 2])
"""Which two lines a byte stands for."""
_LOOKED_UP: Final = 2**16
"""Cells that are looked up together. Larger temporaries are several times slower."""
_BLOCK_CELLS: Final = 2**18
"""Cells that are widened together: two megabytes of floating-point numbers."""


@dataclass(frozen=True, eq=False, slots=True)
class Genotypes:
    """A table of genotypes, one row for each sample."""

    packed: NDArray[np.uint8]
    """Rows, with four columns in each byte, the first in the lowest bits."""
    values: FloatArray
    """For each code and column, the number that it stands for. NaN is a missing value."""
    blank: NDArray[np.bool_]
    """Which rows count as rows of zeros."""

    @classmethod
    def of_columns(cls, columns: Iterable[Codes], shape: tuple[int, int]) -> Self:
        """Pack codes that come column by column, some columns at a time. All but the last have a multiple of four."""
        packed = np.zeros((shape[0], -(-shape[1] // CELLS_A_BYTE)), dtype=np.uint8)
        end = 0
        for codes in columns:
            quads = _packed(codes)
            packed[:, end : end + len(quads)] = quads.T
            end += len(quads)
        return cls(packed, np.repeat(np.array(_COUNTS)[:, None], shape[1], axis=1), np.zeros(shape[0], dtype=np.bool_))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of columns."""
        return len(self.packed), self.values.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory for all cells."""
        return self.packed.nbytes + self.values.nbytes + self.blank.nbytes

    def __getitem__(self, rows: slice | NDArray[Any] | tuple[slice, Any]) -> Self:
        """Return some of the rows, or some of their columns."""
        if isinstance(rows, tuple):
            return self[rows[0]].select(np.asarray(rows[1], dtype=np.intp))
        return replace(self, packed=self.packed[rows], blank=self.blank[rows])

    def mapped(self, change: Callable[[FloatArray], FloatArray]) -> Self:
        """Apply a function that changes a table entry by entry, in the same way for all entries of a column."""
        return replace(self, values=np.ascontiguousarray(change(self.values)))

    def as_counted(self) -> Self:
        """Return the counts, without what was done to columns. A missing one counts as 0."""
        return self.mapped(lambda values: np.repeat([[0.0], [1.0], [2.0], [0.0]], values.shape[1], axis=1))

    def blanked(self, rows: NDArray[np.bool_]) -> Self:
        """Let more rows count as rows of zeros."""
        return replace(self, blank=self.blank | rows)

    def toarray(self) -> FloatArray:
        """Return the numbers of all rows.

        Each is looked up by its column and code, which takes the same time whatever the code is. So does a row that
        counts as zeros.
        """
        rows, columns = self.shape
        numbers = np.empty((rows, columns))
        by_column, first = np.ascontiguousarray(self.values.T).reshape(-1), len(self.values) * np.arange(columns)
        step = max(1, _LOOKED_UP // columns)
        for start in range(0, rows, step):
            part = slice(start, start + step)
            places = _codes(self.packed[part], columns) + first
            found = np.take(by_column, places, mode="clip")  # no place is outside, and "clip" spares a check
            numbers[part] = np.where(self.blank[part, None], 0.0, found)
        return numbers

    def blocks(self, cells: int = _BLOCK_CELLS) -> Iterator[Self]:
        """Give all rows, some at a time. Of no rows, give no block."""
        step = max(1, cells // self.shape[1])
        return (self[start : start + step] for start in range(0, len(self.packed), step))

    def has(self, of: Callable[[FloatArray], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Tell for each row whether some number of it, before it was blanked, is one of those that ``of`` marks."""
        marked = of(self.values)
        marks = replace(self, values=marked.astype(np.float64), blank=np.zeros_like(self.blank))
        found = [block.toarray().any(axis=1) for block in marks.blocks()]
        return np.concatenate([np.zeros(0, dtype=np.bool_), *found])

    def column(self, place: int) -> FloatArray:
        """Return the numbers of one column, of rows that are not blank."""
        which = self.packed[:, place // CELLS_A_BYTE] >> np.uint8(_BITS * (place % CELLS_A_BYTE)) & np.uint8(MISSING)
        return np.take(self.values[:, place], which)

    def counts(self) -> NDArray[np.intp]:
        """Count how often each code occurs in each column."""
        total = np.zeros(self.values.shape, dtype=np.intp)
        for block in self.blocks():
            codes = _codes(block.packed, self.shape[1])
            total += np.stack([np.count_nonzero(codes == code, axis=0) for code in range(len(_COUNTS))])
        return total

    def select(self, places: NDArray[np.intp]) -> Self:
        """Return some of the columns, in this order."""
        parts = [_packed(_codes(block.packed, self.shape[1])[:, places].T).T for block in self.blocks()]
        empty = np.empty((0, -(-len(places) // CELLS_A_BYTE)), dtype=np.uint8)
        return replace(self, packed=np.concatenate([empty, *parts]), values=self.values[:, places])

    def stored(self) -> scipy.sparse.csr_array:
        """Return the numbers that are not zero. Of genotypes, this is most often larger than a dense table."""
        parts = [scipy.sparse.csr_array(block.toarray()) for block in self.blocks()]
        return scipy.sparse.csr_array(scipy.sparse.vstack([scipy.sparse.csr_array((0, self.shape[1])), *parts]))

    def diagonal(self) -> FloatArray:
        """Return the entries whose row and column have the same number."""
        return np.array([float(self[place : place + 1].toarray()[0, place]) for place in range(min(self.shape))])


class Lookup:
    """Looks up numbers for some columns of genotypes: two columns at once, in tables that stay in a cache.

    A table has a line for each pair of codes, and one for rows that count as zeros. Every cell takes the same steps,
    whatever its code is and whether its row counts.
    """

    def __init__(self, packed: NDArray[np.uint8], blank: NDArray[np.bool_], values: FloatArray, most_rows: int) -> None:
        """Take whole bytes of columns, which rows are blank, and the numbers of each code and of blank rows.

        ``values`` may have fewer columns than the bytes. At most ``most_rows`` are looked up at once.
        """
        self._packed = packed
        self._kept = np.where(blank, 0, 2**8 - 1).astype(np.uint8)[:, None]
        self._jumps = np.where(blank, _BLANK_BYTE, 0)[:, None]
        self._width = values.shape[1]
        self._table = _pair_table(values, packed.shape[1])
        pairs = 2 * packed.shape[1]
        self._firsts = _LINES * np.arange(pairs).reshape(-1, 2)
        self._bytes = np.empty((most_rows, packed.shape[1]), dtype=np.intp)
        self._places = np.empty((most_rows, packed.shape[1], 2), dtype=np.intp)
        self._found = np.empty((most_rows, pairs, 2))

    def __call__(self, rows: slice) -> FloatArray:
        """Return the numbers of some rows, in memory that the next call uses again."""
        packed = self._packed[rows] & self._kept[rows]
        count = len(packed)
        chosen = np.add(packed, self._jumps[rows], out=self._bytes[:count])
        places = np.take(_PAIRS_OF_BYTE, chosen, axis=0, out=self._places[:count], mode="clip")  # none is outside
        places += self._firsts
        found = np.take(self._table, places.reshape(count, -1), axis=0, out=self._found[:count], mode="clip")
        return found.reshape(count, -1)[:, : self._width]


def _pair_table(values: FloatArray, width: int) -> FloatArray:
    """Return lines of two numbers, for each pair of columns and each pair of their codes."""
    whole = np.zeros((len(values), CELLS_A_BYTE * width))
    whole[:, : values.shape[1]] = values
    of_pairs = whole.T.reshape(-1, 2, len(values))
    table = np.empty((len(of_pairs), _LINES, 2))
    by_codes = table[:, :_BLANK_LINE].reshape(-1, len(_COUNTS), len(_COUNTS), 2)  # the second code is in higher bits
    by_codes[..., 0] = of_pairs[:, 0, None, : len(_COUNTS)]
    by_codes[..., 1] = of_pairs[:, 1, : len(_COUNTS), None]
    table[:, _BLANK_LINE] = of_pairs[..., -1]
    return table.reshape(-1, 2)


def entry_by_entry(matrix: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401  # dense, sparse or genotypes
    """Apply a function that changes entries in the same way for all rows."""
    return matrix.mapped(change) if isinstance(matrix, Genotypes) else change(matrix)


def prepared_genotypes(matrix: Genotypes, names: Sequence[str], preparation: Preparation) -> Genotypes:
    """Prepare genotypes for a dictionary: the four numbers of each column, as if they were four rows."""
    levels = [each.feature.name for each in preparation.mapped if each.codes is not None]
    if levels:
        raise InvalidDataError(f"Genotypes cannot be levels of {levels[0]!r:.60}.", "Describe them as genotypes.")
    places = {name: place for place, name in enumerate(names)}
    chosen = matrix.select(np.array([places[each.column] for each in preparation.mapped], dtype=np.intp))
    return replace(chosen, values=np.ascontiguousarray(preparation.prepare(matrix.values, names)))


def stacked(parts: Sequence[Genotypes]) -> Genotypes:
    """Put rows below one another. Their columns must be the same."""
    packed = np.concatenate([part.packed for part in parts])
    return Genotypes(packed, parts[0].values, np.concatenate([part.blank for part in parts]))


def _packed(codes: Codes) -> NDArray[np.uint8]:
    """Put four rows of codes into one row of bytes."""
    whole = np.zeros((-(-len(codes) // CELLS_A_BYTE) * CELLS_A_BYTE, codes.shape[1]), dtype=np.uint8)
    whole[: len(codes)] = codes
    packed = whole[0::CELLS_A_BYTE].copy()
    for place in range(1, CELLS_A_BYTE):
        packed |= whole[place::CELLS_A_BYTE] << np.uint8(_BITS * place)
    return packed


def _codes(packed: NDArray[np.uint8], columns: int) -> Codes:
    """Widen packed rows to one byte a cell."""
    codes = np.empty((*packed.shape, CELLS_A_BYTE), dtype=np.uint8)
    for place in range(CELLS_A_BYTE):
        np.bitwise_and(packed >> np.uint8(_BITS * place), MISSING, out=codes[:, :, place])
    return codes.reshape(len(packed), CELLS_A_BYTE * packed.shape[1])[:, :columns]
