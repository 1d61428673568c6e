"""Reads rows from files: numpy arrays, sparse matrices, comma-separated text. Edge: the only code that opens them.

Nothing is executed while reading: no pickles. What comes back has passed ``check_rows``, so that no job can fail on it.
"""

import csv
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse

from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.spec import Schema

from .preparation import CheckedRows, check_rows

_Table: TypeAlias = tuple[Any, tuple[str, ...] | None]
"""Rows as a file holds them, and their columns' names where it tells them."""


def read_rows(path: Path) -> CheckedRows:
    """Read a file by its ending, and refuse it where it holds no usable rows."""
    reader = READERS.get(path.suffix)
    if reader is None:
        known = ", ".join(READERS)
        raise MissingExtraError(f"Files ending in {path.suffix!r} are not read.", f"Use one of: {known}.")
    try:
        table, names = reader(path)
        return replace(check_rows(table), names=names)
    except OSError as problem:
        raise InvalidDataError(f"{path} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    except (ValueError, EOFError, KeyError) as problem:
        if isinstance(problem, DpspcaError):
            raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None
        raise InvalidDataError(f"{path} does not hold a table of numbers.", "Write it anew, without pickles.") from None


def _read_array(path: Path) -> _Table:
    return np.load(path, allow_pickle=False), None


def _read_sparse(path: Path) -> _Table:
    return scipy.sparse.csr_array(scipy.sparse.load_npz(path)), None


def _read_text(path: Path) -> _Table:
    """Read comma-separated numbers under one line of column names."""
    with path.open(newline="", encoding="utf-8") as lines:
        names, *table = csv.reader(lines)
    if all(map(_is_number, names)):
        raise InvalidDataError("The first line holds numbers, not the names of the columns.", "Add a line of names.")
    return np.array(table, dtype=np.float64), Schema.of(names).names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


READERS: Final[Mapping[str, Callable[[Path], _Table]]] = MappingProxyType(
    {".npy": _read_array, ".npz": _read_sparse, ".csv": _read_text}
)
