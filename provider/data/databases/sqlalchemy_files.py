"""Reads rows from any database that SQLAlchemy reaches. The data set is a private file that says how to connect.

The file holds one URL, such as ``mysql+pymysql://steward:${LABS_PASSWORD}@db.example/labs``. A password of the form
``${NAME}`` is taken from the environment. Nothing of the URL, and no text of the driver that could hold a value, goes
into an error or a log. The package of the database's own driver is the steward's to install.

Databases differ in how they convert values, and a conversion could fail for one of them. So values come as they are and
are converted here, each for itself: one that is no number makes its own row unusable. Columns of a table have types,
and those that hold no numbers are refused by name. For columns of a query, not all databases state a type.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from functools import partial
from math import inf, nan
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError, MissingExtraError
from dpspca.common.storage import files
from dpspca.provider.data.files import TemporarilyUnreadableError
from dpspca.provider.data.tables import (
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    TripletBatch,
    cell_reader,
    import_extra,
    value_reader,
)

from .arrow_driver import lost
from .sql import Types, as_table, no_rows_of, no_single_table, remedy_of, selection, triplet_statement

_FROM_ENVIRONMENT: Final = re.compile(r"\$\{(\w+)\}")
_CONSISTENT: Final = "REPEATABLE READ"
_BATCH_ROWS: Final = 65_536
_PACKAGES: Final = {"MySQLdb": "mysqlclient", "cx_Oracle": "cx-Oracle", "psycopg2": "psycopg2-binary"}
"""What the package of a driver is called, where its module has another name."""
_WHOLE, _NUMBER, _TEXT, _ANY = "whole number", "number", "text", "any"
_PLAIN: Final = "{}"
_TYPES: Final = Types(
    dict.fromkeys((_WHOLE, _NUMBER, _ANY), _PLAIN), dict.fromkeys((_TEXT, _ANY), _PLAIN), (_WHOLE, _ANY), _PLAIN
)


def read_sqlalchemy(source: RowSource) -> RawTable:
    """Read the rows of the table or query that is declared. If there is one table, it may be left out."""
    with ExitStack() as opened:
        connection = opened.enter_context(_connected(source))
        origin, described, key = _described(connection, source)
        chosen = selection(source, origin, described, _TYPES, key, _quoting(connection))
        width = len(chosen.columns.names or ())
        found = connection.exec_driver_sql(chosen.statement)
        rows = RowBatches.reading(width, np.dtype(np.float64), _rows(found, chosen.columns, source), opened)
    return RawTable(rows, chosen.columns)


def triplets_of_sqlalchemy(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets in batches."""
    read = value_reader(source.reading)
    with _connected(source) as connection:
        origin, described, _ = _described(connection, source)
        found = connection.exec_driver_sql(triplet_statement(source, origin, described, _TYPES, _quoting(connection)))
        while rows := found.fetchmany(_BATCH_ROWS):
            row, column, *value = zip(*rows, strict=True)
            numbers = [
                _number(each, partial(read, _name(name)))
                for each, name in zip(value[0] if value else (), column, strict=bool(value))
            ]
            yield TripletBatch([*map(_name, row)], [*map(_name, column)], np.array(numbers) if value else None)


def columns_of_sqlalchemy(source: RowSource) -> Columns:
    """Read which columns are used, and their types."""
    with _connected(source) as connection:
        origin, described, key = _described(connection, source)
        return selection(source, origin, described, _TYPES, key, _quoting(connection)).columns


# --- The connection ---------------------------------------------------------------------------------------------------


@contextmanager
def _connected(source: RowSource) -> Iterator[Any]:
    """Connect for one transaction, whose changes, if a query makes any, are undone."""
    alchemy = import_extra("sqlalchemy")
    engine = _engine(alchemy, source)
    try:
        connection = engine.connect()
    except alchemy.exc.SQLAlchemyError:
        raise TemporarilyUnreadableError(
            "The database cannot be reached, or it refuses the user.",
            "Check the URL in the file, and try the database's own client with it.",
        ) from None
    try:
        with connection:
            options = {"stream_results": True, "no_parameters": True} | (  # otherwise drivers look for them after %
                {"isolation_level": _CONSISTENT} if _can_be_consistent(engine) else {}
            )
            yield connection.execution_options(**options)
            connection.rollback()
    except alchemy.exc.DBAPIError as problem:
        if problem.connection_invalidated:
            raise lost() from None
        raise InvalidDataError(
            f"Reading from the database failed: {type(problem).__name__}{_number_of(problem.orig)}.",
            remedy_of(source.reading),
        ) from None
    except alchemy.exc.SQLAlchemyError as problem:
        raise InvalidDataError(
            f"Reading from the database failed: {type(problem).__name__}.", remedy_of(source.reading)
        ) from None
    finally:
        engine.dispose()


def _number_of(problem: BaseException | None) -> str:
    """Return the number of a driver's error, if it has one: its words may hold a value, its number does not."""
    number = problem.args[0] if problem is not None and problem.args else None
    return f", error {number}" if isinstance(number, int) else ""


def _engine(alchemy: Any, source: RowSource) -> Any:  # noqa: ANN401  # of SQLAlchemy
    """Make what connects, without connecting."""
    content = files.read(source.path, private=True)
    try:
        lines = [each.strip() for each in content.decode("utf-8-sig").splitlines()]
        (line,) = [each for each in lines if each and not each.startswith("#")]
        url = alchemy.make_url(line)
        url.get_dialect()
    except ModuleNotFoundError as problem:
        raise _missing(problem) from None
    except (ValueError, TypeError, alchemy.exc.SQLAlchemyError):
        raise InvalidDataError(  # without SQLAlchemy's words, which could quote a password
            "The file does not contain a database's URL that SQLAlchemy knows.",
            "Write one line, as in: mysql+pymysql://steward@db.example/labs",
        ) from None
    try:
        return alchemy.create_engine(_with_password(url), poolclass=alchemy.NullPool, hide_parameters=True)
    except ModuleNotFoundError as problem:
        raise _missing(problem) from None


def _missing(problem: ModuleNotFoundError) -> MissingExtraError:
    package = _PACKAGES.get(problem.name or "", problem.name)
    return MissingExtraError(
        f"This database needs the package {package}, which is not installed.", f"Install it with: pip install {package}"
    )


def _with_password(url: Any) -> Any:  # noqa: ANN401  # of SQLAlchemy
    """Take the password from the environment if the file says so."""
    named = _FROM_ENVIRONMENT.fullmatch(url.password or "")
    if named is None:
        return url
    password = os.environ.get(named[1])
    if password is None:
        raise InvalidDataError(
            f"The file takes the password from the variable {named[1]}, which is not set.",
            "Set it in the environment of the daemon.",
        )
    return url.set(password=password)


def _can_be_consistent(engine: Any) -> bool:  # noqa: ANN401  # of SQLAlchemy
    """Tell whether the database can show all rows as they are at one moment."""
    try:
        return _CONSISTENT in engine.dialect.get_isolation_level_values(None)
    except NotImplementedError:
        return False


# --- Tables and columns -----------------------------------------------------------------------------------------------


def _quoting(connection: Any) -> Callable[[str], str]:  # noqa: ANN401  # of SQLAlchemy
    """Return how this database quotes a name."""
    quoting: Callable[[str], str] = connection.dialect.identifier_preparer.quote_identifier
    return quoting


def _described(connection: Any, source: RowSource) -> tuple[str, list[tuple[str, str]], list[str]]:  # noqa: ANN401
    """Return the text after FROM, the names and types of its columns, and its primary key."""
    alchemy, quote = import_extra("sqlalchemy"), _quoting(connection)
    if source.reading.query:
        origin = as_table(source.reading.query)
        with connection.exec_driver_sql(no_rows_of(origin, source.reading)) as empty:
            names = list(empty.keys())
        return origin, [(name, _ANY) for name in names], []
    inspector = alchemy.inspect(connection)
    schema, table = _table(inspector, source.reading.table)
    columns = [(each["name"], _kind(alchemy, each["type"])) for each in inspector.get_columns(table, schema)]
    key = inspector.get_pk_constraint(table, schema).get("constrained_columns") or []
    origin = ".".join(quote(part) for part in (schema, table) if part)
    if source.reading.expressions:
        connection.exec_driver_sql(no_rows_of(origin, source.reading)).close()  # refuses what looks at other rows
        columns += [(name, _ANY) for name in source.reading.expressions]
    return origin, columns, [quote(name) for name in key]


def _table(inspector: Any, wanted: str | None) -> tuple[str | None, str]:  # noqa: ANN401  # of SQLAlchemy
    """Return the schema and the name of the table that is declared, or of the only one."""
    there = sorted(inspector.get_table_names())
    if wanted is None and len(there) == 1:
        return None, there[0]
    if wanted is not None:
        if wanted in there or wanted in inspector.get_view_names():
            return None, wanted
        schema, dot, name = wanted.rpartition(".")
        if dot and schema in inspector.get_schema_names() and inspector.has_table(name, schema):
            return schema, name
    raise no_single_table(wanted, (), there)


def _kind(alchemy: Any, of: Any) -> str:  # noqa: ANN401  # of SQLAlchemy
    """Return the kind of a column's type, or name a type that holds neither numbers nor text."""
    if isinstance(of, alchemy.Integer | alchemy.Boolean):
        return _WHOLE
    if isinstance(of, alchemy.Numeric | alchemy.Float):
        return _NUMBER
    return _TEXT if isinstance(of, alchemy.String | alchemy.Enum) else str(of)


# --- Values -----------------------------------------------------------------------------------------------------------


def _rows(found: Any, columns: Columns, source: RowSource) -> Iterator[FloatArray]:  # noqa: ANN401  # of SQLAlchemy
    """Convert rows, some at a time."""
    readers = [cell_reader(source.reading, name) for name in columns.names or ()]
    while rows := found.fetchmany(source.rows_at_a_time(len(readers))):
        yield np.array(
            [[_number(value, read) for value, read in zip(row, readers, strict=True)] for row in rows], np.float64
        )


def _number(value: Any, read: Callable[[str], float]) -> float:  # noqa: ANN401  # whatever a database holds
    """Return a value as a number: NaN if it is missing, and infinity if it is no number."""
    match value:
        case None:
            return nan
        case str():
            return read(value)
        case bool() | int() | float() | Decimal():
            try:
                return float(value)
            except (OverflowError, ValueError):  # a huge integer, a signalling NaN
                return inf
        case _:
            return inf


def _name(value: Any) -> str | None:  # noqa: ANN401  # whatever a database holds
    """Return a value as the name of a row or a column. A query's column may hold 1 as 1.0, as a database likes."""
    if value is None:
        return None
    is_whole = isinstance(value, bool) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value == value.to_integral_value()
    return str(int(value)) if is_whole else str(value)
