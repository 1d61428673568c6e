"""Partitioned folders: the names of folders such as year=2024 hold a column of all files within."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet
import pytest
from facts import facts

from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import names_in, outline_of, read_rows
from dpspca.provider.data.streamed_rows import files_with_rows

FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [5, 6, 7, 8], "year": [2020, 2021, 2020, 2021]})
ROWS = [[1, 5, 2020], [3, 7, 2020], [2, 6, 2021], [4, 8, 2021]]
SAVE: dict[str, Callable[[pa.Table, Path], object]] = {
    "parquet": pyarrow.parquet.write_table,
    "feather": pyarrow.feather.write_feather,
    "orc": pyarrow.orc.write_table,
}


def partitioned(folder: Path, by: str = "year", frame: pd.DataFrame = FRAME, ending: str = "parquet") -> Path:
    for value, part in frame.groupby(by, dropna=False):
        (folder / f"{by}={value}").mkdir(parents=True)
        table = pa.Table.from_pandas(part.drop(columns=by), preserve_index=False)
        SAVE[ending](table, folder / f"{by}={value}" / f"part.{ending}")
    (folder / "_SUCCESS").write_bytes(b"")
    return folder


@pytest.mark.parametrize("ending", SAVE)
def test_the_names_of_folders_are_the_last_column(ending: str, tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "visits", ending=ending)
    for read in (read_rows, read_offered):
        rows = read(folder)
        assert rows.names == ("a", "b", "year")
        assert np.array_equal(rows.matrix, ROWS)
    assert names_in(folder) == ("a", "b", "year")
    assert outline_of(folder)[2] == ("year", "names of folders")
    assert examine_rows(folder, Reading()).rows_as_zeros == 0


@pytest.mark.parametrize("ending", SAVE)
@pytest.mark.parametrize(
    ("reading", "columns"),
    [
        (Reading(columns=("year", "b")), [2, 1]),
        (Reading(columns=("year",)), [2]),
        (Reading(leave_out=("year",)), [0, 1]),
    ],
)
def test_columns_are_chosen_with_those_of_folders(
    ending: str, reading: Reading, columns: list[int], tmp_path: Path
) -> None:
    folder = partitioned(tmp_path / "visits", ending=ending)
    assert np.array_equal(read_rows(folder, reading).matrix, np.array(ROWS)[:, columns])


def test_folders_of_pyarrow_within_others_and_their_escapes(tmp_path: Path) -> None:
    frame = FRAME.assign(site=["a b", "a/b", "ü", None])
    by = pyarrow.dataset.partitioning(pa.schema([("year", pa.int64()), ("site", pa.string())]), flavor="hive")
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pyarrow.dataset.write_dataset(table, tmp_path / "visits", format="parquet", partitioning=by)
    features = {
        "a": {"kind": "number", "unit": "m", "range": [0, 10]},
        "site": {"kind": "category", "levels": ["a b", "a/b", "ü"]},
    }
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})
    reading = Reading().prepared(Preparation.parse(known, None, None))
    found = {each.name: each for each in examine_rows(tmp_path / "visits", reading).features}["site"]
    assert (found.values, found.missing, found.unknown) == (3, 1, 0)  # noqa: PD011  # no data frame
    assert read_rows(tmp_path / "visits", Reading(leave_out=("site",))).names == ("a", "b", "year")


def test_a_folder_whose_name_is_no_number_spoils_its_own_rows(tmp_path: Path) -> None:
    """Otherwise one row would decide whether the provider starts."""
    folder = partitioned(tmp_path / "visits", frame=FRAME.assign(year=["2020", "?", "2020", "2021"]))
    facts_found = examine_rows(folder, Reading())
    assert (facts_found.rows, facts_found.rows_as_zeros) == (4, 1)
    assert "'year'" in (facts_found.first_fault or "")
    assert examine_rows(folder, Reading(missing_codes=("?",), missing=2000.0)).rows_as_zeros == 0


def test_files_in_folders_of_other_columns_are_refused(tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "visits")
    (folder / "month=1").mkdir()
    pyarrow.parquet.write_table(pa.table({"a": [1.0], "b": [2]}), folder / "month=1" / "part.parquet")
    with pytest.raises(InvalidDataError, match=facts("part.parquet")):
        read_rows(folder)


def test_a_column_in_the_file_and_in_its_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "visits" / "a=1"
    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(pa.table({"a": [1.0, 2.0], "b": [2, 3]}), folder / "part.parquet")
    with pytest.raises(InvalidDataError, match=facts("'a'", "leave_out")):
        read_rows(tmp_path / "visits")


def test_text_in_such_folders_is_refused(tmp_path: Path) -> None:
    (tmp_path / "visits" / "year=2020").mkdir(parents=True)
    (tmp_path / "visits" / "year=2020" / "rows.csv").write_text("a,b\n1,2\n3,4\n", encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("'year'", ".csv")):
        read_rows(tmp_path / "visits")


def test_other_folders_links_and_patterns_are_refused(tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "visits")
    with pytest.raises(InvalidDataError, match=facts("year=2020", "'year'")):
        read_rows(tmp_path / "visits" / "year=*")
    (folder / "year=2022").symlink_to(folder / "year=2020")
    with pytest.raises(InvalidDataError, match=facts("year=2022", "'year'")):
        read_rows(folder)
    (folder / "year=2022").unlink()
    (folder / "more").mkdir()
    with pytest.raises(InvalidDataError, match=facts("more")):
        read_rows(folder)


def test_engines_and_arriving_rows_take_no_partitions(tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "visits")
    with pytest.raises(InvalidDataError, match=facts("year=2020", "'year'")):
        files_with_rows(folder)
    assert read_arriving(folder / "year=2020" / "part.parquet")[0].names == ("a", "b")


def test_one_file_by_its_own_path_has_its_own_columns_alone(tmp_path: Path) -> None:
    folder = partitioned(tmp_path / "visits")
    assert read_rows(folder / "year=2020").names == ("a", "b")
    assert read_rows(folder / "year=2020" / "part.parquet").names == ("a", "b")
