"""Fingerprints of rows, which depend on their content and not on how they are stored: the same rows have one budget.

Pure. A fingerprint is the hash of a table's canonical form:

- Values are rounded to 32-bit floating point, and -0.0 becomes 0. So a table saved as float64, float32 or integers is
  the same table, and so is one in .csv, .npy, .npz or a folder of files.
- Zeros are left out, and so are rows and columns of zeros. Sparse or dense form, and explicit zeros or duplicates in
  CSR, make no difference.
- Rows are a multiset: their order does not count.
- Columns are ordered by their content (``_column_keys``). Columns that this cannot distinguish keep their order.
- Column names, the persons file and the span of a matrix do not count.
- A symmetric matrix [[0, M], [M^T, 0]] also has the fingerprint of the table M.

A table has a second fingerprint, with its columns in the given order. It can be updated while rows arrive, file by
file.

Two tables with the same canonical form always have the same fingerprint. Two with different forms have the same one
only by accident, if two sums of 64-bit words agree: a chance near 2^-128 for a pair. Nobody gains by a collision,
because a fingerprint can only refuse a data set. The digest in a job (``CheckedRows.digest``) is SHA-256 over all bits.

Memory: blocks of rows, and a few numbers for each column.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final, Self, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .block_tables import BlockTable
from .genotypes import Genotypes
from .stored_rows import StoredRows

Table: TypeAlias = FloatArray | scipy.sparse.csr_array | BlockTable
Words: TypeAlias = NDArray[np.uint64]

BLOCK_ENTRIES: Final = 2**16
ROUNDS: Final = 2
"""Rounds of ``_column_keys``: the first uses a column's values and those beside them, the second also its keys."""
LANES: Final = 2

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTORS: Final = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_FORM: Final = b"dpspca rows, canonical form 1\0"


class Fingerprint:
    """The fingerprint of a table with its columns in the given order. Adding rows returns a new value."""

    __slots__ = ("_totals",)

    def __init__(self, totals: tuple[int, ...] = (0,) * LANES) -> None:
        self._totals = totals

    @property
    def names(self) -> frozenset[str]:
        """The fingerprint, or nothing if all values are zero, so that two tables without content are not the same."""
        return frozenset({_name(self._totals)} if any(self._totals) else ())

    def plus(self, rows: Table) -> Self:
        """Return the fingerprint of these rows and more."""
        return type(self)(_added(self._totals, _totals(rows, _labels(np.arange(rows.shape[1])))))


def of_table(table: Table) -> frozenset[str]:
    """Return all fingerprints of a table."""
    inner = _undilated(table)
    as_it_stands = Fingerprint().plus(table).names
    return as_it_stands | _canonical(table) | (frozenset() if inner is None else _canonical(inner))


def duplicates(named: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of data sets with the same rows, the earlier first. ``named`` has each data set's fingerprints."""
    first: dict[str, str] = {}
    for data_set, names in named.items():
        known = sorted({first[each] for each in names if each in first})
        if known:
            yield known[0], data_set
        for each in names:
            first.setdefault(each, data_set)


def _canonical(table: Table) -> frozenset[str]:
    """Return the fingerprint with columns ordered by content. Columns of zeros come last, so they do not count."""
    keys = _column_keys(table)
    ranks = np.empty(len(keys), dtype=np.intp)
    ranks[np.argsort(keys - np.uint64(1), kind="stable")] = np.arange(len(keys))
    return Fingerprint(_totals(table, _labels(ranks))).names


def _column_keys(table: Table) -> Words:
    """Return a key for each column that depends on its values and their rows, but not on the order of either.

    A row's label is a sum over its values, each with its column's key so far. A column's key is a sum over its values,
    each with its row's label. Every step is a sum, so no order counts.
    """
    keys = np.zeros(table.shape[1], dtype=np.uint64)
    for _ in range(ROUNDS):
        labels, keys = _mixed(keys) | np.uint64(1), np.zeros_like(keys)
        for words in _blocks(table):
            keys += words.T @ (_mixed(words @ labels) | np.uint64(1))
    return keys


def _totals(table: Table, labels: Words) -> tuple[int, ...]:
    """Sum a hash of each row, which depends on its values and their columns' labels."""
    totals = np.zeros(LANES, dtype=np.uint64)
    for words in _blocks(table):
        totals += _mixed(words @ labels).sum(axis=0, dtype=np.uint64)
    return tuple(map(int, totals))


def _added(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((one + other) % 2**64 for one, other in zip(some, others, strict=True))


def _labels(ranks: NDArray[np.intp]) -> Words:
    """Return an odd number for each column and lane, by the column's place."""
    places = (LANES * ranks[:, None] + np.arange(1, LANES + 1)).astype(np.uint64)
    return _mixed(places * _STEP) | np.uint64(1)


def _name(totals: tuple[int, ...]) -> str:
    return sha256(_FORM + b"".join(each.to_bytes(8) for each in totals)).hexdigest()


def _blocks(table: Table) -> Iterator[Any]:
    """Yield a table's values as words, some rows at a time, dense, sparse or packed as the table is."""
    if isinstance(table, Genotypes):
        yield table.words(_words)
        return
    if isinstance(table, BlockTable):
        yield from (_words(block.toarray()) for block in table.blocks(BLOCK_ENTRIES))
        return
    size = max(BLOCK_ENTRIES, table.shape[1])  # of a sparse block, a sum goes over all columns
    if isinstance(table, np.ndarray):
        step = max(1, BLOCK_ENTRIES // table.shape[1])
        for start in range(0, len(table), step):
            yield _words(table[start : start + step])
        return
    entries = np.arange(0, table.nnz, size)
    starts = [*np.unique(np.searchsorted(table.indptr, entries, side="right") - 1), table.shape[0]]
    for start, stop in pairwise(starts):
        part = table[start:stop]
        yield scipy.sparse.csr_array((_words(part.data), part.indices, part.indptr), shape=part.shape)


def _words(values: FloatArray) -> Words:
    """Map each value to a word, and zero to the word 0."""
    rounded = values.astype(np.float32)
    rounded += np.float32(0.0)  # turns -0.0 into 0.0
    return _mixed(rounded.view(np.uint32).astype(np.uint64))


def _mixed(words: Words) -> Words:
    """Map 64-bit words one to one, and 0 to 0. Sums of results do not follow from sums of words (SplitMix64)."""
    mixed = words * _FACTORS[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _FACTORS[1]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _undilated(table: Table) -> Table | None:
    """Return M if the table is [[0, M], [M^T, 0]], up to rows and columns of zeros. Otherwise return None."""
    rows, columns = table.shape
    if isinstance(table, StoredRows):
        return _undilated_in_blocks(table) if rows == columns else None
    if rows != columns or table.diagonal().any():
        return None
    sparse = table.stored() if isinstance(table, Genotypes) else scipy.sparse.csr_array(table)
    difference = sparse - sparse.T
    row, column = (places[sparse.data != 0] for places in scipy.sparse.coo_array(sparse).coords)
    above = row < column
    if difference.data.any() or not above.any() or row[above].max() >= column[above].min():
        return None
    start = int(column[above].min())
    return sparse[:start, start:]


def _undilated_in_blocks(table: StoredRows) -> Table | None:
    """Do the same in one pass. That the table is symmetric is seen by sums of hashes, as two tables are compared."""
    places = np.arange(table.shape[0])
    labels = _labels(places)
    above, below = np.zeros(LANES, dtype=np.uint64), np.zeros(LANES, dtype=np.uint64)
    last, first, at = -1, len(places), 0
    for words in _blocks(table):
        own = places[at : at + len(words), None]
        upper, lower = np.where(places > own, words, np.uint64(0)), np.where(places < own, words, np.uint64(0))
        if np.where(places == own, words, np.uint64(0)).any():
            return None
        for lane in range(LANES):
            mine, all_labels = labels[at : at + len(words), lane], labels[:, lane]
            above[lane] += (_mixed(upper * mine[:, None]) @ all_labels).sum(dtype=np.uint64)
            below[lane] += (mine @ _mixed(lower * all_labels)).sum(dtype=np.uint64)
        row, column = upper.nonzero()
        if row.size:
            last, first = max(last, at + int(row.max())), min(first, int(column.min()))
        at += len(words)
    if last < 0 or last >= first or (above != below).any():
        return None
    return table[:first].select(places[first:])
