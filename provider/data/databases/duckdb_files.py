"""Reads a table or the answer to a query from a DuckDB file, as batches of Arrow.

The file is opened for reading only. Queries reach no other file and no network, and nothing is installed.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import numpy as np

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading
from dpspca.provider.data.files import TemporarilyUnreadableError, numbers_in
from dpspca.provider.data.tables import (
    BATCH_TRIPLETS,
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    TripletBatch,
    import_extra,
)

from .sql import (
    NAME_IT,
    Selection,
    Types,
    as_table,
    no_rows_of,
    no_single_table,
    quoted,
    remedy_of,
    selection,
    triplet_statement,
)

_SETTINGS: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
_LIST: Final = re.compile(r"(\[\d*\])+$")
_CAST: Final = "coalesce(TRY_CAST({} AS DOUBLE), 'NaN'::DOUBLE)"
_WHOLE: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_ALL_WHOLE: Final = (*_WHOLE, *(f"U{kind}" for kind in _WHOLE))
_NUMBERS: Final = (*_ALL_WHOLE, "FLOAT", "DOUBLE", "BOOLEAN", "DECIMAL")
_TYPES: Final = Types(
    dict.fromkeys(_NUMBERS, _CAST),
    dict.fromkeys(("VARCHAR", "ENUM", "UUID"), "CAST({} AS VARCHAR)"),
    frozenset(_ALL_WHOLE),
)


def read_duckdb(source: RowSource) -> RawTable:
    """Read the rows of the table or query that is declared. If the file has one table, it may be left out."""
    arrow = import_extra("pyarrow")
    with ExitStack() as opened:
        database = opened.enter_context(_opened(source))
        chosen = _selection(database, source)
        names = list(chosen.columns.in_file)
        batches = database.sql(chosen.statement).to_arrow_reader(source.rows_at_a_time(len(names)))
        named = (arrow.RecordBatch.from_arrays(batch.columns, names=names) for batch in batches)
        blocks = (numbers_in(batch, chosen.columns, source.reading) for batch in named)
        rows = RowBatches.reading(len(names), np.dtype(np.float64), blocks, opened)
    return RawTable(rows, chosen.columns)


def triplets_of_duckdb(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets in batches."""
    import_extra("pyarrow")
    with _opened(source) as database:
        origin, described = _described(database, source.reading)
        statement = triplet_statement(source, origin, described, _TYPES)
        for batch in database.sql(statement).to_arrow_reader(BATCH_TRIPLETS):
            row, column, *value = batch.columns
            yield TripletBatch(row, column, value[0].to_numpy(zero_copy_only=False) if value else None)


def columns_of_duckdb(source: RowSource) -> Columns:
    """Read which columns are used, and their types."""
    with _opened(source) as database:
        return _selection(database, source).columns


@contextmanager
def _opened(source: RowSource) -> Iterator[Any]:
    """Open a database. An error does not quote DuckDB, whose text may hold a value, unless it is about names."""
    source.path.stat()  # DuckDB does not say why it cannot open a file
    driver = import_extra("duckdb")
    try:
        with driver.connect(str(source.path), read_only=True, config=_SETTINGS) as database:
            yield database
    except driver.IOException:
        raise TemporarilyUnreadableError(
            "The file is locked or is not a DuckDB database.", "Try again when no program writes to it, or copy it."
        ) from None
    except (driver.CatalogException, driver.BinderException, driver.ParserException) as problem:
        raise InvalidDataError(f"The query failed: {str(problem).splitlines()[0]}.", NAME_IT) from None
    except driver.PermissionException:
        raise InvalidDataError(
            "The table or query reads another file, which is not allowed: only what is in the DuckDB file is read.",
            "Name that other file as the data set, or copy its rows into a table of the DuckDB file.",
        ) from None
    except driver.Error as problem:
        raise InvalidDataError(
            f"Reading from the database failed: {type(problem).__name__}.", remedy_of(source.reading)
        ) from None


def _selection(database: Any, source: RowSource) -> Selection:  # noqa: ANN401  # of duckdb
    reading = source.reading
    usual = [] if reading.query else _table(database, reading.table)[1]
    return selection(source, *_described(database, reading), _TYPES, usual)


def _described(database: Any, reading: Reading) -> tuple[str, list[tuple[str, str]]]:  # noqa: ANN401  # of duckdb
    """Return the text after FROM, and the names and types of its columns."""
    origin = as_table(reading.query) if reading.query else _table(database, reading.table)[0]
    described = database.execute(f"DESCRIBE {no_rows_of(origin, reading)}").fetchall()
    names = [str(name) for name, *_ in described[: len(described) - len(reading.expressions)]]
    kinds = [_plain(str(kind)) for _, kind, *_ in described]
    return origin, [*zip([*names, *reading.expressions], kinds, strict=True)]


def _plain(kind: str) -> str:
    """Return a type without its sizes and levels, such as DECIMAL of DECIMAL(10,2). A list is a type of its own."""
    name, size, _ = kind.partition("(")
    is_list = _LIST.search(kind)
    return name + is_list[0] if size and is_list else name


def _table(database: Any, wanted: str | None) -> tuple[str, list[str]]:  # noqa: ANN401  # of duckdb
    """Return the table or view that is declared, or the only one. Also return what orders its rows."""
    there = database.execute(
        "SELECT table_schema, table_name, table_type FROM information_schema.tables "
        "WHERE table_catalog = current_database() ORDER BY 1, 2"
    ).fetchall()
    found = [each for each in there if wanted in {None, each[1], f"{each[0]}.{each[1]}"}]
    if len(found) == 1:
        schema, name, kind = found[0]
        return f"{quoted(schema)}.{quoted(name)}", ["rowid"] if kind == "BASE TABLE" else []
    listed, of_name = ([f"{schema}.{name}" for schema, name, _ in each] for each in (there, found))
    raise no_single_table(wanted, of_name, listed)
