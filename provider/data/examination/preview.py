"""Shows how one row is prepared by its dictionary, to the person who may see the rows. Nothing of it may leave."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.dictionary import UNKNOWN, Category, Genotype, MappedFeature, text_code
from dpspca.common.storage import Reading
from dpspca.provider.data.checked import rows_or_zeros
from dpspca.provider.data.memory import DEFAULT_MEMORY, Genotypes, cells_in
from dpspca.provider.data.sources import absent_in, complete, dense_batches, joined, raw_tables, read_as_stored
from dpspca.provider.data.tables import RowBatches, without_codes

_OTHER: Final = "(no level)"


@dataclass(frozen=True, slots=True)
class PreviewedFeature:
    """One value of one row: as it was read, in the dictionary's terms, and prepared."""

    name: str
    column: str
    unit: str
    read: float | str | None
    """The value as in the file, with a level's text. None if it is missing."""
    value: float | str | None
    """In the dictionary's unit, or the level."""
    remark: str
    """How it was changed, apart from scaling."""
    prepared: dict[str, float]
    """By the columns of prepared rows."""


@dataclass(frozen=True, slots=True)
class PreviewedRow:
    """A row as it is prepared, and where each number came from."""

    row: int
    rows: int
    is_usable: bool
    """Whether the row is used as it is. Otherwise it counts as a row of zeros."""
    length: float
    norm_bound: float
    """The bound that follows from the features of this data set."""
    features: tuple[PreviewedFeature, ...]


def preview_row(
    path: Path,
    reading: Reading,
    number: int,
    *,
    memory: int = DEFAULT_MEMORY,
    progress: Callable[[int], None] = lambda _: None,
) -> PreviewedRow:
    """Show how row ``number``, from 1 on, is prepared. Needs a dictionary.

    Dense rows are read some at a time, in so much memory. ``progress`` is called with the number of rows that were
    read.
    """
    preparation = reading.preparation
    assert preparation is not None
    one, names, rows = _row(path, reading, number, memory, progress)
    check(0 < number <= rows, f"There is no row {number}.", f"Give a number from 1 to {rows}.")
    dense = one if isinstance(one, np.ndarray) else _dense(one, absent_in(reading))
    cells = without_codes(dense, names, reading)
    made = complete(cells, names, reading)
    used = rows_or_zeros(made)
    prepared: Any = used.matrix
    row, places = prepared[0], {name: place for place, name in enumerate(names or ())}
    assert isinstance(row, np.ndarray)
    values = dict(zip(preparation.columns_prepared, row.tolist(), strict=True))
    features = tuple(_previewed(each, cells[:, places[each.column]], values) for each in preparation.mapped)
    length = float(np.linalg.norm(row))
    return PreviewedRow(number, rows, used.unusable is None, length, preparation.held.norm_bound(), features)


def _row(
    path: Path, reading: Reading, number: int, memory: int, progress: Callable[[int], None]
) -> tuple[Any, tuple[str, ...] | None, int]:
    """Read one row of a data set, the names of its columns, and how many rows there are."""
    if reading.triplets is not None:
        whole = read_as_stored(path, reading, memory)
        return whole.matrix[number - 1 : number], whole.names, whole.count
    tables = raw_tables(path, reading, cells_in(memory), memory)
    first = next(tables)
    names = first[1].columns.names
    if not isinstance(first[1].numbers, RowBatches):
        whole = joined(chain((first,), tables))
        return whole.matrix[number - 1 : number], names, whole.count
    found, count = np.empty((0, first[1].numbers.columns)), 0
    for _, batch in dense_batches(chain((first,), tables)):
        if count < number <= count + len(batch):
            found = batch[number - 1 - count : number - count].copy()
        count += len(batch)
        progress(count)
    return found, names, count


def _dense(row: Any, absent: float) -> FloatArray:  # noqa: ANN401  # a row, sparse or of genotypes
    """Write out a row, with ``absent`` where sparse rows store nothing."""
    numbers: FloatArray = row.toarray()
    if not isinstance(row, Genotypes) and np.isnan(absent):
        is_there = np.zeros(numbers.shape, dtype=np.bool_)
        is_there[0, row.indices] = True
        numbers = np.where(is_there, numbers, absent)
    return numbers


def _previewed(mapped: MappedFeature, cell: FloatArray, values: dict[str, float]) -> PreviewedFeature:
    feature, raw = mapped.feature, float(mapped.raw(cell)[0])
    return PreviewedFeature(
        feature.name,
        mapped.column,
        feature.unit,
        _as_read(mapped, float(cell[0])),
        _value(mapped, raw),
        _remark(mapped, raw),
        {column: values[column] for column in feature.columns},
    )


def _as_read(mapped: MappedFeature, cell: float) -> float | str | None:
    if np.isnan(cell):
        return None
    texts = {text_code(place): text for place, text in enumerate(mapped.codes.texts)} if mapped.codes else {}
    return texts.get(cell, cell if np.isfinite(cell) and abs(cell) < -text_code(0) else "(text)")


def _value(mapped: MappedFeature, raw: float) -> float | str | None:
    if np.isnan(raw):
        return None
    if isinstance(mapped.feature, Category):
        return _OTHER if raw == UNKNOWN else mapped.feature.levels[int(raw)]
    return raw if np.isfinite(raw) else "(no number)"


def _remark(mapped: MappedFeature, raw: float) -> str:
    feature = mapped.feature
    if np.isnan(feature.copies(np.array(raw)) if isinstance(feature, Genotype) else raw):
        return f"missing: {feature.missing} is used"
    if isinstance(feature, Category):
        return f"no level: {feature.unknown} is used" if raw == UNKNOWN else ""
    if np.isinf(raw):
        return "no number: the row counts as zeros"
    low, high = feature.range
    return f"clipped to {min(max(raw, low), high):g}" if not low <= raw <= high else ""
