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

from .lookups import PackedWords, Words
from .two_bits import BITS, CELLS_A_BYTE, MISSING, Bytes, Codes, codes_of, of_codes, write_rows

_COUNTS: Final = (0.0, 1.0, 2.0, np.nan)
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
    def of_columns(cls, columns: Iterable[Bytes], shape: tuple[int, int]) -> Self:
        """Take columns as rows of bytes, some at a time. All but the last have a multiple of four columns."""
        packed = np.empty((shape[0], -(-shape[1] // CELLS_A_BYTE)), dtype=np.uint8)
        end = 0
        for some in columns:
            write_rows(some, packed, end)
            end += -(-len(some) // CELLS_A_BYTE)
        return cls(packed, np.repeat(np.array(_COUNTS)[:, None], shape[1], axis=1), np.zeros(shape[0], dtype=np.bool_))

    @classmethod
    def of_codes(cls, codes: Codes) -> Self:
        """Pack a table of codes, one row for each sample."""
        return cls.of_columns([of_codes(np.ascontiguousarray(codes.T))], codes.shape)

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
            places = codes_of(self.packed[part], columns) + first
            found = np.take(by_column, places, mode="clip")  # no place is outside, and "clip" saves a check
            numbers[part] = np.where(self.blank[part, None], 0.0, found)
        return numbers

    def blocks(self, cells: int = _BLOCK_CELLS) -> Iterator[Self]:
        """Give all rows, some at a time. Of no rows, give no block."""
        step = max(1, cells // self.shape[1])
        return (self[start : start + step] for start in range(0, len(self.packed), step))

    def words(self, of: Callable[[FloatArray], Words]) -> PackedWords:
        """Return a word in place of each number, and zeros in place of blank rows."""
        return PackedWords(self.packed, self.blank, of(self.values))

    def has(self, of: Callable[[FloatArray], NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """Tell for each row whether some number of it, before it was blanked, is one of those that ``of`` marks."""
        of_codes = of(self.values)
        if not of_codes.any():  # as settings say, and no row
            return np.zeros_like(self.blank)
        marks = PackedWords(self.packed, np.zeros_like(self.blank), of_codes.astype(np.uint64))
        return np.asarray(marks @ np.ones(self.shape[1], dtype=np.uint64) > 0)

    def column(self, place: int) -> FloatArray:
        """Return the numbers of one column, of rows that are not blank."""
        which = self.packed[:, place // CELLS_A_BYTE] >> np.uint8(BITS * (place % CELLS_A_BYTE)) & np.uint8(MISSING)
        return np.take(self.values[:, place], which)

    def counts(self) -> NDArray[np.intp]:
        """Count how often each code occurs in each column."""
        total = np.zeros(self.values.shape, dtype=np.intp)
        for block in self.blocks():
            codes = codes_of(block.packed, self.shape[1])
            total += np.stack([np.count_nonzero(codes == code, axis=0) for code in range(len(_COUNTS))])
        return total

    def without_any(self) -> NDArray[np.bool_]:
        """Tell which rows have no genotype in any column."""
        empty = np.zeros(0, dtype=np.bool_)
        columns = self.shape[1]
        found = ((codes_of(block.packed, columns) == MISSING).all(axis=1) for block in self.blocks())
        return np.concatenate([empty, *found])

    def select(self, places: NDArray[np.intp]) -> Self:
        """Return some of the columns, in this order."""
        if np.array_equal(places, np.arange(self.shape[1])):
            return self
        packed = np.empty((len(self.packed), -(-len(places) // CELLS_A_BYTE)), dtype=np.uint8)
        end = 0
        for block in self.blocks():
            start, end = end, end + len(block.packed)
            packed[start:end] = of_codes(codes_of(block.packed, self.shape[1])[:, places])
        return replace(self, packed=packed, values=self.values[:, places])

    def stored(self) -> scipy.sparse.csr_array:
        """Return the numbers that are not zero. Of genotypes, this is most often larger than a dense table."""
        parts = [scipy.sparse.csr_array(block.toarray()) for block in self.blocks()]
        return scipy.sparse.csr_array(scipy.sparse.vstack([scipy.sparse.csr_array((0, self.shape[1])), *parts]))

    def diagonal(self) -> FloatArray:
        """Return the entries whose row and column have the same number."""
        return np.array([float(self[place : place + 1].toarray()[0, place]) for place in range(min(self.shape))])


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


def stacked_genotypes(parts: Sequence[Genotypes]) -> Genotypes:
    """Put rows below one another. Their columns must be the same."""
    packed = np.concatenate([part.packed for part in parts])
    return Genotypes(packed, parts[0].values, np.concatenate([part.blank for part in parts]))
