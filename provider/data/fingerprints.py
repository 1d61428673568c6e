"""Names of rows by what they say, however they are stored: the same rows have one budget.

Pure. The canonical form of a table, of which a name is the hash:

- A value is rounded to 32-bit floating point, and -0.0 is 0. So a table saved as float64, float32 or integers is one
  table, and so are .csv, .npy, .npz and a folder of files.
- Entries of zero are left out: sparse and dense form, explicit zeros and duplicates in CSR make no difference. So are
  rows and columns of zeros.
- Rows are a multiset: their order does not count.
- Columns are put in an order that follows from what they hold (``_column_keys``). Columns that this cannot tell apart
  keep the order that they have.
- Column names, the file of persons and the span of a matrix have no part in it.
- A symmetric matrix [[0, M], [M^T, 0]] also has the name of the table M.

A table has a second name by its columns as they stand. That one can be kept up to date while rows arrive, file by file.

Two tables of one canonical form have one name, always. Two of different forms have one by accident alone: sums of
64-bit words agree twice, so with a chance near 2^-128 a pair. No party gains by a collision, since a name only ever
refuses a data set; the digest that is pinned to a job (``CheckedRows.digest``) is SHA-256 over all bits.

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

Table: TypeAlias = FloatArray | scipy.sparse.csr_array
Words: TypeAlias = NDArray[np.uint64]

BLOCK_ENTRIES: Final = 2**16
ROUNDS: Final = 2
"""Of telling columns apart: by their values and those beside them, and once more by what was told apart then."""
LANES: Final = 2

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTORS: Final = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_FORM: Final = b"dpspca rows, canonical form 1\0"


class Fingerprint:
    """A table's name by its columns as they stand. Rows may be added; whoever has a value keeps it as it was."""

    __slots__ = ("_totals",)

    def __init__(self, totals: tuple[int, ...] = (0,) * LANES) -> None:
        self._totals = totals

    @property
    def names(self) -> frozenset[str]:
        """Give the name, if there is anything but zeros to be named: tables that say nothing yet are not the same."""
        return frozenset({_name(self._totals)} if any(self._totals) else ())

    def plus(self, rows: Table) -> Self:
        """Give the name of these rows and of more."""
        return type(self)(_added(self._totals, _totals(rows, _labels(np.arange(rows.shape[1])))))


def of_table(table: Table) -> frozenset[str]:
    """Give all names of a table."""
    inner = _undilated(table)
    as_it_stands = Fingerprint().plus(table).names
    return as_it_stands | _canonical(table) | (frozenset() if inner is None else _canonical(inner))


def duplicates(named: Mapping[str, frozenset[str]]) -> Iterator[tuple[str, str]]:
    """List the data sets that hold the same rows as one before them: that one, and the other. ``named`` by data set."""
    first: dict[str, str] = {}
    for data_set, names in named.items():
        known = sorted({first[each] for each in names if each in first})
        if known:
            yield known[0], data_set
        for each in names:
            first.setdefault(each, data_set)


def _canonical(table: Table) -> frozenset[str]:
    """Name a table with its columns in an order of their own. Columns of zeros come last, and so count for nothing."""
    keys = _column_keys(table)
    ranks = np.empty(len(keys), dtype=np.intp)
    ranks[np.argsort(keys - np.uint64(1), kind="stable")] = np.arange(len(keys))
    return Fingerprint(_totals(table, _labels(ranks))).names


def _column_keys(table: Table) -> Words:
    """Tell columns apart by their values and by the rows that these are in, in whatever order either stands.

    A row is labelled by its values, each with its column's key so far; a column's key is the sum of its values, each
    with its row's label. Every step is a sum, and so sees no order.
    """
    keys = np.zeros(table.shape[1], dtype=np.uint64)
    for _ in range(ROUNDS):
        labels, keys = _mixed(keys) | np.uint64(1), np.zeros_like(keys)
        for words in _blocks(table):
            keys += words.T @ (_mixed(words @ labels) | np.uint64(1))
    return keys


def _totals(table: Table, labels: Words) -> tuple[int, ...]:
    """Sum over rows a hash of each, which depends on its values and on their columns' labels."""
    totals = np.zeros(LANES, dtype=np.uint64)
    for words in _blocks(table):
        totals += _mixed(words @ labels).sum(axis=0, dtype=np.uint64)
    return tuple(map(int, totals))


def _added(some: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple((one + other) % 2**64 for one, other in zip(some, others, strict=True))


def _labels(ranks: NDArray[np.intp]) -> Words:
    """Give every column, by its place, an odd number for each lane."""
    places = (LANES * ranks[:, None] + np.arange(1, LANES + 1)).astype(np.uint64)
    return _mixed(places * _STEP) | np.uint64(1)


def _name(totals: tuple[int, ...]) -> str:
    return sha256(_FORM + b"".join(each.to_bytes(8) for each in totals)).hexdigest()


def _blocks(table: Table) -> Iterator[Any]:
    """Give a table's values as words, some rows at a time, in the form that it has."""
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
    """Give each value a word, and zero the word 0."""
    rounded = values.astype(np.float32)
    rounded += np.float32(0.0)  # takes the sign off a zero
    return _mixed(rounded.view(np.uint32).astype(np.uint64))


def _mixed(words: Words) -> Words:
    """Map 64-bit words one to one, 0 to 0, so that sums of results do not follow from sums of words (SplitMix64)."""
    mixed = words * _FACTORS[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _FACTORS[1]
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _undilated(table: Table) -> Table | None:
    """Give M where the table is [[0, M], [M^T, 0]], but for rows and columns of zeros; None where it is not."""
    rows, columns = table.shape
    if rows != columns or table.diagonal().any():
        return None
    sparse = scipy.sparse.csr_array(table)
    difference = sparse - sparse.T
    row, column = (places[sparse.data != 0] for places in scipy.sparse.coo_array(sparse).coords)
    above = row < column
    if difference.data.any() or not above.any() or row[above].max() >= column[above].min():
        return None
    start = int(column[above].min())
    return sparse[:start, start:]
