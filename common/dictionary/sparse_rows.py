"""Prepares sparse rows, which stay sparse. Pure.

Every stored number is prepared by itself, by the same code as in a dense table and so with the same bits. What is not
stored is one value, the same everywhere: zero, or, of triplets, a missing value. If that becomes zero, nothing is
stored for it; a missing value becomes zero unless the dictionary uses another number than the centre for it. Otherwise
a number is stored for every row. Which of the two it is follows from the dictionary alone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .features import Category, Genotype, Number
from .mapping import MappedFeature, Preparation

Places = NDArray[Any]

Kind = tuple[Any, ...]

_CALLED: Final = frozenset({"name", "description", "concept"})
_HOW: Final = {
    each: attrgetter(*(field.name for field in fields(each) if field.name not in _CALLED))
    for each in (Number, Category, Genotype)
}
"""For each kind of feature, what its preparation follows from."""
_TOGETHER: Final = 2**17
"""Numbers that are prepared together. Temporaries are then about a megabyte each, and stay in a cache."""


@dataclass(frozen=True, slots=True)
class _Alike:
    """Features that are prepared in the same way, so that their numbers can be prepared together."""

    mapped: MappedFeature
    sources: Places
    """For each feature, its place among the columns that were read."""
    targets: Places
    """For each feature, the place of its first column among those of prepared rows."""
    is_one_each: bool
    """Whether preparation turns each number into one number."""

    def prepared(self, cells: FloatArray) -> FloatArray:
        """Prepare numbers of any of these features: a line of columns for each."""
        return self.mapped.feature.encode(self.mapped.raw(cells))


def prepare_sparse(
    preparation: Preparation, matrix: scipy.sparse.csr_array, names: Sequence[str], absent: float
) -> scipy.sparse.csr_array:
    """Prepare rows. ``names`` are those of the matrix's columns, and ``absent`` is what is not stored."""
    groups, shape = _groups(preparation, names), (matrix.shape[0], len(preparation.columns_prepared))
    made = _one_each(matrix, [each for each in groups if each.is_one_each], shape)
    others = [each for group in groups if not group.is_one_each for each in _spread(matrix, group)]
    others += [each for group in groups for each in _filled(matrix, group, absent)]
    if others:
        rows, columns, numbers = map(np.concatenate, zip(*others, strict=True))
        # No two have a number in one place, so nothing is rounded.
        made = scipy.sparse.csr_array(made + scipy.sparse.csr_array((numbers, (rows, columns)), shape=shape))
    made.sort_indices()
    return made


def filled_columns(preparation: Preparation, absent: float) -> list[str]:
    """Name the features for which every row stores a number, because what is not stored does not become zero."""
    kinds = {_kind(each): each for each in preparation.mapped}
    dense = {kind for kind, each in kinds.items() if each.feature.encode(each.raw(np.array([absent]))).any()}
    return [each.feature.name for each in preparation.mapped if _kind(each) in dense]


def _kind(mapped: MappedFeature) -> Kind:
    """Return how a feature is prepared: everything about it except its names."""
    feature = mapped.feature
    return (
        type(feature),
        _HOW[type(feature)](feature),
        mapped.factor,
        mapped.offset,
        mapped.codes,
        mapped.missing_codes,
    )


def _groups(preparation: Preparation, names: Sequence[str]) -> list[_Alike]:
    """Group features that are prepared alike. Those whose column others use too are in groups of their own."""
    places = {name: place for place, name in enumerate(names)}
    used = Counter(each.column for each in preparation.mapped)
    found: dict[Any, tuple[MappedFeature, list[int], list[int]]] = {}
    end = 0
    for each in preparation.mapped:
        start, end = end, end + len(each.feature.columns)
        key = (_kind(each), each.feature.name if used[each.column] > 1 else None)
        _, sources, targets = found.setdefault(key, (each, [], []))
        sources.append(places[each.column])
        targets.append(start)
    return [
        _Alike(each, np.array(sources), np.array(targets), used[each.column] == len(each.feature.columns) == 1)
        for each, sources, targets in found.values()
    ]


def _one_each(
    matrix: scipy.sparse.csr_array, groups: Sequence[_Alike], shape: tuple[int, int]
) -> scipy.sparse.csr_array:
    """Prepare features whose numbers become one number each, all together."""
    target, kind = np.full((2, matrix.shape[1]), -1, dtype=matrix.indices.dtype)
    for number, each in enumerate(groups):
        target[each.sources], kind[each.sources] = each.targets, number
    numbers, columns = np.zeros(len(matrix.data)), np.empty_like(matrix.indices)

    def prepare(start: int) -> None:
        part = slice(start, start + _TOGETHER)
        np.take(target, matrix.indices[part], out=columns[part])
        for number, places in _by_kind(kind[matrix.indices[part]]):
            numbers[part][places] = groups[number].prepared(matrix.data[part][places])[:, 0]

    with ThreadPoolExecutor() as threads:
        for _ in threads.map(prepare, range(0, len(numbers), _TOGETHER)):
            pass
    kept = columns >= 0
    if kept.all():
        return scipy.sparse.csr_array((numbers, columns, matrix.indptr), shape=shape)
    ends = np.append(0, np.cumsum(kept))[matrix.indptr].astype(matrix.indptr.dtype)
    return scipy.sparse.csr_array((numbers[kept], columns[kept], ends), shape=shape)


def _by_kind(kinds: Places) -> Iterator[tuple[int, Any]]:
    """Yield each kind that is there and its places. Kinds below zero are none."""
    if len(kinds) and kinds[0] >= 0 and (kinds == kinds[0]).all():
        yield int(kinds[0]), slice(None)
        return
    order = np.argsort(kinds, kind="stable")
    found, starts = np.unique(kinds[order], return_index=True)
    for number, places in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        if number >= 0:
            yield number, places


_Numbers = tuple[Places, Places, FloatArray]
"""Rows, columns, and the number in each of these places."""


def _spread(matrix: scipy.sparse.csr_array, group: _Alike) -> Iterator[_Numbers]:
    """Prepare features whose numbers become several, or are used by several features."""
    by_column = scipy.sparse.csc_array(matrix[:, group.sources])
    for rows, numbers, target in _columns(by_column, group.targets):
        yield _placed(rows, target, group.prepared(numbers))


def _filled(matrix: scipy.sparse.csr_array, group: _Alike, absent: float) -> Iterator[_Numbers]:
    """Put numbers where nothing is stored, unless they are zero."""
    line = group.prepared(np.array([absent]))
    if not line.any():
        return
    by_column = scipy.sparse.csc_array(matrix[:, group.sources])
    for rows, _, target in _columns(by_column, group.targets):
        is_there = np.zeros(matrix.shape[0], dtype=np.bool_)
        is_there[rows] = True
        others = np.flatnonzero(~is_there)
        yield _placed(others, target, np.repeat(line, len(others), axis=0))


def _columns(by_column: scipy.sparse.csc_array, targets: Places) -> Iterator[tuple[Places, FloatArray, int]]:
    for place, target in enumerate(targets.tolist()):
        part = slice(by_column.indptr[place], by_column.indptr[place + 1])
        yield by_column.indices[part], by_column.data[part], target


def _placed(rows: Places, target: int, lines: FloatArray) -> _Numbers:
    count, width = lines.shape
    return np.repeat(rows, width), np.tile(np.arange(target, target + width), count), lines.reshape(-1)
