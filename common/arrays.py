"""Checks that turn an array sent by somebody else into one that can be relied upon, or refuse it with the reason."""

from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InvalidQueryError

FloatArray: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
"""Numbers on a public lattice, in units of its spacing: what answers and their sums are made of."""

MATRIX: Final = 2


def finite_matrix(values: ArrayLike) -> FloatArray:
    """Freeze a copy of a finite two-dimensional array."""
    matrix = _real(values)
    if matrix.ndim != MATRIX or 0 in matrix.shape:
        refuse(f"The array has shape {matrix.shape}; a matrix was expected.", "Send rows x columns, neither zero.")
    if not np.isfinite(matrix).all():
        refuse("The array holds values that are not finite.", "Send neither NaN nor infinity.")
    return matrix


def optional_vector(values: ArrayLike | None, length: int) -> FloatArray | None:
    """Freeze a copy of a finite vector of the given length; None stays None."""
    if values is None:
        return None
    vector = _real(values)
    if vector.shape != (length,):
        refuse(f"The vector has shape {vector.shape}; ({length},) was expected.", "Send one number a column.")
    if not np.isfinite(vector).all():
        refuse("The vector holds values that are not finite.", "Send neither NaN nor infinity.")
    return vector


def refuse(what: str, remedy: str) -> NoReturn:
    """Refuse a query."""
    raise InvalidQueryError(what, remedy)


def _real(values: ArrayLike) -> FloatArray:
    """Copy into float64; complex numbers, text and objects are no real numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        refuse(f"The array has type {array.dtype}; real numbers were expected.", "Send an array of float64.")
    copy = np.array(array, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy


def column_names(table: Any) -> tuple[str, ...] | None:  # noqa: ANN401  # a data frame, or anything else
    """Give a data frame's column names, if it has names that are text."""
    names = tuple(getattr(table, "columns", ()))
    return names if names and all(isinstance(name, str) for name in names) else None
