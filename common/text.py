"""CSV in which no cell is a formula, and untrusted text made safe for a terminal. Pure.

A spreadsheet treats a cell that begins with ``=``, ``+``, ``-`` or ``@`` as a formula, which can start programs and
send the sheet elsewhere, and column names are untrusted. So text that begins with one of these characters, or with a
tab or a line break that could hide one, gets a leading apostrophe. Text that begins with an apostrophe gets another
one, so that ``unescape`` can undo this. Numbers are not changed.
"""

import csv
import io
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Cell: TypeAlias = str | float | int

MARK: Final = "'"
LEADING: Final = ("=", "+", "-", "@", "\t", "\r", "\n", MARK, "＝", "＋", "－", "＠")


def to_csv(lines: Iterable[Sequence[Cell]]) -> str:
    """Write lines of cells as CSV."""
    return "".join(_line([*map(escape, line)]) for line in lines)


def _line(cells: Sequence[Cell]) -> str:
    """Write one line. The writer ends lines with CRLF, so that it quotes a cell with any kind of line break."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def escape(cell: Cell) -> Cell:
    """Put an apostrophe in front of text that a spreadsheet could treat as a formula."""
    return MARK + cell if isinstance(cell, str) and cell.startswith(LEADING) else cell


def unescape(text: str) -> str:
    """Return the original text of an escaped cell."""
    return text.removeprefix(MARK)


def composed(text: str) -> str:
    """Return a text in Unicode's composed form (NFC): an accent and its letter are one character where that exists."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural if need be."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def sentence(text: str) -> str:
    """Return text of a person with a full stop at its end, so that another sentence can follow."""
    ended = text.strip()
    return ended if ended.endswith((".", "!", "?")) else f"{ended}."


def printable(text: str) -> str:
    """Return untrusted text on one line, with control characters escaped."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def visible(text: str) -> str:
    """Return untrusted text with every unprintable character replaced, so that it has as many characters as before."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
