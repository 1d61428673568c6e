"""The start with a data set of a cluster: the rows have the fingerprints of the same rows that a provider reads."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from clusters import Here, folder_of, rows_of
from facts import facts

from dpspca.common.decoding import decode
from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import InvalidDataError, MissingExtraError
from dpspca.common.queries.rows import Covariance, CovarianceProduct
from dpspca.common.storage.engine_settings import EngineSettings
from dpspca.common.storage.reading import Reading
from dpspca.provider.data import streamed_rows
from dpspca.provider.data.cluster_rows import ClusterRows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.engines import worker
from dpspca.provider.engines.cluster_sums import ClusterSums
from dpspca.provider.engines.clusters import open_cluster
from dpspca.provider.engines.counting import count_rows, task_fields
from dpspca.provider.evaluate.shard import Shard

STUDY = {
    "format": "dpspca-dictionary-1",
    "features": {
        "age": {"kind": "number", "unit": "years", "range": [0, 100]},
        "sex": {"kind": "category", "levels": ["female", "male"]},
        "weight": {"kind": "number", "unit": "kg", "range": [0, 300], "missing_codes": [-9]},
    },
}


@pytest.fixture
def table() -> np.ndarray:
    rows = np.random.default_rng(0).standard_normal((101, 5)).round(3)
    rows[4, 2], rows[50, 0], rows[77, 4] = np.nan, np.inf, 999.0
    return rows


def clinical(folder: Path) -> Path:
    """Write a Parquet folder with text, codes and missing values."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    for place in range(3):
        columns = {
            "years": rng.integers(18, 90, 40),
            "sex": [["f", "male", "2", None][code] for code in rng.integers(0, 4, 40)],
            "pounds": np.where(rng.random(40) < 0.1, -9, rng.normal(160, 20, 40)),
        }
        pyarrow.parquet.write_table(pa.table(columns), folder / f"part-{place}.parquet")
    return folder


def preparation() -> Preparation:
    columns = {
        "age": "years",
        "sex": {"levels": {"f": "female", "2": "male"}},
        "weight": {"column": "pounds", "factor": 0.45359237, "missing_codes": [-1]},
    }
    return Preparation.parse(Dictionary.parse(STUDY), columns, [])


READINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filled": {"reading": Reading(missing=0.5)},
    "coded": {"reading": Reading(missing_codes=(999.0,), missing=0.0)},
    "cut": {"row_entries": 2},
    "filled-and-cut": {"reading": Reading(missing=0.5), "row_entries": 2},
}


def same(local: Any, remote: ClusterRows) -> None:
    """Compare everything that is known of rows, and an answer."""
    assert (remote.count, remote.dimension, remote.names) == (local.count, local.dimension, local.names)
    assert remote.fingerprints() == local.fingerprints()
    assert remote.uncut == local.uncut
    assert (remote.unusable and remote.unusable.count) == (local.unusable and local.unusable.count)
    query = Covariance(local.dimension)
    shards = Shard(local, 3.0), Shard(remote, 3.0, sums=ClusterSums(remote, 3.0))
    assert (shards[0].evaluate(query) == shards[1].evaluate(query)).all()


def test_rows_that_all_lack_a_number_are_identified_with_other_fills(table: np.ndarray, tmp_path: Path) -> None:
    lacking = np.where(np.arange(len(table))[:, None] % 5 == np.arange(5), np.nan, table)
    folder = folder_of(lacking, tmp_path / "cohort")
    first, again = (rows_of(folder, reading=Reading(missing=fill)).fingerprints() for fill in (0.0, 1.0))
    assert first & again


@pytest.mark.parametrize("cells", [7, 10**6])
@pytest.mark.parametrize("how", READINGS)
def test_rows_are_identified_as_if_the_provider_read_them(
    how: str, cells: int, table: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_rows, "CELLS", cells)
    folder, told = folder_of(table, tmp_path / "cohort"), READINGS[how]
    local = read_offered(
        folder,
        told.get("reading", Reading()),
        row_entries=told.get("row_entries"),
        scratch=Scratch(tmp_path / "scratch"),
    )
    same(local, rows_of(folder, **told))


def test_a_dictionary_is_applied_by_workers(tmp_path: Path) -> None:
    folder, prepared = clinical(tmp_path / "clinical"), preparation()
    local = read_offered(folder, Reading().prepared(prepared), scratch=Scratch(tmp_path / "scratch"))
    same(local, rows_of(folder, preparation=prepared))


def test_workers_get_the_whole_dictionary() -> None:
    for each in (preparation(), Preparation.parse(Dictionary.parse(STUDY), None, ["sex"])):
        assert Preparation.from_written(each.written()) == each


def test_digests_change_with_any_row_and_not_with_the_division_into_tasks(table: np.ndarray, tmp_path: Path) -> None:
    folder = folder_of(table, tmp_path / "cohort")
    before = rows_of(folder, Here(tasks=1))
    assert rows_of(folder, Here(tasks=9)).digest() == before.digest()
    part = np.load(folder / "001.npy")
    np.save(folder / "001.npy", np.where(part == part[0, 0], np.nextafter(part[0, 0], 9), part))
    changed = rows_of(folder)
    assert changed.digest() != before.digest()
    assert [one.digest == other.digest for one, other in zip(before.parts, changed.parts, strict=True)] == [1, 0, 1]


def test_a_job_about_more_rows_than_there_are_is_refused(table: np.ndarray, tmp_path: Path) -> None:
    rows = rows_of(folder_of(table, tmp_path / "cohort"))
    assert rows.first(None).count == rows.first(101).count == 101
    with pytest.raises(InvalidDataError, match=facts(102)):
        rows.first(102)


@pytest.mark.parametrize(
    ("package", "extra", "table"),
    [
        ("distributed", "dask", {"engine": "dask", "scheduler": "tcp://localhost:1"}),
        ("pyspark.sql", "spark", {"engine": "spark", "master": "local"}),
    ],
)
def test_a_package_that_is_missing_is_named_with_how_to_install_it(
    package: str, extra: str, table: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    cluster = open_cluster(decode(EngineSettings, table))
    with pytest.raises(MissingExtraError, match=facts(extra, f"pip install '.[{extra}]'")):
        count_rows(cluster, task_fields(tmp_path, Reading(), None, None))


def test_a_pass_reads_each_row_once(table: np.ndarray, tmp_path: Path) -> None:
    """Spans of parts divide rows by their position, whatever the sizes of files are."""
    rows = rows_of(folder_of(table, tmp_path / "cohort"))
    for start in range(0, 101, 9):
        for stop in range(start, 102, 7):
            spans = rows.spans(slice(start, stop))
            assert sum(each.stop - each.start for each in spans) == stop - start
            assert all(0 <= each.start <= each.stop <= each.part.count for each in spans)
    limited = replace(rows, limit=50)
    assert sum(each.stop - each.start for each in limited.spans(slice(None))) == 50


def test_t22_a_pass_over_all_rows_reads_every_file_also_those_without_rows(tmp_path: Path) -> None:
    """Otherwise the time of an answer would show whether a file has one row or none."""
    folder = tmp_path / "wards"
    folder.mkdir()
    for name, count in (("a", 5), ("b", 0), ("c", 1), ("d", 0)):
        np.save(folder / f"{name}.npy", np.ones((count, 3)))
    rows = rows_of(folder)
    found = [(Path(each.part.file).stem, each.start, each.stop) for each in rows.spans(slice(None))]
    assert found == [("a", 0, 5), ("b", 0, 0), ("c", 0, 1), ("d", 0, 0)]
    assert [each.stop for each in rows.first(5).spans(slice(None))] == [5, 0, 0, 0]
    assert [Path(each.part.file).stem for each in rows.spans(slice(0, 5))] == ["a"]


def test_a_part_of_no_rows_is_added_up_as_often_as_one_of_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sums: list[int] = []
    made = worker._sums
    monkeypatch.setattr(worker, "_sums", lambda *given: sums.append(len(given[1])) or made(*given))
    for count in (0, 1):
        np.save(tmp_path / f"{count}.npy", np.ones((count, 3)))
        ClusterSums(rows_of(tmp_path / f"{count}.npy"), 1.0).of(CovarianceProduct(np.eye(3)[:, :1]))
    assert sums == [0, 1]


def test_t22_the_whole_width_of_a_line_counts_as_read(tmp_path: Path) -> None:
    (tmp_path / "wide.csv").write_text("a,b,c,d,e\n" + "1,2,3,4,5\n" * 3, encoding="utf-8")
    np.save(tmp_path / "narrow.npy", np.ones((3, 2)))
    assert rows_of(tmp_path / "wide.csv", reading=Reading(columns=("b", "d"))).read_columns == 5
    assert rows_of(tmp_path / "narrow.npy").read_columns == 2
