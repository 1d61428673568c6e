"""Reads rows from files: numpy arrays, sparse matrices, comma-separated text. Edge: the only code that opens them.

Nothing is executed while reading: no pickles. What comes back has passed ``check_rows``, so that no job can fail on it.
"""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import scipy.sparse

from dpspca.common.errors import InvalidDataError, MissingExtraError

from .preparation import CheckedRows, check_rows


def read_rows(path: Path) -> CheckedRows:
    """Read a file by its ending, and refuse it where it holds no usable rows."""
    reader = READERS.get(path.suffix)
    if reader is None:
        known = ", ".join(READERS)
        raise MissingExtraError(f"Files ending in {path.suffix!r} are not read.", f"Use one of: {known}.")
    try:
        return check_rows(reader(path))
    except OSError as problem:
        raise InvalidDataError(f"{path} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    except (ValueError, EOFError, KeyError) as problem:
        if isinstance(problem, InvalidDataError):
            raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None
        raise InvalidDataError(f"{path} does not hold a table of numbers.", "Write it anew, without pickles.") from None


def _read_array(path: Path) -> Any:  # noqa: ANN401  # whatever the file holds
    return np.load(path, allow_pickle=False)


def _read_sparse(path: Path) -> Any:  # noqa: ANN401  # whatever the file holds
    return scipy.sparse.csr_array(scipy.sparse.load_npz(path))


def _read_text(path: Path) -> Any:  # noqa: ANN401  # whatever the file holds
    """Read comma-separated numbers under one line of column names."""
    with path.open(newline="", encoding="utf-8") as lines:
        table = list(csv.reader(lines))
    return np.array(table[1:], dtype=np.float64)


READERS: Final[Mapping[str, Callable[[Path], Any]]] = MappingProxyType(
    {".npy": _read_array, ".npz": _read_sparse, ".csv": _read_text}
)
