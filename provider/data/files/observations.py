"""Whose each row of AnnData is, as a column of ``obs`` says, in HDF5 and in Zarr alike."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading
from dpspca.common.text import composed
from dpspca.provider.data.tables import LARGEST, Columns, PersonCells, RowSource, columns_used, require_persons

from .anndata_layouts import OLD_REMEDY, RENAMING, index_name

_FRAME: Final = "obs"
_CATEGORY: Final = "categorical"
_WITH_MASK: Final = ("nullable-string-array", "nullable-integer")
_SHOWN: Final = 12


class Access(NamedTuple):
    """How parts of a file are read."""

    own: Callable[[Any, str], Any]
    """Return a part of a group, unless it is in another file."""
    texts: Callable[[Any], list[str]]
    """Return the texts of an array. What is not in its encoding is replaced."""


def genes_used(genes: list[str], reading: Reading) -> Columns:
    """Choose among the genes. The column of persons is none of them, and what is declared about it is left out."""
    codes = reading.missing_codes
    own = codes if isinstance(codes, tuple) else {name: each for name, each in codes.items() if name != reading.person}
    return columns_used(genes, replace(reading, person=None, missing_codes=own), RENAMING)


def persons_of(file: Any, rows: int, source: RowSource, access: Access) -> list[bytes] | None:  # noqa: ANN401
    """Return a label for each row, or None if no column of persons is asked for. No bytes stand for nobody."""
    column = source.reading.person
    cells = None if column is None else source.reading.texts.get(column)
    if column is None or not isinstance(cells, PersonCells):
        return None
    if _FRAME not in file:
        raise InvalidDataError("There is no obs, whose columns could say whose each row is.", "Name a persons file.")
    frame = access.own(file, _FRAME)
    there = {composed(name): name for name in (index_name(frame), *map(str, frame.attrs.get("column-order", ())))}
    if column not in there:
        listed = ", ".join(filter(str.isprintable, [*there][:_SHOWN]))
        raise InvalidDataError(
            f"obs has no column {column!r:.60}. It has {listed}{', ...' if len(there) > _SHOWN else ''}.",
            "Name one of them as person under [reading].",
        )
    numbers = _numbers(column, access.own(frame, there[column]), access, cells)
    if len(numbers) != rows:
        raise InvalidDataError(
            f"There are {rows} rows, but {column!r:.60} in obs has {len(numbers)}.", "Write it again."
        )
    return cells.labels(numbers)


def _numbers(column: str, stored: Any, access: Access, cells: PersonCells) -> FloatArray:  # noqa: ANN401
    """Return a number for each row, as cells of persons have them. NaN stands for nobody."""
    kind = str(stored.attrs.get("encoding-type"))
    if kind == _CATEGORY:
        return _of_category(column, stored, access, cells)
    if "categories" in stored.attrs:
        raise InvalidDataError(f"{column!r:.60} in obs is stored as old versions of AnnData did.", OLD_REMEDY)
    if kind in _WITH_MASK:
        values, mask = _numbers(column, access.own(stored, "values"), access, cells), access.own(stored, "mask")[:]
        if mask.shape != values.shape:
            raise InvalidDataError(f"{column!r:.60} in obs has a mask of another length.", "Write it again.")
        return np.where(mask, np.nan, values)
    written = str(getattr(stored, "dtype", kind))
    is_text = hasattr(stored, "dtype") and stored.dtype.kind in "OSUT"
    require_persons(column, written, is_fit=is_text or (hasattr(stored, "dtype") and stored.dtype.kind in "iu"))
    if not is_text:
        numbers = np.asarray(stored[:], dtype=np.float64)
        return np.where(np.abs(numbers) < LARGEST, numbers, np.nan)  # beyond, numbers stand for texts
    texts = access.texts(stored)
    known = {text: cells.read(text) for text in dict.fromkeys(texts)}
    return np.array([known[text] for text in texts], dtype=np.float64)


def _of_category(column: str, stored: Any, access: Access, cells: PersonCells) -> FloatArray:  # noqa: ANN401
    """Look up the number of each row's category.

    A code of no category names nobody, as a missing value does: no row may keep a provider from starting.
    """
    categories = _numbers(column, access.own(stored, "categories"), access, cells)
    codes = np.asarray(access.own(stored, "codes")[:])
    count = len(categories)
    return np.append(categories, np.nan)[np.where((codes < 0) | (codes >= count), count, codes)]
