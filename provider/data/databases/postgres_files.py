"""Reads rows from PostgreSQL through psycopg. The data set is a private file that says how to connect.

The file holds one connection string, as libpq takes it. A password may be in it, in a file that it names as passfile,
in ~/.pgpass or in the environment. Nothing of the string, and no text of the server that could hold a value, goes into
an error or a log.

Rows come as a binary COPY in one read-only transaction, so that they are those of one moment, and are converted a
megabyte at a time. Rows with texts, which are levels of categories, come through a cursor.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import nan
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading, files
from dpspca.provider.data.files import TemporarilyUnreadableError
from dpspca.provider.data.tables import (
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    TripletBatch,
    cell_reader,
    import_extra,
)

from .arrow_driver import TIMEOUT, arrow_batches, is_lost, lost, took_too_long
from .sql import (
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

_CONNECT_SECONDS: Final = 10
_CHUNK_BYTES: Final = 2**20
_HEAD: Final = b"PGCOPY\n\xff\r\n\0"
_CELL: Final = np.dtype([("bytes", ">i4"), ("number", ">f8")])
_END: Final = struct.pack(">h", -1)

_WHOLE: Final = ("int2", "int4", "int8")
_PLAIN: Final = "coalesce({}::float8, 'NaN')"
_CASTS: Final = {
    **dict.fromkeys((*_WHOLE, "float4", "float8"), _PLAIN),
    "bool": "coalesce({}::int::float8, 'NaN')",
    "numeric": (
        "CASE WHEN {0} IS NULL OR {0} = 'NaN' THEN 'NaN' WHEN abs({0}) > 1e300 THEN 'Infinity' "
        "WHEN abs({0}) < 1e-300 THEN 0 ELSE {0}::float8 END"
    ),
}
"""How each numeric type becomes a floating-point number. A cast of ``numeric`` alone could fail for one value."""
_BYTES: Final = "convert_to({}::text, getdatabaseencoding())"
"""How text comes: as its bytes, because a conversion could fail for one value."""
_TYPES: Final = Types(_CASTS, dict.fromkeys(("text", "varchar", "bpchar", "name", "enum", "uuid"), _BYTES), _WHOLE)
_PLAIN_ENCODINGS: Final = frozenset({"UTF8", "SQL_ASCII"})
_OTHERS: Final = {"E": "enum", "S": "text"}
"""Types that a database defines, by their category."""
_TABLES: Final = """
SELECT n.nspname, c.relname, has_any_column_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND n.nspname NOT LIKE 'pg\\_toast%%' ORDER BY 1, 2
"""
_PRIMARY_KEY: Final = """
SELECT a.attname, has_column_privilege(i.indrelid, a.attnum, 'SELECT')
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum)
"""
_READABLE: Final = """
SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped
AND has_column_privilege(attrelid, attnum, 'SELECT') ORDER BY attnum
"""


def read_postgres(source: RowSource) -> RawTable:
    """Read the rows of the table or query that is declared. If there is one table, it may be left out."""
    with ExitStack() as opened:
        connection = opened.enter_context(connected(source))
        chosen = _selection(connection, source)
        width = len(chosen.columns.names or ())
        if any(chosen.texts):
            blocks = _rows_with_texts(connection, chosen, source)
        else:
            cursor = opened.enter_context(connection.cursor())
            copy = opened.enter_context(cursor.copy(f"COPY ({chosen.statement}) TO STDOUT (FORMAT BINARY)"))
            blocks = _rows(copy, width)
        rows = RowBatches.reading(width, np.dtype(np.float64), blocks, opened)
    return RawTable(rows, chosen.columns)


def triplets_of_postgres(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets in batches, as a binary COPY that the Arrow driver converts."""
    with connected(source) as connection:
        origin = _origin(connection, source.reading)
        statement = triplet_statement(source, origin, _described(connection, origin, source.reading), _TYPES)
    for batch in arrow_batches(_conninfo(source), statement):
        row, column, *value = batch.columns
        yield TripletBatch(row, column, value[0].to_numpy(zero_copy_only=False) if value else None)


def columns_of_postgres(source: RowSource) -> Columns:
    """Read which columns are used, and their types."""
    with connected(source) as connection:
        return _selection(connection, source).columns


@contextmanager
def connected(source: RowSource, *, writes: bool = False) -> Iterator[Any]:
    """Connect for one transaction, which can only read unless scores are to be written."""
    driver = import_extra("psycopg")
    try:
        connection = driver.connect(_conninfo(source), autocommit=True)
    except driver.Error as problem:
        raise _unreachable(problem) from None
    try:
        with connection:
            connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ {'WRITE' if writes else 'ONLY'}")
            yield connection
    except driver.Error as problem:
        raise _failed(problem, connection, source) from None


def _conninfo(source: RowSource) -> str:
    """Read how to connect."""
    driver = import_extra("psycopg")
    try:
        text = files.read(source.path, private=True).decode("utf-8-sig")
        how = driver.conninfo.conninfo_to_dict(" ".join(line for line in text.splitlines() if not line.startswith("#")))
    except (UnicodeDecodeError, driver.Error):
        raise InvalidDataError(  # without the driver's words, which could quote a password
            "The file does not contain a connection string.",
            "Write one line, as in: host=db.example dbname=omop user=steward",
        ) from None
    return str(driver.conninfo.make_conninfo(**{"connect_timeout": _CONNECT_SECONDS, **how, "client_encoding": "UTF8"}))


def _unreachable(problem: Exception) -> TemporarilyUnreadableError:
    """Say why there is no connection, without quoting the server or the driver."""
    text = str(problem)
    reasons = {
        "password": "The database refuses the user or the password, or no password was given",
        "does not exist": "The database has no such user or database",
        "refused": "No database answers at that host and port",
        "could not translate": "The host is unknown",
        "timeout": f"The database did not answer within {_CONNECT_SECONDS} seconds",
    }
    why = next((reason for word, reason in reasons.items() if word in text), "The database cannot be reached")
    return TemporarilyUnreadableError(f"{why}.", "Check the connection string in the file, and try psql with it.")


def _failed(problem: Any, connection: Any, source: RowSource) -> InvalidDataError:  # noqa: ANN401  # of psycopg
    """Say why reading failed. Only errors about names and rights are quoted, because they hold no values."""
    state = problem.sqlstate or ""
    if state == TIMEOUT:
        return took_too_long()
    if connection.broken or is_lost(state):
        return lost()
    kind = type(problem).__name__
    what = f"{kind}: {problem.diag.message_primary}" if state.startswith("42") else kind
    return InvalidDataError(f"Reading from the database failed: {what}.", remedy_of(source.reading))


def _selection(connection: Any, source: RowSource) -> Selection:  # noqa: ANN401  # of psycopg
    reading, origin = source.reading, _origin(connection, source.reading)
    keys = [] if reading.query else connection.execute(_PRIMARY_KEY, [origin]).fetchall()
    is_readable = all(may_read for _, may_read in keys)
    described = _described(connection, origin, reading)
    usual = [quoted(name) for name, _ in keys if is_readable]
    return selection(source, origin, described, _TYPES, usual)


def _origin(connection: Any, reading: Reading) -> str:  # noqa: ANN401  # of psycopg
    """Return the text after FROM."""
    return as_table(reading.query) if reading.query else _table(connection, reading.table)


def _described(connection: Any, origin: str, reading: Reading) -> list[tuple[str, str]]:  # noqa: ANN401  # of psycopg
    """Return the names and types of expressions, and of all columns that the user may read."""
    readable = [] if reading.query else connection.execute(_READABLE, [origin]).fetchall()
    found = connection.execute(
        no_rows_of(origin, reading, ", ".join(quoted(name) for (name,) in readable) or "*")
    ).description
    names = [column.name for column in found[: len(found) - len(reading.expressions)]]
    kinds = [_type(connection, column.type_code) for column in found]
    return [*zip([*names, *reading.expressions], kinds, strict=True)]


def _type(connection: Any, code: int) -> str:  # noqa: ANN401  # of psycopg
    known = connection.adapters.types.get(code)
    if known is not None and known.oid == code:
        return str(known.name)
    found = connection.execute("SELECT typname, typcategory FROM pg_type WHERE oid = %s", [code]).fetchone()
    return f"type {code}" if found is None else _OTHERS.get(found[1], str(found[0]))


def _table(connection: Any, wanted: str | None) -> str:  # noqa: ANN401  # of psycopg
    """Return the table that is declared, with or without its schema, or the only one."""
    listed = connection.execute(_TABLES).fetchall()
    there = [(schema, name) for schema, name, is_readable in listed if is_readable]
    found = [(schema, name) for schema, name in there if wanted in {None, f"{schema}.{name}", name}]
    if len(found) == 1:
        return ".".join(map(quoted, found[0]))
    if not found and any(wanted in {None, f"{schema}.{name}", name} for schema, name, _ in listed):
        raise InvalidDataError(
            f"The user may not read {'any table' if wanted is None else f'the table {wanted!r:.60}'}.",
            "Have its owner allow that: GRANT SELECT ON the table, or some of its columns, TO the user.",
        )
    raise no_single_table(wanted, *([f"{schema}.{name}" for schema, name in each] for each in (found, there)))


def _rows_with_texts(connection: Any, chosen: Selection, source: RowSource) -> Iterator[FloatArray]:  # noqa: ANN401
    """Read rows with some columns of texts, in batches, through a cursor on the server."""
    if connection.info.parameter_status("server_encoding") not in _PLAIN_ENCODINGS:
        connection.execute("SELECT set_config('client_encoding', current_setting('server_encoding'), false)")
    encoding, names = connection.info.encoding, chosen.columns.names or ()
    readers = [
        cell_reader(source.reading, name) if own else None for name, own in zip(names, chosen.texts, strict=True)
    ]
    with connection.cursor(name="rows", binary=True) as cursor:
        cursor.execute(chosen.statement)
        while rows := cursor.fetchmany(source.rows_at_a_time(len(names))):
            read_by = zip(zip(*rows, strict=True), readers, strict=True)
            found = [cells if read is None else _levels(cells, read, encoding) for cells, read in read_by]
            yield np.array(found, dtype=np.float64).T


def _levels(cells: Sequence[bytes | None], read: Callable[[str], float], encoding: str) -> list[float]:
    """Convert texts of a category, each different one once."""
    known = {cell: nan if cell is None else read(cell.decode(encoding, "replace")) for cell in set(cells)}
    return [known[cell] for cell in cells]


def _rows(copy: Any, columns: int) -> Iterator[FloatArray]:  # noqa: ANN401  # of psycopg
    """Convert the bytes of a binary COPY, whose rows all have the same length."""
    row = np.dtype([("cells", ">i2"), ("cell", _CELL, (columns,))])
    pending, is_first = bytearray(), True
    for block in copy:
        pending += block
        if is_first and len(pending) > len(_HEAD) + 8:
            is_first = False
            (extra,) = struct.unpack_from(">i", pending, len(_HEAD) + 4)
            if not pending.startswith(_HEAD) or extra:
                raise InvalidDataError("The database sent a COPY in an unknown form.", "Report this as a bug.")
            del pending[: len(_HEAD) + 8]
        if len(pending) >= _CHUNK_BYTES:
            whole = len(pending) - len(pending) % row.itemsize
            yield _numbers(bytes(pending[:whole]), row)
            del pending[:whole]
    if is_first or pending[-len(_END) :] != _END:
        raise TemporarilyUnreadableError("The database ended before all rows were sent.", "Start again when it runs.")
    yield _numbers(bytes(pending[: -len(_END)]), row)


def _numbers(content: bytes, row: "np.dtype[Any]") -> FloatArray:
    found = np.frombuffer(content, row)
    if (found["cells"] != row["cell"].shape[0]).any() or (found["cell"]["bytes"] != _CELL["number"].itemsize).any():
        raise InvalidDataError("The database sent other columns than it announced.", "Report this as a bug.")
    return found["cell"]["number"].astype(np.float64)
