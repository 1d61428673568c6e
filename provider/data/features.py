"""What a steward should know about the features of a data set: values outside the public range, codes, units, levels.

These are facts about rows, for the person who may see the rows. None of them may leave.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.dictionary import UNKNOWN, Category, MappedFeature, Number, text_code
from dpspca.common.storage import Reading

from .genotypes import Genotypes
from .odd_rows import rows_or_zeros
from .sources import absent_in, complete, read_as_stored
from .tables import without_codes
from .unit_errors import MOST, SENTINELS, Conversion, suspected_codes, suspected_unit

_OTHER: Final = "(no level)"


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """One feature, and the provider's column of it."""

    name: str
    column: str
    kind: str
    unit: str
    type: str | None
    """The type that the file states."""
    range: tuple[float, float] | None
    values: int
    """Number of values that are there and usable."""
    missing: int
    unusable: int
    """Number of values that are no number. Each makes its row a row of zeros."""
    unknown: int
    """Number of values of a category that are no level."""
    below: int
    above: int
    """Number of values outside the public range, which are clipped to it."""
    least: float | None
    most: float | None
    """The smallest and the largest value, in the dictionary's unit."""
    is_constant: bool
    codes: tuple[float, ...]
    """Values outside the range that often stand for a missing one, as they stand in the file."""
    suspicion: Conversion | None
    """A conversion that would explain the values."""

    @property
    def is_wrong(self) -> bool:
        """Tell whether most values are outside the range or of no level, or none can be used."""
        odd = self.below + self.above + self.unknown
        return odd > MOST * self.values if self.values else self.missing + self.unusable > 0


def examine_features(
    matrix: Any,  # noqa: ANN401  # of any form
    names: Sequence[str],
    types: Sequence[str] | None,
    reading: Reading,
) -> tuple[FeatureFacts, ...]:
    """Describe each feature. ``matrix`` has the columns of the file, with NaN for missing values.

    Of triplets, only values that are there are described: most persons lack most of them.
    """
    preparation = reading.preparation
    assert preparation is not None
    places, cells = {name: place for place, name in enumerate(names)}, _cells_of(matrix, reading)
    return tuple(
        _facts(each, cells(places[each.column]), None if types is None else types[places[each.column]], matrix.shape[0])
        for each in preparation.mapped
    )


def _cells_of(matrix: Any, reading: Reading) -> Callable[[int], FloatArray]:  # noqa: ANN401  # of any form
    """Return what gives the cells of a column."""
    if isinstance(matrix, Genotypes):
        return matrix.column
    if isinstance(matrix, np.ndarray):
        return lambda place: matrix[:, place]
    by_column = scipy.sparse.csc_array(matrix)

    def stored(place: int) -> FloatArray:
        cells: FloatArray = by_column.data[by_column.indptr[place] : by_column.indptr[place + 1]]
        return cells if reading.triplets is not None else np.append(cells, np.zeros(matrix.shape[0] - len(cells)))

    return stored


def _facts(mapped: MappedFeature, cells: FloatArray, stated: str | None, rows: int) -> FeatureFacts:
    feature, raw = mapped.feature, mapped.raw(cells)
    is_category = isinstance(feature, Category)
    low, high = (-np.inf, np.inf) if isinstance(feature, Category) else feature.range
    usable = np.isfinite(raw)
    good, below, above = raw[usable], usable & (raw < low), usable & (raw > high)
    is_code = np.isin(cells, SENTINELS) & (below | above)
    is_number = isinstance(feature, Number)
    return FeatureFacts(
        name=feature.name,
        column=mapped.column,
        kind=str(feature.kind),
        unit=feature.unit,
        type=stated,
        range=None if is_category else (low, high),
        values=len(good),
        missing=int(np.isnan(raw).sum()),
        unusable=int(np.isinf(raw).sum()),
        unknown=int((good == UNKNOWN).sum()) if is_category else 0,
        below=int(below.sum()),
        above=int(above.sum()),
        least=float(good.min()) if len(good) and not is_category else None,
        most=float(good.max()) if len(good) and not is_category else None,
        is_constant=rows > 1 and len(cells) == rows and len(good) > 1 and bool((good == good[0]).all()),
        codes=suspected_codes(cells, below | above),
        suspicion=suspected_unit(raw[usable & ~is_code], (low, high), feature.unit) if is_number else None,
    )


@dataclass(frozen=True, slots=True)
class PreviewedFeature:
    """One value of one row: as it was read, in the dictionary's terms, and prepared."""

    name: str
    column: str
    unit: str
    read: float | str | None
    """As it stands in the file, a level's text included. None if it is missing."""
    value: float | str | None
    """In the dictionary's unit, or the level."""
    remark: str
    """What was done to it, besides scaling."""
    prepared: dict[str, float]
    """By the columns of prepared rows."""


@dataclass(frozen=True, slots=True)
class PreviewedRow:
    """A row as it is prepared, and where each number came from."""

    row: int
    rows: int
    is_usable: bool
    """Whether it counts. Otherwise it is a row of zeros."""
    length: float
    norm_bound: float
    """The bound that follows from the features of this data set."""
    features: tuple[PreviewedFeature, ...]


def preview_row(path: Path, reading: Reading, number: int) -> PreviewedRow:
    """Show how row ``number``, from 1 on, is prepared. Needs a dictionary."""
    preparation = reading.preparation
    assert preparation is not None
    stored = read_as_stored(path, reading)
    check(0 < number <= stored.count, f"There is no row {number}.", f"Give a number from 1 to {stored.count}.")
    one: Any = stored.matrix[number - 1 : number]
    dense = one if isinstance(one, np.ndarray) else _dense(one, absent_in(reading))
    cells = without_codes(dense, stored.names, reading)
    made = complete(cells, stored.names, reading)
    used = rows_or_zeros(made)
    prepared: Any = used.matrix
    row, places = prepared[0], {name: place for place, name in enumerate(stored.names or ())}
    assert isinstance(row, np.ndarray)
    values = dict(zip(preparation.held.columns, row.tolist(), strict=True))
    features = tuple(_previewed(each, cells[:, places[each.column]], values) for each in preparation.mapped)
    length = float(np.linalg.norm(row))
    return PreviewedRow(number, stored.count, used.unusable is None, length, preparation.held.norm_bound(), features)


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
    if np.isnan(raw):
        return f"missing: {feature.missing} is used"
    if isinstance(feature, Category):
        return f"no level: {feature.unknown} is used" if raw == UNKNOWN else ""
    if np.isinf(raw):
        return "no number: the row counts as zeros"
    low, high = feature.range
    return f"clipped to {min(max(raw, low), high):g}" if not low <= raw <= high else ""
