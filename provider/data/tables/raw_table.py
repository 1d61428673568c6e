"""A file of rows before anything is checked: its numbers, its column names, and which columns are used.

A number that is missing is NaN. A cell that holds anything else than a number is infinite, which makes its row
unusable even where missing values are filled in. Of a category, only ``NO_CELL`` does, because any text may be there.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from math import inf, nan
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import Preparation, category_text, numbers_of_codes
from dpspca.common.errors import InvalidDataError, InvalidTypeError
from dpspca.common.frames import number_in
from dpspca.common.job import Schema
from dpspca.common.storage import Codes, Reading
from dpspca.common.text import composed

from .person_cells import PersonCells

_LISTED: Final = 8
_LONGEST_NAME: Final = 60
_MOST_ROWS_AT_A_TIME: Final = 65_536


@dataclass(frozen=True, slots=True)
class RowSource:
    """A file to read, and how."""

    path: Path
    reading: Reading
    lenient: bool = True
    """Whether a row that cannot be read becomes unusable, or is refused with its place."""
    any_type: bool = False
    """Whether columns may have any type, because only their names and types are wanted."""
    cells: int = 2**22
    """How many numbers to read at a time, about. It bounds memory, and changes no number."""
    room: int | None = None
    """How many bytes rows may take that have to be in memory as a whole."""
    within: Path | None = None
    """The folder or pattern of the data set that the file is a part of."""
    partition: tuple[tuple[str, str | None], ...] = ()
    """Columns that the names of the file's folders hold, such as year=2024, and the text that all its rows have there.
    """

    def rows_at_a_time(self, columns: int) -> int:
        """Return how many rows to read at a time if each has this number of columns."""
        return max(1, min(_MOST_ROWS_AT_A_TIME, self.cells // max(1, columns)))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a file that are used."""

    names: tuple[str, ...] | None
    """Their names, if the file has names."""
    places: Sequence[int] | None
    """Their places among all columns of the file, or None for all of them."""
    kinds: tuple[str, ...] | None = None
    """Their types, if the file states types."""
    width: int = 0
    """How many columns each row is read with, if that may be more: a line of text is read as a whole."""
    in_file: tuple[str, ...] = ()
    """Their names as the file writes them. ``names`` are in Unicode's composed form."""


@dataclass(frozen=True, eq=False, slots=True)
class RowBatches:
    """Dense rows that are read some at a time, once. The file stays open until the last was read."""

    columns: int
    kind: "np.dtype[Any]"
    """A type that holds every number exactly."""
    batches: Iterator[FloatArray]
    opened: ExitStack

    @classmethod
    def reading(
        cls, columns: int, kind: "np.dtype[Any]", batches: Iterable[FloatArray], opened: ExitStack | None = None
    ) -> Self:
        """Take what reads the rows, and what must be closed after that."""
        held = ExitStack() if opened is None else opened.pop_all()
        return cls(columns, kind, _and_closed(batches, held), held)

    def close(self) -> None:
        """Close the file before all rows were read."""
        self.opened.close()

    def gathered(self) -> FloatArray:
        """Read all rows into memory."""
        return np.concatenate([np.empty((0, self.columns)), *self.batches])


def _and_closed(batches: Iterable[FloatArray], opened: ExitStack) -> Iterator[FloatArray]:
    with opened:
        yield from batches


@dataclass(frozen=True, slots=True)
class RawTable:
    """The rows of a file as they are stored: ``RowBatches``, sparse rows, or a table in memory."""

    numbers: Any
    columns: Columns
    """The columns that are used."""
    to_select: Sequence[int] | None = None
    """Their places in ``numbers``, if that has other columns too."""
    persons: Sequence[bytes] | None = None
    """A label for each row, if the file says beside the rows whose they are. No bytes stand for nobody."""


def columns_by_place(reading: Reading, width: int | None = None) -> Columns:
    """Choose among the columns of a file that does not name them. Their names may be declared."""
    names = reading.names
    if names is not None and width not in {None, len(names)}:
        raise InvalidDataError(
            f"There are {width} columns, but names lists {len(names)}.",
            "List one name for each column as names under [reading], in the order of the columns.",
        )
    return columns_used(names, reading)


def require_no_names(reading: Reading) -> None:
    """Refuse declared names for a file that has its own."""
    if reading.names is not None:
        raise InvalidDataError("[reading] has names, but the file names its columns.", "Remove names there.")


def columns_used(all_names: Sequence[str] | None, reading: Reading, renaming: str = "") -> Columns:
    """Choose the columns that are declared. Their names must be different and not empty. Others may be anything.

    Names are compared in Unicode's composed form, because programs write an accent in one way or another.
    ``renaming`` says how to give columns of such a file other names.
    """
    declared = reading.columns or reading.leave_out or reading.person
    in_file, all_names = all_names or (), None if all_names is None else [*map(composed, all_names)]
    if reading.preparation is not None:
        _require_features(reading.preparation, all_names)
    if all_names is None:
        if declared or not isinstance(reading.missing_codes, tuple) or reading.columns_with_fill:
            raise InvalidDataError(
                "The file has no column names, but the settings name columns of it.",
                "List the names of all its columns as names under [reading], or save the file in a form with names.",
            )
        return Columns(None, None)
    if not declared:
        places = None
    elif reading.columns:
        places = _places_of(reading, all_names, renaming)
    else:
        for name in reading.leave_out:
            _require_some(name, all_names)
        left_out = frozenset((*reading.leave_out, *([reading.person] if reading.person else ())))
        places = [
            place for place, name in enumerate(all_names) if name not in left_out and name.strip() not in left_out
        ]
    chosen = all_names if places is None else [all_names[place] for place in places]
    if not chosen:
        raise InvalidDataError("No column is left.", "Leave out fewer columns.")
    _require_distinct(chosen, renaming)
    names = Schema.of(list(chosen)).names
    for name in (
        *sorted(reading.columns_with_fill),
        *(reading.missing_codes if not isinstance(reading.missing_codes, tuple) else ()),
    ):
        _require_some(name, (*(names or ()), *([reading.person] if reading.person else ())))
    own = tuple(in_file[place] for place in places or range(len(in_file)))
    return Columns(names, places, width=len(all_names), in_file=own)


def _require_distinct(names: Sequence[str], renaming: str) -> None:
    """Refuse empty names and names that occur twice. Say which columns, and no name if they may be numbers of a row."""
    nameless = [place for place, name in enumerate(names, start=1) if not name.strip()]
    if nameless:
        raise InvalidDataError(
            f"Column {nameless[0]} of {len(names)} has an empty name"
            f"{f', and {len(nameless) - 1} more have' if nameless[1:] else ''}.",
            'If it numbers the rows or is empty, leave it out with leave_out = [""] under [reading], which leaves out '
            "all columns without a name. Otherwise give it a name.",
        )
    first = dict(zip(reversed(names), range(len(names), 0, -1), strict=True))
    again = [(place, name) for place, name in enumerate(names, start=1) if first[name] != place]
    if again:
        place, name = again[0]
        shown = "" if any(map(is_number, names)) else f", {name!r:.{_LONGEST_NAME}}"
        raise InvalidDataError(
            f"Columns {first[name]} and {place} of {len(names)} have the same name{shown}"
            f"{f', and {len(again) - 1} more columns have names that occur before' if again[1:] else ''}.",
            f"{renaming or 'Give each column a name of its own.'} Or leave all of that name out with leave_out under "
            "[reading].",
        )


def _require_features(preparation: Preparation, all_names: Sequence[str] | None) -> None:
    """Refuse a file without the columns of the features that the provider says it has. Name all of them."""
    if all_names is None:
        raise InvalidDataError(
            "The file has no column names, so its columns cannot be matched to the dictionary.",
            "List the names of all its columns as names under [reading], or save the file in a form with names.",
        )
    there = frozenset(all_names)
    lacking = [each for each in preparation.mapped if each.column not in there]
    if lacking:
        listed = ", ".join(f"{each.feature.name!r:.60} (column {each.column!r:.60})" for each in lacking[:_LISTED])
        more = f" and {len(lacking) - _LISTED} more" if len(lacking) > _LISTED else ""
        raise InvalidDataError(
            f"The file has no column for these features: {listed}{more}.",
            "Under [dictionaries] in the provider's settings, name their columns in columns, or list what you do not "
            "have in absent.",
        )


def require_numeric(unusable: Sequence[tuple[str, str]], *, by_dictionary: bool = False) -> None:
    """Refuse columns that hold no numbers. ``unusable`` are their names and types, as the file's form states them."""
    if unusable:
        listed = ", ".join(f"{name!r:.{_LONGEST_NAME}} ({kind})" for name, kind in unusable[:_LISTED])
        more = f" and {len(unusable) - _LISTED} more" if len(unusable) > _LISTED else ""
        raise InvalidTypeError(
            f"These columns do not hold numbers: {listed}{more}.", _remedy(unusable, by_dictionary=by_dictionary)
        )


def _remedy(unusable: Sequence[tuple[str, str]], *, by_dictionary: bool) -> str:
    """Say what to do about columns that hold no numbers."""
    dates = any(word in kind.lower() for _, kind in unusable for word in ("date", "time", "interval", "duration"))
    hint = " Of a date, compute a number, such as the age on a public day: in a database with a query." if dates else ""
    if by_dictionary:
        return (
            "Map these features to columns of numbers under [dictionaries], or list them in absent. Text is read for "
            f"features of kind category.{hint}"
        )
    return (
        "List the columns to use in columns, or these in leave_out, under [reading] in the provider's settings." + hint
    )


def _places_of(reading: Reading, all_names: Sequence[str], renaming: str) -> list[int]:
    """Find the columns that are used by name. Refuse a name that no column or several columns have."""
    places = {name: place for place, name in enumerate(all_names)}
    counts, names = Counter(all_names), reading.columns or ()
    for name in names:
        if name not in places:
            _require_some(name, all_names)
        if counts[name] > 1:
            other = "" if reading.preparation is None else f" Or {reading.way_to_leave_out}."
            raise InvalidDataError(
                f"There are several columns with the name {name!r:.{_LONGEST_NAME}}.",
                f"{renaming or 'Give each a name of its own.'}{other}",
            )
    return [places[name] for name in names]


def _require_some(name: str, all_names: Sequence[str]) -> None:
    """Refuse a name that no column has. List similar names, unless the names may be numbers of a row."""
    if name in all_names or (not name and any(not each.strip() for each in all_names)):
        return
    by_lower_case = {each.strip().lower(): each for each in all_names if not is_number(each)}
    near = get_close_matches(name.strip().lower(), by_lower_case, n=3)
    hint = f"Did you mean {' or '.join(repr(by_lower_case[each]) for each in near)}?" if near else "Check its spelling."
    raise InvalidDataError(f"There is no column {name!r:.{_LONGEST_NAME}}.", hint)


def cell_reader(reading: Reading, column: str, parse: Callable[[str], float] = number_in) -> Callable[[str], float]:
    """Return the function from a column's cell to a number: ``cell_number``, or ``category_text`` for categories."""
    codes = frozenset(composed(code) for code in reading.codes_of(column) if isinstance(code, str))
    texts = reading.texts.get(column)
    if isinstance(texts, PersonCells):
        return texts.read
    if texts is not None:
        return lambda cell: category_text(cell, texts, codes, parse)
    return lambda cell: cell_number(cell, codes, parse)


def cell_number(cell: str, codes: Collection[str], parse: Callable[[str], float] = number_in) -> float:
    """Read a cell: NaN if it is empty or stands for a missing value, infinity if it is not a number."""
    plain = composed(cell.strip())
    if not plain or plain in codes:
        return nan
    try:
        return parse(cell)
    except ValueError:
        return inf


def as_numbers(block: NDArray[Any]) -> FloatArray:
    """Convert numbers of any type. One that is too large becomes infinite."""
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(block, dtype=np.float64)


def is_number(text: str) -> bool:
    """Tell whether a text is a number, NaN and infinity included."""
    try:
        number_in(text)
    except ValueError:
        return False
    return True


def without_codes(matrix: Any, names: Sequence[str] | None, reading: Reading) -> Any:  # noqa: ANN401  # dense or sparse
    """Put NaN in place of the numbers that stand for a missing value. This depends on each cell alone."""
    return _replaced(matrix, code_numbers(reading, _each(matrix, names)), _code_to_nan)


def code_numbers(reading: Reading, columns: Sequence[str]) -> list[tuple[float, ...]]:
    """Return the numbers that stand for a missing value in each column. Texts may be numbers with the decimal mark.

    There may be very many columns, and most have the same codes, or none.
    """
    if not reading.missing_codes:
        return [()] * len(columns)
    numbers_of = cache(partial(_numbers_of_codes, decimal=reading.decimal))
    return [numbers_of(codes) for codes in map(reading.codes_of, columns)]


def _numbers_of_codes(codes: Codes, decimal: str) -> tuple[float, ...]:
    with_comma = [code for code in codes if isinstance(code, str) and "." not in code and decimal == ","]
    return tuple(numbers_of_codes((*codes, *(code.replace(",", ".") for code in with_comma))))


def require_no_code_of_zero(table: RawTable, reading: Reading) -> None:
    """Refuse a code of 0 for sparse rows. They do not store zeros, so only those that happen to be stored would count.

    A dictionary applies its own codes to numbers that are not stored, too.
    """
    if not scipy.sparse.issparse(table.numbers):
        return
    names = table.columns.names
    each = names or ("",)
    coded = [name for name, codes in zip(each, code_numbers(reading, each), strict=True) if 0 in codes]
    if reading.preparation is not None:
        lacking = {each.column for each in reading.preparation.mapped if 0 not in numbers_of_codes(each.all_codes)}
        coded = [name for name in coded if name in lacking]
    if coded:
        more = f" and {len(coded) - 1} more columns" if len(coded) > 1 else ""
        where = "" if names is None else f" for {coded[0]!r:.{_LONGEST_NAME}}{more}"
        raise InvalidDataError(
            f"missing_codes has 0{where}, but the rows are sparse and do not store their zeros.",
            "Remove 0 from missing_codes, declare it in the dictionary, or save the rows as a dense table.",
        )


def filled(matrix: Any, names: Sequence[str] | None, reading: Reading) -> Any:  # noqa: ANN401  # dense or sparse
    """Put the declared public number of its column in place of each missing value. This depends on each cell alone."""
    fills = reading.fills_of(_each(matrix, names))
    values = [() if fill is None else (fill,) for fill in fills]
    return _replaced(matrix, values, _nan_to_value)


def _each(matrix: Any, names: Sequence[str] | None) -> Sequence[str]:  # noqa: ANN401  # dense or sparse
    """Return a name for each column. Columns without names get the empty name, which no real column has."""
    return names if names is not None else [""] * matrix.shape[1]


def _replaced(matrix: Any, declared: Sequence[tuple[float, ...]], replace: Any) -> Any:  # noqa: ANN401  # dense or sparse
    """Apply ``replace(numbers, values)`` to the columns for which there are values. The rows given stay as they are."""
    if not any(declared):
        return matrix
    changed = matrix.copy()
    for values in sorted(set(filter(None, declared))):
        own = np.array([each == values for each in declared])
        if isinstance(changed, np.ndarray):
            changed[:, own] = replace(changed[:, own], values)
        else:
            stored = own[changed.indices]
            changed.data[stored] = replace(changed.data[stored], values)
    return changed


def _code_to_nan(numbers: FloatArray, codes: tuple[float, ...]) -> FloatArray:
    return np.where(np.isin(numbers, codes), np.nan, numbers)


def _nan_to_value(numbers: FloatArray, values: tuple[float, ...]) -> FloatArray:
    return np.where(np.isnan(numbers), values[0], numbers)
