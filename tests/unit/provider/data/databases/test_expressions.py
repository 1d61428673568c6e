"""Features that a database computes: the same numbers in every database, each row by itself, and clear refusals."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import database
import duckdb
import mariadb
import numpy as np
import psycopg
import pytest
from facts import facts

from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import DpspcaError
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.triplets import Triplets
from dpspca.provider.data.offered_rows import read_offered

VISITS = (
    "CREATE TABLE visits (visit integer PRIMARY KEY, kilograms double precision, metres double precision, "
    "sex varchar(9), bmi integer)"
)
ROWS = "INSERT INTO visits VALUES (2, 80, 2.0, 'man', 0), (1, 50, 1.0, 'woman', 0), (3, NULL, 2.0, NULL, 0)"
STUDY = Dictionary.parse({
    "format": "dpspca-dictionary-1",
    "features": {
        "bmi": {"kind": "number", "unit": "kg/m²", "range": [0, 100], "centre": 0, "scale": "none"},
        "sex": {"kind": "category", "levels": ["female", "male"], "shares": [0, 0]},
    },
})  # fmt: skip
BMI = "kilograms / NULLIF(metres * metres, 0)"
SEX = "CASE sex WHEN 'man' THEN 'm' WHEN 'woman' THEN 'f' END"
IN_BOTH = {
    "bmi": {"expression": BMI, "factor": 2.0},
    "sex": {"expression": SEX, "levels": {"f": "female", "m": "male"}},
}
Make = Callable[..., Path]


def studied(reading: Reading | None = None, **columns: object) -> Reading:
    return (reading or Reading()).prepared(Preparation.parse(STUDY, IN_BOTH | columns, []))


@pytest.fixture(scope="module")
def postgres() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


@pytest.fixture(scope="module")
def maria() -> Iterator[mariadb.MariaServer]:
    with mariadb.server() as running:
        yield running


def private(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


@pytest.fixture(params=["postgresql", "sqlalchemy", "mariadb", "duckdb", "sqlite"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return the path of a database with the table of visits."""
    kind: str = request.param
    if kind == "mariadb":
        server: mariadb.MariaServer = request.getfixturevalue("maria")
        return private(tmp_path / "rows.sqlalchemy", server.database(VISITS, ROWS))
    if kind in {"postgresql", "sqlalchemy"}:
        url = request.getfixturevalue("postgres").database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(VISITS)
            connection.execute(ROWS)
        return private(
            tmp_path / f"rows.{kind}",
            url.replace("postgresql:", "postgresql+psycopg:" if kind == "sqlalchemy" else "postgresql:"),
        )
    path = tmp_path / f"rows.{kind}"
    with duckdb.connect(str(path)) if kind == "duckdb" else closing(sqlite3.connect(path)) as made:
        made.execute(VISITS)
        made.execute(ROWS)
        made.commit()
    return path


def test_every_database_computes_the_same_features(table: Path) -> None:
    rows = read_offered(table, studied(Reading(order_by=("visit",)) if table.suffix != ".sqlite" else None))
    assert rows.names == ("bmi", "sex=female", "sex=male")
    assert np.asarray(rows.matrix).tolist() == [[100, 1, 0], [40, 0, 1], [0, 0, 0]]


def test_an_expression_stands_for_itself_beside_a_column_of_that_name(table: Path) -> None:
    """``bmi`` and ``sex`` are columns of the table too."""
    plain = read_offered(table, studied(bmi="bmi", sex={"levels": {"woman": "female", "man": "male"}}))
    assert np.asarray(plain.matrix)[:, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("expression", ["sum(kilograms)", "avg(metres) + kilograms"])
def test_an_expression_over_all_rows_is_refused(table: Path, expression: str) -> None:
    """It would make each row depend on all others, and noise is for one person's part alone."""
    with pytest.raises(DpspcaError):
        read_offered(table, studied(bmi={"expression": expression}))


def test_a_name_that_the_table_lacks_is_refused(table: Path) -> None:
    for expression in ("kilogram / 2", '"kilogram" / 2' if "mysql" not in _text(table) else "`kilogram` / 2"):
        with pytest.raises(DpspcaError, match=facts("failed")):
            read_offered(table, studied(bmi={"expression": expression}))


def _text(table: Path) -> str:
    return table.read_bytes()[:5].decode("latin-1")


def test_rows_stay_in_the_order_of_their_key_whatever_is_computed(table: Path) -> None:
    """PostgreSQL calls a CASE after the column in its last branch, and sorts by what it called so."""
    swapped = {"expression": "CASE WHEN visit > 0 THEN 4 - visit ELSE visit END"}
    rows = read_offered(
        table, studied(Reading(order_by=("visit",)) if table.suffix != ".sqlite" else None, bmi=swapped)
    )
    assert np.asarray(rows.matrix)[:, 0].tolist() == [3, 2, 1]


def test_columns_that_are_called_like_cells_keep_the_order(postgres: database.Server, tmp_path: Path) -> None:
    """What is computed is given a name that no column has."""
    url = postgres.database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (cell0_0 int PRIMARY KEY, cell1_0 int, bmi numeric, sex varchar(9))")
        connection.execute("INSERT INTO t VALUES (2, 0, 10, 'man'), (1, 0, 30, 'man'), (3, 0, 20, 'man')")
    path = private(tmp_path / "rows.postgresql", url)
    rows = read_offered(path, studied(bmi="bmi", sex={"levels": {"woman": "female", "man": "male"}}))
    assert np.asarray(rows.matrix)[:, 0].tolist() == [30, 10, 20]


def test_such_columns_may_have_other_capitals(tmp_path: Path) -> None:
    """DuckDB takes capitals and small letters for the same: CELL0_0 would be the first cell, and order the rows."""
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as made:
        made.execute("CREATE TABLE t (CELL0_0 int, bmi int, sex varchar(9))")
        made.execute("INSERT INTO t VALUES (2, 10, 'man'), (1, 30, 'man'), (3, 20, 'man')")
    reading = studied(Reading(order_by=("CELL0_0",)), bmi="bmi", sex={"levels": {"woman": "female", "man": "male"}})
    rows = read_offered(tmp_path / "rows.duckdb", reading)
    assert np.asarray(rows.matrix)[:, 0].tolist() == [30, 10, 20]


def test_a_percent_sign_is_the_rest_of_a_division(table: Path) -> None:
    rest = {"expression": "visit % 2"}
    rows = read_offered(table, studied(Reading(order_by=("visit",)) if table.suffix != ".sqlite" else None, bmi=rest))
    assert np.asarray(rows.matrix)[:, 0].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "expression",
    [
        "(SELECT max(kilograms) FROM visits)",
        "rank() over (order by metres)",
        "sum(metres)\nOVER ()",
        "avg(kilograms)",
        "EXISTS (FROM visits o WHERE o.kilograms > 1)",
        "(FROM visits)",
        "kilograms > ALL (TABLE visits)",
        "(TABLE visits)",
        "len(ARRAY(FROM visits))",
        "query_to_xml('select 1', false, true, '')",
        "pg_catalog.abs(kilograms)",
        '"abs"(kilograms)',
        "visit IN treated",
        "visit NOT IN treated",
        "@s := ifnull(@s, 0) + kilograms",
        "kilograms) FROM visits ORDER BY kilograms /*",
        "kilograms) FROM visits --",
        "kilograms) + (metres",
        "(kilograms",
        "kilograms -- ' \n + (select avg(kilograms) from t) -- '",
        "kilograms # it's\n > (select avg(kilograms) from t) # '",
        "E'it\\'s' = '' or kilograms > (select 1) or '' = 'a'",
        "$$'$$ IS NOT NULL AND kilograms > (SELECT 1) AND $$'$$ IS NOT NULL",
        "N'a'",
        "COLUMNS('kilograms|metres')",
        "*",
        "coalesce(*)",
        "visits.*",
        "coalesce(kilograms, *)",
        "current_date - born",
        "rownum",
        "random()",
        "kilograms; DROP TABLE visits",
        "[kilograms]",
        "' ' || xml '<a/>' || trim(FROM sex) || (FROM visits)",
        "   ",
    ],
)
def test_an_expression_that_may_look_at_other_rows_is_refused_as_settings(expression: str) -> None:
    """Each database has its own ways. Known harmless parts are allowed, in place of forbidding known harmful ones."""
    with pytest.raises(DpspcaError, match=facts("'bmi'")):
        studied(bmi={"expression": expression})


@pytest.mark.parametrize(
    "expression",
    [
        "coalesce('select', \"over\")",
        "kilograms / (metres * metres)",
        "-kilograms * 2.2046e0 + .5",
        "CASE WHEN sex IN ('m', 'man') THEN 1 WHEN sex IS NULL THEN NULL ELSE 0 END",
        "CASE sex WHEN 'O''Neill' THEN 1 ELSE 0 END",
        "CAST(dose AS double precision) + dose::numeric(10, 2)",
        "extract(year FROM age(DATE '2026-01-01', born))",
        "date_part('year', born) - 1900",
        "(julianday('2026-01-01') - julianday(born)) / 365.25",
        "TIMESTAMPDIFF(YEAR, born, '2026-01-01')",
        "datediff('year', born, DATE '2026-01-01')",
        "visits.kilograms * (1 - `alcohol free`)",
        "position('x' IN code) > 0 AND (code LIKE 'I1%' OR NOT (code = ''))",
        "substring(code FROM 1 FOR 3)",
        "(visit IN (1, 2)) = (visit BETWEEN 1 AND 3)",
        "größe * 2",
    ],
)
def test_an_expression_of_one_row_is_taken(expression: str) -> None:
    assert expression in studied(bmi={"expression": expression}).expressions.values()


def test_a_column_and_an_expression_are_one_too_many() -> None:
    with pytest.raises(DpspcaError, match=facts("column", "expression", "'bmi'")):
        studied(bmi={"column": "bmi", "expression": BMI})


def test_where_nothing_computes_an_expression_is_refused(tmp_path: Path) -> None:
    """Neither a file nor triplets have a database's columns, and a query names its own."""
    (tmp_path / "rows.csv").write_text("kilograms,metres,sex\n50,1,man\n", encoding="utf-8")
    with pytest.raises(DpspcaError, match=facts("bmi", "DuckDB")):
        read_offered(tmp_path / "rows.csv", studied())
    with pytest.raises(DpspcaError, match=facts("query", "bmi")):
        studied(Reading(query="SELECT 1"))
    with pytest.raises(DpspcaError, match=facts("bmi", "triplets")):
        studied(Reading(triplets=Triplets(row="person", column="concept", value="value", rows=3)))


def test_settings_can_be_written_and_read_again() -> None:
    made = Preparation.parse(STUDY, IN_BOTH, [])
    assert Preparation.from_written(made.written()) == made
    assert re.search("kilograms", str(made.written()))
