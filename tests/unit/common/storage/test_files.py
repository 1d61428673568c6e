"""Whatever is wrong with a file is said in words of ours: who goes on without it catches those, and nothing else."""

from pathlib import Path

import pytest

from dpspca.common.errors import UnsafeFileError
from dpspca.common.storage import files


def test_a_file_that_is_not_there_has_no_stamp_and_one_that_was_replaced_another(tmp_path: Path) -> None:
    file = tmp_path / "list"
    assert files.stamp(file) is None
    files.replace(file, b"one")
    before = files.stamp(file)
    files.replace(file, b"two")
    assert files.stamp(file) not in {None, before}
    assert files.read(file, private=True) == b"two"


def test_a_file_whose_folder_became_a_file_cannot_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("")
    with pytest.raises(UnsafeFileError, match=r"folder/list cannot be looked at: Not a directory"):
        files.stamp(tmp_path / "folder" / "list")


def test_a_folder_in_a_files_place_cannot_be_read_nor_written(tmp_path: Path) -> None:
    with pytest.raises(UnsafeFileError, match="cannot be read: Is a directory"):
        files.read(tmp_path)
    (tmp_path / "place").mkdir()
    with pytest.raises(UnsafeFileError, match="place cannot be written: Is a directory"):
        files.replace(tmp_path / "place", b"")
    assert [each.name for each in tmp_path.iterdir()] == ["place"]  # and no draft of it


def test_a_file_cannot_be_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UnsafeFileError, match="file cannot be written: No such file or directory"):
        files.replace(tmp_path / "gone" / "file", b"")
