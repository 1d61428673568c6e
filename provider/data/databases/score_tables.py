"""Writes scores of rows into a new table of the steward's own database. Scores say as much about a row as the row does.

Either the whole table is there at the end, or nothing. A table that is there already is refused and not changed.
"""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError
from dpspca.common.storage import Reading
from dpspca.provider.data.tables import RowSource, import_extra

from .postgres_files import connected
from .sql import quoted

Lines: TypeAlias = list[tuple[Any, ...]]

KEY: Final = "id"
_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,17}")


def write_scores_table(path: Path, table: str, ids: Sequence[str], scores: FloatArray) -> None:
    """Write one line for each row: its name, and its score for each component."""
    if not all(part.isidentifier() for part in table.split(".", 1)):
        raise InvalidParameterError(
            f"--table is {table!r:.60}.",
            "Use letters, digits and _, as in cohort_scores, or with a schema, as in results.cohort_scores.",
        )
    first: dict[str, int] = {}
    for row, name in enumerate(ids, start=1):
        if first.setdefault(name, row) != row:
            raise InvalidDataError(
                f"Rows {first[name]} and {row} have one name, and a table of scores has a row for each name.",
                "Give each row a name of its own with --ids.",
            )
    are_whole = all(map(_WHOLE.fullmatch, ids))
    keys: Sequence[str | int] = [*map(int, ids)] if are_whole else ids
    lines = [(key, *numbers) for key, numbers in zip(keys, scores.tolist(), strict=True)]
    try:
        _WRITERS[path.suffix.lower()](path, table, lines, _created(table, scores.shape[1], are_whole=are_whole))
    except DpspcaError as problem:
        raise InvalidDataError(f"{path}: {problem.what}", problem.remedy) from None


def _created(table: str, components: int, *, are_whole: bool) -> str:
    """Write the statement that creates the table. Names of rows that are whole numbers can be joined as numbers."""
    columns = ", ".join(f"pc{number} DOUBLE PRECISION NOT NULL" for number in range(1, components + 1))
    return f"CREATE TABLE {_quoted(table)} ({KEY} {'BIGINT' if are_whole else 'VARCHAR'} PRIMARY KEY, {columns})"


def _quoted(table: str) -> str:
    return ".".join(map(quoted, table.split(".", 1)))


def _inserted(table: str, lines: Lines) -> str:
    return f"INSERT INTO {_quoted(table)} VALUES ({', '.join('?' for _ in lines[0])})"  # noqa: S608  # a quoted name


def _failed(table: str, problem: Exception, *, is_there: bool = False) -> InvalidDataError:
    """Say that nothing was written, without what the database says, which may hold a name."""
    if is_there:
        return InvalidDataError(
            f"The table {table!r:.60} already exists. Nothing was changed.",
            "Choose another --table, or drop that one.",
        )
    return InvalidDataError(
        f"The table {table!r:.60} cannot be written: {type(problem).__name__}. Nothing was changed.",
        "Check that you may create tables there. To write into another schema, create it first, and name it, as in "
        "results.cohort_scores.",
    )


def _to_sqlite(path: Path, table: str, lines: Lines, created: str) -> None:
    if "." in table:
        raise InvalidParameterError(f"--table is {table!r:.60}, and SQLite has no schemas.", "Leave the schema out.")
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(created)
            if lines:
                database.executemany(_inserted(table, lines), lines)
            database.execute("COMMIT")
    except sqlite3.Error as problem:
        raise _failed(table, problem, is_there=str(problem).endswith(" already exists")) from None


def _to_duckdb(path: Path, table: str, lines: Lines, created: str) -> None:
    driver = import_extra("duckdb")
    try:
        with driver.connect(str(path)) as database:
            database.execute("BEGIN")
            if "." in table:
                database.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.split('.', 1)[0])}")
            database.execute(created)
            if lines:
                database.executemany(_inserted(table, lines), lines)
            database.execute("COMMIT")
    except driver.Error as problem:
        raise _failed(table, problem, is_there="already exists" in str(problem)) from None


def _to_postgres(path: Path, table: str, lines: Lines, created: str) -> None:
    driver = import_extra("psycopg")
    with connected(RowSource(path, Reading()), writes=True) as connection:
        try:
            connection.execute(created)
            with connection.cursor() as cursor, cursor.copy(f"COPY {_quoted(table)} FROM STDIN") as copy:
                for line in lines:
                    copy.write_row(line)
            connection.execute("COMMIT")
        except driver.Error as problem:
            is_there = isinstance(problem, driver.errors.DuplicateTable)
            raise _failed(table, problem, is_there=is_there) from None


_WRITERS: Final[Mapping[str, Callable[[Path, str, Lines, str], None]]] = MappingProxyType({
    ".sqlite": _to_sqlite, ".sqlite3": _to_sqlite, ".db": _to_sqlite,
    ".duckdb": _to_duckdb, ".postgresql": _to_postgres,
})  # fmt: skip
DATABASES: Final = frozenset(_WRITERS)
"""Endings of databases to which scores can be written."""
