"""Reads rows from files: numpy arrays, sparse matrices, comma-separated text. Edge: the only code that opens them.

Nothing is executed while reading: no pickles. What comes back has passed ``check_rows``, so that no job can fail on it.
What is wrong with a cell is told by its place and its kind, never by what it holds: logs are read by others.
"""

import csv
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.spec import Schema

from .folders import UnreadableError, read_folder
from .preparation import CheckedRows, check_rows, rows_or_zeros

_Table: TypeAlias = tuple[Any, tuple[str, ...] | None]
"""Rows as a file holds them, and their columns' names where it tells them."""
_Line: TypeAlias = tuple[int, list[str]]
"""The number of a line, from 1, and its cells."""

_DIVIDERS: Final = {";": "semicolons", "\t": "tabs"}
_LONGEST_NAME: Final = 60
_FORM: Final = "Write one line of column names, and under it a line of numbers for each row, divided by commas."
_UTF_8: Final = "Save it as UTF-8."


def read_rows(path: Path, *, persons: Path | None = None, least: int = 2) -> CheckedRows:
    """Read a file by its ending, and refuse it where it does not hold at least ``least`` usable rows.

    A folder stands for the rows of all its files, one after the other in the order of their names (``folders.py``).
    ``persons`` is a file that says whose each row is: as many lines, each of them a name or a number of any kind.
    """
    rows = _read(path, least)
    return rows if persons is None else replace(rows, persons=_read_persons(persons, rows.count))


def read_file(path: Path) -> CheckedRows:
    """Read one file of several that together are a data set; one row is enough."""
    return _read(path, least=1)


def read_arriving(path: Path) -> tuple[CheckedRows, bool]:
    """Read a file that came while others were answered about: no row of it is to show by whether there are answers.

    So a row that cannot be used counts as one of zeros, and whether there was such a row is told besides. There may be
    no rows at all, as of a day on which nobody came. What is no table of numbers is refused as ever.
    """
    reader = _reader(path, _ARRIVING)
    with _in_words(path):
        table, names = reader(path)
        rows, mended = rows_or_zeros(table)
        return replace(rows, names=names), mended


def _read_persons(path: Path, rows: int) -> NDArray[np.intp]:
    """Give every person a number; what they are called is not kept."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as problem:
        raise InvalidDataError(f"{path} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    if len(lines) != rows:
        raise InvalidDataError(
            f"{path} has {len(lines)} lines for {rows} rows.", "Write a line for each row: whose it is."
        )
    if not all(map(bytes.strip, lines)):
        raise InvalidDataError(f"{path} has a line that names nobody.", "Write a line for each row: whose it is.")
    numbers: NDArray[np.intp] = np.unique([line.strip() for line in lines], return_inverse=True)[1]
    return numbers


def _read(path: Path, least: int) -> CheckedRows:
    if path.is_dir():
        return read_folder(path, read_file, least=least)
    reader = _reader(path, READERS)
    with _in_words(path):
        table, names = reader(path)
        return replace(check_rows(table, least=least), names=names)


def _reader(path: Path, readers: "_Readers") -> "_Reader":
    reader = readers.get(path.suffix)
    if reader is None:
        known = ", ".join(readers)
        raise MissingExtraError(f"Files ending in {path.suffix!r} are not read.", f"Use one of: {known}.")
    return reader


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    """Say of a file what is wrong with it, whatever its bytes set off in those who read them."""
    try:
        yield
    except DpspcaError as problem:
        raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None
    except OSError as problem:
        raise UnreadableError(f"{path} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    except MemoryError:
        raise UnreadableError(
            f"{path} takes more memory than there is.", "Divide it, or write it anew if it is not that large."
        ) from None
    except Exception:  # noqa: BLE001  # zlib's, the tokenizer's, and of any kind
        raise InvalidDataError(
            f"{path} does not hold a table of numbers.",
            "Write it anew: .npy with numpy.save and without pickles, .npz with scipy.sparse.save_npz.",
        ) from None


def _read_array(path: Path) -> _Table:
    return np.load(path, allow_pickle=False), None


def _read_sparse(path: Path) -> _Table:
    with path.open("rb") as file:  # numpy leaves one open that it cannot read
        return scipy.sparse.csr_array(scipy.sparse.load_npz(file)), None


def _read_text(path: Path, *, lenient: bool = False) -> _Table:
    """Read comma-separated numbers under one line of column names; leniently, NaN and infinity are, and no rows are."""
    # The mark that some programs write before UTF-8 is no part of a name, and bytes of another encoding are told
    # as such where they are met.
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
        lines = _lines(text)
        names = _names(next(lines, (1, []))[1])
        return _numbers(names, lines, lenient=lenient), names


def _lines(text: Iterator[str]) -> Iterator[_Line]:
    """Give the lines of a table up to its last; a blank one counts only where others follow."""
    reader = csv.reader(text)
    blank: list[_Line] = []
    try:
        for cells in reader:
            if len(cells) > 1 or any(map(str.strip, cells)):
                yield from blank
                blank.clear()
                yield reader.line_num, cells
            else:
                blank.append((reader.line_num, []))
    except csv.Error:
        raise InvalidDataError(f"Line {reader.line_num + 1} is not comma-separated text.", _FORM) from None


def _names(cells: list[str]) -> tuple[str, ...]:
    if not cells:
        raise InvalidDataError("The file is empty, or its first line is.", _FORM)
    if not all(map(_is_utf_8, cells)):
        raise InvalidDataError("The names of the columns are not in UTF-8.", _UTF_8)
    divider = next((word for mark, word in _DIVIDERS.items() if len(cells) == 1 and mark in cells[0]), None)
    if divider:
        raise InvalidDataError(
            f"The columns are divided by {divider}.", "Save it with commas between the columns and points in numbers."
        )
    if all(map(_is_number, cells)):
        raise InvalidDataError("The first line holds numbers, not the names of the columns.", "Add a line of names.")
    names = Schema.of(cells).names
    assert names
    return names


def _numbers(names: tuple[str, ...], lines: Iterator[_Line], *, lenient: bool) -> FloatArray:
    """Read the rows, number by number: as text they would take ten times the room."""
    numbers = array("d")
    for line, cells in lines:
        try:
            row = list(map(float, cells))
        except ValueError:
            row = []
        if len(row) != len(names) or not (lenient or all(map(isfinite, row))):
            raise _fault(line, names, cells, _is_number if lenient else _is_finite)
        numbers.extend(row)
    if not numbers and not lenient:
        raise InvalidDataError("There is no row under the line of names.", _FORM)
    return np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(names))


def _fault(line: int, names: tuple[str, ...], cells: Sequence[str], usable: Callable[[str], bool]) -> InvalidDataError:
    """Say what is wrong with a line."""
    if not cells:
        return InvalidDataError(f"Line {line} is blank, and others follow.", "Remove it, or fill it in.")
    if len(cells) != len(names):
        return InvalidDataError(
            f"Line {line} has {_counted(len(cells), 'cell')} under {_counted(len(names), 'name')}.",
            "Give every row as many cells as the first line has names.",
        )
    bad = next(index for index, cell in enumerate(cells) if not usable(cell))
    kind, remedy = _kind(cells[bad])
    return InvalidDataError(f"Line {line}, {_column(names, cells, bad)} holds {kind}, not a number.", remedy)


def _kind(cell: str) -> tuple[str, str]:
    """Say what a cell that is no number holds, without showing it, and what to do about it."""
    if not cell.strip():
        return "an empty cell", "Fill in what is missing, or drop the row or the column."
    if _is_number(cell):
        return "NaN or infinity", "Fill in what is missing, or drop the row or the column."
    if not _is_utf_8(cell):
        return "text that is not in UTF-8", f"Code it as numbers, or drop the column. {_UTF_8}"
    if _is_number(cell.replace(",", ".")):
        return "a number with a comma in it", "Write numbers with a point, and without marks between thousands."
    return "text", "Code it as numbers, or drop the column."


def _column(names: tuple[str, ...], cells: Sequence[str], index: int) -> str:
    """Name a column; not where the first line may be a row as well, and private: it holds a number, or this none."""
    if any(map(_is_number, names)) or not any(map(_is_number, cells)):
        return f"column {index + 1}"
    return f"column {index + 1} ({names[index]!r:.{_LONGEST_NAME}})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _is_utf_8(text: str) -> bool:
    """Tell whether all bytes of a cell were what they should be."""
    return not any("\udc80" <= letter <= "\udcff" for letter in text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_finite(text: str) -> bool:
    return _is_number(text) and isfinite(float(text))


_Reader: TypeAlias = Callable[[Path], _Table]
_Readers: TypeAlias = Mapping[str, _Reader]

READERS: Final[_Readers] = MappingProxyType({".npy": _read_array, ".npz": _read_sparse, ".csv": _read_text})
_ARRIVING: Final[_Readers] = MappingProxyType({**READERS, ".csv": partial(_read_text, lenient=True)})
