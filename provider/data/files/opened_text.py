"""Opens files as text: packed or not, in the encoding that is declared or that the file's first bytes state."""

import bz2
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
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
_CHUNK: Final = 2**16
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


class _Streams(io.RawIOBase):
    """Unpacks one stream after another, as pbzip2 and pixz write them.

    The classes of bz2 and lzma take what is no stream, behind the first, for the end: all rows behind a damaged byte
    would be missing, without an error.
    """

    def __init__(self, file: io.FileIO, new: Callable[[], Any]) -> None:
        self._file, self._new, self._unpacker = file, new, new()
        self._packed = b""
        """What was read of the next stream."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # of io
        while not self._unpacker.eof or self._begin_another():
            packed = b""
            if self._unpacker.needs_input:
                packed, self._packed = self._packed or self._file.read(_CHUNK), b""
                if not packed:
                    raise EOFError
            if found := self._unpack(packed, len(buffer)):
                buffer[: len(found)] = found
                return len(found)
        return 0

    def _begin_another(self) -> bool:
        """Begin the next stream, if there is one. Zeros between streams and after the last are padding."""
        packed = self._unpacker.unused_data.lstrip(b"\0")
        while not packed and (more := self._file.read(_CHUNK)):
            packed = more.lstrip(b"\0")
        self._unpacker, self._packed = self._new() if packed else self._unpacker, packed
        return bool(packed)

    def _unpack(self, packed: bytes, most: int) -> bytes:
        try:
            found: bytes = self._unpacker.decompress(packed, most)
        except OSError:  # what bz2 raises of damaged data
            raise EOFError from None
        return found


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
                yield _Streams(file, bz2.BZ2Decompressor)
            case ".xz":
                yield _Streams(file, lzma.LZMADecompressor)
            case ".zst":
                with import_extra("pyarrow").CompressedInputStream(io.BufferedReader(file), "zstd") as packed:
                    yield packed
            case _:
                yield file
