"""Reads tables of text: numbers under one line of column names, divided by commas, semicolons, tabs, bars or spaces.

In text that a provider reads, each line is one row, and its content never changes where the next line begins. So each
line is divided into cells by itself: an open quote ends with its line. Readers of libraries do not keep this rule,
because for them a quote may hold line breaks, and an open one swallows the lines after it. The encodings that may be
declared keep it too, because none of them has characters that change the meaning of later ones.

Which mark divides the cells follows from the first line alone, which is no row. Where names are declared, the first
line is a row, and so the mark is declared too, or follows from the file's ending. The decimal mark, the encoding and
the values that stand for a missing one are declared, and never guessed from rows.
"""

import csv
import json
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeAlias, TypeVar

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import DELIMITERS, Reading
from dpspca.common.text import composed
from dpspca.provider.data.tables import (
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    TripletBatch,
    columns_used,
    is_number,
    triplet_columns,
    value_reader,
)

from .opened_text import opened_text
from .text_cells import Cells, number_parser
from .text_faults import FORM, cell_kind, counted, declare_encoding, encoding_of, is_decoded, line_fault
from .text_lines import whole_lines

_Line: TypeAlias = tuple[int, list[str]]
"""The number of a line, from 1, and its cells."""

_Part = TypeVar("_Part")

_BATCH_LINES: Final = 65_536
_EXCEL_MARK: Final = re.compile(r'"?sep=(.)"?\s*')
"""A line that Excel writes and reads before the names. It says what divides cells."""
_MOST_LINES_OF_NAMES: Final = 1000
_FIRST_LINES: Final = 10_000
_FEWEST_WITH_MARK: Final = 10
_TABS: Final = (".tsv", ".tab")
_SPACE: Final = " "


def read_text(source: RowSource) -> RawTable:
    """Read a table of text.

    If the source is lenient, a line with too few or too many cells becomes a row of ``NO_CELL``, and there may be no
    rows. Otherwise, a line that is not a row of numbers is refused.
    """
    with ExitStack() as opened:
        text = opened.enter_context(opened_text(source.path, source.reading))
        head, delimiter, before = _head(text, source)
        names = _names(head, source.reading)
        columns = columns_used(names, source.reading)
        cells = Cells(names, columns, source.reading, by_spaces=delimiter == _SPACE)
        if source.lenient:
            batches = _numbers(cells, _single_lines(text, delimiter), source)
        else:
            batches = _some(_numbers(cells, _lines(text, delimiter, before), source, line_fault))
        rows = RowBatches.reading(len(cells.unusable), np.dtype(np.float64), batches, opened)
    return RawTable(rows, columns)


def _some(batches: Iterator[FloatArray]) -> Iterator[FloatArray]:
    """Refuse a table without rows."""
    first = next(batches, None)
    if first is None:
        raise InvalidDataError("There are no rows under the line of names.", FORM)
    yield first
    yield from batches


def fault_of_text(source: RowSource, row: int) -> str:
    """Describe the fault of a row, counted from 0, that a provider cannot use."""
    with opened_text(source.path, source.reading) as text:
        head, delimiter, before = _head(text, source)
        names = _names(head, source.reading)
        line = next(islice(text, row, None))
        used = columns_used(names, source.reading)
        cells = Cells(names, used, source.reading, by_spaces=delimiter == _SPACE)
        return str(line_fault(before + row + 1, cells, _cells_of(line, delimiter), line))


def kinds_in_text(source: RowSource) -> dict[str, tuple[str, str]]:
    """Say what columns hold in place of numbers, and what to do about it: their first such cell in the first lines.

    Empty cells do not count.
    """
    with opened_text(source.path, source.reading) as text:
        head, delimiter, _ = _head(text, source)
        names = _names(head, source.reading)
        of = Cells(names, columns_used(names, source.reading), source.reading, by_spaces=delimiter == _SPACE)
        found = dict[str, tuple[str, str]]()
        for _, cells in islice(_single_lines(text, delimiter), _FIRST_LINES):
            row = of.numbers(cells)
            if row is None or all(map(isfinite, row)):
                continue
            for place in [each for each in of.bad(cells) if cells[each].strip() and composed(names[each]) not in found]:
                found[composed(names[place])] = cell_kind(of, cells, place)
    return found


def thousands_in_text(source: RowSource) -> tuple[str, ...]:
    """Name columns whose decimal mark may divide thousands: in the first lines, three digits always follow it.

    Where commas divide cells, a decimal point is usual, and nothing is suspected.
    """
    mark = source.reading.decimal
    three_digits = re.compile(rf"\s*[+-]?[1-9]\d{{0,2}}{re.escape(mark)}\d{{3}}\s*")
    with opened_text(source.path, source.reading) as text:
        head, delimiter, _ = _head(text, source)
        columns = columns_used(_names(head, source.reading), source.reading)
        places = range(len(head)) if columns.places is None else columns.places
        counts = dict.fromkeys(places, 0)
        for _, cells in islice(_single_lines(text, delimiter), _FIRST_LINES):
            for place in [each for each in counts if each < len(cells) and mark in cells[each]]:
                counts[place] += 1
                if not three_digits.fullmatch(cells[place]):
                    del counts[place]
    if delimiter == "," and mark == ".":
        return ()
    return tuple(head[place] for place, count in counts.items() if count >= _FEWEST_WITH_MARK)


def undecoded_in_text(source: RowSource) -> tuple[str, ...]:
    """Name used columns with a cell whose bytes are not in the encoding in which the file is read."""
    with opened_text(source.path, source.reading) as text:
        head, delimiter, _ = _head(text, source)
        columns = columns_used(_names(head, source.reading), source.reading)
        places = range(len(head)) if columns.places is None else columns.places
        left, found = dict(zip(columns.names or (), places, strict=True)), list[str]()
        for line in whole_lines(text):
            if line.isascii() or is_decoded(line):
                continue
            cells = _cells_of(line, delimiter)
            odd = [name for name, place in left.items() if place < len(cells) and not is_decoded(cells[place])]
            found += [name for name in odd if left.pop(name) is not None]
    return tuple(found)


def triplets_of_text(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets, each from its own line. A line with too few or too many cells belongs to no row."""
    reading, declared = source.reading, source.reading.triplets
    number_of = value_reader(reading, number_parser(reading))
    with opened_text(source.path, reading) as text:
        head, delimiter, before = _head(text, source)
        names = _names(head, reading)
        places = [names.index(name) for name in triplet_columns(source, names)]
        single = whole_lines(text)
        while lines := list(islice(single, _BATCH_LINES)):
            rows, numbers = [_cells_of(line, delimiter) for line in lines], range(before + 1, before + 1 + len(lines))
            broken = [place for place, cells in enumerate(rows) if len(cells) != len(names)]
            whole, places_of_whole = _without(rows, broken), _without(numbers, broken)
            odd = [place for place in broken if lines[place].strip()]
            row, column, *value = ([cells[place] for cells in whole] for place in places)
            parsed = np.array(list(map(number_of, column, value[0]))) if declared and declared.value else None
            first = _broken(numbers[odd[0]], lines[odd[0]], rows[odd[0]], len(names)) if odd else None
            yield TripletBatch(row, column, parsed, places_of_whole, len(odd), first)
            before += len(lines)


def _without(parts: Sequence[_Part], places: Sequence[int]) -> Sequence[_Part]:
    """Leave out those at some places."""
    left_out = frozenset(places)
    return [each for place, each in enumerate(parts) if place not in left_out] if left_out else parts


def _broken(number: int, line: str, cells: Sequence[str], names: int) -> str:
    """Describe the fault of a line that holds no triplet."""
    if '"' in line and not cells:
        return f"Line {number} has a quote that does not end, or that ends within a cell"
    return f"Line {number} has {counted(len(cells), 'cell')} under {counted(names, 'name')}"


def columns_of_text(source: RowSource) -> Columns:
    """Read which columns are used, and nothing else."""
    with opened_text(source.path, source.reading) as text:
        return columns_used(_names(_head(text, source)[0], source.reading), source.reading)


# --- From bytes to lines ----------------------------------------------------------------------------------------------


class _Head(NamedTuple):
    """The names of the columns, what divides cells, and how many lines this takes."""

    cells: list[str]
    delimiter: str
    lines: int


def _head(text: TextIO, source: RowSource) -> _Head:
    """Read the names alone, which may have line breaks within quotes. If they are declared, no line is read."""
    reading = source.reading
    usual = "\t" if _is_tabbed(source.path) else None
    if reading.names is not None:
        return _Head(list(reading.names), reading.delimiter or usual or _usual_of(reading), 0)
    first, before = next(text, ""), 0
    marked = _EXCEL_MARK.fullmatch(first)
    if marked is not None:
        first, before = next(text, ""), 1
    lines = [first] if first else []
    while "".join(lines).count('"') % 2 and len(lines) < _MOST_LINES_OF_NAMES and (line := next(text, "")):
        lines.append(line)
    _require_decoded(first, reading)
    delimiter = reading.delimiter or (marked and marked[1]) or usual or _delimiter_of(lines, _usual_of(reading))
    reader = _reader(chain(lines, text), delimiter)
    try:
        cells: list[str] = next(reader, [])
    except csv.Error:
        raise InvalidDataError("The first line is not a line of cells.", FORM) from None
    if any(delimiter in cell and cell.splitlines()[1:] for cell in cells):
        raise InvalidDataError(
            "The name of a column has several lines and the mark that divides cells, as if it held rows.",
            "Remove the quotes from the line of names, or end each quote that begins there.",
        )
    others = [mark for mark in DELIMITERS[:-1] if mark in "".join(cells)]
    if len(cells) == 1 and others and reading.delimiter is None:
        raise InvalidDataError(
            f"The line of names has one cell, with {others[0]!r} in it.", _declare_delimiter(others[0])
        )
    return _Head(cells, delimiter, before + reader.line_num)


def _require_decoded(line: str, reading: Reading) -> None:
    """Refuse a line of names that was read as UTF-16 and is something else: pairs of its bytes look like other letters.

    All rows could be in it, because no pair is the end of a line. Real names end in a line break or are divided.
    """
    if (reading.encoding or "").startswith("utf-16") and not any(map(str.isascii, line)) and line:
        raise InvalidDataError(f"The names of the columns are not in {encoding_of(reading)}.", declare_encoding())


def _declare_delimiter(mark: str) -> str:
    return (
        f"Declare what divides cells under [reading] in the provider's settings, as in delimiter = {json.dumps(mark)}."
    )


def _is_tabbed(path: Path) -> bool:
    name = path.name.lower()
    return name.endswith(_TABS) or Path(name).stem.endswith(_TABS)  # packed


def _usual_of(reading: Reading) -> str:
    """Return the separator of cells if the line of names does not show it. A decimal comma is none."""
    return next(mark for mark in DELIMITERS if mark != reading.decimal)


def _delimiter_of(lines: Sequence[str], usual: str) -> str:
    """Return the mark that divides the line of names into most cells. Refuse a line that two marks divide equally well.

    Names may have spaces in them, so a space divides only what no other mark does. Names with a mark in them are in
    quotes, so a mark that leaves quotes within cells divides nothing.
    """
    found = {mark: _divided(lines, mark) for mark in DELIMITERS}
    spaces = found.pop(_SPACE)
    most = max(found.values())
    if most[1] <= 1:
        return _SPACE if spaces[1] > 1 else usual
    best = [mark for mark, each in found.items() if each == most]
    if len(best) > 1:
        raise InvalidDataError(
            f"Both {best[0]!r} and {best[1]!r} divide the line of names into {most[1]} cells.",
            _declare_delimiter(best[1]),
        )
    return best[0]


def _divided(lines: Sequence[str], mark: str) -> tuple[bool, int]:
    """Tell whether a mark leaves no quotes within cells, and how many cells it makes."""
    try:
        cells: list[str] = next(_reader(iter(lines), mark), [])
    except csv.Error:
        return False, 0
    return not any('"' in cell for cell in cells), len(cells)


def _reader(lines: Iterator[str], delimiter: str) -> Any:  # noqa: ANN401  # of csv
    """Divide lines into cells. Several spaces are one, and those at the ends of a line divide nothing.

    A quote that does not end, and one that ends within a cell, are errors: "5"10 is not 510.
    """
    if delimiter != _SPACE:
        return csv.reader(lines, delimiter=delimiter, strict=True)
    return csv.reader((line.strip(" \r\n") for line in lines), delimiter=_SPACE, skipinitialspace=True, strict=True)


def _cells_of(line: str, delimiter: str) -> list[str]:
    """Divide a line by itself, so that an unclosed quote spoils no other line. Its own line has no cells.

    Otherwise a cell with a line break would silently look like two rows.
    """
    if '"' not in line:
        whole = line.rstrip("\r\n").split(delimiter)
        return whole if delimiter != _SPACE else list(filter(None, whole))
    try:
        return next(_reader(iter((line,)), delimiter), [])
    except csv.Error:
        return []


def _single_lines(text: TextIO, delimiter: str) -> Iterator[_Line]:
    """Yield the cells of each line.

    A blank line is a row, even the last one. Otherwise a row's content would decide how many rows there are.
    """
    for line in whole_lines(text):
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
        raise InvalidDataError(f"Line {before + reader.line_num} is not a line of cells.", FORM) from None


# --- From cells to numbers --------------------------------------------------------------------------------------------


def _names(cells: list[str], reading: Reading) -> list[str]:
    if not cells:
        raise InvalidDataError("The file or its first line is empty.", FORM)
    if any("\0" in cell for cell in cells):
        raise InvalidDataError(
            "The names of the columns hold zero bytes, as in UTF-16 without a mark.",
            'Declare encoding = "utf-16" under [reading] in the provider\'s settings, or save it as UTF-8.',
        )
    if not all(map(is_decoded, cells)):
        raise InvalidDataError(f"The names of the columns are not in {encoding_of(reading)}.", declare_encoding())
    if reading.names is None and all(map(is_number, cells)):
        raise InvalidDataError(
            "The first line holds numbers, not the names of the columns.",
            "Add a line of names. Or list the names of all columns as names under [reading] in the settings.",
        )
    return cells


def _numbers(
    cells: Cells, lines: Iterator[_Line], source: RowSource, refuse: "_Refuse | None" = None
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


_Refuse: TypeAlias = Callable[[int, Cells, Sequence[str]], InvalidDataError]
