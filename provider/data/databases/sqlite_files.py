"""Reads a table or the answer to a query from an SQLite file.

The rows of a table come in the order of their row numbers, which SQLite assigns as rows are added. Without an order,
SQLite may read a table along an index, and then a changed value moves its row. The author of a query decides about the
order of its rows.

SQLite may hold any value in any column. A value that is no number makes its own row unusable. A column that SQLite
computes while it reads could fail on one row, and is refused by name.
"""

import re
import sqlite3
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from math import inf, nan
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.files import TemporarilyUnreadableError
from dpspca.provider.data.tables import (
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    TripletBatch,
    cell_reader,
    columns_used,
    triplet_columns,
    value_reader,
)

from .sql import cell, no_rows_of, no_single_table, quoted

_PASSING: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_ROW_NUMBERS: Final = ("rowid", "_rowid_", "oid")
_VIRTUAL: Final = 2
"""How SQLite marks a generated column that is not stored."""
_ROW_NUMBER: Final = -1
"""How SQLite lists the row number among the columns of an index."""
_TOKENS: Final = re.compile(
    r"""'(?:[^']|'')*' | "(?P<name>(?:[^"]|"")*)" | `[^`]*` | \[[^]]*\] | --[^\n]* | /\*.*?\*/""",
    re.DOTALL | re.VERBOSE,
)
"""Quoted parts of SQL, and comments. Names between double quotes have a group of their own."""
_KINDS: Final = {
    "boolean": ("BOOL",),
    "date": ("DATE", "TIME"),
    "integer": ("INT",),
    "text": ("CHAR", "CLOB", "TEXT"),
    "real": ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL"),
}
_IN_WORDS: Final = {
    "SQLITE_ERROR": "SQLite does not understand it, or a row makes it fail",
    "SQLITE_READONLY": "it would change the database",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_NOTADB": "the file is no database, or encrypted",
}
_OF_FILE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BATCH_ROWS: Final = 65_536
_REMEDY: Final = (
    "Name a table, or write a query, under [reading] in the provider's settings. The program sqlite3 explains errors."
)
_OTHER_FILE: Final = "Copy the database again, or name the right file."


def read_sqlite(source: RowSource) -> RawTable:
    """Read the rows of the table or query that is declared. If the file has one table, it may be left out."""
    with ExitStack() as opened:
        database = opened.enter_context(_opened(source))
        text, columns = _query(database, source)
        width = len(columns.names or ())
        rows = RowBatches.reading(width, np.dtype(np.float64), _rows(database.execute(text), columns, source), opened)
    return RawTable(rows, columns)


def _rows(found: sqlite3.Cursor, columns: Columns, source: RowSource) -> Iterator[FloatArray]:
    """Convert rows, some at a time."""
    numbers_of = [_number_of(cell_reader(source.reading, name)) for name in columns.names or ()]
    places = range(len(numbers_of)) if columns.places is None else columns.places
    while rows := found.fetchmany(source.rows_at_a_time(len(numbers_of))):
        numbers = array("d")
        for row in rows:
            numbers.extend(number_of(row[place]) for place, number_of in zip(places, numbers_of, strict=True))
        yield np.frombuffer(numbers, dtype=np.float64).reshape(len(rows), len(numbers_of))


def triplets_of_sqlite(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets in batches."""
    with _opened(source) as database:
        text = source.reading.query or f"SELECT * FROM {quoted(_table(database, source))}"  # noqa: S608  # a quoted name
        if source.reading.query:
            _require_names(database, text)
        there = _columns_of(database, text)
        places = [there.index(name) for name in triplet_columns(source, there)]
        found, read = database.execute(text), value_reader(source.reading)
        while rows := found.fetchmany(_BATCH_ROWS):
            names = [[_name_of(each[place]) for each in rows] for place in places[:2]]
            numbers = [
                _number_of(partial(read, name))(each[place])
                for each, name in zip(rows, names[1], strict=True)
                for place in places[2:]
            ]
            yield TripletBatch(names[0], names[1], np.array(numbers) if places[2:] else None)


class _Text(bytes):
    """Text as its bytes. What SQLite calls a blob comes as plain bytes."""


def _name_of(value: bytes | float | None) -> str | None:
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():  # a column of type REAL keeps the number 1 as 1.0
        return str(int(value))
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def columns_of_sqlite(source: RowSource) -> Columns:
    """Read which columns are used. If they may be of any type, say what the table declares of each."""
    with _opened(source) as database:
        columns = _query(database, source)[1]
        if not source.any_type or source.reading.query:
            return columns
        listed = database.execute(f"PRAGMA table_info({quoted(_table(database, source))})")
        declared = {bytes(name).decode("utf-8", "replace"): bytes(kind).decode() for _, name, kind, *_ in listed}
        return replace(columns, kinds=tuple(_kind_of(declared.get(name, "")) for name in columns.in_file))


def _kind_of(declared: str) -> str:
    """Return the kind of value for which SQLite's words for a type stand. Values may still be of any kind."""
    return next((kind for kind, words in _KINDS.items() if any(word in declared.upper() for word in words)), "")


@contextmanager
def _opened(source: RowSource) -> Iterator[sqlite3.Connection]:
    """Open a database for reading only. An error does not quote SQLite, whose text may hold a value."""
    source.path.stat()  # SQLite does not say why it cannot open a file
    try:
        with closing(sqlite3.connect(f"{source.path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.text_factory = _Text  # otherwise text that is not in UTF-8 would stop the reading
            database.execute("PRAGMA query_only = on")
            yield database
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in _PASSING:
            raise TemporarilyUnreadableError(
                "The database is locked or cannot be opened.", "Try again, or copy it."
            ) from None
        where = "The query" if source.reading.query else "Reading the table"
        own = source.reading.query or " ".join(source.reading.expressions.values())
        remedy = _OTHER_FILE if code in _OF_FILE else _REMEDY
        raise InvalidDataError(f"{where} failed: {_sort_of(problem, own)}.", remedy) from None


def _sort_of(problem: sqlite3.Error, query: str) -> str:
    """Describe the error. One without a name of SQLite is of Python itself, and about the query.

    What is missing is named if the query names it. A search in full text may take a value for a name.
    """
    named: str | None = getattr(problem, "sqlite_errorname", None)
    what, _, missing = str(problem).partition(": ")
    is_about_name = what.startswith("no such ") and (not query or missing in query.replace('""', '"'))
    if named is None or is_about_name:
        return str(problem).rstrip(".")
    return f"{_IN_WORDS[named]} ({named})" if named in _IN_WORDS else named


def _query(database: sqlite3.Connection, source: RowSource) -> tuple[str, Columns]:
    """Return the query for the rows, and the columns that are used."""
    if source.reading.query:
        text = source.reading.query
        _require_names(database, text)
        return text, columns_used(_columns_of(database, text), source.reading)
    table = quoted(_table(database, source))
    names = _columns_of(database, f"SELECT * FROM {table} LIMIT 0")  # noqa: S608  # a quoted name
    taken = {name.lower() for name in names}
    number = _key_of(database, table) or next((name for name in _ROW_NUMBERS if name not in taken), None)
    if number is None:
        raise InvalidDataError(
            f"Columns hide the row numbers of the table ({', '.join(_ROW_NUMBERS)}).", "Write a query instead."
        )
    columns = replace(columns_used([*names, *source.reading.expressions], source.reading), places=None)
    _require_stored(database, table, columns, source.reading.way_to_leave_out)
    computed = source.reading.expressions
    chosen = ", ".join(
        f"{cell(name, source.reading)} AS {quoted(name)}" if name in computed else quoted(name)
        for name in columns.in_file
    )
    if computed:
        _require_names(database, no_rows_of(table, source.reading))
    return f"SELECT {chosen} FROM {table} ORDER BY {number}", columns  # noqa: S608  # quoted names


def _key_of(database: sqlite3.Connection, table: str) -> str | None:
    """Return the primary key of a table WITHOUT ROWID, which orders its rows, or None if rows have numbers."""
    index = [name for _, name, _, origin, *_ in database.execute(f"PRAGMA index_list({table})") if origin == b"pk"]
    has_columns = index and database.execute(f"PRAGMA index_xinfo({quoted(index[0].decode())})").fetchall()
    if not has_columns or any(place == _ROW_NUMBER for _, place, *_ in has_columns):
        return None
    described = database.execute(f"PRAGMA table_info({table})").fetchall()
    key = sorted((place, bytes(name).decode("utf-8", "replace")) for _, name, *_, place in described if place)
    return ", ".join(quoted(name) for _, name in key)


def _require_names(database: sqlite3.Connection, query: str) -> None:
    """Refuse a query with a name in quotes that nothing has: SQLite would take it for text, the same in every row.

    Between backticks, a name is a name.
    """
    database.execute(f"EXPLAIN {_TOKENS.sub(_with_backticks, query)}")


def _with_backticks(token: re.Match[str]) -> str:
    name: str | None = token["name"]
    return token.group() if name is None else "`" + name.replace('""', '"').replace("`", "``") + "`"


def _require_stored(database: sqlite3.Connection, table: str, columns: Columns, way_to_leave_out: str) -> None:
    """Refuse columns that are computed while rows are read: for one row, that could fail and stop the reading."""
    listed = database.execute(f"PRAGMA table_xinfo({table})")
    computed = {bytes(name).decode("utf-8", "replace") for _, name, *_, hidden in listed if hidden == _VIRTUAL}
    for name in columns.in_file:
        if name in computed:
            raise InvalidDataError(
                f"The column {name!r:.60} is computed while it is read, which could fail for one row.",
                f"Make it STORED in the database. To leave columns out, {way_to_leave_out}.",
            )


def _columns_of(database: sqlite3.Connection, text: str) -> list[str]:
    found = database.execute(text).description
    if not found:
        raise InvalidDataError("The query returns no rows.", "Write a query that begins with SELECT.")
    return [str(column[0]) for column in found]


def _table(database: sqlite3.Connection, source: RowSource) -> str:
    """Return the table that is declared, or the only one."""
    listed = database.execute(
        "SELECT name, type FROM sqlite_master "
        "WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    kinds = {name.decode("utf-8", "replace"): kind for name, kind in listed}
    names: list[str] = sorted(name for name, kind in kinds.items() if kind == b"table")
    wanted = source.reading.table
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted in names:
        return str(wanted)
    if wanted in kinds or (kinds and not names):
        view = wanted or min(kinds)
        raise InvalidDataError(
            f"{view!r:.60} is a view, whose rows have no definite order.",
            "Write a query of it under [reading], with ORDER BY and columns that do not follow from what rows say.",
        )
    raise no_single_table(wanted, (), names)


def _number_of(read: Callable[[str], float]) -> Callable[[Any], float]:
    """Return a function that turns a value of a column into a number: NaN if missing, infinity if it is none."""

    def number_of(value: bytes | float | None) -> float:
        if value is None:
            return nan
        if isinstance(value, _Text):
            return read(value.decode("utf-8", "replace"))
        return inf if isinstance(value, bytes) else float(value)  # a blob is no number, whatever its bytes look like

    return number_of
