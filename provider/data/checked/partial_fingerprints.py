"""Parts of fingerprints (``fingerprints.py``) that workers of a cluster compute: sums over some rows modulo 2^64. Pure.

Sums of several files, added up, are those of all rows. So fingerprints are the same wherever rows are read.
"""

from collections.abc import Iterator

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.provider.data.memory import (
    BLOCK_CELLS,
    FirstPass,
    WordMaker,
    Words,
    column_keys,
    labels_of,
    mixed,
    row_totals,
)

from .fingerprints import Fingerprint, places_of


def first_sums(rows: FloatArray) -> list[Words]:
    """Return totals with columns in the given order, and the first keys of columns."""
    begun = FirstPass(rows.shape[1])
    begun.add(rows, np.zeros(len(rows), dtype=np.bool_))
    return list(begun.sums)


def second_keys(rows: FloatArray, keys: Words) -> Words:
    """Return the second keys of columns, by the first keys of all rows."""
    labels = mixed(keys) | np.uint64(1)
    return sum((column_keys(words, labels) for words in _blocks(rows)), np.zeros_like(keys))


def ordered_totals(rows: FloatArray, keys: Words) -> Words:
    """Return totals with columns in the order of their second keys."""
    labels = labels_of(places_of(keys))
    return sum((row_totals(words, labels) for words in _blocks(rows)), np.zeros(labels.shape[1], dtype=np.uint64))


def names_of(totals: Words) -> frozenset[str]:
    """Return the fingerprint of all rows."""
    return Fingerprint.of(totals).names


def _blocks(rows: FloatArray) -> Iterator[Words]:
    make, step = WordMaker(), max(1, BLOCK_CELLS // rows.shape[1])
    return (make(rows[start : start + step]) for start in range(0, len(rows), step))
