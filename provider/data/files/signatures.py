"""Recognises by their first bytes files that are not text, although their names say so."""

from typing import Final

from dpspca.common.errors import InvalidDataError

LONGEST: Final = 16
_PACKED: Final = "packed with {}, so its name must end in {}"
_OTHERS: Final = (
    (b"\x1f\x8b", _PACKED.format("gzip", ".gz")),
    (b"BZh", _PACKED.format("bzip2", ".bz2")),
    (b"\xfd7zXZ", _PACKED.format("xz", ".xz")),
    (b"\x28\xb5\x2f\xfd", _PACKED.format("zstd", ".zst")),
    (b"PK\x03\x04", "a zip archive or a workbook of Excel, so its name must end in .zip, .xlsx or .ods"),
    (b"\xd0\xcf\x11\xe0", "a workbook of an old Excel, so its name must end in .xls"),
    (b"PAR1", "Parquet, so its name must end in .parquet"),
    (b"\xff\xff\xff\xff", "a stream of Arrow, so convert it to a file and end its name in .arrow"),
    (b"ARROW1", "an Arrow file, so its name must end in .arrow"),
    (b"SQLite format 3", "an SQLite database, so its name must end in .sqlite"),
    (b"\x89HDF\r\n", "HDF5, so its name must end in .h5 or .h5ad"),
    (b"\x93NUMPY", "an array of numpy, so its name must end in .npy"),
    (b"$FL2", "a file of SPSS, so its name must end in .sav"),
    (b"<stata_dta>", "a file of Stata, so its name must end in .dta"),
)


def other_kind(content: bytes) -> str | None:
    """Name the true kind of a file of words, or None. A signature that is a word counts only beside zero bytes."""
    for signature, what in _OTHERS:
        if content.startswith(signature) and (b"\0" in content or not signature.isalnum()):
            return what.partition(",")[0]
    return None


def require_text(beginning: bytes) -> None:
    """Refuse what is certainly no text. Its first bytes must not be those of a row."""
    for signature, what in _OTHERS:
        if beginning.startswith(signature):
            raise InvalidDataError(f"It is not text but {what}.", "Rename it, or name the right file.")
