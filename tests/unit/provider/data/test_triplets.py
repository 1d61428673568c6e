"""Triplets become sparse rows: which rows and columns there are is declared, and no triplet decides it."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import database
import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.sparse
from facts import facts, names_facts

from dpspca.client.steward.data_check import examine_settings
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError
from dpspca.common.storage import read_dictionary
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.common.storage.triplets import Triplets
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.examination.preview import preview_row
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import names_in, read_rows

LINES: list[tuple[Any, Any, Any]] = [
    (103, 4001, 2.0),
    (101, 4003, 0.5),
    (103, 4003, 1.0),
    (101, 9999, 7.0),  # a concept that is not declared
    (555, 4001, 7.0),  # a person who is not in the cohort
    (103, 4001, 3.0),  # the same cell again
]
ROWS = [[0, 0, 0.5], [0, 0, 0], [5, 0, 1]]


def csv(path: Path, lines: list[tuple[Any, Any, Any]] = LINES) -> Path:
    text = "".join(f"{row},{column},x,{value}\n" for row, column, value in lines)
    path.with_suffix(".csv").write_text(f"person,concept,note,value\n{text}", encoding="utf-8")
    return path.with_suffix(".csv")


def table(lines: list[tuple[Any, Any, Any]]) -> pa.Table:
    row, column, value = zip(*lines, strict=True)
    return pa.table({"person": row, "concept": pa.array(map(str, column)).dictionary_encode(), "value": value})


def parquet(path: Path, lines: list[tuple[Any, Any, Any]] = LINES) -> Path:
    pyarrow.parquet.write_table(table(lines), path.with_suffix(".parquet"), row_group_size=2)
    return path.with_suffix(".parquet")


def feather(path: Path, lines: list[tuple[Any, Any, Any]] = LINES) -> Path:
    pyarrow.feather.write_feather(table(lines), path.with_suffix(".feather"))
    return path.with_suffix(".feather")


MADE = "CREATE TABLE covariates (person integer, concept integer, value double precision)"


def sqlite(path: Path, lines: list[tuple[Any, Any, Any]] = LINES, names: str = "integer") -> Path:
    with closing(sqlite3.connect(path.with_suffix(".db"))) as made, made:
        made.execute(MADE.replace("integer", names))
        made.executemany("INSERT INTO covariates VALUES (?, ?, ?)", lines)
    return path.with_suffix(".db")


def duck(path: Path, lines: list[tuple[Any, Any, Any]] = LINES) -> Path:
    with duckdb.connect(str(path.with_suffix(".duckdb"))) as made:
        made.execute(MADE)
        made.executemany("INSERT INTO covariates VALUES (?, ?, ?)", lines)
    return path.with_suffix(".duckdb")


def reading(folder: Path, **more: Any) -> Reading:
    (folder / "persons.list").write_text("101\n102\n103\n", encoding="utf-8")
    told = {"row": "person", "column": "concept", "value": "value", "rows": folder / "persons.list"}
    how = {key: more.pop(key) for key in ("duplicates", "value") if key in more}
    return Reading(triplets=Triplets(**{**told, **how}), **{"columns": ("4001", "4002", "4003"), **more})


def dense(path: Path, how: Reading, read: Callable[..., Any] = read_offered) -> list[list[float]]:
    rows = read(path, how)
    assert rows.is_sparse
    assert isinstance(rows.matrix, scipy.sparse.csr_array)
    return rows.matrix.toarray().tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("make", [csv, parquet, feather, sqlite, partial(sqlite, names="real"), duck])
def test_triplets_become_sparse_rows(make: Callable[..., Path], tmp_path: Path) -> None:
    path, how = make(tmp_path / "covariates"), reading(tmp_path)
    assert dense(path, how) == dense(path, how, read_rows) == ROWS
    assert names_in(path, how) == ("4001", "4002", "4003")
    assert dense(path, reading(tmp_path, value=None)) == [[0, 0, 1], [0, 0, 0], [2, 0, 1]]
    assert dense(path, reading(tmp_path, duplicates="unusable")) == [[0, 0, 0.5], [0, 0, 0], [0, 0, 0]]
    facts = examine_rows(path, how).triplets
    assert facts is not None
    assert (facts.triplets, facts.unknown_columns, facts.unknown_rows) == (6, 1, 1)


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


def test_triplets_of_a_postgresql_table(server: database.Server, tmp_path: Path) -> None:
    url = server.database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(MADE.encode())
        connection.cursor().executemany("INSERT INTO covariates VALUES (%s, %s, %s)", LINES)
    path = connected(tmp_path, url)
    assert dense(path, reading(tmp_path)) == ROWS
    query = "SELECT person, 4000 + concept % 10 AS concept FROM covariates"
    assert dense(path, reading(tmp_path, value=None, query=query)) == [[0, 0, 1], [0, 0, 0], [2, 0, 1]]


def connected(folder: Path, url: str) -> Path:
    path = folder / "warehouse.postgresql"
    path.write_text(url, encoding="utf-8")
    path.chmod(0o600)
    return path


NAMED = """SELECT * FROM (VALUES ('101', '4003 ', 0.5), (E'\\u00a0103', '4001', 5), ('103', '4003', 1),
(NULL, '4001', 1), ('101', NULL, 1), ('101', '4004', 1)) AS named(person, concept, value)"""


@pytest.mark.parametrize("form", ["postgresql", "duckdb", "feather"])
def test_names_may_be_text_with_spaces_around_them(form: str, server: database.Server, tmp_path: Path) -> None:
    how = reading(tmp_path, **({} if form == "feather" else {"query": NAMED}))
    if form == "feather":
        rows = [("101", "4003 ", 0.5), ("\u00a0103", "4001", 5.0), ("103", "4003", 1.0), (None, "4001", 1.0)]
        made = table(rows).set_column(1, "concept", pa.array([row[1] for row in rows]))
        pyarrow.feather.write_feather(made, tmp_path / "covariates.feather")
    elif form == "duckdb":
        how = reading(tmp_path, query=NAMED.replace("E'\\u00a0103'", "chr(160) || '103'"))
    path = connected(tmp_path, server.url()) if form == "postgresql" else tmp_path / f"covariates.{form}"
    assert dense(duck(tmp_path / "covariates") if form == "duckdb" else path, how) == ROWS


def test_a_name_that_is_not_in_utf_8_stops_no_reading(tmp_path: Path) -> None:
    """Whether the provider starts must not depend on one row."""
    odd = pa.array([b"4003", b"\xff", b"4001"]).view(pa.string())
    made = pa.table({"person": [101, 101, 103], "concept": odd, "value": [0.5, 7.0, 5.0]})
    pyarrow.feather.write_feather(made, tmp_path / "covariates.feather")
    assert dense(tmp_path / "covariates.feather", reading(tmp_path)) == [[0, 0, 0.5], [0, 0, 0], [5, 0, 0]]


MANY = "SELECT 101 AS person, 4001 AS concept, {} AS value FROM generate_series(1, 3000000) AS s(n)"


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        ("1 / (n - 2500000)", "failed"),
        ("CASE WHEN n = 2500000 AND pg_terminate_backend(pg_backend_pid()) THEN 0 ELSE n END", "connection"),
        ("CASE WHEN n = 2500000 THEN set_config('search_path', 'secret', true)::int ELSE n END", "failed"),
    ],
)
def test_a_query_that_fails_in_the_middle_is_not_quoted(
    value: str, fact: str, server: database.Server, tmp_path: Path
) -> None:
    path = connected(tmp_path, server.url())
    with pytest.raises(DpspcaError) as caught:
        read_offered(path, reading(tmp_path, query=MANY.format(value)))
    assert fact in str(caught.value)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_session_that_reads_triplets_cannot_write(server: database.Server, tmp_path: Path) -> None:
    server.run("CREATE SEQUENCE numbers")
    query = "SELECT 101 AS person, 4001 AS concept, nextval('numbers') AS value FROM generate_series(1, 9)"
    with pytest.raises(DpspcaError, match=facts("warehouse.postgresql", "psql")):
        read_offered(connected(tmp_path, server.url()), reading(tmp_path, query=query))
    assert server.run("SELECT is_called FROM numbers") == [(False,)]


def test_the_order_of_triplets_changes_no_bit(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    draws = rng.integers(101, 104, 500), rng.integers(4001, 4004, 500), rng.standard_normal(500) * 1e9
    lines = list(zip(*(each.tolist() for each in draws), strict=True))
    how = reading(tmp_path)
    digests = set()
    for order in range(5):
        path = csv(tmp_path / f"{order}", [lines[place] for place in rng.permutation(500)])
        digests.add(read_offered(path, how).digest())
    assert len(digests) == 1


@pytest.mark.parametrize("odd", ["tall", "", "nan", "inf", "1e999"])
def test_an_odd_number_makes_its_own_row_a_row_of_zeros(odd: str, tmp_path: Path) -> None:
    lines = [*LINES, (101, 4002, odd)]
    path, how = csv(tmp_path / "covariates", lines), reading(tmp_path)
    assert dense(path, how) == [[0, 0, 0], *ROWS[1:]]
    with pytest.raises(DpspcaError):
        read_rows(path, how)
    filled = reading(tmp_path, missing=9.0)
    assert dense(path, filled)[0] == ([0, 9, 0.5] if odd in {"", "nan"} else [0, 0, 0])


@pytest.mark.parametrize("more", [(101, "4001"), (101, 4001, 1, 2, 3), ()])
def test_a_line_of_other_cells_belongs_to_no_row(more: tuple[Any, ...], tmp_path: Path) -> None:
    path = csv(tmp_path / "covariates")
    with path.open("a", encoding="utf-8") as file:
        file.write(",".join(map(str, more)) + "\n")
    assert dense(path, reading(tmp_path)) == ROWS


def test_a_row_without_triplets_stays_where_it_is(tmp_path: Path) -> None:
    """Otherwise what one person's triplets are would move all others to other positions."""
    path = csv(tmp_path / "covariates", [line for line in LINES if line[0] != 101])
    assert dense(path, reading(tmp_path)) == [[0, 0, 0], *ROWS[1:]]
    assert dense(csv(tmp_path / "none", []), reading(tmp_path)) == [[0] * 3] * 3


def test_triplets_may_be_in_several_files(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    parquet(tmp_path / "parts" / "a", LINES[:2])
    parquet(tmp_path / "parts" / "b", LINES[2:])
    assert dense(tmp_path / "parts", reading(tmp_path)) == ROWS
    with pytest.raises(DpspcaError, match=facts("parts/a.parquet", "triplets", "data_sets")):
        read_arriving(tmp_path / "parts" / "a.parquet", reading(tmp_path))


def test_a_blank_row_belongs_to_no_person(tmp_path: Path) -> None:
    how = reading(tmp_path)
    (tmp_path / "persons.list").write_text("103\n\n\n101\n", encoding="utf-8")
    path = csv(tmp_path / "covariates", [*LINES, ("", 4001, 5)])
    assert dense(path, how) == [ROWS[2], [0] * 3, [0] * 3, ROWS[0]]
    (tmp_path / "persons.list").write_text("103\n103\n", encoding="utf-8")
    with pytest.raises(DpspcaError, match=facts("covariates.csv", "2 rows")):
        read_offered(path, how)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    path = csv(tmp_path / "covariates")
    with pytest.raises(DpspcaError, match=facts("'worth'", "'person', 'concept'")):
        read_offered(path, reading(tmp_path, value="worth"))
    with pytest.raises(DpspcaError, match=facts("triplets", "columns", "[reading]")):
        read_offered(path, reading(tmp_path, columns=None))
    how = reading(tmp_path)
    (tmp_path / "persons.list").unlink()
    with pytest.raises(DpspcaError, match=facts("persons.list", "triplets")):
        read_offered(path, how)
    np.save(tmp_path / "rows.npy", np.zeros((2, 2)))
    with pytest.raises(DpspcaError, match=facts("[reading]", "triplets", ".npy")):
        read_offered(tmp_path / "rows.npy", reading(tmp_path))


def test_names_of_floating_point_are_refused_by_type(tmp_path: Path) -> None:
    path = tmp_path / "covariates.parquet"
    pyarrow.parquet.write_table(pa.table({"person": [101.0], "concept": [4001], "value": [1.0]}), path)
    with pytest.raises(DpspcaError, match=facts("'person'", "triplets", "double")):
        read_offered(path, reading(tmp_path))


SETTINGS = """coordinator = "hub:1"
identity = "north"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
cohort = "covariates.csv"
[persons]
cohort = "persons.list"
[reading.cohort]
columns = "concepts.list"
"""
DECLARED = 'triplets = { row = "person", column = "concept", value = "value", rows = "persons.list" }'


def test_settings_name_files_of_rows_and_columns(tmp_path: Path) -> None:
    csv(tmp_path / "covariates")
    how = reading(tmp_path)
    (tmp_path / "concepts.list").write_text("4001\n4002\n\n4003\n", encoding="utf-8")
    (tmp_path / "north.toml").write_text(SETTINGS + DECLARED, encoding="utf-8")
    settings = read_settings(ProviderSettings, tmp_path / "north.toml")
    assert settings.reading_of("cohort") == how
    (examined,) = examine_settings(settings)
    assert examined.passed
    assert any(names_facts(remark, "6 triplets", 1) for remark in examined.remarks)
    known: Any = examined.facts
    assert (known.triplets.triplets, known.triplets.unknown_columns, known.persons.persons) == (6, 1, 3)


@pytest.mark.parametrize("make", [parquet, feather])
def test_numbers_of_triplets_that_are_text_are_refused_by_name(make: Callable[..., Path], tmp_path: Path) -> None:
    path = make(tmp_path / "covariates", [(1, 4001, "many"), (2, 4002, "few")])
    with pytest.raises(InvalidDataError, match=facts("'value'", "triplets", "value")):
        read_offered(path, reading(tmp_path))


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("triplets = 3", "triplets is 3"),
        ('triplets = { row = "a" }', "triplets lacks column, rows"),
        (DECLARED.replace(" }", ', worth = "a" }'), "'worth'"),
        (DECLARED.replace(" }", ', duplicates = "max" }'), "duplicates is 'max'"),
        (DECLARED.replace('"value",', "3,"), "triplets.value is 3"),
        ("", "concepts.list, which cannot be read"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(line: str, fact: str, tmp_path: Path) -> None:
    if line:
        (tmp_path / "concepts.list").write_text("4001\n", encoding="utf-8")
    (tmp_path / "north.toml").write_text(SETTINGS + line, encoding="utf-8")
    with pytest.raises(InvalidParameterError) as caught:
        read_settings(ProviderSettings, tmp_path / "north.toml")
    assert fact in str(caught.value)


# --- With a dictionary ------------------------------------------------------------------------------------------------

STUDY = """
format = "dpspca-dictionary-1"
[concepts]
file = "concepts.csv"
[features.sex]
kind = "category"
levels = ["8507", "8532"]
concept = 4002
"""
CONCEPTS = "concept_id,concept_name,low,high\n4001,Hypertension,,\n4003,Blood pressure,0,2\n"


def described(folder: Path, more: str = "") -> Reading:
    concepts = CONCEPTS + "".join(f"{5000 + place},Rare {place},,\n" for place in range(300) if more)
    (folder / "concepts.csv").write_text(concepts, encoding="utf-8")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    plain = reading(folder, columns=None)
    return plain.prepared(Preparation.parse(read_dictionary(folder / "study.toml"), None, None))


@pytest.mark.parametrize("more", ["", "many"])
def test_a_triplet_that_is_not_there_is_a_missing_value(more: str, tmp_path: Path) -> None:
    """Hypertension without a line is zero, and so is a blood pressure that nobody measured, whose centre is 1."""
    path, how = csv(tmp_path / "covariates", [*LINES, (102, 4002, 8532)]), described(tmp_path, more)
    rows = read_offered(path, how)
    table: Any = rows.matrix
    assert rows.is_sparse == bool(more)
    dense = table.toarray() if more else table
    assert (rows.names or ())[:2] == ("sex=8507", "sex=8532")
    by_name = dict(zip(rows.names or (), dense.T.tolist(), strict=True))
    assert by_name["sex=8532"] == [0, 0.5, 0]
    assert by_name["Hypertension"] == [0, 0, 1]
    assert by_name["Blood pressure"] == [-0.5, 0, 0]
    assert read_rows(path, how).digest() == rows.digest()


@pytest.mark.slow
def test_features_of_triplets_are_examined_by_the_values_that_are_there(tmp_path: Path) -> None:
    path, how = csv(tmp_path / "covariates"), described(tmp_path, "many")
    facts = examine_rows(path, how)
    by_name = {each.name: each for each in facts.features}
    assert facts.is_sparse
    assert (by_name["Hypertension"].values, by_name["Hypertension"].above) == (1, 1)
    assert not any(each.is_wrong or each.is_constant for each in facts.features if each.name != "Hypertension")
    shown = preview_row(path, how, 1)
    assert {each.name: each.value for each in shown.features if each.value is not None} == {"Blood pressure": 0.5}


BESIDE = "p1,7,5\np1,7,\np1,8,-9\np1,8,3\np2,7,NA\np2,7,NA\np2,8,2\np2,8,4\n"


@pytest.mark.parametrize("codes", [("NA", -9), {"7": ("NA",), "8": (-9,)}])
@pytest.mark.parametrize("form", ["csv", "sqlite"])
def test_missing_values_beside_a_number_are_left_out(form: str, codes: Any, tmp_path: Path) -> None:
    lines = [tuple(line.split(",")) for line in BESIDE.splitlines()]
    path = csv(tmp_path / "long", lines) if form == "csv" else sqlite(tmp_path / "long", lines)
    (tmp_path / "rows.list").write_text("p1\np2\n", encoding="utf-8")
    declared = Triplets(row="person", column="concept", value="value", rows=tmp_path / "rows.list")
    how = Reading(columns=("7", "8"), triplets=declared, missing_codes=codes, missing=1.0)
    assert dense(path, how) == dense(path, how, read_rows) == [[5, 3], [1, 6]]
    found = examine_rows(path, how).triplets
    assert found is not None
    assert (found.several, found.columns_with_several) == (1, ("8",))
    single = Reading(columns=how.columns, triplets=replace(declared, duplicates="unusable"), missing_codes=codes)
    assert dense(path, replace(single, missing={"7": 1.0})) == [[5, 3], [0, 0]]


def test_a_missing_value_changes_its_own_row_alone(tmp_path: Path) -> None:
    before = [(101, 4001, 1.0), (101, 4001, 2.0), (103, 4003, 4.0)]
    plain = dense(csv(tmp_path / "a", before), reading(tmp_path, missing=9.0))
    for more in ([(103, 4003, "")], [(103, 4001, ""), (103, 4001, "")]):
        changed = dense(csv(tmp_path / "b", [*before, *more]), reading(tmp_path, missing=9.0))
        assert changed[:2] == plain[:2]


@pytest.mark.parametrize("kind", ["DOUBLE", "REAL", "DECIMAL(9, 1)"])
def test_names_of_other_numbers_in_a_database_are_refused_by_type(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "covariates.duckdb"
    with duckdb.connect(str(path)) as made:
        made.execute(f"CREATE TABLE covariates (person {kind}, concept integer, value double)")
    with pytest.raises(DpspcaError, match=facts("'person'", "triplets", "CAST")):
        read_offered(path, reading(tmp_path))
