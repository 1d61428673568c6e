"""Reads rows from files: numpy arrays, sparse matrices, comma-separated text. No other code opens such files.

Reading executes nothing: no pickles. The result has passed ``check_rows`` or ``rows_or_zeros``, so that no job can fail
on it. An error names the place and the kind of a bad cell, and never its content, because others read the logs.

There are two ways to read. ``read_rows`` is for commands of people who may see the rows: it refuses a file with an
unusable row, and says where that row is. ``read_protected`` is for a provider, because others see whether it starts and
what it answers. It refuses a file for its form alone: its kind, its columns, or a number of persons that differs from
the number of rows. There, an unusable row counts as a row of zeros. In text, each line is one row, and its content
never changes where the next line begins.
"""

import csv
import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite, nan
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.spec import Schema

from .folders import UnreadableError, files_of, read_folder
from .odd_rows import make_unusable, rows_or_zeros
from .preparation import CheckedRows, check_rows, numbers_of, with_largest_entries, with_persons

_Table: TypeAlias = tuple[Any, tuple[str, ...] | None]
"""Rows as they are in a file, and the names of their columns if the file has them."""
_Line: TypeAlias = tuple[int, list[str]]
"""The number of a line, from 1, and its cells."""

_DIVIDERS: Final = {";": "semicolons", "\t": "tabs"}
_LONGEST_NAME: Final = 60
_FORM: Final = "Write one line of column names, and under it a line of numbers for each row, divided by commas."
_UTF_8: Final = "Save it as UTF-8."

_log = logging.getLogger(__name__)


def read_rows(path: Path, *, least: int = 2) -> CheckedRows:
    """Read a file by its ending. Refuse it if it does not have at least ``least`` rows, all of them usable.

    For a folder, read the rows of all its files in the order of their names (``folders.py``).
    """
    if path.is_dir():
        whole = read_folder(path, lambda file: _checked(file, least=1))
        return replace(check_rows(whole.matrix, least=least), names=whole.names)
    return _checked(path, least)


def read_protected(path: Path, *, persons: Path | None = None, row_entries: int | None = None) -> CheckedRows:
    """Read a provider's file or folder. A row that cannot be used counts as a row of zeros.

    Whether the provider starts, and the form of everything that it sends, is the same for tables that differ in one
    row, whatever that row is. ``persons`` is a file that says whose each row is: a line for each row, with any name or
    number. A row whose line is blank counts as a row of zeros, too. ``row_entries`` is the number of entries of a row
    that count, the largest ones. By default all count.
    """
    table = read_folder(path, _table) if path.is_dir() else _table(path)
    whose = None if persons is None else _read_persons(persons, table.count)
    with _file_errors(path):
        rows = rows_or_zeros(table.matrix)
        if whose is None:
            return replace(_bounded(path, rows, row_entries), names=table.names)
        of_nobody = np.array([not each for each in whose], dtype=np.bool_)
        used = _bounded(path, rows_or_zeros(make_unusable(table.matrix, of_nobody)), row_entries)
    # Fingerprints include the rows of nobody, so that another list of persons does not give the rows a new budget.
    named = replace(used, names=table.names, uncut=used.fingerprints() | rows.fingerprints())
    # Each row of nobody counts as a person of its own, so that none takes another's place.
    return with_persons(named, [(each, 0 if each else place) for place, each in enumerate(whose, start=1)])


def _bounded(path: Path, rows: CheckedRows, row_entries: int | None) -> CheckedRows:
    """Keep the ``row_entries`` largest entries of each row. Log if that left any out."""
    if row_entries is None or row_entries >= rows.dimension:
        return rows
    kept = with_largest_entries(rows, row_entries)
    if kept.entries < rows.entries:
        _log.warning(
            "%s has rows with more than %d entries. Only the %d largest of each row count.",
            path,
            row_entries,
            row_entries,
        )
    return kept


def read_arriving(path: Path, *, row_entries: int | None = None) -> tuple[CheckedRows, bool]:
    """Read a file that arrived while the provider runs, by the same rule.

    Also return whether it has rows that count as rows of zeros. A file may be without rows, for example if nobody came
    on that day.
    """
    table = _table(path)
    with _file_errors(path):
        rows = replace(_bounded(path, rows_or_zeros(table.matrix), row_entries), names=table.names)
    return rows, rows.unusable is not None


def names_in(path: Path) -> tuple[str, ...] | None:
    """Read the names of a table's columns and nothing else. Return None if it has none, or cannot be read."""
    try:
        file = next(iter(files_of(path))) if path.is_dir() else path
        if file.suffix != ".csv":
            return None
        with file.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
            return _names(_header(text))
    except (DpspcaError, OSError):
        return None  # reading the whole file reports the reason


def _checked(path: Path, least: int) -> CheckedRows:
    """Read one file, and refuse it if a row cannot be used."""
    reader = _reader(path, READERS)
    with _file_errors(path):
        table, names = reader(path)
        return replace(check_rows(table, least=least), names=names)


def _table(path: Path) -> CheckedRows:
    """Read one file, and check its form but not its numbers."""
    reader = _reader(path, _LENIENT)
    with _file_errors(path):
        table, names = reader(path)
        return CheckedRows(numbers_of(table), names)


def _read_persons(path: Path, rows: int) -> list[bytes]:
    """Read whose each row is. A blank line names nobody."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as problem:
        raise InvalidDataError(f"{path} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    if len(lines) != rows:
        raise InvalidDataError(
            f"{path} has {len(lines)} lines, but there are {rows} rows.",
            "Write one line for each row, which says whose it is.",
        )
    return [line.strip() for line in lines]


def _reader(path: Path, readers: "_Readers") -> "_Reader":
    reader = readers.get(path.suffix)
    if reader is None:
        known = ", ".join(readers)
        raise MissingExtraError(f"Files ending in {path.suffix!r} cannot be read.", f"Use one of: {known}.")
    return reader


@contextmanager
def _file_errors(path: Path) -> Iterator[None]:
    """Turn every error in reading a file into one that names the file."""
    try:
        yield
    except DpspcaError as problem:
        raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None
    except OSError as problem:
        raise UnreadableError(f"{path} cannot be read: {problem.strerror or problem}.", "Check its path.") from None
    except MemoryError:
        raise UnreadableError(
            f"{path} takes more memory than there is.", "Divide it, or write it again if it is not that large."
        ) from None
    except Exception:  # noqa: BLE001  # errors of zlib, of the tokenizer, and others
        raise InvalidDataError(
            f"{path} does not hold a table of numbers.",
            "Write it again: .npy with numpy.save and without pickles, .npz with scipy.sparse.save_npz.",
        ) from None


def _read_array(path: Path) -> _Table:
    return np.load(path, allow_pickle=False), None


def _read_sparse(path: Path) -> _Table:
    with path.open("rb") as file:  # numpy does not close a file that it cannot read
        stored: Any = scipy.sparse.load_npz(file)
    if stored.format in {"csc", "bsr"}:
        stored.check_format()  # otherwise, conversion to CSR could write outside of its memory
    return scipy.sparse.csr_array(stored), None


def _read_text(path: Path, *, lenient: bool = False) -> _Table:
    """Read comma-separated numbers under one line of column names.

    If ``lenient``, a line that is not a row of numbers becomes a row of NaN, and there may be no rows.
    """
    # "utf-8-sig" drops the mark that some programs write before UTF-8. "surrogateescape" lets other encodings be
    # reported for the cell in which they occur.
    with path.open(newline="", encoding="utf-8-sig", errors="surrogateescape") as text:
        if lenient:
            names = _names(_header(text))
            return _numbers(names, _single_lines(text)), names
        lines = _lines(text)
        names = _names(next(lines, (1, []))[1])
        table = _numbers(names, lines, _refuse)
        if not len(table):
            raise InvalidDataError("There are no rows under the line of names.", _FORM)
        return table, names


def _lines(text: Iterator[str]) -> Iterator[_Line]:
    """Yield the lines of a table. A blank line counts only if others follow."""
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


def _header(text: Iterator[str]) -> list[str]:
    """Read the line of names alone, which may have line breaks within quotes."""
    try:
        return next(csv.reader(text), [])
    except csv.Error:
        raise InvalidDataError("The first line is not comma-separated text.", _FORM) from None


def _single_lines(text: Iterator[str]) -> Iterator[_Line]:
    """Yield the cells of each line, parsed by itself, so that an unclosed quote spoils no other line.

    A blank line is a row without numbers, even the last one. Otherwise a row's content would decide how many rows there
    are.
    """
    for line in text:
        try:
            yield 0, next(csv.reader((line,)), [])
        except csv.Error:
            yield 0, []


def _names(cells: list[str]) -> tuple[str, ...]:
    if not cells:
        raise InvalidDataError("The file or its first line is empty.", _FORM)
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


def _numbers(names: tuple[str, ...], lines: Iterator[_Line], refuse: "_Refuse | None" = None) -> FloatArray:
    """Convert the rows line by line, because as text they would take ten times as much memory.

    A line with anything but numbers is refused or, without ``refuse``, becomes a row of NaN.
    """
    numbers, unusable = array("d"), [nan] * len(names)
    for line, cells in lines:
        try:
            row = list(map(float, cells))
        except ValueError:
            row = []
        if len(row) != len(names) or (refuse and not all(map(isfinite, row))):
            if refuse:
                raise refuse(line, names, cells)
            row = unusable
        numbers.extend(row)
    return np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(names))


def _refuse(line: int, names: tuple[str, ...], cells: Sequence[str]) -> InvalidDataError:
    """Say what is wrong with a line."""
    if not cells:
        return InvalidDataError(f"Line {line} is blank, but others follow.", "Remove it, or fill it in.")
    if len(cells) != len(names):
        return InvalidDataError(
            f"Line {line} has {_counted(len(cells), 'cell')} under {_counted(len(names), 'name')}.",
            "Give every row as many cells as the first line has names.",
        )
    bad = next(index for index, cell in enumerate(cells) if not _is_finite(cell))
    kind, remedy = _kind(cells[bad])
    return InvalidDataError(f"Line {line}, {_column(names, cells, bad)} holds {kind}, not a number.", remedy)


def _kind(cell: str) -> tuple[str, str]:
    """Return the kind of a cell that is not a finite number, without its content, and what to do about it."""
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
    """Describe a column. Leave out its name if the first line may be a private row: it has numbers, or this not."""
    if any(map(_is_number, names)) or not any(map(_is_number, cells)):
        return f"column {index + 1}"
    return f"column {index + 1} ({names[index]!r:.{_LONGEST_NAME}})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _is_utf_8(text: str) -> bool:
    """Tell whether all bytes of a cell were valid UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_finite(text: str) -> bool:
    return _is_number(text) and isfinite(float(text))


_Refuse: TypeAlias = Callable[[int, tuple[str, ...], Sequence[str]], InvalidDataError]
_Reader: TypeAlias = Callable[[Path], _Table]
_Readers: TypeAlias = Mapping[str, _Reader]

READERS: Final[_Readers] = MappingProxyType({".npy": _read_array, ".npz": _read_sparse, ".csv": _read_text})
_LENIENT: Final[_Readers] = MappingProxyType({**READERS, ".csv": partial(_read_text, lenient=True)})
