"""Prepares tables of any library that are in a dictionary's own terms: numpy, pandas, polars and Arrow. It may warn."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import MATRIX, FloatArray
from dpspca.common.errors import InvalidDataError, RowsWarning
from dpspca.common.frames import (
    column_names,
    even_array,
    readable_table,
    require_readable,
    require_table,
    without_dictionaries,
)
from dpspca.common.text import composed
from dpspca.common.warn import warn

from .codes import raw_values
from .dictionary import Dictionary
from .features import Feature
from .unlikely_values import unlikely_values_in

_MOST_NAMED: Final = 8
_TERMS: Final = "Give values in the dictionary's own unit, and levels by their names."


def prepare_table(dictionary: Dictionary, rows: Any, *, by_position: bool = False) -> FloatArray:  # noqa: ANN401
    """Prepare rows whose columns are features. Columns with other names are not used.

    An array has no names: its columns are the features in their order. ``by_position`` says so of any table. Warn the
    caller, who has the rows, if most values of a feature have no level or lie outside its range.
    """
    if not isinstance(rows, Mapping):
        require_table(rows)
    names = None if by_position else names_of(rows)
    columns = _by_position(rows, dictionary) if names is None else _by_name(rows, names, dictionary)
    raw = {feature.name: _raw(feature, cells) for feature, cells in columns}
    _require_one_length(raw)
    doubt = unlikely_values_in(dictionary, raw)
    if doubt:
        warn(doubt, RowsWarning)
    return dictionary.encode(raw)


def names_of(rows: Any) -> tuple[str, ...] | None:  # noqa: ANN401  # any table
    """Return the names of a table's columns, if it has names."""
    return tuple(rows) if isinstance(rows, Mapping) else column_names(rows)


def _by_name(rows: Any, names: Sequence[str], dictionary: Dictionary) -> Iterator[tuple[Feature, Any]]:  # noqa: ANN401
    own = {composed(name): name for name in names}
    counts = Counter(map(composed, names))
    missing = [name for name in dictionary.names if not counts[name]]
    twice = [name for name in dictionary.names if counts[name] > 1]
    for what, wrong in (("have no column for", missing), ("have several columns with the name", twice)):
        if wrong:
            more = f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
            raise InvalidDataError(
                f"The rows {what} {', '.join(f'{name!r:.60}' for name in wrong[:_MOST_NAMED])}{more}.",
                "Give each feature one column that has its name.",
            )
    for feature in dictionary.features:
        yield feature, rows[own[feature.name]]


def _by_position(rows: Any, dictionary: Dictionary) -> Iterator[tuple[Feature, Any]]:  # noqa: ANN401
    table = _array(rows.toarray() if hasattr(rows, "toarray") else readable_table(rows), even_array)
    if table.ndim != MATRIX or table.shape[1] != len(dictionary.features):
        raise InvalidDataError(
            f"The rows have the shape {table.shape}, and there are {len(dictionary.features)} features.",
            "Give one column for each feature, in their order, or a table with names of columns.",
        )
    yield from zip(dictionary.features, table.T, strict=True)


def _raw(feature: Feature, cells: Any) -> FloatArray:  # noqa: ANN401  # a column of any library
    array = _column(feature, without_dictionaries(cells))
    raw = raw_values(array, feature)
    if np.isinf(raw).any():
        row = int(np.flatnonzero(np.isinf(raw))[0]) + 1
        raise InvalidDataError(
            f"The column {feature.name!r:.60} holds a value that is not a finite number, first in row {row}.", _TERMS
        )
    return raw


def _column(feature: Feature, cells: Any) -> NDArray[Any]:  # noqa: ANN401
    """Convert a column to an array of one dimension. Refuse one of another shape, which would be repeated by numpy."""
    kind = getattr(cells, "type", getattr(cells, "dtype", None))  # as Arrow and others state it
    require_readable([feature.name], [str(kind)])
    try:
        array = _array(cells)
    except ValueError:
        raise _not_a_column(feature.name, "holds lists of different lengths") from None
    require_readable([feature.name], [str(array.dtype)])
    if array.ndim != 1:
        shape = f"has the shape {array.shape}" if array.ndim else f"is one value, {cells!r:.60}"
        raise _not_a_column(feature.name, shape)
    return array


def _array(cells: Any, convert: Callable[[Any], NDArray[Any]] = np.asarray) -> NDArray[Any]:  # noqa: ANN401  # of any library
    """Convert to an array. Numbers and objects that a mask of numpy hides are missing values."""
    if isinstance(cells, list | tuple) and any(map(np.ma.is_masked, cells)):
        cells = np.ma.array(cells)
    if not isinstance(cells, np.ma.MaskedArray):  # arrays of pandas have a mask of their own, which numpy respects
        return convert(cells)
    hidden, plain = np.ma.getmaskarray(cells), np.asarray(np.ma.getdata(cells))
    found = plain.astype(np.float64 if plain.dtype.kind in "fiu" else object)
    found[hidden] = None  # NaN, among numbers
    return found


def _require_one_length(raw: Mapping[str, FloatArray]) -> None:
    """Refuse columns of different lengths. Numpy would repeat a column of one row."""
    first, rows = next((name, len(cells)) for name, cells in raw.items())
    for name, cells in raw.items():
        if len(cells) != rows:
            raise _not_a_column(name, f"has {len(cells)} rows, but {first!r:.60} has {rows}")


def _not_a_column(name: str, what: str) -> InvalidDataError:
    return InvalidDataError(f"The column {name!r:.60} {what}.", "Give each column one value for each row.")
