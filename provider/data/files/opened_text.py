"""Opens files as text: packed or not, in the encoding that is declared or that the file's first bytes state."""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading
from dpspca.provider.data.tables import import_extra

from .signatures import LONGEST, require_text

_UTF_16_MARKS: Final = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
_UTF_8_MARK: Final = b"\xef\xbb\xbf"
_PACKED: Final = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zst": b"\x28\xb5\x2f\xfd"}
"""How packed files begin."""
_SKIPPED: Final = b"\x50\x2a\x4d\x18"
_DAMAGED: Final = (EOFError, zlib.error, lzma.LZMAError)


@contextmanager
def opened_text(path: Path, reading: Reading) -> Iterator[TextIO]:
    """Open a file as text, packed or not. Bytes that are not text become characters that no number has."""
    try:
        with _unpacked(path) as raw, io.BufferedReader(raw) as packed:
            # The first bytes decide nothing if they are those of a row.
            beginning = packed.peek(LONGEST)[:LONGEST] if reading.names is None else b""
            encoding = _encoding(beginning, reading)
            if reading.names is not None:
                _skip_mark(packed, encoding)
            errors = "replace" if encoding.startswith("utf-16") else "surrogateescape"
            with io.TextIOWrapper(packed, encoding=encoding, errors=errors, newline="") as text:
                yield text
    except _DAMAGED:
        raise InvalidDataError(
            "The packed file is damaged, or its end is missing.", "Copy it again, whole, or pack it again."
        ) from None


def _encoding(beginning: bytes, reading: Reading) -> str:
    """Choose how bytes become text. "utf-8-sig" drops the mark that some programs write before UTF-8.

    Together with "surrogateescape", it lets other encodings be reported for the cell in which they occur.
    """
    require_text(beginning)
    has_mark = beginning.startswith(tuple(_UTF_16_MARKS.values()))
    if reading.encoding == "utf-16" and not has_mark:
        return "utf-16-be" if beginning[:1] == b"\0" else "utf-16-le"
    own_mark = _UTF_16_MARKS.get(reading.encoding or "")
    if has_mark and (reading.encoding in {None, "utf-16"} or (own_mark and beginning.startswith(own_mark))):
        return "utf-16"
    if reading.encoding in {None, "utf-8"}:
        return "utf-8-sig"
    if beginning.startswith((_UTF_8_MARK, *_UTF_16_MARKS.values())):
        raise InvalidDataError(
            f"It begins with the mark of a Unicode file, but the settings declare {reading.encoding}.",
            "Remove encoding under [reading].",
        )
    return str(reading.encoding)


def _skip_mark(packed: io.BufferedReader, encoding: str) -> None:
    """Leave out a mark before the first row, which would spoil its first cell. It changes how no other row is read."""
    mark = _UTF_16_MARKS.get(encoding, _UTF_8_MARK)
    if encoding != "utf-8-sig" and packed.peek(len(mark)).startswith(mark):
        packed.read(len(mark))


def _is_skipped(beginning: bytes) -> bool:
    """Tell whether a file begins with a frame that zstd skips, as those of pzstd do."""
    return beginning[1:4] == _SKIPPED[1:] and beginning[0] & 0xF0 == _SKIPPED[0]


@contextmanager
def _unpacked(path: Path) -> Iterator[Any]:
    with path.open("rb", buffering=0) as file:
        ending = path.suffix.lower()
        signature = _PACKED.get(ending, b"")
        beginning = os.pread(file.fileno(), LONGEST, 0) if signature else b""
        if beginning and not beginning.startswith(signature) and not (ending == ".zst" and _is_skipped(beginning)):
            raise InvalidDataError(
                f"Its name ends in {ending}, but it is not packed like that, or damaged.",
                f"If it is not packed, rename it without {ending}. Otherwise copy it again, whole.",
            )
        match ending:
            case ".gz":
                with gzip.GzipFile(fileobj=io.BufferedReader(file)) as packed:
                    yield packed
            case ".bz2":
                with io.BufferedReader(file) as buffered, bz2.BZ2File(buffered) as packed:
                    yield packed
            case ".xz":
                with io.BufferedReader(file) as buffered, lzma.LZMAFile(buffered) as packed:
                    yield packed
            case ".zst":
                with import_extra("pyarrow").CompressedInputStream(io.BufferedReader(file), "zstd") as packed:
                    yield packed
            case _:
                yield file
