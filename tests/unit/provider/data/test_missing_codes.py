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
import zarr

from dpspca.common.storage import Reading
from dpspca.provider.data import read_protected

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
    rows = read_protected(tmp_path / name, Reading(missing_codes=(-99.9, "-88.8"), missing=7.0))
    np.testing.assert_array_equal(np.asarray(rows.part(slice(None))), MADE)


@pytest.mark.parametrize("name", ["rows.npy", "rows.parquet"])
def test_codes_that_occur_give_rows_no_second_budget(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    plain = read_protected(tmp_path / name, Reading())
    coded = read_protected(tmp_path / name, Reading(missing_codes=(-99.9,), missing=7.0))
    assert plain.fingerprints() <= coded.fingerprints()
