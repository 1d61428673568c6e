"""Writes scores of rows into a new table of the steward's own database. Scores say as much about a row as the row does.

Either the whole table is there at the end, or nothing. A table that is there already is refused and not changed.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError
from dpspca.common.storage import Reading
from dpspca.provider.data.tables import RowSource, import_extra

from .postgres_files import connected
from .sql import quoted

KEY: Final = "id"


def write_scores_table(path: Path, table: str, ids: Sequence[str], scores: FloatArray) -> None:
    """Write one line for each row: its name, and its score for each component."""
    if not table.isidentifier():
        raise InvalidParameterError(f"--table is {table!r:.60}.", "Use letters, digits and _, as in cohort_scores.")
    first: dict[str, int] = {}
    for row, name in enumerate(ids, start=1):
        if first.setdefault(name, row) != row:
            raise InvalidDataError(
                f"Rows {first[name]} and {row} have one name, and a table of scores has a row for each name.",
                "Give each row a name of its own with --ids.",
            )
    lines = [(name, *numbers) for name, numbers in zip(ids, scores.tolist(), strict=True)]
    try:
        _WRITERS[path.suffix.lower()](path, table, lines, scores.shape[1])
    except DpspcaError as problem:
        raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None


def _created(table: str, components: int) -> str:
    columns = ", ".join(f"pc{number} DOUBLE PRECISION NOT NULL" for number in range(1, components + 1))
    return f"CREATE TABLE {quoted(table)} ({KEY} VARCHAR PRIMARY KEY, {columns})"


def _inserted(table: str, components: int, mark: str = "?") -> str:
    return f"INSERT INTO {quoted(table)} VALUES ({', '.join([mark] * (components + 1))})"  # noqa: S608  # a quoted name


def _failed(table: str, problem: Exception, *, is_there: bool = False) -> InvalidDataError:
    """Say that nothing was written, without what the database says, which may hold a name."""
    if is_there:
        return InvalidDataError(
            f"The table {table!r:.60} already exists. Nothing was changed.",
            "Choose another --table, or drop that one.",
        )
    return InvalidDataError(
        f"The table {table!r:.60} cannot be written: {type(problem).__name__}. Nothing was changed.",
        "Check that you may create tables there.",
    )


def _to_sqlite(path: Path, table: str, lines: list[tuple[Any, ...]], components: int) -> None:
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(_created(table, components))
            database.executemany(_inserted(table, components), lines)
            database.execute("COMMIT")
    except sqlite3.Error as problem:
        raise _failed(table, problem, is_there=str(problem).startswith(f"table {quoted(table)} already")) from None


def _to_duckdb(path: Path, table: str, lines: list[tuple[Any, ...]], components: int) -> None:
    driver = import_extra("duckdb")
    try:
        with driver.connect(str(path)) as database:
            database.execute("BEGIN")
            database.execute(_created(table, components))
            database.executemany(_inserted(table, components), lines)
            database.execute("COMMIT")
    except driver.Error as problem:
        raise _failed(table, problem, is_there=isinstance(problem, driver.CatalogException)) from None


def _to_postgres(path: Path, table: str, lines: list[tuple[Any, ...]], components: int) -> None:
    driver = import_extra("psycopg")
    with connected(RowSource(path, Reading()), writes=True) as connection:
        try:
            connection.execute(_created(table, components))
            with connection.cursor() as cursor, cursor.copy(f"COPY {quoted(table)} FROM STDIN") as copy:
                for line in lines:
                    copy.write_row(line)
            connection.execute("COMMIT")
        except driver.Error as problem:
            is_there = isinstance(problem, driver.errors.DuplicateTable)
            raise _failed(table, problem, is_there=is_there) from None


_WRITERS: Final[Mapping[str, Callable[[Path, str, list[tuple[Any, ...]], int], None]]] = MappingProxyType({
    ".sqlite": _to_sqlite, ".sqlite3": _to_sqlite, ".db": _to_sqlite,
    ".duckdb": _to_duckdb, ".postgresql": _to_postgres,
})  # fmt: skip
DATABASES: Final = frozenset(_WRITERS)
"""Endings of databases to which scores can be written."""
