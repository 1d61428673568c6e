"""A data set that arrives in parts: a folder of files, whose rows follow one another in the order of the files' names.

A steward puts a new file beside the others as rows arrive, named so that it sorts last (``2026-01-31.csv``), and starts
the daemon again; the folder is one data set, under one budget. (Where rows are to arrive while jobs run, it is
``arrivals.py`` that watches the folder.) A method that looks at rows in blocks divides the whole by position: files
need not be of one length, and nothing has to be known of a job when they are written.

What this asks of whoever writes the files: where a row stands must have nothing to do with what rows say. In order of
arrival, or by a number given without looking at them, is well; sorted by a column is not, for then a changed row would
be another in its place, and others would move.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError

from .preparation import CheckedRows


class UnreadableError(InvalidDataError):
    """Something could not be read just now, whatever it holds: the next attempt may go well."""


class Stamp(NamedTuple):
    """Which file it is, under whatever name, and by which a change of it shows."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, file: Path) -> Self:
        """Look at a file, or at what it is a link to. What is no file is refused: a pipe would be read for ever."""
        try:
            found = file.stat()
        except OSError as problem:
            raise UnreadableError(
                f"{file} cannot be read: {problem.strerror or problem}.", "Check whose it is."
            ) from None
        if S_ISDIR(found.st_mode):
            raise InvalidDataError(f"{file} is a folder within a data set.", "Put its files beside the others.")
        if not S_ISREG(found.st_mode):
            raise InvalidDataError(f"{file} is no file.", "Put files of rows alone into the folder of a data set.")
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Form:
    """What a folder's first file says of all: how many columns, what they are called, and whether rows are sparse."""

    file: Path
    dimension: int
    names: tuple[str, ...] | None
    is_sparse: bool

    @classmethod
    def of(cls, file: Path, rows: CheckedRows) -> Self:
        """Take it from a file's rows."""
        return cls(file, rows.dimension, rows.names, rows.is_sparse)

    def require(self, file: Path, rows: CheckedRows) -> None:
        """Refuse a file that does not go with the first."""
        if rows.dimension != self.dimension:
            raise InvalidDataError(
                f"{file} has {rows.dimension} columns, {self.file.name} has {self.dimension}.",
                "Give all files of a folder the same columns.",
            )
        if rows.names != self.names:
            raise InvalidDataError(
                f"The columns of {file} are not called as those of {self.file.name}.",
                "Give all files of a folder the same columns in the same order.",
            )
        if rows.is_sparse != self.is_sparse:
            raise InvalidDataError(
                f"Of {file} and {self.file.name} one is sparse and the other is not.", "Save all files in one form."
            )


def files_of(folder: Path) -> dict[Path, Stamp]:
    """List a folder's files in the order of their names; those whose name begins with a dot are passed over.

    File managers do so. What is no file is refused: a folder that was forgotten would otherwise be rows that are
    silently missing. So are two names of one file, by a link of either kind: its rows would be there twice, in two
    blocks of which each is paid for as if it held the row alone. Files that are alike are not refused, for that would
    tell of what is in them.
    """
    try:
        files = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as problem:
        raise UnreadableError(f"{folder} cannot be read: {problem.strerror}.", "Check whose folder it is.") from None
    if not files:
        raise InvalidDataError(f"{folder} holds no file.", "Put at least one there, or name a file.")
    stamps = {each: Stamp.of(each) for each in files}
    named: dict[tuple[int, int], Path] = {}
    for each, stamp in stamps.items():
        first = named.setdefault(stamp[:2], each)
        if first != each:
            raise InvalidDataError(
                f"{each} is {first.name} under another name: its rows would count twice.", "Remove one of the two."
            )
    return stamps


def read_folder(folder: Path, read: Callable[[Path], CheckedRows]) -> CheckedRows:
    """Read every file with ``read``, and refuse files that do not fit together."""
    files = list(files_of(folder))
    parts = [read(each) for each in files]
    form = Form.of(files[0], parts[0])
    for file, part in zip(files, parts, strict=True):
        form.require(file, part)
    return CheckedRows(stacked([part.matrix for part in parts], is_sparse=form.is_sparse), form.names)


def stacked(matrices: Sequence[Any], *, is_sparse: bool) -> FloatArray | scipy.sparse.csr_array:
    """Put rows under one another: dense all of them, or sparse all of them."""
    if len(matrices) == 1:
        return matrices[0]  # type: ignore[no-any-return]
    return scipy.sparse.vstack(matrices, format="csr") if is_sparse else np.concatenate(matrices)
