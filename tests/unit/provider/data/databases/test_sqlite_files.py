"""SQLite: rows of a table come in the order in which they were added, and any value may stand anywhere."""

import errno
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts

from dpspca.common.errors import DpspcaError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.files.folders import TemporarilyUnreadableError
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import names_in, read_rows


def database(path: Path, *statements: str, rows: list[tuple[Any, ...]] | None = None) -> Path:
    with closing(sqlite3.connect(path)) as made, made:
        for statement in statements or ("CREATE TABLE visits (age REAL, bmi REAL, name TEXT)",):
            made.execute(statement)
        made.executemany("INSERT INTO visits VALUES (?, ?, ?)", rows or [(50, 24.5, "ann"), (60, 25, "bob")])
    return path


@pytest.mark.parametrize("name", ["rows.sqlite", "rows.DB", "odd name? #1.sqlite3"])
def test_the_only_table_is_read(name: str, tmp_path: Path) -> None:
    path, reading = database(tmp_path / name), Reading(columns=("bmi", "age"))
    for read in (read_rows, read_offered):
        assert (read(path, reading).matrix == [[24.5, 50], [25, 60]]).all()
        assert read(path, reading).names == names_in(path, reading) == ("bmi", "age")
    assert read_rows(path, Reading(leave_out=("name",), table="visits")).names == ("age", "bmi")


def test_a_query_gives_rows(tmp_path: Path) -> None:
    path = database(tmp_path / "rows.sqlite")
    reading = Reading(query="SELECT age, age * bmi AS product FROM visits ORDER BY rowid DESC")
    assert (read_rows(path, reading).matrix == [[60, 1500], [50, 1225]]).all()
    assert names_in(path, reading) == ("age", "product")


@pytest.mark.parametrize(
    ("reading", "facts"),
    [
        (Reading(), ("several tables", "labs, visits")),
        (Reading(table="visit"), ("no table 'visit'", "labs, visits")),
        (Reading(query="SELECT weight FROM visits"), ("no such column: weight",)),
        (Reading(query="DELETE FROM visits"), ("would change",)),
        (Reading(query="SELEC"), ("does not understand",)),
        (Reading(query="SELECT 1 AS a; SELECT 2 AS a"), ("one statement at a time",)),
        (Reading(query="PRAGMA query_only = off"), ("no rows",)),
        (Reading(table="visits", columns=("agee",)), ("no column 'agee'", "'age'")),
        (Reading(table="visits", delimiter=";"), ("delimiter",)),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(reading: Reading, facts: tuple[str, ...], tmp_path: Path) -> None:
    path = database(tmp_path / "rows.db", "CREATE TABLE visits (age, bmi, name)", "CREATE TABLE labs (a)")
    with pytest.raises(DpspcaError) as caught:
        read_offered(path, reading)
    assert any(fact in str(caught.value) for fact in facts)
    assert str(path) in str(caught.value)
    with closing(sqlite3.connect(path)) as after:
        assert after.execute("SELECT count(*) FROM visits").fetchone() == (2,)


def test_a_search_in_full_text_does_not_quote_a_cell(tmp_path: Path) -> None:
    """There SQLite takes what stands before a colon for the name of a column, and says that there is none."""
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE VIRTUAL TABLE notes USING fts5(a, b)")
        made.execute("INSERT INTO notes VALUES ('x', 'Muller')")
    query = "SELECT 1 AS n FROM notes, (SELECT b AS c FROM notes) WHERE notes MATCH c || ':x'"
    with pytest.raises(DpspcaError) as caught:
        read_offered(path, Reading(query=query))
    assert "Muller" not in str(caught.value)
    assert "SQLITE_ERROR" in str(caught.value)


ODD: list[Any] = [
    None,
    "tall",
    "",
    b"\xff",
    "nan",
    float("inf"),
    -1e300,
    "gro\udcdf".encode("utf-8", "surrogateescape"),
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_value_is_one_row_of_zeros(odd: Any, tmp_path: Path) -> None:
    rows = [(float(row), 2.0, "x") for row in range(1, 6)]
    path = database(tmp_path / "rows.db", rows=[*rows[:2], (odd, 2.0, "x"), *rows[3:]])
    with closing(sqlite3.connect(path)) as made, made:
        if isinstance(odd, bytes):  # text that is not in UTF-8
            made.execute("UPDATE visits SET age = CAST(? AS TEXT) WHERE rowid = 3", (odd,))
    read = read_offered(path, Reading(columns=("age", "bmi")))
    assert (read.matrix == [[1, 2], [2, 2], [0, 0], [4, 2], [5, 2]]).all()


def test_missing_values_are_filled_in(tmp_path: Path) -> None:
    rows = [(None, 2.0, ""), ("NA", 2.0, ""), (-9, 2.0, ""), ("tall", 2.0, ""), ("41.5", 2.0, "")]
    path = database(tmp_path / "rows.db", "CREATE TABLE visits (age, bmi, name)", rows=rows)
    reading = Reading(columns=("age", "bmi"), missing_codes=("NA", -9), missing={"age": 40.0})
    assert (read_offered(path, reading).matrix == [[40, 2], [40, 2], [40, 2], [0, 0], [41.5, 2]]).all()


def test_a_changed_value_moves_no_row_along_an_index(tmp_path: Path) -> None:
    """SQLite would read a table of indexed columns in the order of their values."""
    for number, first in enumerate((3.0, 9.0)):
        path = database(
            tmp_path / f"{number}.db",
            "CREATE TABLE visits (age REAL, rowid REAL, name REAL)",
            "CREATE INDEX ages ON visits (age)",
            rows=[(first, 5.0, 0.0), (4.0, 4.0, 0.0), (5.0, 3.0, 0.0)],
        )
        with closing(sqlite3.connect(path)) as made:
            plain = made.execute("SELECT age FROM visits").fetchall()
        assert (plain[0][0] == first) == (number == 0)
        assert read_offered(path, Reading(columns=("age",))).matrix[:, 0].tolist() == [first, 4, 5]


def test_a_table_whose_columns_hide_its_row_numbers_needs_a_query(tmp_path: Path) -> None:
    path = database(tmp_path / "rows.db", "CREATE TABLE visits (oid REAL, ROWID REAL, _rowid_ TEXT)")
    with pytest.raises(DpspcaError, match=facts("rows.db", "rowid")):
        read_offered(path, Reading(columns=("oid",)))


@pytest.mark.parametrize("key", ["name", "name, bmi"])
def test_a_table_without_row_numbers_is_read_in_the_order_of_its_key(key: str, tmp_path: Path) -> None:
    made = f"CREATE TABLE visits (age REAL, bmi REAL, name TEXT, PRIMARY KEY ({key})) WITHOUT ROWID"
    path = database(tmp_path / "rows.db", made, rows=[(60, 25, "bob"), (50, 24.5, "ann")])
    assert (read_offered(path, Reading(columns=("age", "bmi"))).matrix == [[50, 24.5], [60, 25]]).all()
    query = "SELECT age, bmi FROM visits ORDER BY age DESC"
    assert (read_offered(path, Reading(query=query)).matrix == [[60, 25], [50, 24.5]]).all()


@pytest.mark.parametrize("key", ["INTEGER PRIMARY KEY", "REAL PRIMARY KEY", "REAL UNIQUE"])
def test_other_tables_are_read_in_the_order_of_their_row_numbers(key: str, tmp_path: Path) -> None:
    made = f"CREATE TABLE visits (age {key}, bmi REAL, name TEXT)"
    path = database(tmp_path / "rows.db", made, rows=[(60, 25, "bob"), (50, 24.5, "ann")])
    ages = [50, 60] if key.startswith("INTEGER") else [60, 50]
    assert read_offered(path, Reading(columns=("age",))).matrix.tolist() == [[age] for age in ages]  # type: ignore[union-attr]


def test_a_view_needs_a_query_with_an_order(tmp_path: Path) -> None:
    path = database(tmp_path / "rows.db")
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE VIEW seen AS SELECT age, bmi FROM visits")
    with pytest.raises(DpspcaError, match=facts("'seen'", "ORDER BY")):
        read_offered(path, Reading(table="seen"))
    with closing(sqlite3.connect(tmp_path / "views.db")) as made, made:
        made.execute("CREATE VIEW one AS SELECT 1 AS x")
    with pytest.raises(DpspcaError, match=facts("'one'", "ORDER BY")):
        read_offered(tmp_path / "views.db", Reading())


def test_a_query_reads_a_view(tmp_path: Path) -> None:
    path = database(tmp_path / "rows.db")
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE VIEW seen AS SELECT age, bmi FROM visits")
    rows = read_offered(path, Reading(query="SELECT * FROM seen ORDER BY age DESC"))
    assert (rows.matrix == [[60, 25], [50, 24.5]]).all()


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ('SELECT "agee" AS age, bmi FROM visits ORDER BY rowid', "agee"),
        ('SELECT age, bmi FROM visits ORDER BY "rowidd"', "rowidd"),
        ("""SELECT age, bmi FROM visits WHERE name <> '"x"' AND "x""y" = 1 -- "z\n""", 'x"y'),
    ],
)
def test_a_misspelt_name_in_quotes_is_no_text(query: str, name: str, tmp_path: Path) -> None:
    """SQLite would take it for a text, the same in every row."""
    with pytest.raises(DpspcaError, match=facts(f"column: {name}")):
        read_offered(database(tmp_path / "rows.db"), Reading(query=query))


@pytest.mark.parametrize(
    "query",
    [
        'SELECT "age", "visits"."bmi" AS "body ""mass""" FROM "visits" ORDER BY "rowid"',
        """SELECT age, bmi + length('"nothing') - 8 /* "nothing" */ FROM visits ORDER BY rowid -- "nothing\n""",
        'WITH "one" AS (SELECT age AS "x y", bmi FROM visits ORDER BY rowid) SELECT "x y", `bmi` FROM "one"',
    ],
)
def test_names_in_quotes_and_aliases_are_names(query: str, tmp_path: Path) -> None:
    matrix = read_offered(database(tmp_path / "rows.db"), Reading(query=query)).matrix
    assert matrix[:, 0].tolist() == [50, 60]  # type: ignore[call-overload, union-attr]


def test_a_database_without_tables_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "none.db").write_bytes(b"")
    for reading in (Reading(), Reading(table="visits")):
        with pytest.raises(DpspcaError, match=facts("none.db")) as caught:
            read_offered(tmp_path / "none.db", reading)
        assert "several" not in str(caught.value)


@pytest.mark.parametrize("first", [1, -(2**63)])
def test_a_column_computed_while_it_is_read_is_refused_whatever_rows_hold(first: int, tmp_path: Path) -> None:
    """The absolute value of the least integer is an error, which one row would bring about."""
    with closing(sqlite3.connect(tmp_path / "rows.db")) as database, database:
        database.execute("CREATE TABLE visits (age INTEGER, twice AS (age * 2.0) STORED)")
        database.executemany("INSERT INTO visits VALUES (?)", [(first,), (3,)])
        database.execute("ALTER TABLE visits ADD COLUMN size AS (abs(age))")
    with pytest.raises(DpspcaError, match=facts("'size'", "STORED", "leave_out")):
        read_offered(tmp_path / "rows.db")
    read = read_offered(tmp_path / "rows.db", Reading(leave_out=("size",)))
    assert np.asarray(read.matrix).tolist() == [[first, 2.0 * first], [3, 6]]


@pytest.mark.slow
def test_a_locked_database_may_be_read_later(tmp_path: Path) -> None:
    path = database(tmp_path / "rows.db")
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TemporarilyUnreadableError, match=facts("rows.db")):
            read_arriving(path, Reading(columns=("age",)))
    assert read_arriving(path, Reading(columns=("age",)))[0].count == 2


def test_a_file_that_is_not_a_database_is_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "rows.db").write_bytes(b"SECRET" * 99)
    with pytest.raises(DpspcaError, match=facts("rows.db", "SQLITE_NOTADB")) as caught:
        read_offered(tmp_path / "rows.db")
    assert "SECRET" not in str(caught.value)
    with pytest.raises(DpspcaError, match=facts("gone.db", os.strerror(errno.ENOENT))):
        read_offered(tmp_path / "gone.db")


def test_tables_without_rows_are_tables(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "rows.db")) as made, made:
        made.execute("CREATE TABLE visits (age, bmi)")
    read = read_offered(tmp_path / "rows.db")
    assert (read.count, read.names) == (0, ("age", "bmi"))
    assert np.asarray(read.matrix).shape == (0, 2)
