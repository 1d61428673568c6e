"""What a steward is told about files agrees with what the provider does with them."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse
from facts import facts

from dpspca.common.errors import DpspcaError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.examination.column_facts import ColumnFacts
from dpspca.provider.data.examination.data_set_facts import DataSetFacts, examine_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.memory.stored_rows import StoredRows
from dpspca.provider.data.offered_rows import read_offered

TEXT = "id,age,sex,bmi,site,name\n1,50,0,,3,ann\n2,NA,1,24.5,3,bob\n3,999,0,25,3,cy\n4,60,1,inf,3,di\n5,61,1,22,3,\n"


def by_name(facts: DataSetFacts) -> dict[str | None, ColumnFacts]:
    return {each.name: each for each in facts.columns}


def test_columns_of_text_are_described(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(TEXT)
    facts = examine_rows(tmp_path / "rows.csv", Reading())
    columns = by_name(facts)
    assert (facts.rows, facts.rows_as_zeros, facts.persons) == (5, 5, None)
    assert {name: (each.missing, each.unusable) for name, each in columns.items()} == {
        "id": (0, 0), "age": (0, 1), "sex": (0, 0), "bmi": (1, 1), "site": (0, 0), "name": (1, 4),
    }  # fmt: skip
    assert [each.type for each in facts.columns] == [
        "whole numbers", "whole numbers", "0 and 1", "numbers", "whole numbers", "no numbers",
    ]  # fmt: skip
    assert [name for name, each in columns.items() if each.is_constant] == ["site"]
    assert [name for name, each in columns.items() if each.is_index] == ["id"]


def test_what_is_declared_is_taken_into_account(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(TEXT)
    reading = Reading(columns=("age", "bmi"), missing_codes=("NA", 999), missing={"age": 55.0})
    (tmp_path / "whose.txt").write_text("a\nb\na\na\n\n")
    facts = examine_rows(tmp_path / "rows.csv", reading, tmp_path / "whose.txt")
    age, bmi = facts.columns
    assert (age.missing, age.unusable, age.filled_with, age.spoils) == (2, 0, 55.0, 0)
    assert (bmi.missing, bmi.unusable, bmi.filled_with, bmi.spoils) == (1, 1, None, 2)
    read = read_offered(tmp_path / "rows.csv", reading, persons=tmp_path / "whose.txt")
    assert read.unusable is not None
    assert facts.rows_as_zeros == read.unusable.count == 3
    assert facts.persons is not None
    assert (facts.persons.persons, facts.persons.most_rows, facts.persons.rows_of_nobody) == (2, 3, 1)


def test_types_that_a_file_states_are_shown(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, None], pa.int16()), "b": pa.array([True, True]), "c": [0.5, 2.0]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    facts = examine_rows(tmp_path / "rows.parquet", Reading(leave_out=("c",)))
    assert [(each.name, each.type) for each in facts.columns] == [("a", "int16"), ("b", "bool")]
    assert (facts.columns[0].missing, facts.columns[1].is_constant) == (1, True)


def test_sparse_columns_have_zeros_that_are_not_stored(tmp_path: Path) -> None:
    rows = np.array([[0, 2.0, np.nan, 1], [0, 0, 3, 1], [0, 5, 0, 1]])
    scipy.sparse.save_npz(tmp_path / "rows.npz", scipy.sparse.csr_array(rows))
    facts = examine_rows(tmp_path / "rows.npz", Reading())
    assert facts.is_sparse
    assert [each.is_constant for each in facts.columns] == [True, False, False, True]
    assert [(each.name, each.missing) for each in facts.columns] == [(None, 0), (None, 0), (None, 1), (None, 0)]
    assert facts.rows_as_zeros == 1


def test_tables_without_rows_are_described(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n")
    facts = examine_rows(tmp_path / "rows.csv", Reading())
    assert (facts.rows, facts.rows_as_zeros) == (0, 0)
    assert [(each.type, each.is_constant, each.is_index) for each in facts.columns] == [
        ("no numbers", False, False)
    ] * 2


def test_what_the_provider_refuses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(TEXT)
    with pytest.raises(DpspcaError, match=facts("'weight'")):
        examine_rows(tmp_path / "rows.csv", Reading(columns=("weight",)))


def text_of(path: Path, rows: Any) -> None:
    np.savetxt(path, rows, "%.6f", delimiter=",", header=",".join(map(str, map("c{}".format, range(20)))), comments="")


@pytest.mark.parametrize(("name", "save"), [
    ("rows.npy", np.save), ("rows.csv", text_of),
    ("rows.npz", lambda path, rows: scipy.sparse.save_npz(path, scipy.sparse.csr_array(rows * (np.abs(rows) > 2)))),
])  # fmt: skip
def test_the_stated_memory_is_what_reading_takes(name: str, save: Any, tmp_path: Path) -> None:
    save(tmp_path / name, np.random.default_rng(0).standard_normal((20_000, 20)))
    told = examine_rows(tmp_path / name, Reading()).memory
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        rows = read_offered(tmp_path / name, scratch=Scratch(tmp_path / "scratch"))
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows.count == 20_000
    assert told.rows == pytest.approx(after - before, rel=0.2, abs=200_000)
    assert (peak - before) / 1.2 < told.start < 6 * (peak - before)
    assert told.job > told.rows
    held = rows.matrix.nbytes if isinstance(rows.matrix, StoredRows) else 0
    assert told.scratch == held
    assert (told.scratch_job > held) == bool(held)
