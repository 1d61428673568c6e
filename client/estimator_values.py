"""Values that the estimator is given, checked."""

from os import PathLike
from typing import Any, Final

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import column_names
from dpspca.common.checks import check
from dpspca.common.errors import InvalidTypeError
from dpspca.common.plan import Plan
from dpspca.common.queries import ColumnSums, CompressedCovariance, Count, EntryTotal, NormHistogram
from dpspca.provider.data import numeric

_BESIDE: Final = (Count, ColumnSums, CompressedCovariance, EntryTotal, NormHistogram)
"""Queries before and after the components are found. They do not count as rounds."""


def numbers_of(rows: Any) -> Any:  # noqa: ANN401  # whatever holds numbers
    """Convert an array of Python objects that are numbers to a numeric array, as scikit-learn's callers expect."""
    check(rows is not None, "No rows are given.", "Give X, or a federation and the name of a data set.")
    if isinstance(rows, str | PathLike):
        raise InvalidTypeError(
            f"X is {str(rows)!r:.80}, not a table of numbers.",
            "Read the file first, for example with numpy.load or pandas.read_csv.",
        )
    if hasattr(rows, "tocsr") or column_names(rows) or np.ma.is_masked(rows):
        return rows
    array = np.asarray(rows)
    return numeric(array) if array.dtype.kind == "O" else array


def rounds_of(plan: Plan) -> int:
    """Count the planned queries that the components are found from."""
    return sum(step.query not in _BESIDE for step in plan)


def methods_with(option: str) -> list[str]:
    """Name the methods that have an option."""
    return [name for name, entry in catalogue.CATALOGUE.items() if entry.option(option)]
