"""Names of columns that a steward declares for arrays, which have none. Then columns and dictionaries work as usual."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr
from facts import facts

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_rows

ROWS = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [0.0, 8.0, 9.0]])


def save_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["rows"] = ROWS


KINDS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "npy": ("rows.npy", lambda path: np.save(path, ROWS)),
    "npy by columns": ("rows.npy", lambda path: np.save(path, np.asfortranarray(ROWS))),
    "npz": ("rows.npz", lambda path: np.savez(path, rows=ROWS)),
    "csr": ("rows.npz", lambda path: scipy.sparse.save_npz(path, scipy.sparse.csr_array(ROWS))),
    "coo": ("rows.npz", lambda path: scipy.sparse.save_npz(path, scipy.sparse.coo_array(ROWS))),
    "hdf5": ("rows.h5", save_hdf5),
    "zarr": ("rows.zarr", lambda path: zarr.save_array(str(path), ROWS)),
}


@pytest.fixture(params=KINDS)
def array(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name, save = KINDS[request.param]
    save(tmp_path / name)
    return tmp_path / name


def dense(matrix: Any) -> Any:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def test_an_array_has_the_declared_names(array: Path) -> None:
    reading = Reading(names=("a", "b", "c"))
    assert names_in(array, reading) == ("a", "b", "c")
    assert np.array_equal(dense(read_rows(array, reading).matrix), ROWS)


@pytest.mark.parametrize(
    ("reading", "places"),
    [
        (Reading(names=("a", "b", "c"), columns=("c", "a")), [2, 0]),
        (Reading(names=("a", "b", "c"), leave_out=("b",)), [0, 2]),
    ],
)
def test_columns_are_chosen_by_declared_names(array: Path, tmp_path: Path, reading: Reading, places: list[int]) -> None:
    assert names_in(array, reading) == tuple("abc"[place] for place in places)
    assert np.array_equal(dense(read_rows(array, reading).matrix), ROWS[:, places])
    held = read_offered(array, reading, scratch=Scratch(tmp_path / "scratch"))
    assert held.names == names_in(array, reading)
    assert np.array_equal(dense(held.matrix), ROWS[:, places])


def test_another_number_of_names_is_refused(array: Path) -> None:
    with pytest.raises(InvalidDataError, match=facts("3 columns", 2)):
        read_rows(array, Reading(names=("a", "b")))


@pytest.mark.parametrize(
    ("encoding", "written_in"),
    [
        (None, "utf-8-sig"),
        ("utf-8", "utf-8-sig"),
        ("utf-16", "utf-16"),
        ("utf-16", "utf-16-le"),
        ("utf-16-le", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("cp1252", "utf-8-sig"),
    ],
)
def test_a_mark_before_the_first_row_spoils_nothing(encoding: str | None, written_in: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("1,2\n3,4\n".encode(written_in))
    rows = read_offered(tmp_path / "rows.csv", Reading(names=("a", "b"), encoding=encoding))
    assert np.asarray(rows.matrix).tolist() == [[1, 2], [3, 4]]


def test_big_endian_utf_16_with_its_mark_is_read_where_it_is_declared(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes("\ufeff1,2\n3,4\n".encode("utf-16-be"))
    rows = read_offered(tmp_path / "rows.csv", Reading(names=("a", "b"), encoding="utf-16-be"))
    assert np.asarray(rows.matrix).tolist() == [[1, 2], [3, 4]]


def test_a_mark_changes_how_no_other_row_is_read(tmp_path: Path) -> None:
    how = Reading(names=("a", "b"), encoding="utf-16")
    (tmp_path / "rows.csv").write_bytes(b"\xfe\xff" + "1,2\n3,4\n".encode("utf-16-le"))
    assert np.asarray(read_offered(tmp_path / "rows.csv", how).matrix).tolist() == [[0, 0], [3, 4]]
