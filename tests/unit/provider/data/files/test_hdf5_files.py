"""HDF5 and AnnData: which array is read follows from names, types and shapes."""

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidDataError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data import sources, trial_reading
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_rows
from dpspca.provider.data.tables import raw_table

RNG = np.random.default_rng(0)
CELLS = RNG.poisson(0.7, (50, 4)).astype(np.float32)
GENES = ("TP53", "BRCA1", "EGFR", "größe")


def write_matrix(group: Any, name: str, matrix: Any) -> None:
    """Write a matrix as AnnData does."""
    if not scipy.sparse.issparse(matrix):
        group.create_dataset(name, data=matrix, compression="gzip").attrs["encoding-type"] = "array"
        return
    stored = group.create_group(name)
    stored.attrs.update(
        {"encoding-type": f"{matrix.format}_matrix", "encoding-version": "0.1.0", "shape": matrix.shape}
    )
    for part in ("data", "indices", "indptr"):
        stored.create_dataset(part, data=getattr(matrix, part))


def h5ad(path: Path, matrix: Any, **layers: Any) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        write_matrix(file, "X", matrix)
        variables = file.create_group("var")
        variables.attrs["_index"] = "gene_id"
        variables.create_dataset("gene_id", data=list(GENES), dtype=h5py.string_dtype())
        for name, layer in layers.items():
            write_matrix(file.require_group("layers"), name, layer)
    return path


FORMS = {"dense": np.asarray, "csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_array}


def dense(matrix: Any) -> Any:
    return matrix.toarray() if scipy.sparse.issparse(matrix) else matrix


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_cells_are_rows_and_genes_are_named_columns(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_table, "_MOST_ROWS_AT_A_TIME", 7)
    path = h5ad(tmp_path / "cells.h5ad", FORMS[form](CELLS), counts=FORMS[form](2 * CELLS))
    for read in (read_rows, read_offered):
        rows = read(path)
        assert (dense(rows.matrix) == CELLS).all()
        assert rows.is_sparse == (form != "dense")
        assert rows.names == names_in(path) == GENES
        chosen = read(path, Reading(columns=("EGFR", "TP53"), array="counts"))
        assert (dense(chosen.matrix) == 2 * CELLS[:, [2, 0]]).all()
        assert chosen.names == ("EGFR", "TP53")
    for wrong, named in ((Reading(array="raw"), "X, counts"), (Reading(columns=("TP5",)), "'TP53'")):
        with pytest.raises(DpspcaError, match=facts(named)):
            read_offered(path, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_an_odd_value_is_one_row_of_zeros(form: str, tmp_path: Path) -> None:
    cells = CELLS + 1
    cells[3, 1] = np.nan
    read = read_offered(h5ad(tmp_path / "cells.h5ad", FORMS[form](cells)))
    assert (dense(read.matrix) == np.where(np.arange(50)[:, None] == 3, 0, cells)).all()
    filled = read_offered(tmp_path / "cells.h5ad", Reading(missing={"BRCA1": 5.0}))
    assert (dense(filled.matrix) == np.where(np.isnan(cells), 5, cells)).all()


@pytest.mark.slow
def test_an_array_of_a_plain_file_is_the_only_one_or_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["group/rows"] = CELLS
        file["names"] = np.array([b"a", b"b"])
        file["text"] = np.array([[b"a", b"b"]])
        file["line"] = np.arange(3)
        file["one"] = 3
    assert (read_offered(tmp_path / "rows.h5").matrix == CELLS).all()
    with h5py.File(tmp_path / "rows.hdf5", "w") as file:
        file["first"], file["second"] = CELLS, CELLS[:, :2].astype(np.int16)
    with pytest.raises(DpspcaError, match=facts("first, second", "array", "[reading]")):
        read_offered(tmp_path / "rows.hdf5")
    assert (read_rows(tmp_path / "rows.hdf5", Reading(array="second")).matrix == CELLS[:, :2]).all()


@pytest.mark.parametrize("form", FORMS)
def test_names_that_do_not_fit_the_columns_are_refused(form: str, tmp_path: Path) -> None:
    with pytest.raises(DpspcaError, match=facts("4 genes", "(50, 3)")):
        read_offered(h5ad(tmp_path / "cells.h5ad", FORMS[form](CELLS[:, :3])))


@pytest.mark.slow
def test_a_broken_file_is_named(tmp_path: Path) -> None:
    whole = h5ad(tmp_path / "cells.h5ad", CELLS).read_bytes()
    for content in (b"", b"SECRET" * 99, whole[: len(whole) // 2]):
        (tmp_path / "cells.h5ad").write_bytes(content)
        with pytest.raises(DpspcaError, match=facts("cells.h5ad", ".h5ad")) as caught:
            read_offered(tmp_path / "cells.h5ad")
        assert "SECRET" not in str(caught.value)
    with pytest.raises(DpspcaError, match=facts("gone.h5", os.strerror(errno.ENOENT))):
        read_offered(tmp_path / "gone.h5")


def looping(path: Path) -> Path:
    """Write a file in whose index of names a node is its own neighbour. Libhdf5 follows it for ever."""
    with h5py.File(path, "w", libver="earliest") as file:
        for number in range(400):
            file.create_dataset(f"name{number:05d}", data=np.zeros((2, 2)))
    content = bytearray(path.read_bytes())
    nodes = [place for place in range(len(content)) if content[place : place + 5] == b"TREE\0"]
    first = next(place for place in nodes if content[place + 16 : place + 24] != b"\xff" * 8)
    content[first + 16 : first + 24] = first.to_bytes(8, "little")
    path.write_bytes(content)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows.h5", "pipe.h5"])
def test_a_file_that_is_read_for_ever_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    if name == "pipe.h5":
        os.mkfifo(path)
    else:
        looping(path)
    monkeypatch.setattr(sources, "require_readable", partial(trial_reading.require_readable, seconds=5.0))
    with pytest.raises(DpspcaError, match=facts(name, "5 seconds")):
        read_offered(path, Reading(array="name00000"))


def test_a_library_that_crashes_takes_its_own_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"] = np.zeros((2, 2))
    (tmp_path / "h5py.py").write_text("import os\nos.abort()\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(DpspcaError, match=facts("rows.h5", "signal 6")):
        read_offered(tmp_path / "rows.h5")


def _external_bytes(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("rows", (2, 3), "u1", external=[(str(secret), 0, 6)])


def _virtual_rows(path: Path, secret: Path) -> None:
    layout = h5py.VirtualLayout((2, 3), "f8")
    layout[...] = h5py.VirtualSource(str(secret.with_suffix(".h5")), "rows", (2, 3))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("rows", layout)


def _linked_layer(path: Path, secret: Path) -> None:
    with h5py.File(path, "w") as file:
        file["X"] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "rows")
        genes = file.create_group("var")
        genes.attrs["_index"] = "names"
        genes["names"] = np.array(["a", "b", "c"], dtype=h5py.string_dtype())


def _linked_layers(path: Path, secret: Path) -> None:
    """Not even the names of another file's parts are listed."""
    _linked_layer(path, secret)
    with h5py.File(path, "a") as file:
        del file["X"]
        file["layers"] = h5py.ExternalLink(str(secret.with_suffix(".h5")), "/")


@pytest.mark.parametrize(
    ("write", "ending"),
    [(_external_bytes, ".h5"), (_virtual_rows, ".h5"), (_linked_layer, ".h5ad"), (_linked_layers, ".h5ad")],
)
def test_a_file_that_reads_other_files_of_the_machine_is_refused(
    tmp_path: Path, write: Callable[[Path, Path], None], ending: str
) -> None:
    secret = tmp_path / "key.pem"
    secret.write_bytes(b"secret")
    with h5py.File(secret.with_suffix(".h5"), "w") as file:
        file["rows"] = np.ones((2, 3))
    path = tmp_path / f"rows{ending}"
    write(path, secret)
    for read in (read_rows, read_offered):
        with pytest.raises(InvalidDataError, match=facts("h5repack")):
            read(path)


@pytest.mark.parametrize("chunks", [(4, 2), None])
def test_chunks_that_were_never_written_are_counted(
    chunks: tuple[int, int] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "require_readable", lambda _source: None)
    path = tmp_path / "rows.h5"
    with h5py.File(path, "w") as file:
        stored = file.create_dataset("rows", shape=(50, 4), dtype="f8", chunks=chunks, fillvalue=7)
        if chunks:
            stored[:44] = 1.0
    (told,) = examine_rows(path, Reading()).unstored
    for fact in (str(path), "4 of 26" if chunks else "1 of 1", "7"):
        assert fact in told
    read_offered(path)
    assert len(caplog.records) == 1
    caplog.clear()
    with h5py.File(path, "a") as file:
        file["rows"][:] = 1.0
    assert examine_rows(path, Reading()).unstored == ()
    read_offered(path)
    assert not caplog.records


@pytest.mark.parametrize("form", FORMS)
def test_chunks_of_anndata_are_counted(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "require_readable", lambda _source: None)
    path = h5ad(tmp_path / "cells.h5ad", FORMS[form](CELLS))
    assert examine_rows(path, Reading()).unstored == ()
    with h5py.File(path, "a") as file:
        where, name = (file, "X") if form == "dense" else (file["X"], "data")
        kept = dict(where[name].attrs)
        shape = where[name].shape
        del where[name]
        where.create_dataset(name, shape=shape, dtype="f4", chunks=True).attrs.update(kept)
    (told,) = examine_rows(path, Reading()).unstored
    assert "1 of " in told
