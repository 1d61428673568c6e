"""Databases that SQLAlchemy reaches: MariaDB, PostgreSQL and SQLite, each through its own driver."""

import gc
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import database
import mariadb
import numpy as np
import psycopg
import pytest
from facts import facts, names_facts
from people_tables import LEVELS, people, studied

from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.triplets import Triplets
from dpspca.provider.data.databases import read_sqlalchemy
from dpspca.provider.data.files.folders import TemporarilyUnreadableError
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_rows, types_in
from dpspca.provider.data.tables import RowSource

SECRET = "hunter2-swordfish"  # noqa: S105  # of no one
VISITS = "CREATE TABLE visits (visit integer PRIMARY KEY, age double precision, bmi numeric(9, 2), name varchar(20))"
ROWS = "INSERT INTO visits VALUES (2, 60, 25, 'bob'), (1, 50, 24.5, 'ann'), (3, NULL, 26, 'eve')"
CHOSEN = Reading(columns=("bmi", "age"), missing={"age": 40.0}, table="visits")

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def maria() -> Iterator[mariadb.MariaServer]:
    with mariadb.server() as running:
        yield running


@pytest.fixture(scope="module")
def postgres() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


def saved(folder: Path, url: str) -> Path:
    path = folder / "warehouse.sqlalchemy"
    path.write_text(f"# the warehouse\n{url}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture(params=["mariadb", "postgresql", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Return a function that makes a database and the file that says how to connect."""

    def in_mariadb(*statements: str) -> Path:
        server: mariadb.MariaServer = request.getfixturevalue("maria")
        return saved(tmp_path, server.database(*statements))

    def in_postgresql(*statements: str) -> Path:
        server: database.Server = request.getfixturevalue("postgres")
        url = server.database()
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        return saved(tmp_path, url.replace("postgresql:", "postgresql+psycopg:"))

    def in_sqlite(*statements: str) -> Path:
        with closing(sqlite3.connect(tmp_path / "rows.db")) as made, made:
            for statement in statements:
                made.execute(statement)
        return saved(tmp_path, f"sqlite:///{tmp_path / 'rows.db'}")

    return {"mariadb": in_mariadb, "postgresql": in_postgresql, "sqlite": in_sqlite}[request.param]


def matrix(path: Path, reading: Reading) -> list[Any]:
    found: list[Any] = np.asarray(read_offered(path, reading).matrix).tolist()
    return found


def test_a_table_is_read_in_the_order_of_its_key(make: Make) -> None:
    path = make(VISITS, ROWS)
    assert matrix(path, CHOSEN) == [[24.5, 50], [25, 60], [26, 40]]
    assert names_in(path, CHOSEN) == ("bmi", "age")
    assert np.asarray(read_rows(path, CHOSEN).matrix).tolist() == matrix(path, CHOSEN)
    declared = Reading(leave_out=("name", "visit"), missing=40, order_by=("age",), table="visits")
    assert sorted(matrix(path, declared)) == [[40, 26], [50, 24.5], [60, 25]]
    assert dict(zip(("age", "bmi"), types_in(path, declared) or (), strict=True))["bmi"] == "number"


def test_a_query_gives_rows_in_the_declared_order(make: Make) -> None:
    path = make(VISITS, ROWS)
    query = "SELECT visit, age * 2 AS twice FROM visits WHERE age IS NOT NULL;"
    assert matrix(path, Reading(query=query, columns=("twice",), order_by=("visit",))) == [[100], [120]]
    with pytest.raises(DpspcaError, match=facts("order_by")):
        read_offered(path, Reading(query=query))


def test_a_value_that_is_no_number_makes_its_own_row_unusable(make: Make) -> None:
    """A query's columns have no types that all databases state, so each value is looked at for itself."""
    path = make(VISITS, ROWS)
    query = "SELECT visit, age, CASE WHEN visit = 2 THEN 'many' ELSE '12.5' END AS doses FROM visits WHERE visit < 3"
    reading = Reading(query=query, columns=("age", "doses"), order_by=("visit",))
    assert matrix(path, reading) == [[50, 12.5], [0, 0]]


@pytest.mark.parametrize(
    ("reading", "named"),
    [
        (Reading(), ("labs", "visits")),
        (Reading(table="visit"), ("'visit'", "visits")),
        (Reading(table="nowhere.visits"), ("'nowhere.visits'", "visits")),
        (Reading(table="visits"), ("'name'", "text")),
        (Reading(table="visits", columns=("agee",)), ("'agee'",)),
        (Reading(table="visits", columns=("age",), order_by=("agee",)), ("'agee'",)),
        (Reading(table="labs"), ("order_by",)),
        (Reading(query="SELECT weight FROM visits", order_by=("weight",)), ("warehouse.sqlalchemy",)),
        (Reading(query="SELEC 1", order_by=("a",)), ("warehouse.sqlalchemy",)),
        (Reading(table="visits", columns=("age",), delimiter=";"), ("delimiter",)),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(make: Make, reading: Reading, named: tuple[str, ...]) -> None:
    path = make(VISITS, ROWS, "CREATE TABLE labs (a integer)")
    with pytest.raises(DpspcaError, match=facts(*named)):
        read_offered(path, reading)


def test_texts_are_levels_of_categories_and_dates_are_refused(make: Make) -> None:
    path = make(*people("varchar(20)"), "ALTER TABLE people ADD COLUMN born date")
    assert matrix(path, studied()) == LEVELS
    with pytest.raises(DpspcaError, match=facts("'born'", "DATE", "absent")):
        read_offered(path, studied(age="born"))


def test_triplets_have_whole_numbers_or_text_as_names(make: Make, tmp_path: Path) -> None:
    (tmp_path / "cohort.txt").write_text("7\n8\n9\n", encoding="utf-8")
    path = make(
        "CREATE TABLE long_table (person integer, concept varchar(9), amount double precision)",
        "INSERT INTO long_table VALUES (9, 'b', 2.5), (7, 'a', 1), (7, 'b', NULL), (8, 'c', 3), (NULL, 'a', 1)",
    )
    declared = Triplets(row="person", column="concept", value="amount", rows=tmp_path / "cohort.txt")
    reading = Reading(columns=("a", "b"), missing=4.0, triplets=declared)
    rows: Any = read_offered(path, reading).matrix
    assert rows.toarray().tolist() == [[1, 4], [0, 0], [0, 2.5]]
    floating = replace(reading, triplets=replace(declared, row="amount", value=None))
    with pytest.raises(DpspcaError, match=facts("'amount'", "CAST(... AS BIGINT)")):
        read_offered(path, floating)
    query = "SELECT person, concept FROM long_table WHERE person > 7"
    counted = replace(reading, query=query, triplets=replace(declared, value=None))
    counts: Any = read_offered(path, counted).matrix
    assert counts.toarray().tolist() == [[0, 0], [0, 0], [0, 1]]
    as_numbers = replace(counted, query="SELECT person * 1.0 AS person, concept FROM long_table")
    fractions: Any = read_offered(path, as_numbers).matrix
    assert fractions.toarray().tolist() == [[1, 1], [0, 0], [0, 1]]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_database_that_goes_away_while_rows_are_read_is_named(maria: mariadb.MariaServer, tmp_path: Path) -> None:
    rows = ", ".join(f"({number}, 1.5)" for number in range(200_000))
    made = ("CREATE TABLE t (id integer PRIMARY KEY, a double)", f"INSERT INTO t VALUES {rows}")  # noqa: S608
    path = saved(tmp_path, maria.database(*made))
    blocks: Any = read_sqlalchemy(RowSource(path, Reading(columns=("a",)), cells=1000))
    next(reading := iter(blocks.numbers.batches))
    maria.end_sessions()
    with pytest.raises(TemporarilyUnreadableError) as caught:
        list(reading)
    del blocks, reading, caught
    gc.collect()  # pymysql fails where it closes what the server has ended, and another test would be blamed


def test_neither_the_url_nor_the_driver_s_words_are_quoted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for url, expected in (
        (f"mysql+pymysql://ada:{SECRET}@127.0.0.1:1/labs", TemporarilyUnreadableError),
        (f"postgresql+psycopg://ada:{SECRET}@127.0.0.1:1/labs", TemporarilyUnreadableError),
        (f"nosuch://ada:{SECRET}@db/labs", InvalidDataError),
        (f"no url {SECRET}", InvalidDataError),
        (f"oracle+oracledb://ada:{SECRET}@db/labs", MissingExtraError),
    ):
        with pytest.raises(expected) as caught:
            read_offered(saved(tmp_path, url), CHOSEN)
        assert SECRET not in str(caught.value) + caplog.text
        assert caught.value.__cause__ is None
    assert names_facts(str(caught.value), "pip install", "oracledb")


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, "sqlite://")
    path.chmod(0o644)
    with pytest.raises(DpspcaError, match=facts("chmod 600")):
        read_offered(path, CHOSEN)


def test_the_password_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpspca.provider.data.databases.sqlalchemy_files import _with_password  # noqa: PLC0415

    sqlalchemy = pytest.importorskip("sqlalchemy")
    url = sqlalchemy.make_url("mysql+pymysql://ada:${LABS_PASSWORD}@db/labs")
    monkeypatch.setenv("LABS_PASSWORD", SECRET)
    assert _with_password(url).password == SECRET
    monkeypatch.delenv("LABS_PASSWORD")
    with pytest.raises(InvalidDataError, match=facts("LABS_PASSWORD")):
        read_offered(saved(tmp_path, "mysql+pymysql://ada:${LABS_PASSWORD}@db/labs"), CHOSEN)
