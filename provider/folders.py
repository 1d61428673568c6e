"""A data set that arrives in parts: a folder of files, whose rows follow one another in the order of the files' names.

A steward puts a new file beside the others as rows arrive, named so that it sorts last (``2026-01-31.csv``), and starts
the daemon again; the folder is one data set, under one budget. An algorithm that looks at rows in blocks divides the
whole by position: files need not be of one length, and nothing has to be known of a job when they are written.

What this asks of whoever writes the files: where a row stands must have nothing to do with what rows say. In order of
arrival, or by a number given without looking at them, is well; sorted by a column is not, for then a changed row would
be another in its place, and others would move.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from dpspca.common.errors import InvalidDataError

from .preparation import CheckedRows, check_rows


def read_folder(folder: Path, read: Callable[[Path], CheckedRows], *, least: int) -> CheckedRows:
    """Read every file with ``read``, and refuse them where they do not fit together, or hold too few rows.

    Files whose name begins with a dot are passed over, as file managers do. What is no file is refused: a folder that
    was forgotten would otherwise be rows that are silently missing.
    """
    try:
        files = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as problem:
        raise InvalidDataError(f"{folder} cannot be read: {problem.strerror}.", "Check whose folder it is.") from None
    if not files:
        raise InvalidDataError(f"{folder} holds no file.", "Put at least one there, or name a file.")
    for each in files:
        if each.is_dir():
            raise InvalidDataError(f"{each} is a folder within a data set.", "Put its files beside the others.")
    return _joined(files, [read(each) for each in files], least)


def _joined(files: Sequence[Path], parts: Sequence[CheckedRows], least: int) -> CheckedRows:
    """Put rows under one another; those of the first file say how wide they are, and what columns are called."""
    first = parts[0]
    for file, part in zip(files, parts, strict=True):
        if part.dimension != first.dimension:
            raise InvalidDataError(
                f"{file} has {part.dimension} columns, {files[0].name} has {first.dimension}.",
                "Give all files of a folder the same columns.",
            )
        if part.names != first.names:
            raise InvalidDataError(
                f"The columns of {file} are not called as those of {files[0].name}.",
                "Give all files of a folder the same columns in the same order.",
            )
        if part.is_sparse != first.is_sparse:
            raise InvalidDataError(
                f"Of {file} and {files[0].name} one is sparse and the other is not.", "Save all files in one form."
            )
    matrices: list[Any] = [part.matrix for part in parts]  # dense all of them, or sparse all of them
    whole = scipy.sparse.vstack(matrices, format="csr") if first.is_sparse else np.concatenate(matrices)
    return CheckedRows(check_rows(whole, least=least).matrix, first.names)
