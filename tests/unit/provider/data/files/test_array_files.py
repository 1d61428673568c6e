"""Arrays that hold no rows of numbers, and files that are something else than their ending says."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from facts import facts

from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import read_rows


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.ones((3, 0)), ("(3, 0)",)),
        (np.ones((2, 3, 4)), ("(2, 3, 4)", "numpy.save")),
        (np.ones(5), ("(5,)", "numpy.save")),
        (np.float64(1), ("rows.npy", "numpy.save")),
    ],
)
def test_an_array_of_another_shape_is_refused_with_its_shape(array: Any, told: tuple[str, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", array)
    for read in (read_rows, read_offered):
        with pytest.raises(InvalidDataError, match=facts("rows.npy", *told)):
            read(tmp_path / "rows.npy")
    np.savez(tmp_path / "rows.npz", array)
    with pytest.raises(InvalidDataError, match=facts("rows.npz", *(each for each in told if each != "rows.npy"))):
        read_offered(tmp_path / "rows.npz")


def test_a_cube_of_zarr_is_refused_with_its_shape(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "cube.zarr"), shape=(2, 3, 4), dtype="f8")
    with pytest.raises(InvalidDataError, match=facts("cube.zarr", "(2, 3, 4)")):
        read_offered(tmp_path / "cube.zarr")


def test_a_file_without_arrays_has_not_several(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["names"] = np.array(["a", "b"], dtype=h5py.string_dtype())
    zarr.open_group(str(tmp_path / "rows.zarr"), mode="w")
    for name in ("rows.h5", "rows.zarr"):
        with pytest.raises(InvalidDataError, match=facts(name)) as caught:
            read_offered(tmp_path / name)
        assert "several" not in str(caught.value)


@pytest.mark.parametrize("ending", [".parquet", ".h5", ".h5ad", ".npy"])
def test_a_file_of_another_kind_is_not_told_to_be_numpys(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"rows{ending}").write_bytes(bytes(64))
    with pytest.raises(InvalidDataError, match=facts(f"rows{ending}")) as caught:
        read_rows(tmp_path / f"rows{ending}")
    assert ("numpy.save" in str(caught.value)) == (ending == ".npy")


def test_an_array_with_named_columns_is_refused_with_what_to_do(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.array([(1, 2.5)], dtype=[("visits", "i4"), ("bmi", "f8")]))
    with pytest.raises(InvalidDataError, match=facts("rows.npy", "structured_to_unstructured", "names")):
        read_rows(tmp_path / "rows.npy")
