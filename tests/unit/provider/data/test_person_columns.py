"""A column of the rows says whose they are: the same persons as a persons file, and no feature."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import database
import duckdb
import numpy as np
import pandas as pd
import psycopg
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st
from plink import genotypes, write_bed

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.files import label_of
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import names_in, outline_of, read_rows
from dpspca.provider.data.tables import PersonCells, raw_table

NUMBERS = np.array([[1.5, 20], [2.5, 30], [3.5, 25], [4.5, 35], [5.5, 40], [6.5, 45], [7.5, 50]])
WHOSE: list[str | None] = ["ann", "bob", "ann", None, "Zoë", "12", "bob"]
NUMBERED: list[int | None] = [7, 8, 7, None, 9, 12, 8]
DECLARED = Reading(person="patient", order_by=("visit",), columns=("weight", "age"))


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


@pytest.fixture(params=[None, 2], ids=["whole", "in parts"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(raw_table, "_MOST_ROWS_AT_A_TIME", request.param)


def frame(whose: list[Any]) -> pd.DataFrame:
    kind = "Int64" if any(isinstance(each, int) for each in whose) else "string"
    return pd.DataFrame({
        "visit": range(len(whose)), "patient": pd.array(whose, dtype=kind), "weight": NUMBERS[:, 0],
        "age": NUMBERS[:, 1].astype(int),
    })  # fmt: skip


def text(folder: Path, made: pd.DataFrame, _: database.Server) -> Path:
    made.to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def parquet(folder: Path, made: pd.DataFrame, _: database.Server) -> Path:
    pyarrow.parquet.write_table(pa.Table.from_pandas(made, preserve_index=False), folder / "rows.parquet")
    return folder / "rows.parquet"


def feather(folder: Path, made: pd.DataFrame, _: database.Server) -> Path:
    whole = pa.Table.from_pandas(made, preserve_index=False)
    place = whole.schema.get_field_index("patient")
    coded = whole.column("patient").dictionary_encode()
    whole = whole.set_column(place, "patient", coded) if pa.types.is_string(whole.schema.field(place).type) else whole
    pyarrow.feather.write_feather(whole, folder / "rows.feather", chunksize=3)
    return folder / "rows.feather"


def orc(folder: Path, made: pd.DataFrame, _: database.Server) -> Path:
    pyarrow.orc.write_table(pa.Table.from_pandas(made, preserve_index=False), folder / "rows.orc")
    return folder / "rows.orc"


def sqlite(folder: Path, made: pd.DataFrame, _: database.Server) -> Path:
    with closing(sqlite3.connect(folder / "rows.sqlite")) as opened:
        made.to_sql("visits", opened, index=False)
    return folder / "rows.sqlite"


def duck(folder: Path, made: pd.DataFrame, _: database.Server) -> Path:
    with duckdb.connect(str(folder / "rows.duckdb")) as opened:
        opened.register("given", made)
        opened.execute("CREATE TABLE visits AS SELECT * FROM given")
    return folder / "rows.duckdb"


def postgres(folder: Path, made: pd.DataFrame, server: database.Server) -> Path:
    url, path = server.database(), folder / "rows.postgresql"
    kind = "bigint" if made["patient"].dtype == "Int64" else "text"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE visits (visit int PRIMARY KEY, patient {kind}, weight float8, age int)".encode()
        )
        rows = [[None if pd.isna(cell) else cell for cell in row] for row in made.astype(object).to_numpy().tolist()]
        for row in reversed(rows):
            connection.execute("INSERT INTO visits VALUES (%s, %s, %s, %s)", row)
    path.write_text(f"{url}\n", encoding="utf-8")
    path.chmod(0o600)
    return path


Make = Callable[[Path, pd.DataFrame, database.Server], Path]


def declared_for(make: Make, reading: Reading = DECLARED) -> Reading:
    is_sql = make in {duck, postgres}
    return reading if is_sql else Reading(person=reading.person, columns=reading.columns, leave_out=reading.leave_out)


def by_file(folder: Path, whose: list[Any]) -> CheckedRows:
    """Read the same rows with a persons file."""
    np.savetxt(folder / "plain.csv", NUMBERS, delimiter=",", header="weight,age", comments="")
    lines = "".join(f"{'' if each is None else each}\n" for each in whose)
    (folder / "whose.txt").write_text(lines, encoding="utf-8")
    return read_offered(folder / "plain.csv", persons=folder / "whose.txt")


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("whose", [WHOSE, NUMBERED], ids=["text", "numbers"])
@pytest.mark.parametrize("make", [text, parquet, feather, orc, sqlite, duck, postgres])
@pytest.mark.parametrize("is_stored", [True, False], ids=["scratch", "memory"])
def test_a_column_names_the_same_persons_as_a_file(
    make: Make, whose: list[Any], is_stored: bool, server: database.Server, tmp_path: Path
) -> None:
    path, right = make(tmp_path, frame(whose), server), by_file(tmp_path, whose)
    scratch = Scratch(tmp_path / "scratch") if is_stored else None
    rows = read_offered(path, declared_for(make), scratch=scratch)
    assert rows.names == ("weight", "age")
    assert rows.persons is not None
    assert right.persons is not None
    assert rows.persons.tolist() == right.persons.tolist()
    numbers: Any = rows.matrix
    assert np.asarray(numbers.toarray() if is_stored else numbers).tolist() == np.asarray(right.matrix).tolist()
    assert rows.fingerprints() == right.fingerprints()
    assert rows.digest() == right.digest()
    assert rows.bounded(1).count == right.bounded(1).count == 5
    by_lines = examine_rows(tmp_path / "plain.csv", Reading(), tmp_path / "whose.txt").persons
    assert by_lines is not None
    assert examine_rows(path, declared_for(make)).persons == replace(by_lines, of_column=True)


def test_the_column_is_no_feature(tmp_path: Path, server: database.Server) -> None:
    path = text(tmp_path, frame(WHOSE), server)
    for reading in (Reading(person="patient"), Reading(person="patient", leave_out=("patient",))):
        assert names_in(path, reading) == ("visit", "weight", "age")
        assert [name for name, _ in outline_of(path, reading)] == ["visit", "weight", "age"]
        assert read_rows(path, reading).names == ("visit", "weight", "age")
        assert read_offered(path, reading).names == ("visit", "weight", "age")


def test_a_dictionary_prepares_the_other_columns(tmp_path: Path) -> None:
    lines = ["age,sex,whose", "50,m,a", "60,f,b", "70,f,a"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "study.toml").write_text(
        'format = "dpspca-dictionary-1"\n[features.age]\nkind = "number"\nunit = "years"\nrange = [0, 100]\n'
        '[features.sex]\nkind = "category"\nlevels = ["f", "m"]\n',
        encoding="utf-8",
    )
    (tmp_path / "provider.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[data_sets]\ncohort = "rows.csv"\n[reading.cohort]\nperson = "whose"\n'
        '[dictionaries.cohort]\nfile = "study.toml"\n',
        encoding="utf-8",
    )
    reading = read_settings(ProviderSettings, tmp_path / "provider.toml").reading_of("cohort")
    rows = read_offered(tmp_path / "rows.csv", reading)
    assert rows.names == ("age", "sex=f", "sex=m")
    assert rows.persons is not None
    assert rows.persons.tolist() == [0, 1, 0]
    assert np.asarray(rows.matrix)[:, 0].tolist() == pytest.approx([0, 0.2, 0.4])


def test_files_of_a_folder_name_their_persons_together(tmp_path: Path) -> None:
    """The second file has wider numbers, so that all are read again."""
    (tmp_path / "rows").mkdir()
    for name, kind, whose in (("1", "int8", ["a", "b"]), ("2", "float64", ["b", "c"])):
        made = pd.DataFrame({"x": np.array([1, 2], dtype=kind), "y": np.array([3, 4], dtype=kind), "whose": whose})
        made.to_parquet(tmp_path / "rows" / f"{name}.parquet", index=False)
    rows = read_offered(tmp_path / "rows", Reading(person="whose"), scratch=Scratch(tmp_path / "scratch"))
    assert rows.persons is not None
    assert rows.persons.tolist() == [0, 1, 1, 2]
    stored: Any = rows.matrix
    assert stored.toarray().dtype == np.float64
    only = read_offered(
        tmp_path / "rows" / "1.parquet", Reading(person="whose"), scratch=Scratch(tmp_path / "narrow")
    ).matrix
    assert isinstance(only, type(stored))
    assert only.kind == np.int8, "text beside numbers does not widen them"


def test_a_list_of_samples_beside_genotypes_names_families(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "panel", genotypes(6, 3, missing=0))
    for persons in (None, tmp_path / "panel.fam"):
        rows = read_offered(path, Reading(person="FID"), persons=persons)
        assert rows.persons is not None
        assert rows.persons.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(InvalidDataError, match=facts("'SEX'", "panel.fam", "IID", "FID")):
        read_offered(path, Reading(person="SEX"))


# --- Labels -----------------------------------------------------------------------------------------------------------


def test_labels_that_cannot_be_told_apart_name_nobody() -> None:
    """Two persons would be one, and what one of them adds would depend on the other's rows."""
    cells = PersonCells(label_of)
    numbers = [2.0**52, -(2.0**52), 2.0**63, np.nan, np.inf, -np.inf, -(2.0**60), 2.0**52 - 1, -5.0, 1.5]
    assert cells.labels(np.array(numbers)) == [b""] * 7 + [b"4503599627370495", b"-5", b"1.5"]
    read = [cells.read(each) for each in ("a", "b", "a ", "\ufffd1", "", "  ", "012", "12")]
    assert cells.labels(np.array(read)) == [b"a", b"b", b"a", b"", b"", b"", b"012", b"12"]


@pytest.mark.parametrize("codes", [("NA", -9), {"p": ("NA", -9)}], ids=["everywhere", "of the column"])
def test_codes_for_missing_values_name_nobody(codes: Any, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,p,y\n1,NA,2\n3,NA,4\n5,7,6\n7,-9,8\n9,-9.0,1\n", encoding="utf-8")
    made = pd.DataFrame({"x": [1.0, 3, 5, 7, 9], "p": [-9, -9, 7, -9, -9], "y": [2.0, 4, 6, 8, 1]})
    made.to_parquet(tmp_path / "rows.parquet", index=False)
    for name in ("rows.csv", "rows.parquet"):
        reading = Reading(person="p", missing_codes=codes)
        found = examine_rows(tmp_path / name, reading).persons
        assert found is not None
        assert (found.persons, found.rows_of_nobody) == ((2, 3) if name == "rows.csv" else (1, 4))
        assert found.alike == 0
        rows = read_offered(tmp_path / name, reading)
        assert np.asarray(rows.matrix)[:3].tolist() == [[0, 0], [0, 0], [5, 6]]


def test_labels_that_may_be_one_or_none_are_counted(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,p\n1,NA\n2,unknown\n3,012\n4,12\n5,12.0\n6,x\n", encoding="utf-8")
    found = examine_rows(tmp_path / "rows.csv", Reading(person="p")).persons
    assert found is not None
    assert (found.persons, found.unnamed, found.alike) == (6, 2, 2)


def test_a_name_in_another_encoding_names_nobody(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("x,p\n1,Zoë\n".encode() + "2,Zoë\n3,Ann\n".encode("cp1252"))
    found = examine_rows(tmp_path / "rows.csv", Reading(person="p")).persons
    assert found is not None
    assert (found.persons, found.rows_of_nobody) == (2, 1)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0, 2.0], pa.float32()),
        pa.array([Decimal("1.1"), Decimal("1.2")], pa.decimal128(5, 2)),
        pa.array([True, False]),
        pa.array([b"a", b"b"], pa.binary()),
    ],
    ids=["float", "decimal", "bool", "binary"],
)
def test_types_that_may_make_two_persons_one_are_refused(column: Any, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"x": [1.0, 2.0], "p": column}), tmp_path / "rows.parquet")
    with pytest.raises(DpspcaError, match=facts("'p'", "CAST")):
        read_offered(tmp_path / "rows.parquet", Reading(person="p"))


@pytest.mark.parametrize("kind", ["FLOAT", "DECIMAL(10, 2)", "DOUBLE", "DECIMAL(10, 0)", "VARCHAR"])
def test_types_of_a_database_that_may_make_two_persons_one_are_refused(kind: str, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as opened:
        opened.execute(f"CREATE TABLE visits AS SELECT 1.5::DOUBLE AS x, 7::{kind} AS p")
    reading = Reading(person="p", table="visits")
    if kind in {"DOUBLE", "VARCHAR"}:
        assert read_offered(tmp_path / "rows.duckdb", reading).persons is not None
    else:
        with pytest.raises(DpspcaError, match=facts("'p'", "CAST")):
            read_offered(tmp_path / "rows.duckdb", reading)


@given(st.lists(st.text(max_size=5) | st.integers(-100, 100)))
def test_labels_are_those_of_a_persons_file(written: list[str | int]) -> None:
    cells = PersonCells(label_of)
    numbers = [cells.read(each) if isinstance(each, str) else float(each) for each in written]
    plain = [each if "\ufffd" not in str(each) else "" for each in written]
    right = [label_of(str(each).encode("utf-8", "surrogateescape")) for each in plain]
    assert cells.labels(np.array(numbers)) == right


def test_a_line_with_too_few_cells_is_nobody_s_and_no_line_changes_another(tmp_path: Path) -> None:
    lines = ["x,whose,y", "1,a,2", "3,b", "5,c,6", "7,a,8", '9,"d,10', "11,c,12"]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    rows = read_offered(tmp_path / "rows.csv", Reading(person="whose"))
    assert np.asarray(rows.matrix).tolist() == [[1, 2], [0, 0], [5, 6], [7, 8], [0, 0], [11, 12]]
    assert rows.persons is not None
    whose = rows.persons.tolist()
    assert whose[0] == whose[3]
    assert whose[2] == whose[5]
    assert len(set(whose)) == 4


# --- What is refused --------------------------------------------------------------------------------------------------


def test_columns_that_cannot_name_persons_are_refused(tmp_path: Path, server: database.Server) -> None:
    path = text(tmp_path, frame(WHOSE), server)
    with pytest.raises(DpspcaError, match=facts("'patients'", "'patient'")):
        read_offered(path, Reading(person="patients"))
    with pytest.raises(DpspcaError, match=facts("'age'", "columns")):
        Reading(person="age", columns=("age", "weight"))
    with pytest.raises(DpspcaError, match=facts("rows.csv")):
        read_arriving(path, Reading(person="patient"))
    (tmp_path / "whose.txt").write_text("a\n" * len(WHOSE), encoding="utf-8")
    with pytest.raises(DpspcaError, match=facts("'patient'", "whose.txt")):
        read_offered(path, Reading(person="patient"), persons=tmp_path / "whose.txt")
    np.save(tmp_path / "rows.npy", NUMBERS)
    with pytest.raises(DpspcaError, match=facts("person", ".npy")):
        read_offered(tmp_path / "rows.npy", Reading(person="patient"))
    dated = frame(WHOSE).assign(patient=pd.Timestamp("2026-01-01"))
    with pytest.raises(DpspcaError, match=facts("'patient'")):
        read_offered(parquet(tmp_path, dated, server), Reading(person="patient"))


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ('[persons]\ncohort = "whose.txt"', ("reading.cohort", "person", "'cohort'")),
        ("[spans]\ncohort = { start = 0, rows = 2, of = 4 }", ("'cohort'", "persons", "span")),
        (
            '[engines]\ncohort = { engine = "dask", scheduler = "tls://127.0.0.1:1", ca = "c", cert = "c", key = "k" }',
            ("reading.cohort", "person"),
        ),
    ],
)
def test_settings_in_which_a_column_has_no_place_are_refused(more: str, named: Any, tmp_path: Path) -> None:
    (tmp_path / "provider.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        f'[data_sets]\ncohort = "rows.csv"\n[reading.cohort]\nperson = "whose"\n{more}\n',
        encoding="utf-8",
    )
    with pytest.raises(InvalidParameterError, match=facts(named)):
        read_settings(ProviderSettings, tmp_path / "provider.toml")


def test_rows_that_arrive_and_triplets_have_no_column_of_persons(tmp_path: Path) -> None:
    (tmp_path / "provider.toml").write_text(
        'coordinator = "127.0.0.1:1"\nidentity = "north"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
        '[arriving]\ncohort = "rows"\n[reading.cohort]\nperson = "whose"\n',
        encoding="utf-8",
    )
    with pytest.raises(InvalidParameterError, match=facts("reading.cohort", "person")):
        read_settings(ProviderSettings, tmp_path / "provider.toml")
