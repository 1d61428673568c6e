"""Shows how one row is prepared by its dictionary, to the person who may see the rows. Nothing of it may leave."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.dictionary import NO_CELL, UNKNOWN, Category, Genotype, MappedFeature, text_code
from dpspca.common.storage import Reading
from dpspca.provider.data.checked import rows_or_zeros
from dpspca.provider.data.memory import DEFAULT_MEMORY, Genotypes, cells_in
from dpspca.provider.data.row_persons import RowPersons
from dpspca.provider.data.sources import (
    absent_in,
    complete,
    dense_batches,
    fault_of_row,
    joined,
    raw_tables,
    read_as_stored,
)
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
    """Empty if its line has too few or too many cells."""
    is_of_nobody: bool = False
    """Whether the row belongs to no person, though persons are declared."""
    fault: str | None = None
    """Why the row of a text file cannot be used."""
    absent: tuple[str, ...] = ()
    """Features of the dictionary that this data set does not have."""


def preview_row(  # noqa: PLR0913  # all that is declared
    path: Path,
    reading: Reading,
    number: int,
    persons: Path | None = None,
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
    whose = RowPersons.of(path, reading, persons, memory)
    found = _row(path, reading, number, whose, memory, progress)
    check(0 < number <= found.rows, f"There is no row {number}.", f"Give a number from 1 to {found.rows}.")
    dense = found.cells if isinstance(found.cells, np.ndarray) else _dense(found.cells, absent_in(reading))
    cells = without_codes(dense, found.names, reading)
    used = rows_or_zeros(complete(cells, found.names, reading))
    of_nobody = whose is not None and not whose.of_rows(found.rows)[number - 1]
    prepared: Any = used.matrix
    row = np.zeros_like(prepared[0]) if of_nobody else prepared[0]
    assert isinstance(row, np.ndarray)
    values = dict(zip(preparation.columns_prepared, row.tolist(), strict=True))
    places = {name: place for place, name in enumerate(found.names or ())}
    is_usable = used.unusable is None
    fault = fault_of_row(found.file, reading, found.place) if found.file is not None and not is_usable else None
    shown = () if fault is not None and (cells == NO_CELL).all() else preparation.mapped
    return PreviewedRow(
        row=number,
        rows=found.rows,
        is_usable=is_usable and not of_nobody,
        length=float(np.linalg.norm(row)),
        norm_bound=preparation.held.norm_bound(),
        features=tuple(_previewed(each, cells[:, places[each.column]], values) for each in shown),
        is_of_nobody=of_nobody,
        fault=fault,
        absent=preparation.absent,
    )


class _Row(NamedTuple):
    cells: Any
    names: tuple[str, ...] | None
    rows: int
    """Number of all rows."""
    file: Path | None = None
    """The file that holds the row, if rows are dense."""
    place: int = 0
    """The row's place in it, from 0 on."""


def _row(  # noqa: PLR0913, PLR0917  # all that is declared
    path: Path,
    reading: Reading,
    number: int,
    whose: RowPersons | None,
    memory: int,
    progress: Callable[[int], None],
) -> _Row:
    """Read one row of a data set."""
    if reading.triplets is not None:
        whole = read_as_stored(path, reading, memory)
        return _Row(whole.matrix[number - 1 : number], whole.names, whole.count)
    cells = cells_in(memory)
    tables = raw_tables(path, reading, cells, memory) if whose is None else whose.tables(cells, memory)
    first = next(tables)
    names = first[1].columns.names
    if not isinstance(first[1].numbers, RowBatches):
        whole = joined(chain((first,), tables))
        return _Row(whole.matrix[number - 1 : number], names, whole.count)
    found, count, begun = _Row(np.empty((0, first[1].numbers.columns)), names, 0), 0, (first[0], 0)
    for file, batch in dense_batches(chain((first,), tables)):
        begun = begun if file == begun[0] else (file, count)
        if count < number <= count + len(batch):
            found = _Row(batch[number - 1 - count : number - count].copy(), names, 0, file, number - 1 - begun[1])
        count += len(batch)
        progress(count)
    return found._replace(rows=count)


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
    if np.isinf(raw):
        return "(no number)"
    if isinstance(mapped.feature, Category):
        return _OTHER if raw == UNKNOWN else mapped.feature.levels[int(raw)]
    return raw


def _remark(mapped: MappedFeature, raw: float) -> str:
    feature = mapped.feature
    if np.isnan(feature.copies(np.array(raw)) if isinstance(feature, Genotype) else raw):
        return f"missing: {feature.missing} is used"
    if np.isinf(raw):
        return "no number: the row counts as zeros"
    if isinstance(feature, Category):
        return f"no level: {feature.unknown} is used" if raw == UNKNOWN else ""
    low, high = feature.range
    return f"clipped to {min(max(raw, low), high):g}" if not low <= raw <= high else ""
