"""A data set in a folder of files, whose rows follow one another in the order of the files' names.

When new rows arrive, the steward adds a file whose name sorts last (``2026-01-31.csv``) and restarts the daemon. The
folder is one data set with one budget. (If rows arrive while jobs run, ``arrivals.py`` watches the folder.) A method
that uses blocks of rows divides all rows by position: files may have any length, and their author needs to know nothing
about jobs.

The author of the files must ensure that a row's position does not depend on the content of rows. Order of arrival is
fine, and so is a number that was assigned without looking at the rows. Sorting by a column is not: a changed row would
move to another position, and so would others.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote

import numpy as np
import scipy.sparse

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import is_pattern
from dpspca.provider.data.checked import CheckedRows, Table
from dpspca.provider.data.memory import Genotypes, StoredRows, stacked_genotypes, stacked_rows

from .companions import JOIN_VARIANTS, SAME_VARIANTS, is_companion

_MARKS: Final = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})
"""Files without rows that other programs write into a folder of Parquet files."""
ZARR_PARTS: Final = ("zarr.json", ".zgroup", ".zarray")
"""Files of which every folder of Zarr has one."""
_PARTITION: Final = re.compile(r"[^=]+=.*")
_NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"


class TemporarilyUnreadableError(InvalidDataError):
    """Something could not be read now, for a reason other than its content. The next attempt may succeed."""


class Stamp(NamedTuple):
    """Identifies a file under any name, and shows whether it changed."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, file: Path) -> Self:
        """Read a file's status, following links. Refuse anything but a regular file: reading a pipe could never end."""
        try:
            found = file.stat()
        except OSError as problem:
            raise TemporarilyUnreadableError(
                f"{file} cannot be read: {problem.strerror or problem}.", "Check its owner and permissions."
            ) from None
        if S_ISDIR(found.st_mode):
            raise InvalidDataError(f"{file} is a folder within a data set.", _remedy_of_folder(file))
        if not S_ISREG(found.st_mode):
            raise InvalidDataError(f"{file} is not a regular file.", "Put only files of rows into a data set's folder.")
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _remedy_of_folder(folder: Path) -> str:
    """Say what to do about a folder within a data set. The files of a partition may lack what its name says."""
    if any((folder.parent / name).exists() for name in ZARR_PARTS):
        return "The outer folder is a Zarr folder: end its name in .zarr."
    if not _PARTITION.fullmatch(folder.name):
        return (
            "Move its files into the outer folder, under names of their own. If the folder's name is a value of a "
            "column, its own name has to say so, as in year=2023. With pyarrow: partitioning_flavor = 'hive'."
        )
    column = unquote(folder.name.partition("=")[0])
    return (
        f"Write the files again without such folders, with {column!r:.60} as a column. Only a data set that is a "
        "folder may have them, without an engine, without rows that arrive, and without links."
    )


@dataclass(frozen=True, slots=True)
class FolderForm:
    """The form that a folder's first file sets for all: the columns, their names, and whether rows are sparse."""

    file: Path
    dimension: int
    names: tuple[str, ...] | None
    is_sparse: bool

    @classmethod
    def of(cls, file: Path, rows: CheckedRows) -> Self:
        """Take the form of a file's rows."""
        return cls(file, rows.dimension, rows.names, rows.is_sparse)

    def require(self, file: Path, rows: CheckedRows) -> None:
        """Refuse a file that differs in form from the first."""
        if isinstance(rows.matrix, Genotypes) and (rows.dimension, rows.names) != (self.dimension, self.names):
            raise InvalidDataError(f"{file} has other variants than {self.file.name}. {SAME_VARIANTS}", JOIN_VARIANTS)
        first = self.file.name if file.name != self.file.name else self.file  # files of partitions have one name
        if rows.dimension != self.dimension:
            raise InvalidDataError(
                f"{file} has {rows.dimension} columns, but {first} has {self.dimension}.",
                "Give all files of a folder the same columns.",
            )
        if rows.names != self.names:
            raise InvalidDataError(
                f"The column names of {file} differ from those of {first}{self._difference(rows.names)}.",
                "Give all files of a folder the same columns in the same order.",
            )
        if rows.is_sparse != self.is_sparse:
            raise InvalidDataError(
                f"One of {file} and {first} is sparse, and the other is not.", "Save all files in one form."
            )

    def _difference(self, names: tuple[str, ...] | None) -> str:
        """Say how names differ. They are not quoted: in a file without a line of names, they are cells of a row."""
        if names is None or self.names is None:
            return ""
        others = len(frozenset(names) - frozenset(self.names))
        if not others:
            return ": they are in another order"
        return f": {others} {'name is' if others == 1 else 'names are'} new"


def files_of(folder: Path, *, partitioned: bool = False) -> dict[Path, Stamp]:
    """List a folder's files in the order of their names, without those whose name begins with a dot.

    Lists of variants and samples that belong to genotypes are read with these, and are no files of rows.

    Of a pattern such as ``visits-*.csv``, list the files of its folder that match. A ``partitioned`` folder may have
    folders such as ``year=2024`` within it: list their files, too, in the order of their paths.

    Anything but a file is refused, because the rows of a forgotten folder would be missing without notice. Two names of
    one file, by a link of either kind, are refused, too: its rows would be there twice, in two blocks that are each
    priced as if no other block had them. Two files with the same content are not refused, because that would reveal
    something about the content.
    """
    try:
        found = folder.parent.glob(folder.name) if is_pattern(folder) else folder.iterdir()
        may_divide = partitioned and not is_pattern(folder)
        files = sorted(file for each in found for file in _within(each, partitioned=may_divide))
    except OSError as problem:
        raise TemporarilyUnreadableError(
            f"{folder} cannot be read: {problem.strerror}.", "Check its owner and permissions."
        ) from None
    if not files:
        raise InvalidDataError(f"{folder} holds 0 files.", "Put at least one file there, or name a file instead.")
    stamps = {each: Stamp.of(each) for each in files}
    named: dict[tuple[int, int], Path] = {}
    for each, stamp in stamps.items():
        first = named.setdefault(stamp[:2], each)
        if first != each:
            raise InvalidDataError(
                f"{each} is the same file as {first.name}: its rows would count twice.", "Remove one of the two names."
            )
    return stamps


def _within(path: Path, *, partitioned: bool) -> Iterator[Path]:
    """Return a path, or of a partition the paths within it. A link is no partition: its files could be there twice."""
    if path.name.startswith(".") or path.name in _MARKS or is_companion(path):
        return
    if partitioned and _PARTITION.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
        for each in path.iterdir():
            yield from _within(each, partitioned=True)
    else:
        yield path


def partition_of(folder: Path, file: Path) -> tuple[tuple[str, str | None], ...]:
    """Return the columns that the names of folders hold between a data set's folder and its file, and their texts.

    Programs write some characters as % and two digits, and a missing value as a name of its own.
    """
    if file == folder or folder not in file.parents:
        return ()
    named = [part.partition("=") for part in file.relative_to(folder).parts[:-1]]
    return tuple((unquote(name), None if text == _NO_VALUE else unquote(text)) for name, _, text in named)


def read_folder(folder: Path, read: Callable[[Path], CheckedRows]) -> CheckedRows:
    """Read every file with ``read``, and refuse files that do not fit together."""
    return joined_parts([(file, read(file)) for file in files_of(folder, partitioned=True)])


def joined_parts(parts: Sequence[tuple[Path, CheckedRows]]) -> CheckedRows:
    """Put the rows of several files below one another, and refuse files that do not fit together."""
    form = FolderForm.of(*parts[0])
    for file, part in parts:
        form.require(file, part)
    return CheckedRows(stacked([part.matrix for _, part in parts], is_sparse=form.is_sparse), form.names)


def stacked(matrices: Sequence[Any], *, is_sparse: bool) -> Table:
    """Stack rows, all of them in the same form."""
    if len(matrices) == 1:
        return matrices[0]  # type: ignore[no-any-return]
    if all(isinstance(each, Genotypes) for each in matrices):
        return stacked_genotypes(matrices)
    if all(isinstance(each, StoredRows) for each in matrices):
        return stacked_rows(matrices)
    return scipy.sparse.vstack(matrices, format="csr") if is_sparse else np.concatenate(matrices)
