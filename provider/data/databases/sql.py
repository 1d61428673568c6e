"""Common parts of the readers of databases: names in SQL, the table or query, and the columns that are used.

Every value that is asked for is cast to floating point by the database, column by column, and comes as NaN where it is
missing. A type is accepted only if all its values can be cast, so no value decides whether the rows are read. Text is
read where a dictionary says which texts are levels of a category. A query is the steward's own, and must not fail for
any value.

Rows have no order in most databases. So the order is declared, or is that of the primary key: a number that was
assigned without looking at the rows. If it does not determine the order, rows may come in another one at the next
start. Then their digest is another, and open jobs are refused.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, TypeAlias

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading
from dpspca.provider.data.tables import (
    Columns,
    PersonCells,
    RowSource,
    columns_used,
    require_numeric,
    require_persons,
    require_triplet_numbers,
    triplet_columns,
)

Quote: TypeAlias = Callable[[str], str]
"""Writes a name in a database's own SQL."""

_LISTED: Final = 20
_DOUBLES: Final = frozenset({"double precision", "float8", "DOUBLE"})
"""Types that hold whole numbers exactly, up to those that name nobody."""
NAME_IT: Final = "Name a table, or write a query, under [reading] in the provider's settings."
_CORRECT_IT: Final = (
    "Correct the query under [reading], or the expressions under [dictionaries]: they must not fail for any row. Guard "
    "a division with nullif, and try the query with the database's own client."
)


def remedy_of(reading: Reading) -> str:
    """Say what to do if reading failed in the database."""
    return _CORRECT_IT if reading.query or reading.expressions else NAME_IT


def quoted(name: str) -> str:
    """Write a name in standard SQL."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Types:
    """Types that can be read from a database: an expression for each type, with ``{}`` for the column."""

    numbers: Mapping[str, str]
    texts: Mapping[str, str]
    whole: Collection[str]
    """Which of the types of numbers are whole."""
    name: str = "CAST({} AS VARCHAR)"
    """How a name that is no whole number becomes text."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns of a table or query that are read in a definite order."""

    columns: Columns
    statement: str
    texts: tuple[bool, ...] = ()
    """Which of the columns come as text."""


def selection(  # noqa: PLR0913, PLR0917  # what a database says of itself
    source: RowSource,
    origin: str,
    described: Sequence[tuple[str, str]],
    types: Types,
    usual_order: Sequence[str],
    quote: Quote = quoted,
) -> Selection:
    """Choose the columns by their names and types, and write the statement that gives them.

    ``origin`` is what stands after FROM. ``described`` are its columns and the expressions of features. Only columns of
    categories may have a type of text. ``usual_order`` is what orders the rows if nothing is declared. If columns of
    any type are wanted, no row is.
    """
    reading = source.reading
    chosen = columns_used([name for name, _ in described], reading)
    used = described if chosen.places is None else [described[place] for place in chosen.places]
    columns = replace(chosen, kinds=tuple(kind for _, kind in used))
    if source.any_type:
        return Selection(columns, "")
    for name, (_, kind) in zip(chosen.names or (), used, strict=True):
        if isinstance(reading.texts.get(name), PersonCells):
            require_persons(name, kind, is_fit=kind in types.texts or kind in types.whole or kind in _DOUBLES)
    named = zip(chosen.names or (), used, strict=True)
    is_text = tuple(name in reading.texts and kind in types.texts for name, (_, kind) in named)
    require_numeric(
        [
            (name, kind)
            for (name, kind), own in zip(used, is_text, strict=True)
            if not own and kind not in types.numbers
        ],
        by_dictionary=reading.preparation is not None,
    )
    known = {name for name, _ in described}.difference(reading.expressions)
    order = ", ".join(_order(reading, known, usual_order, quote))
    forms = [(types.texts if own else types.numbers)[kind] for (_, kind), own in zip(used, is_text, strict=True)]
    written = [form.format(cell(name, reading, quote)) for form, (name, _) in zip(forms, used, strict=True)]
    # No column has such a name, whatever its capitals: otherwise a database may order rows by what a column became.
    taken = [name.casefold() for name in known]
    start = next(each for each in map("cell{}_".format, count()) if not any(name.startswith(each) for name in taken))
    cells = (f"{value} AS {quote(f'{start}{place}')}" for place, value in enumerate(written))
    statement = f"SELECT {', '.join(cells)} FROM {origin} ORDER BY {order}"  # noqa: S608  # quoted names
    return Selection(columns, statement, is_text)


def _order(reading: Reading, known: Collection[str], usual: Sequence[str], quote: Quote) -> list[str]:
    """Return what orders rows: the declared columns and, where these are equal, what orders rows otherwise."""
    declared = [quote(name) for name in reading.order_by or ()]
    order = [*declared, *(name for name in usual if name not in declared)]
    if not order:
        raise InvalidDataError(
            "The rows have no definite order.",
            "Name columns that order them as order_by under [reading]: a number that was assigned without looking at "
            "what the rows say, and that no two rows share.",
        )
    for name in reading.order_by or ():
        if name not in known:
            raise InvalidDataError(f"There is no column {name!r:.60} to order by.", "Correct order_by.")
    return order


def cell(name: str, reading: Reading, quote: Quote = quoted) -> str:
    """Write what gives the cells of a column: its name, or the expression of a feature."""
    return written_expressions(reading).get(name) or quote(name)


def written_expressions(reading: Reading) -> dict[str, str]:
    """Write the expressions of features as parts of a statement. Like a query, they are the steward's own."""
    return {name: f"({expression})" for name, expression in reading.expressions.items()}


def no_rows_of(origin: str, reading: Reading, names: str = "*") -> str:
    """Write a statement that gives columns of a table, by default all, and the expressions of features, and no row.

    After WHERE, no database takes an expression that looks at several rows.
    """
    written = [*written_expressions(reading).values()]
    none = " AND ".join(["1 = 0", *(f"{each} IS NULL" for each in written)])
    return f"SELECT {', '.join([names, *written])} FROM {origin} WHERE {none}"  # noqa: S608  # a quoted name


def triplet_statement(
    source: RowSource, origin: str, described: Sequence[tuple[str, str]], types: Types, quote: Quote = quoted
) -> str:
    """Write the statement that gives triplets: two names, and a floating-point number, in any order.

    Names stay numbers if their type is one of whole numbers, and become text otherwise. Other numbers are refused: a
    database writes them in its own way.
    """
    row, column, *value = triplet_columns(source, [name for name, _ in described])
    kinds = dict(described)
    for name in (row, column):
        if kinds[name] in types.numbers and kinds[name] not in types.whole:
            raise InvalidDataError(
                f"The column {name!r:.60} of triplets has type {kinds[name]}, which may write 1 as 1.0.",
                "Write it as whole numbers or as text: in a query, with CAST(... AS BIGINT).",
            )
    for name in value:
        require_triplet_numbers(name, kinds[name], are_numbers=kinds[name] in types.numbers)
    cells = [quote(name) if kinds[name] in types.whole else types.name.format(quote(name)) for name in (row, column)]
    cells += [types.numbers[kinds[name]].format(quote(name)) for name in value]
    return f"SELECT {', '.join(cells)} FROM {origin}"  # noqa: S608  # quoted names


def no_single_table(wanted: str | None, found: Sequence[str], there: Sequence[str]) -> InvalidDataError:
    """Say that no table or several have the declared name, and list tables. ``found`` are those that have it."""
    if not there:
        return InvalidDataError(
            "The database has no table.", "Check that it is the right one, and that it is complete."
        )
    what = f"There is no table {wanted!r:.60}. There are" if wanted and not found else "There are several tables"
    remedy = "Write its name without quotes." if '"' in (wanted or "") and not found else NAME_IT
    return InvalidDataError(f"{what}: {', '.join((found or there)[:_LISTED])}.", remedy)


def as_table(query: str) -> str:
    """Write a steward's query as what stands after FROM."""
    return f"({query.strip().rstrip(';')}\n) steward_query"
