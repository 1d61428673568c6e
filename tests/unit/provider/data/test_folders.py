"""A folder is one data set: its files' rows, one after the other in the order of their names."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.linalg import thin_qr
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.storage import Reading
from dpspca.provider.data import read_offered
from dpspca.provider.data.sources import read_rows
from dpspca.provider.evaluate.shard import Shard

ROWS = np.arange(21.0).reshape(7, 3)


def text(path: Path, rows: np.ndarray, names: str = "x,y,z") -> None:
    np.savetxt(path, rows, delimiter=",", header=names, comments="")


def test_the_rows_of_a_folder_are_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    text(tmp_path / "2026-02.csv", ROWS[2:3])
    text(tmp_path / "2026-01.csv", ROWS[:2])
    text(tmp_path / "2026-10.csv", ROWS[3:])
    (tmp_path / ".half-written").write_bytes(b"")
    read = read_rows(tmp_path)
    assert (read.matrix == ROWS).all()
    assert read.names == ("x", "y", "z")


def test_a_folder_is_the_same_data_set_as_one_file_of_all_its_rows(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    np.save(tmp_path / "parts" / "a.npy", ROWS[:4])
    np.save(tmp_path / "parts" / "b.npy", ROWS[4:])
    np.save(tmp_path / "whole.npy", ROWS)
    assert read_rows(tmp_path / "parts").digest() == read_rows(tmp_path / "whole.npy").digest()


def test_sparse_files_stay_sparse(tmp_path: Path) -> None:
    for name, part in (("a", ROWS[:4]), ("b", ROWS[4:])):
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", scipy.sparse.csr_array(part))
    read = read_rows(tmp_path)
    assert read.is_sparse
    assert (read.matrix.toarray() == ROWS).all()


def test_blocks_are_cut_by_position_and_not_by_file(tmp_path: Path) -> None:
    """So a row's block depends on the number of rows alone, however unequal the files are."""
    rows = np.random.default_rng(3).standard_normal((90, 6))
    for name, part in zip("abc", np.split(rows, [5, 70]), strict=True):
        np.save(tmp_path / f"{name}.npy", part)
    basis, _ = thin_qr(np.random.default_rng(4).standard_normal((6, 2)))
    shard = Shard(read_rows(tmp_path), 3.0)
    for block in (1, 2, 3):
        alone = Shard(read_rows(_saved(tmp_path.parent / "alone.npy", rows[30 * (block - 1) : 30 * block])), 3.0)
        assert (
            shard.evaluate(CovarianceProduct(basis, None, block, 3)) == alone.evaluate(CovarianceProduct(basis))
        ).all()


def _saved(path: Path, rows: np.ndarray) -> Path:
    np.save(path, rows)
    return path


def test_one_row_a_file_is_enough_and_one_row_in_all_is_not(tmp_path: Path) -> None:
    text(tmp_path / "a.csv", ROWS[:1])
    with pytest.raises(InvalidDataError):
        read_rows(tmp_path)
    text(tmp_path / "b.csv", ROWS[1:2])
    assert read_rows(tmp_path).count == 2


def test_files_that_do_not_fit_together_are_refused_by_name(tmp_path: Path) -> None:
    text(tmp_path / "a.csv", ROWS)
    for name, content, why in (
        ("b.csv", "x,z,y\n1,2,3\n", ("b.csv", "a.csv")),
        ("b.csv", "x,y\n1,2\n", ("b.csv", "2 columns", 3)),
        ("b.csv", "x,y,z\n1,2,none\n", ("b.csv", "Line 2, column 3 ('z')", "missing_codes")),
    ):
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(InvalidDataError, match=facts(why)):
            read_rows(tmp_path)


def test_a_sparse_file_beside_a_dense_one_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", ROWS)
    scipy.sparse.save_npz(tmp_path / "b.npz", scipy.sparse.csr_array(ROWS))
    with pytest.raises(InvalidDataError, match=facts("b.npz", "a.npy", "sparse")):
        read_rows(tmp_path)


def test_an_unreadable_file_or_inner_folder_is_refused(tmp_path: Path) -> None:
    """Rows that are silently missing would be an analysis of something else."""
    with pytest.raises(InvalidDataError, match=facts(tmp_path, "0 files")):
        read_rows(tmp_path)
    text(tmp_path / "a.csv", ROWS)
    (tmp_path / "b.rds").write_bytes(b"")
    with pytest.raises(MissingExtraError, match=facts("'.rds'", "readRDS")):
        read_rows(tmp_path)
    (tmp_path / "b.rds").unlink()
    (tmp_path / "older").mkdir()
    with pytest.raises(InvalidDataError, match=facts(tmp_path / "older", "year=2023")):
        read_rows(tmp_path)


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_two_links_to_one_file_are_refused_but_equal_files_are_not(
    link: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    text(tmp_path / "a.csv", ROWS)
    text(tmp_path / "b.csv", ROWS)
    assert read_rows(tmp_path).count == 2 * len(ROWS)
    (tmp_path / "b.csv").unlink()
    link(tmp_path / "b.csv", tmp_path / "a.csv")
    with pytest.raises(InvalidDataError, match=facts("b.csv", "a.csv")):
        read_rows(tmp_path)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    text(tmp_path / "a.csv", ROWS)
    os.mkfifo(tmp_path / "b.csv")
    with pytest.raises(InvalidDataError, match=facts(tmp_path / "b.csv")):
        read_rows(tmp_path)


def test_positions_of_rows_follow_from_names_and_lengths_of_files(tmp_path: Path) -> None:
    """Replacing a row leaves every other where it was, which is what blocks of rows are priced for."""
    rows = np.random.default_rng(5).standard_normal((12, 3))
    changed = rows.copy()
    changed[4] = -100.0
    read = []
    for table in (rows, changed):
        for name, part in zip("ab", np.split(table, [7]), strict=True):
            np.save(tmp_path / f"{name}.npy", part)
        read.append(read_rows(tmp_path).matrix)
    assert np.flatnonzero((read[0] != read[1]).any(axis=1)).tolist() == [4]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({"y": [1.0], "x": [2.0]}, ("order",)),
        ({"x": [1.0]}, ("2 columns", "has 3")),
        ({"x": [1.0], "z": [2.0]}, ("1 name is new",)),
    ],
)
def test_files_of_partitions_with_other_columns_are_told_apart(
    second: dict[str, list[float]], said: tuple[str, ...], tmp_path: Path
) -> None:
    """Both files have the same name, as pyarrow gives it."""
    for year, columns in ((2020, {"x": [1.0], "y": [2.0]}), (2021, second)):
        folder = tmp_path / "visits" / f"year={year}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table(columns), folder / "part-0.parquet")
    with pytest.raises(DpspcaError) as caught:
        read_offered(tmp_path / "visits", Reading())
    for fact in ("year=2020", "year=2021", *said):
        assert fact in str(caught.value)
