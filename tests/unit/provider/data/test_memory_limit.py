"""Rows that have to be in memory as a whole are refused before they take more than the settings allow."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse
import zarr
from facts import facts
from plink import alleles, genotypes, write_bed

from dpspca.common.errors import DpspcaError
from dpspca.common.storage import Reading, Triplets
from dpspca.provider.data import sources
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.tables.memory_limit import PERSON, SPARSE, TRIPLET, require_room

ROWS, COLUMNS, STORED = 4000, 100, 200_000


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read HDF5 without another process, which takes a second: no file here is damaged."""
    monkeypatch.setattr(sources, "require_readable", lambda _source: None)


def sparse_rows() -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array(
        scipy.sparse.random_array((ROWS, COLUMNS), density=STORED / ROWS / COLUMNS, rng=np.random.default_rng(0))
    )


def save_npz(folder: Path) -> tuple[Path, Reading]:
    scipy.sparse.save_npz(folder / "rows.npz", sparse_rows())
    return folder / "rows.npz", Reading()


def save_csc(folder: Path) -> tuple[Path, Reading]:
    scipy.sparse.save_npz(folder / "rows.npz", scipy.sparse.csc_array(sparse_rows()))
    return folder / "rows.npz", Reading()


def save_packed_array(folder: Path) -> tuple[Path, Reading]:
    np.savez(folder / "rows.npz", rows=np.ones((ROWS * 2, COLUMNS)))
    return folder / "rows.npz", Reading()


def _anndata(group: Any) -> None:
    rows = sparse_rows()
    layer = group.create_group("X")
    layer.attrs["encoding-type"], layer.attrs["shape"] = "csr_matrix", list(rows.shape)
    var = group.create_group("var")
    var.attrs["_index"] = "_index"
    for parent, name, content in ((layer, "data", rows.data), (layer, "indices", rows.indices),
                                  (layer, "indptr", rows.indptr)):  # fmt: skip
        parent.create_dataset(name, data=content) if isinstance(group, h5py.File) else parent.create_array(
            name, data=content
        )


def save_h5ad(folder: Path) -> tuple[Path, Reading]:
    with h5py.File(folder / "rows.h5ad", "w") as file:
        _anndata(file)
        file["var"].create_dataset("_index", data=[f"g{place}" for place in range(COLUMNS)])
    return folder / "rows.h5ad", Reading()


def save_zarr(folder: Path) -> tuple[Path, Reading]:
    group = zarr.open_group(str(folder / "rows.zarr"), mode="w")
    _anndata(group)
    names = [f"g{place}" for place in range(COLUMNS)]
    group["var"].create_array("_index", data=np.array(names, dtype=np.dtypes.StringDType()))  # type: ignore[union-attr]
    return folder / "rows.zarr", Reading()


def save_triplets(folder: Path) -> tuple[Path, Reading]:
    found = sparse_rows().tocoo()
    row, column = found.coords
    table = pa.table({"row": row.astype(np.int32), "column": column.astype(np.int32), "value": found.data})
    pa.parquet.write_table(table, folder / "rows.parquet")
    (folder / "rows.txt").write_text("".join(f"{place}\n" for place in range(ROWS)), encoding="utf-8")
    declared = Triplets(row="row", column="column", value="value", rows=folder / "rows.txt")
    return folder / "rows.parquet", Reading(columns=tuple(map(str, range(COLUMNS))), triplets=declared)


def save_genotypes(folder: Path) -> tuple[Path, Reading]:
    return write_bed(folder / "panel.bed", genotypes(3000, 800), alleles(800)), Reading(missing=0.0)


SAVES = [save_npz, save_csc, save_packed_array, save_h5ad, save_zarr, save_triplets, save_genotypes]


@pytest.mark.parametrize("save", SAVES)
def test_rows_that_take_more_than_the_settings_allow_are_refused(
    save: Callable[[Path], tuple[Path, Reading]], tmp_path: Path
) -> None:
    path, reading = save(tmp_path)
    few, many = Scratch(tmp_path / "scratch", 2**20), Scratch(tmp_path / "scratch", 2**26)
    for refuse in (
        lambda: read_offered(path, reading, scratch=few),
        lambda: examine_rows(path, reading, memory=2**20),
    ):
        with pytest.raises(DpspcaError) as caught:
            refuse()
        for fact in (path.name, " MiB of memory while they are read", "1 MiB are left", "Raise memory_mebibytes"):
            assert fact in str(caught.value)
    assert read_offered(path, reading, scratch=many).count == examine_rows(path, reading, memory=2**26).rows


@pytest.mark.slow
@pytest.mark.parametrize(("save", "each"), [(save_npz, SPARSE), (save_csc, SPARSE), (save_triplets, TRIPLET)])
def test_what_is_forecast_is_what_reading_takes(
    save: Callable[[Path], tuple[Path, Reading]], each: float, tmp_path: Path
) -> None:
    path, reading = save(tmp_path)
    scratch = Scratch(tmp_path / "scratch", 2**26)
    for read in (lambda: read_offered(path, reading, scratch=scratch), lambda: examine_rows(path, reading)):
        taken = peak(read) / STORED
        assert taken < 1.1 * each < 2.5 * taken


def peak(read: Callable[[], object]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        read()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def test_a_list_of_persons_is_refused_before_it_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((20_000, 1), dtype=np.int8))
    (tmp_path / "whose.txt").write_text("".join(f"person {place // 3}\n" for place in range(20_000)), encoding="utf-8")
    with pytest.raises(DpspcaError, match=facts("whose.txt", "20,001", "4 MiB")):
        read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt", scratch=Scratch(tmp_path / "s", 2**20))
    with pytest.raises(DpspcaError, match=facts("memory_mebibytes")):
        examine_rows(tmp_path / "rows.npy", Reading(), tmp_path / "whose.txt", memory=2**20)
    scratch = Scratch(tmp_path / "s", 2**26)
    taken = peak(lambda: read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt", scratch=scratch))
    assert taken / 20_000 < 1.2 * PERSON


def test_data_sets_that_are_held_leave_less_room_for_others(tmp_path: Path) -> None:
    path, reading = save_npz(tmp_path)
    scratch = Scratch(tmp_path / "scratch", 2**24)
    held = read_offered(path, reading, scratch=scratch)
    matrix: Any = held.matrix
    assert 2**24 - scratch.room == matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    others = [read_offered(path, reading, scratch=scratch) for _ in range(2)]
    with pytest.raises(DpspcaError, match=facts("rows.npz", "memory_mebibytes")):
        others.extend(read_offered(path, reading, scratch=scratch) for _ in range(3))
    del held, matrix, others
    gc.collect()
    assert scratch.room == 2**24


def test_files_of_a_folder_are_counted_together(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(3):
        scipy.sparse.save_npz(tmp_path / "rows" / f"{number}.npz", sparse_rows())
    with pytest.raises(DpspcaError, match=facts("2.npz", "memory_mebibytes")):
        read_offered(tmp_path / "rows", scratch=Scratch(tmp_path / "scratch", 13 * 2**20))


def test_a_small_table_is_never_refused() -> None:
    require_room("numbers", 10, 8, 0)
    require_room("numbers", 10**12, 8, None)
