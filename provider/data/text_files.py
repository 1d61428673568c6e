"""Reads tables of text: numbers under one line of column names, divided by commas, semicolons, tabs, bars or spaces.

In text that a provider reads, each line is one row, and its content never changes where the next line begins. So each
line is divided into cells by itself: an open quote ends with its line. Readers of libraries do not keep this rule,
because for them a quote may hold line breaks, and an open one swallows the lines after it. The encodings that may be
declared keep it too, because none of them has characters that change the meaning of later ones.

Which mark divides the cells follows from the first line alone, which is no row. Where names are declared, the first
line is a row, and so the mark is declared too, or follows from the file's ending. The decimal mark, the encoding and
the values that stand for a missing one are declared, and never guessed from rows.
"""

import bz2
import csv
import gzip
import io
import lzma
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from math import inf, isfinite, isnan
from pathlib import Path
from typing import Any, Final, TextIO, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import DELIMITERS, Reading

from .extras import import_extra
from .tables import Columns, RawTable, RowBatches, Source, cell_reader, columns_used, is_number
from .triplets import Batch, triplet_columns

_Line: TypeAlias = tuple[int, list[str]]
"""The number of a line, from 1, and its cells."""

_LONGEST_NAME: Final = 60
_BATCH_LINES: Final = 65_536
_FORM: Final = "Write one line of column names, and under it a line of numbers for each row."
_DECIMAL: Final = (
    "Write numbers with a point, and without marks between thousands. Or declare the decimal mark under [reading] in "
    'the provider\'s settings, as in decimal = ",".'
)
_UTF_16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_TABS: Final = (".tsv", ".tab")
_SPACE: Final = " "


def read_text(source: Source) -> RawTable:
    """Read a table of text.

    If the source is lenient, a line with too few or too many cells becomes a row of infinities, and there may be no
    rows. Otherwise, a line that is not a row of numbers is refused.
    """
    with ExitStack() as opened:
        text = opened.enter_context(_opened(source.path, source.reading))
        head, delimiter, before = _head(text, source)
        names = _names(head, source.reading)
        columns = columns_used(names, source.reading)
        cells = _Cells(names, columns, source.reading)
        if source.lenient:
            batches = _numbers(cells, _single_lines(text, delimiter), source)
        else:
            batches = _some(_numbers(cells, _lines(text, delimiter, before), source, _refuse))
        rows = RowBatches.reading(len(cells.unusable), np.dtype(np.float64), batches, opened)
    return RawTable(rows, columns)


def _some(batches: Iterator[FloatArray]) -> Iterator[FloatArray]:
    """Refuse a table without rows."""
    first = next(batches, None)
    if first is None:
        raise InvalidDataError("There are no rows under the line of names.", _FORM)
    yield first
    yield from batches


def triplets_of_text(source: Source) -> Iterator[Batch]:
    """Read triplets, each from its own line. A line with too few or too many cells belongs to no row."""
    reading, declared = source.reading, source.reading.triplets
    number_of = cell_reader(reading, "", float if reading.decimal == "." else _with_comma)
    with _opened(source.path, reading) as text:
        head, delimiter, _ = _head(text, source)
        names = _names(head, reading)
        places = [names.index(name) for name in triplet_columns(source, names)]
        for lines in _batched(_single_lines(text, delimiter)):
            rows = [cells for _, cells in lines if len(cells) == len(names)]
            row, column, *value = ([cells[place] for cells in rows] for place in places)
            numbers = [number_of(cell) for cell in value[0]] if declared and declared.value else None
            yield row, column, None if numbers is None else np.array(numbers)


def _batched(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    while batch := list(islice(lines, _BATCH_LINES)):
        yield batch


def columns_of_text(source: Source) -> Columns:
    """Read which columns are used, and nothing else."""
    with _opened(source.path, source.reading) as text:
        return columns_used(_names(_head(text, source)[0], source.reading), source.reading)


# --- From bytes to lines ----------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, reading: Reading) -> Iterator[TextIO]:
    """Open a file as text, packed or not. Bytes that are no text become characters that no number has."""
    with _unpacked(path) as raw, io.BufferedReader(raw) as packed:
        is_utf_16 = reading.encoding == "utf-16" or (reading.encoding is None and packed.peek(2)[:2] in _UTF_16_MARKS)
        # "utf-8-sig" drops the mark that some programs write before UTF-8. "surrogateescape" lets other encodings be
        # reported for the cell in which they occur.
        encoding = "utf-16" if is_utf_16 else {None: "utf-8-sig", "utf-8": "utf-8-sig"}.get(
            reading.encoding, reading.encoding
        )  # fmt: skip
        errors = "replace" if is_utf_16 else "surrogateescape"
        with io.TextIOWrapper(packed, encoding=encoding, errors=errors, newline="") as text:
            yield text


@contextmanager
def _unpacked(path: Path) -> Iterator[Any]:
    with path.open("rb", buffering=0) as file:
        match path.suffix.lower():
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


def _head(text: TextIO, source: Source) -> tuple[list[str], str, int]:
    """Read the names alone, which may have line breaks within quotes. Also return the delimiter and how many lines.

    If the names are declared, no line is read.
    """
    reading = source.reading
    usual = "\t" if _is_tabbed(source.path) else None
    if reading.names is not None:
        return list(reading.names), reading.delimiter or usual or DELIMITERS[0], 0
    first = next(text, "")
    delimiter = reading.delimiter or usual or _delimiter_of(first)
    reader = _reader(chain((first,) if first else (), text), delimiter)
    try:
        return next(reader, []), delimiter, reader.line_num
    except csv.Error:
        raise InvalidDataError("The first line is not a line of cells.", _FORM) from None


def _is_tabbed(path: Path) -> bool:
    name = path.name.lower()
    return name.endswith(_TABS) or Path(name).stem.endswith(_TABS)  # packed


def _delimiter_of(line: str) -> str:
    """Return the mark that divides the line of names into most cells. Of equal ones, the first of ``DELIMITERS``.

    Names may have spaces in them, so a space divides only what no other mark does.
    """
    cells = {mark: len(_cells_of(line, mark)) for mark in DELIMITERS}
    spaces = cells.pop(_SPACE)
    most = max(cells, key=cells.__getitem__)
    return _SPACE if cells[most] <= 1 < spaces else most


def _reader(lines: Iterator[str], delimiter: str) -> Any:  # noqa: ANN401  # of csv
    """Divide lines into cells. Several spaces are one, and those at the ends of a line divide nothing."""
    if delimiter != _SPACE:
        return csv.reader(lines, delimiter=delimiter)
    return csv.reader((line.strip(" \r\n") for line in lines), delimiter=_SPACE, skipinitialspace=True)


def _cells_of(line: str, delimiter: str) -> list[str]:
    """Divide a line by itself, so that an unclosed quote spoils no other line."""
    if '"' not in line:
        whole = line.rstrip("\r\n").split(delimiter)
        return whole if delimiter != _SPACE else list(filter(None, whole))
    try:
        return next(_reader(iter((line,)), delimiter), [])
    except csv.Error:
        return []


def _single_lines(text: Iterator[str], delimiter: str) -> Iterator[_Line]:
    """Yield the cells of each line.

    A blank line is a row, even the last one. Otherwise a row's content would decide how many rows there are.
    """
    for line in text:
        yield 0, _cells_of(line, delimiter)


def _lines(text: Iterator[str], delimiter: str, before: int) -> Iterator[_Line]:
    """Yield the lines of a table after the first ``before`` ones. A blank line counts only if others follow."""
    reader = _reader(text, delimiter)
    blank: list[_Line] = []
    try:
        for cells in reader:
            if len(cells) > 1 or any(map(str.strip, cells)):
                yield from blank
                blank.clear()
                yield before + reader.line_num, cells
            else:
                blank.append((before + reader.line_num, []))
    except csv.Error:
        raise InvalidDataError(f"Line {before + reader.line_num} is not a line of cells.", _FORM) from None


# --- From cells to numbers --------------------------------------------------------------------------------------------


def _names(cells: list[str], reading: Reading) -> list[str]:
    if not cells:
        raise InvalidDataError("The file or its first line is empty.", _FORM)
    if not all(map(_is_decoded, cells)):
        raise InvalidDataError(f"The names of the columns are not in {_encoding(reading)}.", _declare_encoding())
    if reading.names is None and all(map(is_number, cells)):
        raise InvalidDataError(
            "The first line holds numbers, not the names of the columns.",
            "Add a line of names. Or list the names of all columns as names under [reading] in the settings.",
        )
    return cells


class _Cells:
    """Turns the cells of a line into the numbers of the columns that are used."""

    def __init__(self, names: Sequence[str], columns: Columns, reading: Reading) -> None:
        self.names = names
        self.reading = reading
        self._places = range(len(names)) if columns.places is None else columns.places
        self._is_all = columns.places is None
        own_names = columns.names or ()
        self._filled = [reading.fill_of(name) is not None or reading.preparation is not None for name in own_names]
        self._number: Callable[[str], float] = float if reading.decimal == "." else _with_comma
        self._readers = [cell_reader(reading, name, self._number) for name in own_names]
        self.unusable = [inf] * len(self._places)

    def numbers(self, cells: Sequence[str]) -> list[float] | None:
        """Return a number for each column: NaN if it is missing, infinity if it is no number. None for other lines."""
        if len(cells) != len(self.names):
            return None
        own = cells if self._is_all else [cells[place] for place in self._places]
        try:
            return list(map(self._number, own))
        except ValueError:
            return [read(cell) for read, cell in zip(self._readers, own, strict=True)]

    def first_bad(self, cells: Sequence[str]) -> int | None:
        """Return the place in the line of the first cell that is neither a number nor filled in, or None."""
        numbers = self.numbers(cells) or ()
        for place, number, is_filled in zip(self._places, numbers, self._filled, strict=True):
            if not isfinite(number) and not (isnan(number) and is_filled):
                return place
        return None

    def is_number(self, cell: str) -> bool:
        """Tell whether a cell is a number with the declared decimal mark, NaN and infinity included."""
        try:
            self._number(cell)
        except ValueError:
            return False
        return True


def _with_comma(cell: str) -> float:
    """Read a number with a decimal comma. A point would divide thousands, and is refused."""
    if "." in cell:
        raise ValueError
    return float(cell.replace(",", "."))


def _numbers(
    cells: _Cells, lines: Iterator[_Line], source: Source, refuse: "_Refuse | None" = None
) -> Iterator[FloatArray]:
    """Convert the rows line by line, because as text they would take ten times as much memory.

    A line with anything but numbers is refused or, without ``refuse``, becomes an unusable row.
    """
    numbers, most = array("d"), source.rows_at_a_time(len(cells.unusable)) * len(cells.unusable)
    for line, each in lines:
        row = cells.numbers(each)
        if refuse and (row is None or (not all(map(isfinite, row)) and cells.first_bad(each) is not None)):
            raise refuse(line, cells, each)
        numbers.extend(cells.unusable if row is None else row)
        if len(numbers) >= most:
            yield np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(cells.unusable))
            numbers = array("d")
    if numbers:
        yield np.frombuffer(numbers, dtype=np.float64).reshape(-1, len(cells.unusable))


# --- What is wrong ----------------------------------------------------------------------------------------------------


def _refuse(line: int, of: _Cells, cells: Sequence[str]) -> InvalidDataError:
    """Say what is wrong with a line."""
    if not cells:
        return InvalidDataError(f"Line {line} is blank, but others follow.", "Remove it, or fill it in.")
    bad = of.first_bad(cells) if len(cells) == len(of.names) else None
    if bad is None:
        return InvalidDataError(
            f"Line {line} has {_counted(len(cells), 'cell')} under {_counted(len(of.names), 'name')}.",
            "Give every row as many cells as the first line has names.",
        )
    kind, remedy = _kind(cells[bad], of)
    return InvalidDataError(f"Line {line}, {_column(of.names, cells, bad)} holds {kind}, not a number.", remedy)


def _kind(cell: str, of: _Cells) -> tuple[str, str]:
    """Return the kind of a cell that is not a finite number, without its content, and what to do about it."""
    if not cell.strip():
        return "an empty cell", "Fill in what is missing, or drop the row or the column."
    if of.is_number(cell):
        return "NaN or infinity", "Fill in what is missing, or drop the row or the column."
    if not _is_decoded(cell):
        encoding = _encoding(of.reading)
        return f"text that is not in {encoding}", f"Code it as numbers, or drop the column. {_declare_encoding()}"
    if is_number(cell.replace(",", ".")):
        other = "comma" if of.reading.decimal == "." else "point"
        return f"a number with a {other} in it", _DECIMAL
    return "text", "Code it as numbers, or drop the column. If it stands for a missing value, list it in missing_codes."


def _encoding(reading: Reading) -> str:
    return (reading.encoding or "utf-8").upper()


def _declare_encoding() -> str:
    return 'Save it as UTF-8, or declare its encoding under [reading] in the provider\'s settings, as in "cp1252".'


def _column(names: Sequence[str], cells: Sequence[str], index: int) -> str:
    """Describe a column. Leave out its name if the first line may be a private row: it has numbers, or this not."""
    if any(map(is_number, names)) or not any(map(is_number, cells)):
        return f"column {index + 1}"
    return f"column {index + 1} ({names[index]!r:.{_LONGEST_NAME}})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _is_decoded(text: str) -> bool:
    """Tell whether all bytes of a cell were valid in the file's encoding."""
    return not any("\udc80" <= letter <= "\udcff" or letter == "\ufffd" for letter in text)


_Refuse: TypeAlias = Callable[[int, _Cells, Sequence[str]], InvalidDataError]
