"""Zarr folders: arrays of both versions, and AnnData."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse
import zarr
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_rows
from dpspca.provider.data.tables import extras

ROWS = np.random.default_rng(0).standard_normal((11, 5)).round(2)
ROWS[np.abs(ROWS) < 0.5] = 0
GENES = ["a", "b", "c", "d", "é"]

Version = Literal[2, 3]
BOTH = pytest.mark.parametrize("version", [2, 3])


def array(path: Path, rows: np.ndarray, version: Version, **more: Any) -> Path:
    made = zarr.create_array(str(path), shape=rows.shape, chunks=(4, 2), dtype=rows.dtype, zarr_format=version, **more)
    made[:] = rows
    return path


def anndata(path: Path, version: Version, *, sparse: bool) -> Path:
    group = zarr.open_group(str(path), mode="w", zarr_format=version)
    genes = group.create_group("var")
    genes.attrs["_index"] = "gene"
    genes.create_array("gene", data=np.array(GENES, dtype=np.dtypes.StringDType()))
    layers = group.create_group("layers")
    for where, name, rows in ((group, "X", ROWS), (layers, "raw", 2 * ROWS)):
        if not sparse:
            where.create_array(name, data=rows, chunks=(4, 2))
            continue
        matrix = scipy.sparse.csr_array(rows)
        stored = where.create_group(name)
        stored.attrs.update({"encoding-type": "csr_matrix", "shape": list(rows.shape)})
        for part in ("data", "indices", "indptr"):
            stored.create_array(part, data=getattr(matrix, part))
    return path


@BOTH
@pytest.mark.parametrize("kind", ["f8", "f4", "i2", "u1", "?"])
def test_an_array_is_read(version: Version, kind: str, tmp_path: Path) -> None:
    rows = (ROWS * 10).astype(kind)
    path = array(tmp_path / "rows.zarr", rows, version)
    for read in (read_rows, read_offered):
        assert (read(path).matrix == rows.astype(float)).all()
        assert read(path).names is None
    assert examine_rows(path, Reading()).rows == 11


@BOTH
def test_an_array_of_a_group_is_named(version: Version, tmp_path: Path) -> None:
    group = zarr.open_group(str(tmp_path / "rows.zarr"), mode="w", zarr_format=version)
    group.create_array("x", data=ROWS)
    group.create_array("other", data=np.arange(4.0))
    assert (read_rows(tmp_path / "rows.zarr").matrix == ROWS).all()
    group.create_array("y", data=2 * ROWS)
    with pytest.raises(DpspcaError, match=facts("x, y", "array", "[reading]")):
        read_rows(tmp_path / "rows.zarr")
    assert (read_rows(tmp_path / "rows.zarr", Reading(array="y")).matrix == 2 * ROWS).all()


@BOTH
@pytest.mark.parametrize("sparse", [False, True])
def test_anndata_has_genes_as_columns(version: Version, sparse: bool, tmp_path: Path) -> None:
    path = anndata(tmp_path / "cells.zarr", version, sparse=sparse)
    rows = read_offered(path)
    assert rows.is_sparse == sparse
    assert rows.names == names_in(path) == tuple(GENES)
    chosen = read_offered(path, Reading(columns=("é", "b"), array="raw")).matrix
    numbers = chosen.toarray() if isinstance(chosen, scipy.sparse.csr_array) else np.asarray(chosen)
    assert (numbers == 2 * ROWS[:, [4, 1]]).all()
    with pytest.raises(DpspcaError, match=facts("'counts'", "X, raw")):
        read_offered(path, Reading(array="counts"))


@BOTH
def test_anndata_may_have_names_in_the_newer_form(version: Version, tmp_path: Path) -> None:
    path = anndata(tmp_path / "cells.zarr", version, sparse=False)
    genes = zarr.open_group(str(path / "var"))
    del genes["gene"]
    newer = genes.create_group("gene")
    newer.attrs["encoding-type"] = "nullable-string-array"
    newer.create_array("values", data=np.array(GENES, dtype=np.dtypes.StringDType()))
    mask = newer.create_array("mask", data=np.zeros(len(GENES), dtype=bool))
    assert (read_rows(path).matrix == ROWS).all()
    assert read_rows(path).names == names_in(path) == tuple(GENES)
    mask[0] = True
    with pytest.raises(InvalidDataError, match=facts("cells.zarr", "gene")) as told:
        read_rows(path)
    assert "damaged" not in str(told.value)


def test_an_array_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.zarr").mkdir()
    array(tmp_path / "cube.zarr", np.ones((2, 2)), 3)
    for broken in ("empty.zarr", "gone.zarr"):
        with pytest.raises(DpspcaError, match=facts(broken, ".zarr")):
            read_offered(tmp_path / broken)
    chunk = next(each for each in (tmp_path / "cube.zarr").rglob("*") if each.is_file() and each.name == "0")
    chunk.write_bytes(b"SECRET")
    with pytest.raises(DpspcaError, match=facts("cube.zarr")) as caught:
        read_offered(tmp_path / "cube.zarr")
    assert "SECRET" not in str(caught.value)


def test_links_within_a_folder_are_refused(tmp_path: Path) -> None:
    path = array(tmp_path / "rows.zarr", ROWS, 3)
    (path / "zarr.json").rename(tmp_path / "outside.json")
    (path / "zarr.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(DpspcaError, match=facts("rows.zarr", "zarr.json")):
        read_offered(path)


def test_without_zarr_the_error_names_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(extras, "import_module", missing)
    (tmp_path / "rows.zarr").mkdir()
    with pytest.raises(MissingExtraError, match=facts("'.[zarr]'")):
        read_offered(tmp_path / "rows.zarr")


@BOTH
@pytest.mark.parametrize("is_group", [False, True])
def test_chunks_that_are_not_stored_are_counted(
    version: Version, is_group: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rows.zarr"
    if is_group:
        zarr.open_group(str(path), mode="w", zarr_format=version)
    stored = array(path / "rows" if is_group else path, ROWS + 10, version, fill_value=7)
    assert examine_rows(path, Reading()).unstored == ()
    read_offered(path)
    assert not caplog.records
    (stored / ("c/1/0" if version == 3 else "1.0")).unlink()
    (told,) = examine_rows(path, Reading()).unstored
    for fact in (str(path), "1 of 9", "7"):
        assert fact in told
    read_offered(path)
    assert len(caplog.records) == 1
    assert "1 of 9" not in caplog.text


@pytest.mark.parametrize(
    ("chunks", "shards", "count"), [((5, 2), (20, 4), 4), ((10, 3), (20, 3), 4), ((8, 6), (16, 6), 3)]
)
def test_shards_that_are_not_stored_are_counted(
    chunks: tuple[int, int], shards: tuple[int, int], count: int, tmp_path: Path
) -> None:
    """Whether they end with the array or reach beyond it."""
    path = tmp_path / "rows.zarr"
    made = zarr.create_array(str(path), shape=(39, 6), chunks=chunks, shards=shards, dtype="f8")
    made[:] = np.arange(1.0, 235.0).reshape(39, 6)
    assert examine_rows(path, Reading()).unstored == ()
    (path / "c" / "0" / "0").unlink()
    assert f"1 of {count}" in examine_rows(path, Reading()).unstored[0]


@BOTH
def test_chunks_of_anndata_are_counted(version: Version, tmp_path: Path) -> None:
    path = anndata(tmp_path / "cells.zarr", version, sparse=True)
    assert examine_rows(path, Reading()).unstored == ()
    (path / "X" / "data" / ("c/0" if version == 3 else "0")).unlink()
    assert "1 of 3" in examine_rows(path, Reading()).unstored[0]
