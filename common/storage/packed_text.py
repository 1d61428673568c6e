"""Reads a list in UTF-8 that may be packed, as `plink2 --freq zs` writes it."""

import gzip
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import InvalidParameterError, MissingExtraError

from .toml_file import read_text

MOST_BYTES: Final = 2**30
"""The most that an unpacked list may have. A packed file may be small and unpack to more than the memory."""
_GZIP: Final = ".gz"
PACKED: Final = (_GZIP, ".zst")


def read_packed_text(path: Path) -> str:
    """Read a file of text in UTF-8, packed or not, as the end of its name says."""
    ending = path.suffix.lower()
    if ending not in PACKED:
        return read_text(path)
    try:
        with path.open("rb") as file, _unpacked(file, ending) as unpacked:
            content = bytes(unpacked.read(MOST_BYTES + 1))
    except FileNotFoundError as problem:
        raise InvalidParameterError(f"{path} cannot be read: {problem.strerror}.", "Give the path of a file.") from None
    except (OSError, EOFError, ValueError, zlib.error):
        raise InvalidParameterError(
            f"{path} is damaged, or not packed as {ending}.", "Write it again, whole."
        ) from None
    if len(content) > MOST_BYTES:
        raise InvalidParameterError(f"{path} has more than {MOST_BYTES >> 20} MiB.", "Give a shorter list.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidParameterError(f"{path} is not text in UTF-8.", "Save it as that, or give another file.") from None


def _unpacked(file: Any, ending: str) -> Any:  # noqa: ANN401  # a stream of one of two libraries
    if ending == _GZIP:
        return gzip.GzipFile(fileobj=file)
    try:
        return import_module("pyarrow").CompressedInputStream(file, "zstd")
    except ImportError:
        raise MissingExtraError(
            "Reading a list that is packed with zstd needs pyarrow, which is not installed.",
            "Unpack the list with unzstd, or install it: pip install '.[formats]'.",
        ) from None
