"""Fingerprints of rows, which depend on their content and not on how they are stored: the same rows have one budget.

Pure. A fingerprint is the hash of a table's canonical form:

- Values are rounded to 32-bit floating point, and -0.0 becomes 0. So a table saved as float64, float32 or integers is
  the same table, and so is one in .csv, .npy, .npz or a folder of files.
- Zeros are left out, and so are rows and columns of zeros. Sparse or dense form, and explicit zeros or duplicates in
  CSR, make no difference.
- Rows are a multiset: their order does not count.
- Columns are ordered by their content (``_canonical``). Columns that this cannot distinguish keep their order.
- Column names, the persons file and the span of a matrix do not count.
- A symmetric matrix [[0, M], [M^T, 0]] also has the fingerprint of the table M.

A table has a second fingerprint, with its columns in the given order. It can be updated while rows arrive, file by
file.

Two tables with the same canonical form always have the same fingerprint. Two with different forms have the same one
only by accident, if two sums of 64-bit words agree: a chance near 2^-128 for a pair. Nobody gains by a collision,
because a fingerprint can only refuse a data set. The digest in a job (``CheckedRows.digest``) is SHA-256 over all bits.

The first of three passes over dense rows is made while they are read (``row_words.FirstPass``). Memory: blocks of rows,
and a few numbers for each column.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import pairwise, starmap
from typing import Any, Final, Self, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.provider.data.memory import (
    BLOCK_CELLS,
    LANES,
    Blank,
    BlockTable,
    FirstPass,
    FirstSums,
    Genotypes,
    ReusedMemory,
    StoredRows,
    WordMaker,
    Words,
    column_keys,
    first_sums,
    labels_of,
    mixed,
    row_totals,
)
from dpspca.provider.kernels import kernels

from .compiled_sums import compiled_sparse_sums, compiled_sums

Table: TypeAlias = FloatArray | scipy.sparse.csr_array | BlockTable

BLOCK_ENTRIES: Final = BLOCK_CELLS

_FORM: Final = b"dpspca rows, canonical form 1\0"


class Fingerprint:
    """The fingerprint of a table with its columns in the given order. Adding rows returns a new value."""

    __slots__ = ("_totals",)

    def __init__(self, totals: tuple[int, ...] = (0,) * LANES) -> None:
        self._totals = totals

    @classmethod
    def of(cls, totals: Words) -> Self:
        """Make the fingerprint of what a pass over all rows added up."""
        return cls(tuple(map(int, totals)))

    @property
    def names(self) -> frozenset[str]:
        """The fingerprint, or nothing if all values are zero, so that two tables without content are not the same."""
        return frozenset({_name(self._totals)} if any(self._totals) else ())

    def plus(self, rows: Self) -> Self:
        """Return the fingerprint of these rows and more."""
        return type(self)(_added(self._totals, rows._totals))


def of_table(table: Table) -> frozenset[str]:
    """Return all fingerprints of a table. What was found while its rows were stored is not computed again."""
    return with_order(table)[0]


def with_order(table: Table) -> tuple[frozenset[str], Fingerprint]:
    """Return all fingerprints of a table, and by itself the one with its columns in the given order."""
    first = (table.first if isinstance(table, StoredRows) else None) or _first_pass(table)
    inner, ordered = _undilated(table), Fingerprint.of(first.totals)
    as_it_stands = ordered.names | _canonical(table, first)
    return as_it_stands | (frozenset() if inner is None else _canonical(inner, _first_pass(inner))), ordered


def in_order(table: Table) -> Fingerprint:
    """Return the fingerprint of a table with its columns in the given order."""
    if isinstance(table, StoredRows) and table.first is not None:
        return Fingerprint.of(table.first.totals)
    return Fingerprint.of(_totals(table, labels_of(np.arange(table.shape[1]))))


def duplicates(named: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """Yield pairs of data sets with the same rows, the earlier first. ``named`` has each data set's fingerprints."""
    first: dict[str, str] = {}
    for data_set, names in named.items():
        known = sorted({first[each] for each in names if each in first})
        if known:
            yield known[0], data_set
        for each in names:
            first.setdefault(each, data_set)


def _canonical(table: Table, first: FirstSums) -> frozenset[str]:
    """Return the fingerprint with columns ordered by content. Columns of zeros come last, so they do not count.

    A row's label is a sum over its values, each with its column's key so far. A column's key is a sum over its values,
    each with its row's label. Every step is a sum, so no order counts. The first keys use a column's values and those
    beside them (``first``), the second also the first keys.
    """
    keys = _keys(table, mixed(first.keys) | np.uint64(1))
    return Fingerprint.of(_totals(table, labels_of(places_of(keys)))).names


def places_of(keys: Words) -> NDArray[np.intp]:
    """Order columns by their keys, those of zeros last, and say where each stands."""
    ranks = np.empty(len(keys), dtype=np.intp)
    ranks[np.argsort(keys - np.uint64(1), kind="stable")] = np.arange(len(keys))
    return ranks


def _first_pass(table: Table) -> FirstSums:
    if isinstance(table, np.ndarray):
        begun = FirstPass(table.shape[1])
        begun.add(table, np.zeros(len(table), dtype=np.bool_))
        return begun.sums
    labels = labels_of(np.arange(table.shape[1]))
    if scipy.sparse.issparse(table) and (compiled := kernels("words")):
        sums = compiled_sparse_sums(table, compiled.add_sparse_first_sums, labels, LANES + len(labels))
        return FirstSums(sums[:LANES], sums[LANES:])
    sums = _summed(table, partial(first_sums, labels=labels))
    return FirstSums(sums[:LANES], sums[LANES:])


def _keys(table: Table, labels: Words) -> Words:
    compiled = kernels("words")
    if compiled and isinstance(table, np.ndarray | StoredRows):
        return compiled_sums(table, compiled.add_column_keys, labels, len(labels))
    if compiled and scipy.sparse.issparse(table):
        return compiled_sparse_sums(table, compiled.add_sparse_column_keys, labels, len(labels))
    return _summed(table, partial(column_keys, labels=labels))


def _totals(table: Table, labels: Words) -> Words:
    compiled = kernels("words")
    if compiled and isinstance(table, np.ndarray | StoredRows):
        return compiled_sums(table, compiled.add_row_totals, labels, LANES)
    if compiled and scipy.sparse.issparse(table):
        return compiled_sparse_sums(table, compiled.add_sparse_row_totals, labels, LANES)
    return _summed(table, partial(row_totals, labels=labels))


def _added(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((one + other) % 2**64 for one, other in zip(some, others, strict=True))


def _name(totals: tuple[int, ...]) -> str:
    return sha256(_FORM + b"".join(each.to_bytes(8) for each in totals)).hexdigest()


def _summed(table: Table, visit: Callable[..., Words]) -> Words:
    """Add up what a function makes of the words of each block.

    All processors work on sparse rows. Of dense ones, each step is so short that several threads would mostly wait for
    Python's lock.
    """
    no_sums = visit(WordMaker()(np.zeros((1, table.shape[1]))))  # of a row of zeros, which adds nothing
    if scipy.sparse.issparse(table):
        with ThreadPoolExecutor() as threads:
            found = threads.map(lambda rows: visit(_sparse_words(table[rows])), _sparse_blocks(table))
            return sum(found, no_sums)
    return sum((visit(words, blank=blank) for words, blank in _dense_blocks(table)), no_sums)


def _dense_blocks(table: FloatArray | BlockTable) -> Iterator[tuple[Any, Blank]]:
    """Yield a table's values as words, some rows at a time, and which rows count as rows of zeros, if any may.

    Words are overwritten by those of the next block.
    """
    make, memory = WordMaker(), ReusedMemory()
    if isinstance(table, StoredRows):
        yield from ((make(block.entries(memory)), block.marks()) for block in table.blocks(BLOCK_ENTRIES))
    elif isinstance(table, Genotypes):
        yield table.words(make), None  # which leaves out blank rows itself
    else:
        step = max(1, BLOCK_ENTRIES // table.shape[1])
        yield from ((make(table[start : start + step]), None) for start in range(0, len(table), step))


def _sparse_blocks(table: scipy.sparse.csr_array) -> Iterator[slice]:
    """Divide sparse rows into blocks."""
    size = max(BLOCK_ENTRIES, table.shape[1])  # of a block, a sum goes over all columns
    entries = np.arange(0, table.nnz, size)
    starts = [*np.unique(np.searchsorted(table.indptr, entries, side="right") - 1), table.shape[0]]
    return starmap(slice, pairwise(starts))


def _sparse_words(part: scipy.sparse.csr_array) -> scipy.sparse.csr_array:
    """Return the values of sparse rows as words, without making them dense."""
    return scipy.sparse.csr_array((WordMaker()(part.data), part.indices, part.indptr), shape=part.shape)


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
    labels = labels_of(places)
    above, below = np.zeros(LANES, dtype=np.uint64), np.zeros(LANES, dtype=np.uint64)
    last, first, at = -1, len(places), 0
    for block, blank in _dense_blocks(table):
        words = block if blank is None else block * ~blank[:, None]
        own = places[at : at + len(words), None]
        upper, lower = np.where(places > own, words, np.uint64(0)), np.where(places < own, words, np.uint64(0))
        if np.where(places == own, words, np.uint64(0)).any():
            return None
        for lane in range(LANES):
            mine, all_labels = labels[at : at + len(words), lane], labels[:, lane]
            above[lane] += (mixed(upper * mine[:, None]) @ all_labels).sum(dtype=np.uint64)
            below[lane] += (mine @ mixed(lower * all_labels)).sum(dtype=np.uint64)
        row, column = upper.nonzero()
        if row.size:
            last, first = max(last, at + int(row.max())), min(first, int(column.min()))
        at += len(words)
    if last < 0 or last >= first or (above != below).any():
        return None
    return table[:first].select(places[first:])
