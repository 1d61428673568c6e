"""PostgreSQL and DuckDB: rows in a definite order, nothing written, and no word about a password or a value."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import database
import duckdb
import numpy as np
import psycopg
import pytest
from facts import facts
from people_tables import LEVELS, PEOPLE, people, studied
from typer.testing import CliRunner

from dpspca.cli.app import app
from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.common.storage.triplets import Triplets
from dpspca.provider.data.files.folders import TemporarilyUnreadableError
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_rows, types_in
from dpspca.provider.data.tables import extras

SECRET = "hunter2-%zz"  # noqa: S105  # of no one
VISITS = "CREATE TABLE visits (visit integer PRIMARY KEY, age double precision, bmi real, name varchar)"
ROWS = "INSERT INTO visits VALUES (2, 60, 25, 'bob'), (1, 50, 24.5, 'ann'), (3, NULL, 26, 'eve')"
CHOSEN = Reading(columns=("bmi", "age"), missing={"age": 40.0}, table="visits")

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


def postgres(server: database.Server, folder: Path, *statements: str) -> Path:
    url = server.database()
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
    return connected(folder, url)


def connected(folder: Path, text: str) -> Path:
    path = folder / "warehouse.postgresql"
    path.write_text(f"# the warehouse\n{text}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


def duck(_server: database.Server, folder: Path, *statements: str) -> Path:
    path = folder / "warehouse.duckdb"
    with duckdb.connect(str(path)) as made:
        for statement in statements:
            made.execute(statement)
    return path


BOTH = pytest.mark.parametrize("make", [postgres, duck])


@BOTH
def test_a_table_is_read_in_a_definite_order(make: Make, server: database.Server, tmp_path: Path) -> None:
    path = make(server, tmp_path, VISITS, ROWS)
    rows = read_offered(path, CHOSEN)
    by_key = [[24.5, 50], [25, 60], [26, 40]]
    by_arrival = [[25, 60], [24.5, 50], [26, 40]]
    assert np.asarray(rows.matrix).tolist() == (by_key if make is postgres else by_arrival)
    assert rows.names == names_in(path, CHOSEN) == ("bmi", "age")
    assert np.asarray(read_rows(path, CHOSEN).matrix).tolist() == np.asarray(rows.matrix).tolist()
    declared = Reading(leave_out=("name", "visit"), missing=40, order_by=("age",))
    assert np.asarray(read_offered(path, declared).matrix)[:, 0].tolist() == [50, 60, 40]


@BOTH
def test_a_query_gives_rows_in_the_declared_order(make: Make, server: database.Server, tmp_path: Path) -> None:
    path = make(server, tmp_path, VISITS, ROWS)
    query = "SELECT visit, age * 2 AS twice FROM visits WHERE age IS NOT NULL;"
    rows = read_offered(path, Reading(query=query, columns=("twice",), order_by=("visit",)))
    assert np.asarray(rows.matrix).tolist() == [[100], [120]]
    with pytest.raises(DpspcaError, match=facts("order_by")):
        read_offered(path, Reading(query=query))


@BOTH
def test_a_changed_row_changes_the_digest_and_a_moved_one_does_not(
    make: Make, server: database.Server, tmp_path: Path
) -> None:
    """A job that began over these rows is refused over others; where a row lies on disk says nothing."""
    path = make(server, tmp_path, VISITS, ROWS)
    reading = Reading(columns=("bmi", "age"), missing=40, order_by=("visit",))
    first = read_offered(path, reading).digest()

    def run(statement: str) -> None:
        if make is duck:
            with duckdb.connect(str(path)) as there:
                there.execute(statement)
            return
        with psycopg.connect(path.read_text(encoding="utf-8").splitlines()[1], autocommit=True) as there:
            there.execute(statement.encode())

    run("UPDATE visits SET bmi = bmi WHERE visit = 1")
    assert read_offered(path, reading).digest() == first
    run("UPDATE visits SET bmi = bmi + 1 WHERE visit = 1")
    assert read_offered(path, reading).digest() != first


@BOTH
@pytest.mark.parametrize(
    ("reading", "facts"),
    [
        (Reading(), ("several tables", "visits", "labs")),
        (Reading(table="visit"), ("no table 'visit'", "visits")),
        (Reading(table="visits"), ("do not hold numbers: 'name' (varchar)", "'name' (VARCHAR)")),
        (Reading(table="visits", columns=("agee",)), ("no column 'agee'",)),
        (Reading(table="visits", columns=("age",), order_by=("agee",)), ("no column 'agee' to order by",)),
        (Reading(query="SELECT weight FROM visits", order_by=("weight",)), ("weight",)),
        (Reading(query="SELEC 1", order_by=("a",)), ("yntax error",)),
        (Reading(query="DELETE FROM visits RETURNING age", order_by=("age",)), ("failed",)),
        (Reading(table="visits", columns=("age",), delimiter=";"), ("delimiter",)),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    make: Make, reading: Reading, facts: tuple[str, ...], server: database.Server, tmp_path: Path
) -> None:
    path = make(server, tmp_path, VISITS, ROWS, "CREATE TABLE labs (a integer)")
    with pytest.raises(DpspcaError) as caught:
        read_offered(path, reading)
    assert any(fact in str(caught.value) for fact in facts), str(caught.value)
    assert str(path) in str(caught.value)
    assert read_offered(path, CHOSEN).count == 3


@BOTH
def test_a_table_without_rows_is_a_table(make: Make, server: database.Server, tmp_path: Path) -> None:
    rows = read_offered(make(server, tmp_path, VISITS), CHOSEN)
    assert (rows.count, rows.dimension) == (0, 2)


@BOTH
def test_odd_names_are_names(make: Make, server: database.Server, tmp_path: Path) -> None:
    made = 'CREATE TABLE "od""d t" (id integer PRIMARY KEY, "a ""b""; --" integer, "É" boolean)'
    path = make(server, tmp_path, made, 'INSERT INTO "od""d t" VALUES (1, 7, true), (2, 8, false)')
    rows = read_offered(path, Reading(leave_out=("id",)))
    assert rows.names == ('a "b"; --', "É")
    assert np.asarray(rows.matrix).tolist() == [[7, 1], [8, 0]]


KINDS = {
    "smallint": ("-3", -3.0),
    "bigint": ("9223372036854775807", 2.0**63),
    "real": ("0.5", 0.5),
    "double precision": ("1e-300", 1e-300),
    "numeric": ("12.25", 12.25),
    "boolean": ("true", 1.0),
}


@BOTH
def test_every_type_of_number_is_read(make: Make, server: database.Server, tmp_path: Path) -> None:
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(KINDS))
    cells = ", ".join(cell for cell, _ in KINDS.values())
    nothing = ", ".join(["NULL"] * len(KINDS))
    made = f"CREATE TABLE kinds (id integer PRIMARY KEY, {columns})"
    path = make(server, tmp_path, made, f"INSERT INTO kinds VALUES (1, {cells}), (2, {nothing})")  # noqa: S608
    reading = Reading(leave_out=("id",), missing=9)
    assert np.asarray(read_offered(path, reading).matrix).tolist() == [
        [value for _, value in KINDS.values()],
        [9.0] * 6,
    ]
    assert len(types_in(path, reading) or ()) == len(KINDS)


@pytest.mark.parametrize("odd", ["'NaN'", "1e400", "-1e400", "'Infinity'", "1e-400", "1e310"])
def test_no_numeric_value_stops_the_start(odd: str, server: database.Server, tmp_path: Path) -> None:
    """A plain cast of these to floating point is an error, which one row would bring about."""
    made = "CREATE TABLE t (id integer PRIMARY KEY, a numeric, b integer)"
    path = postgres(server, tmp_path, made, f"INSERT INTO t VALUES (1, {odd}, 5), (2, 7, 5)")  # noqa: S608
    read = np.asarray(read_offered(path, Reading(columns=("a", "b"))).matrix).tolist()
    assert read == [[0, 5] if odd == "1e-400" else [0, 0], [7, 5]]


def test_many_rows_arrive_in_parts(server: database.Server, tmp_path: Path) -> None:
    for make in (postgres, duck):
        series = "generate_series(1, 100000)" if make is postgres else "range(1, 100001)"
        columns = "id::integer AS id, (id % 7)::integer AS a, (id * 0.5)::double precision AS b"
        made = f"CREATE TABLE t AS SELECT {columns} FROM {series} AS s(id)"  # noqa: S608
        rows = np.asarray(read_offered(make(server, tmp_path, made), Reading(order_by=("id",))).matrix)
        numbers = np.arange(1, 100_001)
        assert (rows == np.column_stack([numbers, numbers % 7, numbers / 2])).all()


# --- Secrets, and a server that goes away -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://steward:{SECRET}@/postgres?host=FOLDER",
        f"host=FOLDER user=nobody dbname=postgres password='{SECRET}'",
        f"host=FOLDER user=postgres dbname=nowhere password='{SECRET}'",
        f"host=127.0.0.1 port=1 user=steward password='{SECRET}'",
        f"host=nowhere.invalid user=steward password='{SECRET}'",
        f"pass={SECRET}",
    ],
)
def test_no_password_is_quoted(
    text: str, server: database.Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = connected(tmp_path, text.replace("FOLDER", str(server.folder)))
    settings = tmp_path / "north.toml"
    settings.write_text(
        'coordinator = "hub:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        f'[data_sets]\ncohort = "{path.name}"\n[reading.cohort]\ntable = "visits"\n',
        encoding="utf-8",
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(DpspcaError) as caught:
        read_offered(path, Reading(table="visits"))
    shown = [CliRunner().invoke(app, ["data", "check", "--config", str(settings), *more]) for more in ([], ["--json"])]
    told = str(caught.value) + caplog.text + "".join(each.output for each in shown)
    assert "hunter2" not in told
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert all(each.exit_code == 1 for each in shown)
    assert str(path) in told
    assert read_settings(ProviderSettings, settings).data_sets["cohort"] == path


def test_the_password_may_come_from_the_environment_or_a_file(
    server: database.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = postgres(server, tmp_path, VISITS, ROWS)
    name = path.read_text(encoding="utf-8").partition("///")[2].partition("?")[0]
    server.run("CREATE ROLE steward LOGIN PASSWORD 'right'")
    with psycopg.connect(server.url(name), autocommit=True) as connection:
        connection.execute("GRANT SELECT ON visits TO steward")
    control = server.folder / "data" / "pg_hba.conf"
    before = control.read_text(encoding="utf-8")
    control.write_text(f"local all steward scram-sha-256\n{before}", encoding="utf-8")
    server.run("SELECT pg_reload_conf()")
    try:
        connected(tmp_path, f"host={server.folder} dbname={name} user=steward")
        with pytest.raises(TemporarilyUnreadableError, match=facts("warehouse.postgresql", "psql")):
            read_offered(path, CHOSEN)
        monkeypatch.setenv("PGPASSWORD", "right")
        assert read_offered(path, CHOSEN).count == 3
        monkeypatch.delenv("PGPASSWORD")
        (tmp_path / "pass").write_text(f"*:*:{name}:steward:right\n", encoding="utf-8")
        (tmp_path / "pass").chmod(0o600)
        connected(tmp_path, f"host={server.folder} dbname={name} user=steward passfile={tmp_path / 'pass'}")
        assert read_offered(path, CHOSEN).count == 3
    finally:
        control.write_text(before, encoding="utf-8")
        server.run("SELECT pg_reload_conf()")


def test_a_connection_string_that_others_can_read_is_refused(server: database.Server, tmp_path: Path) -> None:
    path = postgres(server, tmp_path, VISITS, ROWS)
    path.chmod(0o644)
    with pytest.raises(DpspcaError, match=facts("warehouse.postgresql")):
        read_offered(path, CHOSEN)


def test_a_lost_connection_is_reported_plainly(server: database.Server, tmp_path: Path) -> None:
    """The session ends itself in the middle of the rows, as an administrator or a failing server would end it."""
    ends = "CREATE FUNCTION ends(n integer) RETURNS integer LANGUAGE sql VOLATILE AS $$ "
    ends += "SELECT CASE WHEN n = 50000 AND pg_terminate_backend(pg_backend_pid()) THEN 0 ELSE n END $$"
    path = postgres(server, tmp_path, ends)
    query = "SELECT n, ends(n) AS a FROM generate_series(1, 100000) AS s(n)"
    with pytest.raises(TemporarilyUnreadableError, match=facts("warehouse.postgresql")):
        read_offered(path, Reading(query=query, columns=("a",), order_by=("n",)))


def test_a_query_that_fails_for_a_value_does_not_tell_it(server: database.Server, tmp_path: Path) -> None:
    for make in (postgres, duck):
        path = make(server, tmp_path, VISITS, ROWS)
        query = "SELECT visit, CAST(name AS integer) AS n FROM visits"
        with pytest.raises(DpspcaError) as caught:
            read_offered(path, Reading(query=query, order_by=("visit",)))
        assert "ann" not in str(caught.value)
        assert "bob" not in str(caught.value)


def test_a_locked_file_may_be_read_later(tmp_path: Path) -> None:
    path = duck(None, tmp_path, VISITS, ROWS)  # type: ignore[arg-type]
    (tmp_path / "warehouse.duckdb").write_bytes(b"SECRET" * 99)
    with pytest.raises(TemporarilyUnreadableError) as caught:
        read_offered(path, CHOSEN)
    assert "SECRET" not in str(caught.value)


def test_a_duckdb_query_reaches_no_other_file(tmp_path: Path) -> None:
    path = duck(None, tmp_path, VISITS, ROWS)  # type: ignore[arg-type]
    (tmp_path / "other.csv").write_text("a\n1\n", encoding="utf-8")
    for query in (f"SELECT * FROM '{tmp_path}/other.csv'", "SET enable_external_access = true"):  # noqa: S608
        with pytest.raises(DpspcaError):
            read_offered(path, Reading(query=query, order_by=("a",)))


def test_a_view_of_another_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.duckdb"
    (tmp_path / "other.csv").write_text("a\n1\n", encoding="utf-8")
    with duckdb.connect(str(path)) as made:
        made.execute(f"CREATE VIEW others AS SELECT * FROM '{tmp_path}/other.csv'")  # noqa: S608  # made up
    with pytest.raises(InvalidDataError, match=facts("warehouse.duckdb", "table", "DuckDB")):
        read_offered(path, Reading(table="others", order_by=("a",)))


def test_columns_that_the_user_may_read_are_enough(server: database.Server, tmp_path: Path) -> None:
    """Columns that name persons are often not granted. The error for a table without rights is about rights."""
    path = postgres(server, tmp_path, VISITS, ROWS, "CREATE TABLE secret (id integer PRIMARY KEY, x real)")
    url = path.read_text(encoding="utf-8").splitlines()[1]
    with psycopg.connect(url, autocommit=True) as owner:
        for statement in (
            "DROP ROLE IF EXISTS reader",
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT (visit, age, bmi) ON visits TO reader",
        ):
            owner.execute(statement)
    path = connected(tmp_path, str(psycopg.conninfo.make_conninfo(url, user="reader")))
    assert names_in(path, Reading(leave_out=("visit",), table="visits")) == ("age", "bmi")
    assert np.asarray(read_offered(path, CHOSEN).matrix).tolist() == [[24.5, 50], [25, 60], [26, 40]]
    keyless = Reading(columns=("bmi", "age"), missing={"age": 40.0}, table="visits", order_by=("bmi",))
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("REVOKE SELECT (visit) ON visits FROM reader")
    assert np.asarray(read_offered(path, keyless).matrix).tolist() == [[24.5, 50], [25, 60], [26, 40]]
    with pytest.raises(InvalidDataError, match=facts("order_by")):
        read_offered(path, CHOSEN)
    with pytest.raises(InvalidDataError, match=facts("'secret'", "GRANT")):
        read_offered(path, Reading(table="secret"))
    with pytest.raises(InvalidDataError, match=facts("quotes", "public.visits")):
        read_offered(path, Reading(table='"public"."visits"'))
    with pytest.raises(InvalidDataError, match=facts("'nowhere'", "public.visits")):
        read_offered(path, Reading(table="nowhere"))


def test_a_time_limit_of_the_database_is_no_lost_connection(server: database.Server, tmp_path: Path) -> None:
    query = "SELECT n AS row, n AS col, n + length(pg_sleep(.01)::text) AS x FROM generate_series(1, 1000) AS s(n)"
    limited = connected(
        tmp_path, str(psycopg.conninfo.make_conninfo(server.url(), options="-c statement_timeout=100ms"))
    )
    (tmp_path / "names.txt").write_text("1\n2\n", encoding="utf-8")
    triplets = Triplets(row="row", column="col", value="x", rows=tmp_path / "names.txt")
    for reading in (
        Reading(query=query, order_by=("row",)),
        Reading(query=query, triplets=triplets, columns=("1", "2")),
    ):
        with pytest.raises(TemporarilyUnreadableError, match=facts("statement_timeout")):
            read_offered(limited, reading)


@BOTH
def test_rows_that_order_by_leaves_equal_are_in_the_order_of_the_key(
    make: Make, server: database.Server, tmp_path: Path
) -> None:
    rows = ", ".join(f"({visit}, {visit % 2}, {visit}, 'a')" for visit in range(20, 0, -1))
    path = make(server, tmp_path, VISITS, f"INSERT INTO visits VALUES {rows}")  # noqa: S608  # made up
    read = np.asarray(read_offered(path, Reading(columns=("age", "bmi"), order_by=("age",))).matrix)
    even = list(range(2, 21, 2))
    assert read[:10, 1].tolist() == (even if make is postgres else even[::-1])


@BOTH
def test_an_identifier_that_is_no_number_names_persons(make: Make, server: database.Server, tmp_path: Path) -> None:
    one, two = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "b0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    path = make(
        server,
        tmp_path,
        "CREATE TABLE visits (visit integer PRIMARY KEY, person uuid, age real)",
        f"INSERT INTO visits VALUES (1, '{one}', 50), (2, '{two}', 60), (3, '{one}', 51)",  # noqa: S608  # made up
    )
    persons = read_offered(path, Reading(columns=("age",), person="person")).persons
    assert persons is not None
    assert persons.tolist()[0] == persons.tolist()[2] != persons.tolist()[1]


@pytest.mark.parametrize(("name", "extra"), [("a.postgresql", "postgres"), ("a.duckdb", "duckdb")])
def test_without_a_driver_the_error_names_the_command_to_install_it(
    name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> Any:
        raise ImportError(module)

    monkeypatch.setattr(extras, "import_module", missing)
    (tmp_path / name).touch()
    with pytest.raises(MissingExtraError, match=facts("pip install")):
        read_offered(tmp_path / name)
    assert extras._EXTRAS["psycopg" if extra == "postgres" else extra] == extra


def test_two_tables_of_one_database_are_two_data_sets(tmp_path: Path) -> None:
    settings = tmp_path / "north.toml"
    text = (
        'coordinator = "hub:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\na = "w.postgresql"\nb = "w.postgresql"\n[reading.a]\ntable = "x"\n[reading.b]\ntable = "y"\n'
    )
    settings.write_text(text, encoding="utf-8")
    assert set(read_settings(ProviderSettings, settings).data_sets) == {"a", "b"}
    for same in (text.replace('"y"', '"x"'), text.replace('table = "y"', "missing = 0")):
        settings.write_text(same, encoding="utf-8")
        with pytest.raises(DpspcaError, match=facts("'a'", "'b'", "data_sets")):
            read_settings(ProviderSettings, settings)


# --- Categories -------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("kind", ["varchar", "text", "char(8)", "sex_type"])
def test_texts_are_levels_of_categories(make: Make, kind: str, server: database.Server, tmp_path: Path) -> None:
    """As in text files and Parquet: with codes, missing ones, spaces, numbers written as text, and unknown texts."""
    texts = sorted({cell[2] for cell in PEOPLE if cell[2] is not None})
    declared = f"CREATE TYPE sex_type AS ENUM ({', '.join(map(repr, texts))})"
    path = make(server, tmp_path, *([declared] if kind == "sex_type" else []), *people(kind))
    rows = read_offered(path, studied())
    assert rows.names == ("age", "sex=female", "sex=male", "smoker=no", "smoker=yes", "grade=low", "grade=high")
    assert np.asarray(rows.matrix).tolist() == LEVELS
    assert np.asarray(read_rows(path, studied()).matrix).tolist() == LEVELS


def test_texts_of_sqlite_are_levels_too(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "people.db")) as made, made:
        for statement in people("text"):
            made.execute(statement)
    assert np.asarray(read_offered(tmp_path / "people.db", studied()).matrix).tolist() == LEVELS


def test_texts_in_another_encoding_stop_no_reading(server: database.Server, tmp_path: Path) -> None:
    for number, encoding in enumerate(["LATIN1", "SQL_ASCII"]):
        server.run(f"CREATE DATABASE old_{number} ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
        with psycopg.connect(server.url(f"old_{number}"), autocommit=True) as connection:
            connection.execute("SET client_encoding TO UTF8")
            for statement in people("text"):
                connection.execute(statement.encode())
            connection.execute("UPDATE people SET \"Sex\" = E'\\xff' WHERE id = 7" if number else "SELECT 1")
        path = connected(tmp_path, server.url(f"old_{number}"))
        reading = studied(sex={"column": "Sex", "levels": {"w": "female", "Frau \u00fc": "female", "2": "male"}})
        found = np.asarray(read_offered(path, reading).matrix)
        assert found[:5].tolist() == LEVELS[:5]
        assert found[5:, 1:3].tolist() == [[1, 0], [0, 0]]


@BOTH
@pytest.mark.parametrize(
    ("reading", "facts"),
    [
        (studied(age="born"), ("'born' (date", "compute a number", "absent")),
        (studied(age="Sex", absent=("sex",)), ("'Sex' (varchar", "'Sex' (VARCHAR", "kind category")),
        (
            studied(grade={"column": "seen", "levels": {}}),
            ("'seen' (timestamp", "'seen' (TIMESTAMP", "compute a number"),
        ),
    ],
)
def test_a_column_of_another_type_is_refused_with_what_to_do(
    make: Make, reading: Reading, facts: tuple[str, ...], server: database.Server, tmp_path: Path
) -> None:
    more = ["ALTER TABLE people ADD COLUMN born date", "ALTER TABLE people ADD COLUMN seen timestamp"]
    with pytest.raises(DpspcaError) as caught:
        read_offered(make(server, tmp_path, *people("varchar"), *more), reading)
    assert any(fact.lower() in str(caught.value).lower() for fact in facts[:-1])
    assert facts[-1] in str(caught.value)


def test_lists_of_numbers_and_levels_are_refused_by_name(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "lists.duckdb")) as database:
        database.execute("CREATE TABLE t (a integer, b decimal(5, 2)[], c enum('x', 'y')[], d integer[])")
    with pytest.raises(InvalidDataError, match=facts("'b' (DECIMAL[])", "'c' (ENUM[])", "'d' (INTEGER[])")):
        read_rows(tmp_path / "lists.duckdb", Reading())


def test_a_list_of_decimals_is_a_type_of_its_own(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as made:
        made.execute("CREATE TABLE visits (price DECIMAL(10,2), all_of_them DECIMAL(10,2)[], grid INTEGER[3])")
        made.execute("INSERT INTO visits VALUES (1.25, [1.25], [1, 2, 3])")
    with pytest.raises(DpspcaError, match=facts("'all_of_them' (DECIMAL[])", "'grid' (INTEGER[3])", "leave_out")):
        read_offered(tmp_path / "rows.duckdb")
    assert read_offered(tmp_path / "rows.duckdb", Reading(columns=("price",))).count == 1


def test_a_database_without_tables_has_not_several(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "none.duckdb")):
        pass
    with pytest.raises(DpspcaError, match=facts("none.duckdb")) as caught:
        read_offered(tmp_path / "none.duckdb")
    assert "several" not in str(caught.value)
