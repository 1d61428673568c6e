"""Rows come from files as they were written, and nothing in a file is executed."""

import pickle  # noqa: TID251  # to see that one is refused
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from dpspca.common.errors import DpspcaError
from dpspca.provider.sources import read_rows

ROWS = np.arange(12.0).reshape(4, 3)


def test_every_kind_of_file_gives_the_rows_that_were_written(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_array(ROWS))
    np.savetxt(tmp_path / "a.csv", ROWS, delimiter=",", header="x,y,z", comments="")
    assert (read_rows(tmp_path / "a.npy").matrix == ROWS).all()
    assert (read_rows(tmp_path / "a.csv").matrix == ROWS).all()
    sparse = read_rows(tmp_path / "a.npz")
    assert sparse.is_sparse
    assert (sparse.matrix.toarray() == ROWS).all()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", pickle.dumps(ROWS)),
        ("a.npy", b""),
        ("a.npy", b"nonsense"),
        ("a.npz", b"nonsense"),
        ("a.csv", b"x,y\n1,two\n"),
        ("a.csv", b"x,y\n1,2\n3\n"),
        ("a.csv", b""),
        ("a.csv", b"\xff\xfe"),
        ("a.csv", b"x,y\n1,nan\n2,3\n"),
        ("a.rds", b""),
    ],
)
def test_a_file_that_holds_no_rows_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DpspcaError) as caught:
        read_rows(tmp_path / name)
    assert caught.value.remedy


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DpspcaError, match=r"gone\.npy cannot be read"):
        read_rows(tmp_path / "gone.npy")


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[{}, 1], [2, 3]], dtype=object), allow_pickle=True)
    with pytest.raises(DpspcaError, match="table of numbers"):
        read_rows(tmp_path / "a.npy")


def test_a_table_s_columns_keep_their_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,bmi\n1,2\n3,4\n")
    assert read_rows(path).names == ("age", "bmi")
    np.save(tmp_path / "rows.npy", np.eye(3))
    assert read_rows(tmp_path / "rows.npy").names is None


def test_a_first_line_of_numbers_is_not_taken_for_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("1,2\n3,4\n5,6\n")
    with pytest.raises(DpspcaError, match="not the names"):
        read_rows(path)


@pytest.mark.parametrize(("text", "reason"), [("a,a\n1,2\n3,4\n", "same name"), ("", "table of numbers")])
def test_names_that_name_nothing_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(DpspcaError, match=reason):
        read_rows(path)
