"""Reads the labels of a persons file: whose row each is. They decide which rows are protected together.

So the same person must not have two labels because of how a program writes text: with a mark of UTF-8 before the first
label, or with accents as characters of their own.
"""

from typing import Final

from dpspca.common.errors import InvalidDataError
from dpspca.common.text import composed

from .signatures import other_kind

_UTF_8_MARK: Final = b"\xef\xbb\xbf"
_UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_REMEDY: Final = "Save it as plain text in UTF-8, with one name or number a line."


def labels_in(content: bytes) -> list[bytes]:
    """Return the label of each line. Refuse content that is no text, or in UTF-16: its lines would end within labels.

    One label with a zero byte is not refused, because one person must not decide whether the provider starts.
    """
    what = other_kind(content)
    if what is not None:
        raise InvalidDataError(f"It is not text but {what}.", _REMEDY)
    if content.startswith(_UTF_16_MARKS):
        raise InvalidDataError("It is in UTF-16.", _REMEDY)
    lines = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if b"\0" in content and all(b"\0" in line for line in lines if line):
        raise InvalidDataError("Every line holds zero bytes, as in UTF-16 without a mark.", _REMEDY)
    return list(map(label_of, lines))


def label_of(line: bytes) -> bytes:
    """Return a line without spaces around it, in Unicode's composed form.

    A mark of UTF-8 at the beginning of any line is left out: files may have been put together of several. Bytes that
    are not in UTF-8 stay.
    """
    if line.isascii():
        return line.strip()
    plain = line.removeprefix(_UTF_8_MARK).strip()
    return composed(plain.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
