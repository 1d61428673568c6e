"""Attributes of HDF5 and Zarr arrays that change what numbers mean: refused, with a command that converts."""

import base64
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import pytest
import zarr
from facts import facts

from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.sources import read_rows

STORED = np.array([[100, 200, -9999], [300, -9999, 500]], dtype=np.int16)
PACKED = {"scale_factor": 0.01, "add_offset": 15.0, "_FillValue": np.int16(-9999)}
VALUES = [[16.0, 17.0, np.nan], [18.0, np.nan, 20.0]]
NAN_OF_XARRAY = base64.b64encode(np.float64(np.nan).tobytes()).decode()
NINES_OF_XARRAY = base64.b64encode(np.float64(999).tobytes()).decode()


def hdf5(path: Path, rows: Any, attributes: dict[str, Any]) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("temp", data=rows).attrs.update(attributes)
    return path


def folder(path: Path, rows: Any, attributes: dict[str, Any], version: Literal[2, 3] = 3, **more: Any) -> Path:
    made = zarr.create_array(str(path), shape=rows.shape, dtype=rows.dtype, zarr_format=version, **more)
    made[:] = rows
    made.attrs.update({name: value if isinstance(value, str) else float(value) for name, value in attributes.items()})
    return path


def converted(path: Path, told: str, *arguments: str) -> Any:
    """Run the command of an error."""
    code = re.search(r"python -c '(.*)'", told)
    assert code is not None
    out = path.with_suffix(".npy")
    command = [sys.executable, *shlex.split(f"-c '{code[1]}'"), str(path), *arguments, str(out)]
    subprocess.run(command, check=True)  # the command that the error shows  # noqa: S603
    return np.load(out)


def test_packed_numbers_of_hdf5_are_refused_and_converted(tmp_path: Path) -> None:
    path = hdf5(tmp_path / "rows.h5", STORED, PACKED)
    with pytest.raises(InvalidDataError, match=facts("rows.h5", *PACKED)) as told:
        read_rows(path)
    assert np.array_equal(converted(path, str(told.value), "temp"), VALUES, equal_nan=True)


@pytest.mark.parametrize("version", [2, 3])
def test_packed_numbers_of_zarr_are_refused_and_converted(version: Literal[2, 3], tmp_path: Path) -> None:
    path = folder(tmp_path / "rows.zarr", STORED, PACKED, version)
    with pytest.raises(InvalidDataError, match=facts("rows.zarr", *PACKED)) as told:
        read_rows(path)
    assert np.array_equal(converted(path, str(told.value)), VALUES, equal_nan=True)


@pytest.mark.parametrize(
    ("attributes", "fact"),
    [
        ({"missing_value": np.array([-9999])}, "missing_value"),
        ({"add_offset": 1.0}, "add_offset"),
        ({"scale_factor": "a"}, "scale_factor"),
    ],
)
def test_each_attribute_alone_is_refused(attributes: dict[str, Any], fact: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match=facts(fact)):
        read_rows(hdf5(tmp_path / "rows.h5", STORED, attributes))


@pytest.mark.parametrize(
    "attributes",
    [
        {"units": "mm"},
        {"_FillValue": np.nan},
        {"scale_factor": 1.0, "add_offset": 0.0},
        {"_Unsigned": "false", "valid_range": [-(2**15), 2**15 - 1]},
    ],
)
def test_attributes_that_change_nothing_are_accepted(attributes: dict[str, Any], tmp_path: Path) -> None:
    assert np.array_equal(read_rows(hdf5(tmp_path / "rows.h5", STORED, attributes)).matrix, STORED)


@pytest.mark.parametrize("version", [0, 2, 3])
@pytest.mark.parametrize(
    ("attributes", "values"),
    [
        ({"valid_min": -100.0}, [[100, 200, np.nan], [300, np.nan, 500]]),
        ({"valid_max": 400.0, "scale_factor": 0.5}, [[50, 100, -4999.5], [150, -4999.5, np.nan]]),
        ({"valid_range": [150, 400]}, [[np.nan, 200, np.nan], [300, np.nan, np.nan]]),
        ({"_Unsigned": "true"}, [[100, 200, 55537], [300, 55537, 500]]),
        ({"_Unsigned": "true", "_FillValue": -9999.0}, [[100, 200, np.nan], [300, np.nan, 500]]),
        ({"_Unsigned": "true", "_FillValue": 55537.0}, [[100, 200, np.nan], [300, np.nan, 500]]),
    ],
)
def test_valid_ranges_and_signs_are_refused_and_converted(
    version: Literal[0, 2, 3], attributes: dict[str, Any], values: Any, tmp_path: Path
) -> None:
    if version:
        path = folder(tmp_path / "rows.zarr", STORED, {}, version)
        zarr.open_array(str(path)).attrs.update(attributes)
    else:
        path = hdf5(tmp_path / "rows.h5", STORED, attributes)
    with pytest.raises(InvalidDataError, match=facts(path.name, *attributes)) as told:
        read_rows(path)
    arguments = [] if version else ["temp"]
    assert np.array_equal(converted(path, str(told.value), *arguments), values, equal_nan=True)


def test_limits_of_another_sign_are_refused_without_a_command(tmp_path: Path) -> None:
    attributes = {"_Unsigned": "true", "valid_range": np.array([0, -2], dtype=np.int16)}
    with pytest.raises(InvalidDataError, match=facts(*attributes)) as told:
        read_rows(hdf5(tmp_path / "rows.h5", STORED, attributes))
    assert "python -c" not in str(told.value)


@pytest.mark.parametrize("units", ["days since 2020-01-01", b"seconds since 1970-01-01 00:00:00"])
def test_dates_of_xarray_are_refused(units: str | bytes, tmp_path: Path) -> None:
    said = units.decode() if isinstance(units, bytes) else units
    with pytest.raises(InvalidDataError, match=facts("units", repr(said))):
        read_rows(hdf5(tmp_path / "rows.h5", STORED, {"units": units}))
    with pytest.raises(InvalidDataError, match=facts("units", repr(said))):
        read_rows(folder(tmp_path / "rows.zarr", STORED, {"units": said}))


def test_fill_values_as_xarray_writes_them_in_zarr(tmp_path: Path) -> None:
    rows = np.array([[1.0, 999.0], [2.0, 3.0]])
    assert np.array_equal(read_rows(folder(tmp_path / "a.zarr", rows, {"_FillValue": NAN_OF_XARRAY})).matrix, rows)
    with pytest.raises(InvalidDataError, match=facts("_FillValue")) as told:
        read_rows(folder(tmp_path / "b.zarr", rows, {"_FillValue": NINES_OF_XARRAY}))
    assert np.array_equal(converted(tmp_path / "b.zarr", str(told.value)), [[1.0, np.nan], [2.0, 3.0]], equal_nan=True)


@pytest.mark.parametrize(("fill", "is_refused"), [(999.0, True), (0.0, False), (np.nan, False), (None, False)])
def test_the_fill_value_of_zarr_2_is_a_missing_value_for_xarray(
    fill: float | None, is_refused: bool, tmp_path: Path
) -> None:
    rows = np.array([[1.0, 999.0], [2.0, 3.0]])
    folder(tmp_path / "plain.zarr", rows, {}, 2, fill_value=fill)
    assert np.array_equal(read_rows(tmp_path / "plain.zarr").matrix, rows)
    path = folder(tmp_path / "rows.zarr", rows, {}, 2, fill_value=fill)
    zarr.open_array(str(path)).attrs["_ARRAY_DIMENSIONS"] = ["person", "feature"]
    if not is_refused:
        assert np.array_equal(read_rows(path).matrix, rows)
        return
    with pytest.raises(InvalidDataError, match=facts(999)):
        read_rows(path)


def test_whole_numbers_of_rhdf5_are_transposed_and_its_na_is_missing(tmp_path: Path) -> None:
    path = hdf5(tmp_path / "rows.h5", np.array([[1, 2], [3, -(2**31)]], dtype=np.int32), {"rhdf5-NA.OK": np.int32(1)})
    with pytest.raises(InvalidDataError, match=facts("rhdf5", "rows.h5")) as told:
        read_rows(path)
    assert np.array_equal(converted(path, str(told.value), "temp"), [[1, 3], [2, np.nan]], equal_nan=True)
