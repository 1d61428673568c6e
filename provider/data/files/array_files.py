"""Reads arrays that numpy and scipy wrote. Names of their columns have to be declared. No pickle is opened."""

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import MATRIX
from dpspca.common.errors import InvalidDataError, InvalidTypeError
from dpspca.provider.data.checked import numbers_of, stray_column
from dpspca.provider.data.tables import (
    SPARSE,
    RawTable,
    RowBatches,
    RowSource,
    as_numbers,
    columns_by_place,
    require_room,
)

from .folders import TemporarilyUnreadableError
from .signatures import misnamed

_LISTED: Final = 20
_MAGIC: Final = b"\x93NUMPY"
_PACKED_NUMBER: Final = 16
"""Bytes for each number of a packed array, which is read as a whole, and of the rows that are made from it in parts."""
_BYTES_A_CALL: Final = 2**30
_SPARSE: Final = frozenset({"format", "shape"})
"""Members of a file that ``scipy.sparse.save_npz`` wrote."""
_COORDINATES: Final = _SPARSE | {"row", "col", "data"}
"""Members of such a file if it has a row and a column for each number."""


def require_matrix(shape: Sequence[int]) -> None:
    """Refuse an array that is no table of rows and columns."""
    if len(shape) != MATRIX:
        form = (
            "The array is a single number"
            if not shape
            else f"The array has {len(shape)} dimension{'s' * (len(shape) > 1)}, {tuple(shape)}"
        )
        raise InvalidDataError(
            f"{form}, but a table has 2: rows and columns.",
            "Write one row for each person: of an array a, numpy.save(FILE, a.reshape(len(a), -1)) puts all numbers of "
            "a[0] into the first row.",
        )
    if not shape[1]:
        raise InvalidDataError(
            f"The array has no columns: its shape is {tuple(shape)}.", "Give it at least one column."
        )


def read_npy(source: RowSource) -> RawTable:
    """Read an array some rows at a time. It is never mapped: pages of a map count as memory of this process."""
    _require_numbers(source.path)
    form: Any = np.load(source.path, mmap_mode="r", allow_pickle=False)  # its head, and whether the file is whole
    if form.dtype.names:
        raise InvalidDataError(
            "It is a structured array, whose columns have names and types of their own.",
            "Save its numbers: numpy.save(FILE, numpy.lib.recfunctions.structured_to_unstructured(a)). Then list the "
            "names of its columns as names under [reading].",
        )
    require_matrix(form.shape)
    numbers_of(form[:0])  # checks the type
    if source.path.stat().st_size > form.offset + form.nbytes:
        raise InvalidDataError(
            "There is more in it than its one array: perhaps several were saved into one file.",
            "Save one array into a file with numpy.save, or several with numpy.savez.",
        )
    columns = columns_by_place(source.reading, form.shape[1])
    places = list(range(form.shape[1])) if columns.places is None else list(columns.places)
    with ExitStack() as opened:
        file = opened.enter_context(source.path.open("rb", buffering=0))
        read = partial(_read_at, file.fileno(), form.dtype)
        step = source.rows_at_a_time(form.shape[1])
        blocks = (_rows_of_npy(read, form, start, step, places) for start in range(0, form.shape[0], step))
        numbers = RowBatches.reading(len(places), form.dtype, map(as_numbers, blocks), opened)
    return RawTable(numbers, columns)


def _require_numbers(path: Path) -> None:
    """Refuse a file without the head that numpy writes, and one that holds a pickle: to open it could run any code."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise misnamed(path) or InvalidDataError(
                "It lacks what numpy.save writes before the numbers. Perhaps it is a raw memory map.",
                "Write it with numpy.save: of a raw map, numpy.save(OTHER, numpy.memmap(FILE, TYPE, 'r', 0, SHAPE)).",
            )
        file.seek(0)
        _shape_in_head(file)


def _shape_in_head(file: Any) -> tuple[int, ...]:  # noqa: ANN401  # a file, or a part of a packed one
    """Read the shape of an array. Refuse one of objects, which are stored as a pickle."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    if kind.hasobject:
        raise InvalidTypeError(
            "It holds Python objects, not numbers.", "Convert them: numpy.save(OTHER, a.astype(float))."
        )
    return tuple(shape)


def _rows_of_npy(
    read: Callable[[int, int], NDArray[Any]],
    form: Any,  # noqa: ANN401  # a map
    start: int,
    step: int,
    places: Sequence[int],
) -> NDArray[Any]:
    """Read rows from ``start`` on, of an array whose rows or whose columns follow one another."""
    rows, columns = min(step, form.shape[0] - start), form.shape[1]
    size = form.dtype.itemsize
    if form.flags.c_contiguous:
        return read(form.offset + start * columns * size, rows * columns).reshape(rows, columns)[:, places]
    firsts = (form.offset + (start + column * form.shape[0]) * size for column in places)
    return np.column_stack([read(first, rows) for first in firsts])


def _read_at(descriptor: int, kind: "np.dtype[Any]", start: int, count: int) -> NDArray[Any]:
    """Read numbers from a place in a file. Refuse a file that became shorter while it was read."""
    found = np.empty(count, dtype=kind)
    content = found.view(np.uint8).data
    while content:
        read = os.preadv(descriptor, [content[:_BYTES_A_CALL]], start)
        if not read:
            raise TemporarilyUnreadableError("It became shorter while it was read.", "Write it again, and start again.")
        start, content = start + read, content[read:]
    return found


def read_npz(source: RowSource) -> RawTable:
    """Read a sparse matrix of scipy, or one array of those that ``numpy.savez`` stored."""
    with source.path.open("rb") as file:  # numpy does not close a file that it cannot read
        with np.load(file, allow_pickle=False) as stored:
            members = list(stored.files)
            if not _SPARSE.issubset(members):
                name = array_name(source, members)
                require_room("numbers of a packed array", _size_of(stored, name), _PACKED_NUMBER, source.room)
                return _table(stored[name], source)
            require_room("numbers of sparse rows", _size_of(stored, "data"), SPARSE, source.room)
            if _COORDINATES.issubset(members):
                return _sparse_table(_rows_of_coordinates(stored, lenient=source.lenient), source)
        file.seek(0)
        return _sparse_table(rows_of_sparse(scipy.sparse.load_npz(file)), source)


def _size_of(stored: Any, name: str) -> int:  # noqa: ANN401  # of numpy
    """Return how many numbers an array of a file has, without reading them."""
    with stored.zip.open(f"{name}.npy") as member:
        return math.prod(_shape_in_head(member))


def _sparse_table(rows: scipy.sparse.csr_array, source: RowSource) -> RawTable:
    columns = columns_by_place(source.reading, rows.shape[1])
    return RawTable(rows, columns, to_select=columns.places)


def _table(array: NDArray[Any], source: RowSource) -> RawTable:
    """Give the rows of an array that was read as a whole, because it is packed."""
    require_matrix(array.shape)
    numbers_of(array[:0])  # checks the type
    columns = columns_by_place(source.reading, array.shape[1])
    chosen = array if columns.places is None else array[:, columns.places]
    step = source.rows_at_a_time(array.shape[1])
    parts = (as_numbers(chosen[start : start + step]) for start in range(0, len(array), step))
    return RawTable(RowBatches.reading(chosen.shape[1], array.dtype, parts), columns)


def _rows_of_coordinates(stored: Any, *, lenient: bool) -> scipy.sparse.csr_array:  # noqa: ANN401  # of numpy
    """Assign numbers to rows. A number in a column that does not exist makes its row unusable, as in CSR form.

    A number in a row that does not exist belongs to no row, so the file is refused.
    """
    (rows, columns), numbers = map(int, stored["shape"]), stored["data"]
    if numbers.dtype.kind in "fiub":
        numbers = numbers.astype(np.float64)  # a place that occurs twice is added up, which a small type cannot hold
    row, column = stored["row"], stored["col"]
    stray = (column < 0) | (column >= columns)
    if stray.any():
        if not lenient:
            raise stray_column(columns)
        column, numbers = np.where(stray, 0, column), np.where(stray, np.nan, numbers)
    return scipy.sparse.csr_array(scipy.sparse.coo_array((numbers, (row, column)), shape=(rows, columns)))


def rows_of_sparse(stored: Any) -> scipy.sparse.csr_array:  # noqa: ANN401  # of any sparse form
    """Turn a sparse matrix of any form into rows."""
    if stored.format in {"csc", "bsr"}:
        stored.check_format()  # otherwise, conversion to CSR could write outside of its memory
    return scipy.sparse.csr_array(stored)


def array_name(source: RowSource, there: Sequence[str]) -> str:
    """Return the array that is declared, or the only one that is there."""
    wanted = source.reading.array and source.reading.array.lstrip("/")  # h5py begins names with it
    if wanted is None and len(there) == 1:
        return there[0]
    if wanted in there:
        return str(wanted)
    if not there:
        raise InvalidDataError(
            "It holds no two-dimensional array of numbers.",
            "Write the rows as one array of numbers, with a row for each.",
        )
    what = "There are several arrays" if wanted is None else f"There is no array {wanted!r:.60}. There are"
    raise InvalidDataError(
        f"{what}: {', '.join(sorted(filter(str.isprintable, there))[:_LISTED])}.",
        "Name the array with the rows as array under [reading] in the provider's settings.",
    )
