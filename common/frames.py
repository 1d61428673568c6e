"""Tables of any library: what their columns are called, and the numbers in them. Pure.

Pandas, polars, Arrow and numpy are not imported. A table is known by its attributes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidDataError, InvalidTypeError
from .text import composed

_DATES: Final = ("date", "time", "duration", "period", "interval", "month_")
"""How pandas, polars and Arrow begin the names of types of dates, times and durations."""
_WIDE: Final = ("int128", "uint128")
"""Types of polars that numpy does not have."""
_NO_NUMBERS: Final = (bytes, bytearray, memoryview, np.datetime64, np.timedelta64, np.ndarray)
"""Types that Python or numpy converts to numbers although they are no measurements."""
NAMELESS: Final = frozenset({"NAType", "NaTType"})
"""Types of values that stand for a missing one in pandas."""
NO_ROWS_YET: Final = {"LazyFrame": "collect()", "DuckDBPyRelation": "df()", "RecordBatchReader": "read_all()"}
"""Types that hold no rows until one of their methods is called."""


def column_names(table: Any) -> tuple[str, ...] | None:  # noqa: ANN401  # a data frame, or anything else
    """Return the column names of a data frame, or None if it has none. Refuse names if only some of them are text."""
    labels = _labels(table)
    names = tuple(label for label in labels if isinstance(label, str))
    if names and len(names) < len(labels):
        place, other = next((place, each) for place, each in enumerate(labels, 1) if not isinstance(each, str))
        raise InvalidTypeError(
            f"Column {place} has the name {other!r:.60}, which is not text (a string), while others are text.",
            "Give all columns names that are text, or none: then they are taken in their order.",
        )
    return names or None


def array_of(table: Any) -> NDArray[Any]:  # noqa: ANN401  # a data frame, or anything that numpy takes
    """Convert a table to an array. Of a data frame, name the column and the row that hold something else than numbers.

    Types of columns are looked at first, because numpy takes dates for numbers if other columns hold numbers.
    """
    require_table(table)
    require_none_masked(table)
    labels = _labels(table)
    require_distinct(labels)
    table = without_dictionaries(table)
    require_readable(labels, _types(table))
    array = even_array(table)
    if array.dtype.kind != "O" or not labels or array.ndim == 1:
        return array
    return np.column_stack([_column(array[:, place], name) for place, name in enumerate(labels)])


def require_table(rows: Any) -> None:  # noqa: ANN401  # whatever was given
    """Refuse what holds tables, or names a file with one, and is no table itself."""
    if isinstance(rows, str | bytes) or hasattr(rows, "__fspath__"):
        raise InvalidTypeError(
            f"The rows are {str(rows)!r:.80}, not a table of numbers.",
            "Read the file first, for example with numpy.load or pandas.read_csv.",
        )
    if isinstance(rows, Mapping):
        raise InvalidTypeError(
            f"The rows are a mapping ({type(rows).__name__}), not a table.",
            "Make a data frame of it, as with pandas.DataFrame(columns). If it holds tables, give one of them.",
        )
    if "GroupBy" in type(rows).__name__:
        raise InvalidTypeError(
            f"The rows are a {type(rows).__name__}, which holds several tables.",
            "Give its groups: [group for _, group in grouped].",
        )


def even_array(table: Any) -> NDArray[Any]:  # noqa: ANN401  # anything that numpy takes
    """Convert to an array. Name the first row of a list that is longer or shorter than those before it."""
    try:
        return np.asarray(table)
    except ValueError:
        if not isinstance(table, list | tuple):
            raise
        lengths = [len(row) if isinstance(row, Sized) else 0 for row in table]
        other = next((row for row, length in enumerate(lengths) if length != lengths[0]), 0)
        raise InvalidDataError(
            f"Row {other + 1} has {lengths[other]} values, and row 1 has {lengths[0]}.",
            "Give each row one value for each column.",
        ) from None


def numeric_array(table: Any) -> NDArray[Any]:  # noqa: ANN401  # a data frame, or anything that numpy takes
    """Convert a table to an array, and Python objects in it to the numbers that they are."""
    array = array_of(table)
    return _column(array.reshape(-1), None).reshape(array.shape) if array.dtype.kind == "O" else array


def require_distinct(labels: Sequence[object]) -> None:
    """Refuse a data frame with several columns of one name."""
    counts = Counter(composed(each) if isinstance(each, str) else each for each in labels)
    again = [name for name, count in counts.items() if count > 1]
    if again:
        raise InvalidDataError(
            f"{counts[again[0]]} columns have the name {again[0]!r:.60}.", "Give each column a name of its own."
        )


def readable_table(table: Any) -> Any:  # noqa: ANN401  # a data frame, or anything that numpy takes
    """Return a table in the form that numpy reads without loss. Refuse types of columns that are no numbers."""
    labels, plain = _labels(table), without_dictionaries(table)
    require_readable(labels, _types(plain))
    return plain


def without_dictionaries(cells: Any) -> Any:  # noqa: ANN401  # a column or a table of any library
    """Replace dictionaries of Arrow by their values.

    The index of a null is -1 when numpy converts a column in chunks, so the null would become the last value.
    """
    kind: Any = getattr(cells, "type", None)
    schema: Any = getattr(cells, "schema", None)
    if hasattr(cells, "cast") and _is_dictionary(kind):
        return cells.cast(kind.value_type)
    for place, each in enumerate(getattr(schema, "types", ())):
        if _is_dictionary(each):
            column = without_dictionaries(cells.column(place))
            cells = cells.set_column(place, schema.names[place], column)
    return cells


def require_none_masked(rows: Any) -> None:  # noqa: ANN401  # any table
    """Refuse masked arrays of numpy, and lists of them. Numpy would read what the mask hides."""
    if any(map(np.ma.is_masked, rows)) if isinstance(rows, list | tuple) else np.ma.is_masked(rows):
        raise InvalidDataError(
            "Some entries are masked (numpy.ma): values are missing.", "Fill in or drop missing values first."
        )


def require_readable(labels: Sequence[object], types: Sequence[str]) -> None:
    """Refuse a column whose type is that of dates, times or durations, or of integers that numpy does not have."""
    for name, kind in zip(labels, types, strict=False):
        if kind.lower() in _WIDE:
            raise InvalidTypeError(
                f"The column {name!r:.60} has the type {kind}, which numpy does not have.",
                "Convert it to 64-bit integers or floating-point numbers, as with cast(polars.Float64).",
            )
        if kind.lower().startswith(_DATES):
            raise InvalidTypeError(
                f"The column {name!r:.60} holds dates, times or durations ({kind}), not numbers.",
                "Leave it out, or compute a number from it, such as the age on a public day.",
            )


def place_of_first(table: Any, wrong: NDArray[np.bool_], names: Sequence[str] | None) -> str:  # noqa: ANN401
    """Say where the first wrong number of a dense or sparse table is. The mask is of the numbers that it stores."""
    first = int(np.flatnonzero(wrong)[0])
    if hasattr(table, "tocoo"):
        stored = table.tocoo()
        row, column = int(stored.row[first]), int(stored.col[first])
    else:
        row, column = divmod(first, table.shape[1])
    return f"row {row + 1}, column {column + 1}{'' if names is None else f' ({names[column]!r:.60})'}"


def number_in(text: str) -> float:
    """Read a number. Python's own reader takes 12_5 for 125, which is more likely a code."""
    if "_" in text:
        raise ValueError
    return float(text)


def number_of(value: Any) -> float | None:  # noqa: ANN401  # any object
    """Return the number that an object is or a text holds: NaN for a missing value, None for anything else."""
    if value is None or type(value).__name__ in NAMELESS:
        return np.nan
    if isinstance(value, _NO_NUMBERS):
        return None
    try:
        return number_in(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _labels(table: Any) -> Sequence[object]:  # noqa: ANN401
    """Return the names of the columns of a data frame, whether or not they are text."""
    kind = type(table).__name__
    if kind in NO_ROWS_YET:
        raise InvalidTypeError(
            f"The table is a {kind}, which holds no rows yet.", f"Call its {NO_ROWS_YET[kind]} first."
        )
    stated = getattr(table, "column_names", None)  # of Arrow, whose ``columns`` are not names
    return stated if isinstance(stated, list) else tuple(getattr(table, "columns", ()))


def _is_dictionary(kind: Any) -> bool:  # noqa: ANN401  # a type of Arrow, or of another library
    return hasattr(kind, "value_type") and hasattr(kind, "index_type")


def _types(table: Any) -> list[str]:  # noqa: ANN401
    """Return the types of the columns of a data frame as its library writes them."""
    stated = getattr(table, "dtypes", None)
    if stated is None:
        stated = getattr(getattr(table, "schema", None), "types", ())  # of Arrow
    return [str(kind) for kind in stated] if np.iterable(stated) else []


def _column(cells: NDArray[Any], name: object) -> NDArray[np.float64]:
    """Convert Python objects to numbers."""
    numbers = [number_of(cell) for cell in cells.tolist()]
    if None in numbers:
        where = "The rows hold" if name is None else f"Row {numbers.index(None) + 1} of column {name!r:.60} holds"
        kind = type(cells.tolist()[numbers.index(None)]).__name__
        what = "text" if kind == "str" else f"a value of type {kind}"
        raise InvalidTypeError(
            f"{where} {what}: every argument must be a string of digits or a real number.",
            "Convert every column to numbers, or leave it out. A dictionary turns text into levels of categories.",
        )
    return np.array(numbers, dtype=np.float64)
