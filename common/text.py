"""Tables as text for other programs: comma-separated values in which no cell is a formula. Pure.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula, which can start programs and
send what is in the sheet elsewhere; and names of columns are written by strangers. So text that begins with one of
these, or with a tab or a line break behind which one could hide, gets an apostrophe in front. So does text that begins
with an apostrophe. This can be undone: text that begins with an apostrophe had one fewer. Numbers stay as they are.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Cell: TypeAlias = str | float | int

MARK: Final = "'"
LEADING: Final = ("=", "+", "-", "@", "\t", "\r", "\n", MARK, "＝", "＋", "－", "＠")


def to_csv(lines: Iterable[Sequence[Cell]]) -> str:
    """Write lines of cells."""
    return "".join(_line([*map(escaped, line)]) for line in lines)


def _line(cells: Sequence[Cell]) -> str:
    """Write a line; cells are quoted for the longer end of a line, so that no break within one begins another."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def escaped(cell: Cell) -> Cell:
    """Mark text that a spreadsheet could take for a formula."""
    return MARK + cell if isinstance(cell, str) and cell.startswith(LEADING) else cell


def unescaped(text: str) -> str:
    """Give a cell's text as it was before it was written."""
    return text.removeprefix(MARK)


def printable(text: str) -> str:
    """Show what a stranger said: on one line, and unable to steer a terminal."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
