"""Checked dense rows in scratch files, which become floating-point numbers only some at a time.

Numbers have the type of their source, if that is no wider than needed, so small integers stay small. Each block that is
read has the same bits as those rows of a table in memory. A row that cannot be used is stored with zeros in place of
its unusable numbers and a mark that it counts as a row of zeros, as ``Genotypes`` are: a symmetric matrix needs the
other numbers of such a row (``CheckedRows.as_matrix``).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .reused_memory import ReusedMemory, array_in
from .row_words import FirstPass, FirstSums
from .scratch import Scratch, ScratchFile

BLOCK_CELLS: Final = 2**18
"""Numbers that are read together: two megabytes of floating-point numbers."""
_WIDEST: Final = np.dtype(np.float64)
_SMALL_WHOLE: Final = 4


def stored_type(source: "np.dtype[Any]") -> "np.dtype[Any]":
    """Return the type in which numbers of a source's type are stored. Each becomes the same number in float64."""
    is_small = source.itemsize <= (_WIDEST.itemsize if source.kind == "f" else _SMALL_WHOLE)
    return source.newbyteorder("=") if source.kind in "fiub" and is_small else _WIDEST


@dataclass(frozen=True, eq=False, slots=True)
class StoredRows:
    """Some rows, and some columns, of a table in scratch files."""

    scratch: Scratch
    numbers: ScratchFile
    blank: ScratchFile | None
    """For each row one byte, which is 1 if it counts as a row of zeros. None if none does."""
    kind: "np.dtype[Any]"
    width: int
    """Number of columns that are stored."""
    start: int
    stop: int
    places: NDArray[np.intp] | None = None
    """Which of the columns are meant, in this order, or None for all."""
    first: FirstSums | None = None
    """The sums for the fingerprints of exactly these rows that were computed while they were stored."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows, and of columns."""
        return self.stop - self.start, self.width if self.places is None else len(self.places)

    @property
    def nbytes(self) -> int:
        """Bytes in scratch."""
        return (self.stop - self.start) * (self.width * self.kind.itemsize + 1)

    def __getitem__(self, rows: slice | NDArray[np.bool_] | tuple[slice, Any]) -> Self:
        """Return some of the rows, or some of their columns. Rows that a mask chooses are copied."""
        if isinstance(rows, tuple):
            return self[rows[0]].select(np.asarray(rows[1], dtype=np.intp))
        if not isinstance(rows, slice):
            return self._chosen(rows)
        start, stop, _ = rows.indices(self.shape[0])
        return replace(self, start=self.start + start, stop=self.start + max(start, stop), first=None)

    def select(self, places: NDArray[np.intp]) -> Self:
        """Return some of the columns, in this order."""
        return replace(self, places=places if self.places is None else self.places[places], first=None)

    def toarray(self, memory: ReusedMemory | None = None) -> FloatArray:
        """Read all of these rows, into memory that is used again if it is given.

        A row that counts as zeros takes the same steps as others: its bits are removed by a mask, as no bit of others.
        """
        entries = self.entries(memory)
        if self.blank is not None:
            bits = entries.view(np.int64)
            bits &= (self.marks().astype(np.int64) - 1)[:, None]
        return entries

    def entries(self, memory: ReusedMemory | None = None) -> FloatArray:
        """Read all of these rows, with the usable numbers of those that count as zeros."""
        as_they_are = self.places is None and self.kind == _WIDEST
        found = self.stored(memory if as_they_are else None)
        chosen = found if self.places is None else found[:, self.places]
        return np.ascontiguousarray(chosen, dtype=np.float64)

    def stored(self, memory: ReusedMemory | None = None) -> NDArray[Any]:
        """Read all of these rows with all columns that are stored, in the type in which they are stored."""
        found = array_in(memory, (self.shape[0], self.width), self.kind)
        self.numbers.read(self.start * self.width * self.kind.itemsize, found)
        return found

    def blocks(self, cells: int = BLOCK_CELLS) -> Iterator[Self]:
        """Give all rows, some at a time. Of no rows, give no block."""
        step = max(1, cells // self.width)
        return (self[start : start + step] for start in range(0, self.shape[0], step))

    def diagonal(self) -> FloatArray:
        """Return the entries whose row and column have the same number."""
        return np.array([float(self[place : place + 1].toarray()[0, place]) for place in range(min(self.shape))])

    def marks(self) -> NDArray[np.bool_]:
        """Tell which of these rows count as rows of zeros."""
        if self.blank is None:
            return np.zeros(self.shape[0], dtype=np.bool_)
        marks = np.empty(self.shape[0], dtype=np.bool_)
        self.blank.read(self.start, marks)
        return marks

    def _chosen(self, which: NDArray[np.bool_]) -> Self:
        """Copy the rows that are marked."""
        writer = RowWriter(self.scratch, self.shape[1], self.kind)
        at = 0
        for block in self.blocks():
            kept = which[at : at + block.shape[0]]
            writer.add(block.entries()[kept], block.marks()[kept])
            at += block.shape[0]
        return writer.rows()  # type: ignore[return-value]


def stored_integers(
    scratch: Scratch, shape: tuple[int, int], made: Callable[[int, int], NDArray[Any]], threads: int
) -> StoredRows:
    """Write integer rows, which ``made`` gives from a start to a stop, with several threads."""
    rows, columns = shape
    file, kind = scratch.file(), np.dtype(np.int32)
    step = max(1, BLOCK_CELLS // columns)

    def write(start: int) -> None:
        block = made(start, min(start + step, rows))
        file.write(start * columns * kind.itemsize, np.ascontiguousarray(block, dtype=kind))

    file.reserve(rows * columns * kind.itemsize)
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(write, range(0, rows, step)):
            pass
    return StoredRows(scratch, file, None, kind, columns, 0, rows)


class RowWriter:
    """Writes rows one block after the other."""

    def __init__(self, scratch: Scratch, width: int, kind: "np.dtype[Any]", *, with_first: bool = False) -> None:
        """``kind`` is the type that holds all numbers exactly (``stored_type``).

        ``with_first`` says whether fingerprints of the rows will be wanted.
        """
        self._scratch = scratch
        self._width = width
        self._kind = kind
        self._numbers, self._blank = scratch.file(), scratch.file()
        self._count = 0
        self._first = FirstPass(width) if with_first else None

    def add(self, numbers: FloatArray, blank: NDArray[np.bool_]) -> None:
        """Write rows, and which of them count as rows of zeros."""
        self._numbers.append(np.ascontiguousarray(numbers, dtype=self._kind))
        self._blank.append(np.ascontiguousarray(blank))
        self._count += len(numbers)
        if self._first is not None:
            self._first.add(numbers, blank)

    def rows(self) -> StoredRows:
        """Return the rows that were written, after the last one."""
        files = self._numbers, self._blank
        for file in files:
            file.finish()
        first = None if self._first is None else self._first.sums
        return StoredRows(self._scratch, *files, self._kind, self._width, 0, self._count, first=first)


def stacked_rows(parts: Sequence[StoredRows]) -> StoredRows:
    """Put rows below one another, as a copy. Their columns must be the same."""
    kind = np.result_type(*(part.kind for part in parts))
    writer = RowWriter(parts[0].scratch, parts[0].shape[1], kind)
    for block in (block for part in parts for block in part.blocks()):
        writer.add(block.entries(), block.marks())
    return writer.rows()
