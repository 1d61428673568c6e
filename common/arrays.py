"""Checks of arrays that another party sent: they return a frozen copy, or refuse the array with a reason."""

from typing import Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InvalidQueryError

FloatArray: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
"""Values on the public lattice, in units of its spacing. Answers and their sums consist of these."""

MATRIX: Final = 2
LARGEST_ENTRY: Final = 2.0**100
"""Rows with larger entries are refused, because their squares would overflow floating point."""
LARGEST_SCALE: Final = 2.0**110


def finite_matrix(values: ArrayLike) -> FloatArray:
    """Return a read-only copy of a finite two-dimensional array."""
    matrix = _real(values)
    if matrix.ndim != MATRIX or 0 in matrix.shape:
        refuse(f"The array has shape {matrix.shape}; a matrix was expected.", "Send rows x columns, neither zero.")
    if not np.isfinite(matrix).all():
        refuse("The array holds values that are not finite.", "Send neither NaN nor infinity.")
    return matrix


def optional_vector(values: ArrayLike | None, length: int) -> FloatArray | None:
    """Return a read-only copy of a finite vector of the given length, or None for None."""
    if values is None:
        return None
    vector = _real(values)
    if vector.shape != (length,):
        refuse(f"The vector has shape {vector.shape}; ({length},) was expected.", "Send one number a column.")
    if not np.isfinite(vector).all():
        refuse("The vector holds values that are not finite.", "Send neither NaN nor infinity.")
    return vector


def optional_scales(values: ArrayLike | None, length: int) -> FloatArray | None:
    """Freeze a copy of what columns are divided by: numbers above zero, of any size that rows can have."""
    scales = optional_vector(values, length)
    if scales is not None and not ((scales >= 1 / LARGEST_SCALE) & (scales <= LARGEST_SCALE)).all():
        refuse("A scale is not positive, or too small or large to divide by.", "Send numbers from 2^-110 to 2^110.")
    return scales


def refuse(what: str, remedy: str, kind: type[InvalidQueryError] = InvalidQueryError) -> NoReturn:
    """Raise the error that refuses a query."""
    raise kind(what, remedy)


def _real(values: ArrayLike) -> FloatArray:
    """Copy into float64. Refuse complex numbers, text and objects."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        refuse(f"The array has type {array.dtype}; real numbers were expected.", "Send an array of float64.")
    copy = np.array(array, dtype=np.float64, order="C")
    copy.setflags(write=False)
    return copy
