"""Checks that turn an array sent by somebody else into one that can be relied upon, or refuse it with the reason."""

from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import InvalidQueryError
from .privacy.lattice import ORTHONORMALITY

FloatArray: TypeAlias = NDArray[np.float64]

MATRIX: Final = 2

_MEASURED: Final = ORTHONORMALITY * (1 - 2.0**-6)
"""What may be measured: the rest, 2e-10, covers the rounding of the measurement (6e-12 seen at 2^24 rows)."""


def finite_matrix(values: ArrayLike) -> FloatArray:
    """Freeze a copy of a finite two-dimensional array."""
    matrix = _real(values)
    if matrix.ndim != MATRIX or 0 in matrix.shape:
        refuse(f"The array has shape {matrix.shape}; a matrix was expected.", "Send rows x columns, neither zero.")
    if not np.isfinite(matrix).all():
        refuse("The array holds values that are not finite.", "Send neither NaN nor infinity.")
    return matrix


def orthonormal(values: ArrayLike) -> FloatArray:
    """Freeze a copy of a matrix with orthonormal columns.

    Equal unit columns, or columns a little too long, would let one person move the answer further than declared; only
    the whole Gram matrix shows that, so it is what is tested.
    """
    basis = finite_matrix(values)
    rows, columns = basis.shape
    if columns > rows:
        refuse(f"A basis of {columns} columns does not fit in {rows} dimensions.", "Send at most as many columns.")
    # Entries above 2 are refused anyway; testing them first keeps the product from overflowing.
    if np.abs(basis).max() > 2 or np.linalg.norm(basis.T @ basis - np.eye(columns)) > _MEASURED:  # noqa: PLR2004
        refuse("The basis is not orthonormal.", f"Send Q with ||Q^T Q - I|| at most {_MEASURED:.1e}.")
    return basis


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
    """Refuse a question."""
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
