"""Layouts of AnnData that are not read are named, in HDF5 and in Zarr, with how to write the file again."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from facts import facts

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data import sources
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import read_rows

OPENERS: dict[str, Callable[[Path], Any]] = {
    "h5ad": partial(h5py.File, mode="w"),
    "zarr": lambda path: zarr.open_group(str(path), mode="w", zarr_format=2),
}
FORMS = pytest.mark.parametrize("form", OPENERS)
REWRITING = "anndata.read_h5ad(sys.argv[1]).write_h5ad(sys.argv[2])"


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read in this process alone: a trial takes a second a file."""
    monkeypatch.setattr(sources, "require_readable", lambda _source: None)


def refused(path: Path, fill: Callable[[Any], None], *named: str) -> None:
    stored = OPENERS[path.suffix[1:]](path)
    fill(stored)
    if isinstance(stored, h5py.File):
        stored.close()
    for read in (read_rows, read_offered):
        with pytest.raises(InvalidDataError, match=facts(path.name, *named)) as told:
            read(path)
        assert "damaged" not in str(told.value)


def put(group: Any, name: str, data: Any) -> Any:
    array = np.asarray(data)
    stored = group.create_array(name, shape=array.shape, dtype=array.dtype) if hasattr(group, "create_array") else None
    if stored is None:
        return group.create_dataset(name, data=array)
    stored[...] = array
    return stored


def with_genes(stored: Any) -> None:
    genes = stored.create_group("var")
    genes.attrs["_index"] = "gene"
    put(genes, "gene", np.array([b"a", b"b"]))


@FORMS
def test_genes_as_records_are_an_old_layout(form: str, tmp_path: Path) -> None:
    def fill(stored: Any) -> None:
        put(stored, "X", np.ones((3, 2)))
        put(stored, "var", np.array([(b"a",), (b"b",)], dtype=[("index", "S1")]))

    refused(tmp_path / f"cells.{form}", fill, "var", REWRITING)


@FORMS
def test_sparse_rows_of_h5sparse_are_an_old_layout(form: str, tmp_path: Path) -> None:
    def fill(stored: Any) -> None:
        with_genes(stored)
        stored.create_group("X").attrs.update({"h5sparse_format": "csr", "h5sparse_shape": [3, 2]})

    refused(tmp_path / f"cells.{form}", fill, "h5sparse_format", REWRITING)


@FORMS
def test_a_layer_in_another_form_is_named(form: str, tmp_path: Path) -> None:
    def fill(stored: Any) -> None:
        with_genes(stored)
        stored.create_group("X").attrs["encoding-type"] = "dataframe"

    refused(tmp_path / f"cells.{form}", fill, "'dataframe'", "csr_matrix")


@FORMS
def test_names_of_genes_as_a_category_are_named(form: str, tmp_path: Path) -> None:
    def fill(stored: Any) -> None:
        put(stored, "X", np.ones((3, 2)))
        genes = stored.create_group("var")
        genes.attrs["_index"] = "gene"
        names = genes.create_group("gene")
        names.attrs["encoding-type"] = "categorical"
        put(names, "codes", np.array([0, 1]))

    refused(tmp_path / f"cells.{form}", fill, "adata.var_names.astype(str)")


@FORMS
def test_a_main_matrix_that_is_empty_is_no_damage(form: str, tmp_path: Path) -> None:
    """AnnData writes it if there are layers alone."""

    def fill(stored: Any) -> None:
        with_genes(stored)
        put(stored, "X", 0).attrs["encoding-type"] = "null"
        put(stored.create_group("layers"), "counts", np.eye(2))

    path = tmp_path / f"cells.{form}"
    refused(path, fill, "X", "counts", "array")
    assert read_rows(path, Reading(array="counts")).matrix.tolist() == [[1, 0], [0, 1]]
