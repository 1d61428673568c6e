"""Turns the cells of a line of text into the numbers of the columns that are used. Pure."""

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from math import isfinite, isnan

from dpspca.common.dictionary import NO_CELL
from dpspca.common.frames import number_in
from dpspca.common.storage import Reading
from dpspca.common.text import composed
from dpspca.provider.data.tables import Columns, PersonCells, cell_reader, code_numbers, is_number


class Cells:
    """Known facts about the columns of a text file, and how their cells are read."""

    def __init__(self, names: Sequence[str], columns: Columns, reading: Reading, *, by_spaces: bool = False) -> None:
        """Take what is known. ``by_spaces`` says that spaces divide cells, because no other mark does."""
        self.names = names
        self.by_spaces = by_spaces
        self.reading = reading
        self._places = range(len(names)) if columns.places is None else columns.places
        self._is_all = columns.places is None
        own_names = columns.names or ()
        self._filled = [reading.fill_of(name) is not None or reading.preparation is not None for name in own_names]
        self._number = number_parser(reading)
        self._plain = float if self._number is number_in else self._number
        self._readers = list(map(self._reader, own_names))
        self._quick = [
            read if name in reading.texts or self._has_odd_code(name) else self._plain
            for name, read in zip(own_names, self._readers, strict=True)
        ]
        self._is_plain = all(read is self._plain for read in self._quick)
        self._codes = code_numbers(reading, own_names)
        self.unusable = [NO_CELL] * len(self._places)

    def numbers(self, cells: Sequence[str]) -> list[float] | None:
        """Return a number for each column: NaN if missing, infinity if it is not a number. None for other lines.

        Numbers are read quickly where a column's own reader finds the same, so no cell changes how another is read.
        """
        if len(cells) != len(self.names):
            return None
        own = cells if self._is_all else [cells[place] for place in self._places]
        if "_" not in "".join(own):  # the only character for which float() and ``number_in`` differ
            try:
                if self._is_plain:
                    return list(map(self._plain, own))
                return [read(cell) for read, cell in zip(self._quick, own, strict=True)]
            except ValueError:
                pass
        return [read(cell) for read, cell in zip(self._readers, own, strict=True)]

    def first_bad(self, cells: Sequence[str]) -> int | None:
        """Return the place in the line of the first cell that is neither a number nor filled in, or None."""
        return next(self.bad(cells), None)

    def bad(self, cells: Sequence[str]) -> Iterator[int]:
        """Yield the places in the line of the cells that are neither a number nor filled in."""
        numbers = self.numbers(cells) or ()
        for place, number, is_filled, codes in zip(self._places, numbers, self._filled, self._codes, strict=False):
            is_missing = isnan(number) or number in codes
            if (is_missing or not isfinite(number)) and not (is_missing and is_filled):
                yield place

    def is_code(self, place: int, cell: str) -> bool:
        """Tell whether a cell holds a code that is declared for a missing value of its column."""
        own = self._places.index(place)
        return (self.is_number(cell) and self._number(cell) in self._codes[own]) or (
            bool(cell.strip()) and isnan(self._readers[own](cell)) and not self.is_number(cell)
        )

    def first_above(self, cells: Sequence[str], most: float) -> int | None:
        """Return the place in the line of the first number whose size is above ``most``, or None."""
        places = zip(self._places, self.numbers(cells) or (), strict=False)
        return next((place for place, number in places if most < abs(number)), None)

    def _reader(self, column: str) -> Callable[[str], float]:
        """Return the reader of a column's cells. A level that is a number is read as in files with types."""
        read, texts = cell_reader(self.reading, column, self._number), self.reading.texts.get(column)
        return read if texts is None or isinstance(texts, PersonCells) else partial(self._level, read, texts)

    def _level(self, read: Callable[[str], float], texts: Container[str], cell: str) -> float:
        """Read a cell of a category. A text such as 1,5 is a level by its letters, and not the number 1.5 of a file."""
        try:
            number = self._number(cell)
        except ValueError:
            return read(cell)
        plain = composed(cell.strip())
        is_text = not isfinite(number) or (plain in texts and not is_number(plain))
        return read(cell) if is_text else number

    def _has_odd_code(self, column: str) -> bool:
        """Tell whether a text for missing values is NaN or infinity too. Other numbers are found after all are read."""
        texts = [code for code in self.reading.codes_of(column) if isinstance(code, str)]
        return any(self.is_number(text) and not isfinite(self._number(text)) for text in texts)

    def is_number(self, cell: str) -> bool:
        """Tell whether a cell is a number with the declared decimal mark, NaN and infinity included."""
        try:
            self._number(cell)
        except ValueError:
            return False
        return True


def number_parser(reading: Reading) -> Callable[[str], float]:
    """Return the function that reads a number with the declared decimal mark."""
    return number_in if reading.decimal == "." else _with_comma


def _with_comma(cell: str) -> float:
    """Read a number with a decimal comma. A point would divide thousands, and is refused."""
    if "." in cell:
        raise ValueError
    return number_in(cell.replace(",", "."))
