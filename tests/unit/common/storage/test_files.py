"""Every problem with a file raises ``UnsafeFileError``."""

from pathlib import Path

import pytest

from dpspca.common.errors import UnsafeFileError
from dpspca.common.storage import files


def test_a_missing_file_has_no_stamp_and_a_replaced_file_has_another(tmp_path: Path) -> None:
    file = tmp_path / "list"
    assert files.stamp(file) is None
    files.replace(file, b"one")
    before = files.stamp(file)
    files.replace(file, b"two")
    assert files.stamp(file) not in {None, before}
    assert files.read(file, private=True) == b"two"


def test_a_stamp_of_a_file_below_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("")
    with pytest.raises(UnsafeFileError, match=r"folder/list cannot be examined: Not a directory"):
        files.stamp(tmp_path / "folder" / "list")


def test_a_folder_in_the_place_of_a_file_can_be_neither_read_nor_written(tmp_path: Path) -> None:
    with pytest.raises(UnsafeFileError, match="cannot be read: Is a directory"):
        files.read(tmp_path)
    (tmp_path / "place").mkdir()
    with pytest.raises(UnsafeFileError, match="place cannot be written: Is a directory"):
        files.replace(tmp_path / "place", b"")
    assert [each.name for each in tmp_path.iterdir()] == ["place"]  # no draft is left


def test_a_file_in_a_missing_folder_cannot_be_written(tmp_path: Path) -> None:
    for write in (files.create, files.replace):
        with pytest.raises(UnsafeFileError, match="gone/file cannot be written: No such file or directory"):
            write(tmp_path / "gone" / "file", b"")
