"""Codes for missing values are found in files of any type of number, and change no other number."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse
import zarr
from facts import facts

from dpspca.common.dictionary import Preparation
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading, read_dictionary
from dpspca.provider.data import read_offered, read_rows

STORED = np.array([[-99.9, 1.5], [20.5, -99.9], [21.25, 0.1]], dtype=np.float32)
MADE = np.array([[7, 1.5], [20.5, 7], [21.25, np.float32(0.1)]])


def _arrow() -> pa.Table:
    return pa.table(dict(zip("ab", STORED.T, strict=True)))


def _hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["rows"] = STORED


WRITERS: dict[str, Callable[[Path], Any]] = {
    "rows.npy": lambda path: np.save(path, STORED),
    "rows.parquet": lambda path: pq.write_table(_arrow(), path),
    "rows.feather": lambda path: pyarrow.feather.write_feather(_arrow(), path),
    "rows.h5": _hdf5,
    "rows.zarr": lambda path: zarr.save_array(path, STORED),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_fraction_is_found_in_files_of_single_precision(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    rows = read_offered(tmp_path / name, Reading(missing_codes=(-99.9, "-88.8"), missing=7.0))
    np.testing.assert_array_equal(np.asarray(rows.part(slice(None))), MADE)


@pytest.mark.parametrize("name", ["rows.npy", "rows.parquet"])
def test_codes_that_occur_give_rows_no_second_budget(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    plain = read_offered(tmp_path / name, Reading())
    coded = read_offered(tmp_path / name, Reading(missing_codes=(-99.9,), missing=7.0))
    assert plain.fingerprints() <= coded.fingerprints()


SPARSE = scipy.sparse.csr_array([[0.0, 1.0], [3.0, 0.0], [4.0, 5.0]])


def _named(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        variables = file.create_group("var")
        variables.attrs["_index"] = "gene"
        variables.create_dataset("gene", data=["a", "b"], dtype=h5py.string_dtype())
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", SPARSE.shape
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(SPARSE, part)
    return path


@pytest.mark.parametrize("codes", [(0,), ("0.0", -9)])
def test_a_code_of_zero_is_refused_for_sparse_rows(codes: tuple[float | str, ...], tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "rows.npz", SPARSE)
    for read in (read_offered, read_rows):
        with pytest.raises(InvalidDataError, match=facts("rows.npz", "missing_codes", 0)):
            read(tmp_path / "rows.npz", Reading(missing_codes=codes))
    np.save(tmp_path / "rows.npy", SPARSE.toarray())
    assert read_offered(tmp_path / "rows.npy", Reading(missing_codes=codes, missing=7.0)).count == 3


def test_a_code_of_zero_for_one_sparse_column_names_it(tmp_path: Path) -> None:
    path = _named(tmp_path / "rows.h5ad")
    with pytest.raises(InvalidDataError, match=facts("rows.h5ad", "missing_codes", 0, "'b'")):
        read_offered(path, Reading(missing_codes={"b": (0,)}))
    assert read_offered(path, Reading(missing_codes={"b": (-9,)})).count == 3


@pytest.mark.parametrize("is_own", [True, False])
def test_a_dictionary_may_have_a_code_of_zero_for_sparse_rows(is_own: bool, tmp_path: Path) -> None:
    range_of = 'kind = "number"\nunit = "cm"\nrange = [0, 10]\n'
    text = f'format = "dpspca-dictionary-1"\n[features.a]\n{range_of}[features.b]\n{range_of}'
    (tmp_path / "study.toml").write_text(text + "missing_codes = [0]\n" * is_own, encoding="utf-8")
    preparation = Preparation.parse(read_dictionary(tmp_path / "study.toml"), None, None)
    how = Reading(missing_codes=() if is_own else {"b": (0,)}).prepared(preparation)
    path = _named(tmp_path / "rows.h5ad")
    if is_own:
        assert read_offered(path, how).count == 3
    else:
        with pytest.raises(InvalidDataError, match=facts("rows.h5ad", "missing_codes", 0, "'b'")):
            read_offered(path, how)
