"""Recognises files by their first bytes if their names say that they are something else."""

from pathlib import Path
from string import printable
from typing import Final, NamedTuple

from dpspca.common.errors import InvalidDataError

LONGEST: Final = 16
_LOOKED_AT: Final = 512
_PACKED: Final = "packed with {}, so its name must end in {}"

ARROW_STREAM: Final = b"\xff\xff\xff\xff"
_NEVER_TEXT: Final = frozenset({
    ".parquet", ".pq", ".arrow", ".feather", ".orc", ".h5", ".hdf5", ".h5ad", ".npy", ".npz", ".pgen",
})  # fmt: skip


class _Kind(NamedTuple):
    signature: bytes
    what: str
    endings: tuple[str, ...] = ()
    """How names of such files may end. Packed files are read as text alone."""


_OTHERS: Final = (
    _Kind(b"\x1f\x8b", _PACKED.format("gzip", ".gz")),
    _Kind(b"BZh", _PACKED.format("bzip2", ".bz2")),
    _Kind(b"\xfd7zXZ", _PACKED.format("xz", ".xz")),
    _Kind(b"\x28\xb5\x2f\xfd", _PACKED.format("zstd", ".zst")),
    _Kind(
        b"PK\x03\x04",
        "a zip archive or a workbook of Excel, so its name must end in .npz, .zip, .xlsx or .ods",
        (".npz",),
    ),
    _Kind(b"\xd0\xcf\x11\xe0", "a workbook of an old Excel, so its name must end in .xls"),
    _Kind(b"PAR1", "Parquet, so its name must end in .parquet", (".parquet", ".pq")),
    _Kind(ARROW_STREAM, "a stream of Arrow, so convert it to a file and end its name in .arrow"),
    _Kind(b"ARROW1", "an Arrow file, so its name must end in .arrow", (".arrow", ".feather")),
    _Kind(b"SQLite format 3", "an SQLite database, so its name must end in .sqlite", (".sqlite", ".sqlite3", ".db")),
    _Kind(b"\x89HDF\r\n", "HDF5, so its name must end in .h5 or .h5ad", (".h5", ".hdf5", ".h5ad")),
    _Kind(b"\x93NUMPY", "an array of numpy, so its name must end in .npy", (".npy",)),
    _Kind(b"$FL2", "a file of SPSS, so its name must end in .sav"),
    _Kind(b"<stata_dta>", "a file of Stata, so its name must end in .dta"),
)
_TEXT: Final = (
    "text. Either its name must end in .csv, .tsv or .txt, or it is a message that was saved in place of the file"
)
_RENAME: Final = "Rename it, or name the right file."


def other_kind(content: bytes) -> str | None:
    """Name the true kind of a file of words, or None. A signature that is a word counts only beside zero bytes."""
    for each in _OTHERS:
        if content.startswith(each.signature) and (b"\0" in content or not each.signature.isalnum()):
            return each.what.partition(",")[0]
    return None


def require_text(beginning: bytes) -> None:
    """Refuse what is certainly no text. Its first bytes must not be those of a row."""
    for each in _OTHERS:
        if beginning.startswith(each.signature):
            raise InvalidDataError(f"It is not text but {each.what}.", _RENAME)


def misnamed(path: Path) -> InvalidDataError | None:
    """Say what a file is that a library could not read, if it is empty or not what its ending says.

    Only of kinds that are never text or packed as a whole.
    """
    if path.suffix.lower() not in _NEVER_TEXT:
        return None
    try:
        with path.open("rb") as file:
            beginning = file.read(_LOOKED_AT)
    except OSError:
        return None
    if not beginning:
        return InvalidDataError("It is empty.", "Copy it again, or write it again.")
    if beginning.isascii() and frozenset(beginning.decode()) <= frozenset(printable):
        return InvalidDataError(f"It is {_TEXT}.", _RENAME)
    for each in _OTHERS:
        is_likely = beginning.startswith(each.signature) and each.signature != ARROW_STREAM  # which may be numbers
        if is_likely and path.suffix.lower() not in each.endings:
            return InvalidDataError(f"It is {each.what}.", _RENAME)
    return None
