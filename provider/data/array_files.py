"""Reads arrays that numpy and scipy wrote. They have no column names. No pickle is opened."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import scipy.sparse

from dpspca.common.errors import InvalidDataError

from .preparation import stray_column
from .tables import RawTable, Source, columns_used

_LISTED: Final = 20
_SPARSE: Final = frozenset({"format", "shape"})
"""Members of a file that ``scipy.sparse.save_npz`` wrote."""
_COORDINATES: Final = _SPARSE | {"row", "col", "data"}
"""Members of such a file if it has a row and a column for each number."""


def read_npy(source: Source) -> RawTable:
    """Map an array into memory, so that it is read once, while it is converted."""
    return RawTable(np.load(source.path, mmap_mode="r", allow_pickle=False), columns_used(None, source.reading))


def read_npz(source: Source) -> RawTable:
    """Read a sparse matrix of scipy, or one array of those that ``numpy.savez`` stored."""
    columns = columns_used(None, source.reading)
    with source.path.open("rb") as file:  # numpy does not close a file that it cannot read
        with np.load(file, allow_pickle=False) as stored:
            members = list(stored.files)
            if not _SPARSE.issubset(members):
                return RawTable(stored[array_name(source, members)], columns)
            if _COORDINATES.issubset(members):
                return RawTable(_rows_of_coordinates(stored, lenient=source.lenient), columns)
        file.seek(0)
        return RawTable(rows_of_sparse(scipy.sparse.load_npz(file)), columns)


def _rows_of_coordinates(stored: Any, *, lenient: bool) -> scipy.sparse.csr_array:  # noqa: ANN401  # of numpy
    """Assign numbers to rows. A number in a column that does not exist makes its row unusable, as in CSR form.

    A number in a row that does not exist belongs to no row, so the file is refused.
    """
    (rows, columns), numbers = map(int, stored["shape"]), stored["data"]
    row, column = stored["row"], stored["col"]
    stray = (column < 0) | (column >= columns)
    if stray.any():
        if not lenient:
            raise stray_column()
        column, numbers = np.where(stray, 0, column), np.where(stray, np.nan, numbers)
    return scipy.sparse.csr_array(scipy.sparse.coo_array((numbers, (row, column)), shape=(rows, columns)))


def rows_of_sparse(stored: Any) -> scipy.sparse.csr_array:  # noqa: ANN401  # of any sparse form
    """Turn a sparse matrix of any form into rows."""
    if stored.format in {"csc", "bsr"}:
        stored.check_format()  # otherwise, conversion to CSR could write outside of its memory
    return scipy.sparse.csr_array(stored)


def array_name(source: Source, there: Sequence[str]) -> str:
    """Return the array that is declared, or the only one that is there."""
    wanted = source.reading.array
    if wanted is None and len(there) == 1:
        return there[0]
    if wanted in there:
        return str(wanted)
    what = "There are several arrays" if wanted is None else f"There is no array {wanted!r:.60}"
    raise InvalidDataError(
        f"{what}: {', '.join(sorted(filter(str.isprintable, there))[:_LISTED]) or 'none'}.",
        "Name the array with the rows as array under [reading] in the provider's settings.",
    )
