"""Every problem with a file raises ``UnsafeFileError``."""

import errno
import os
from pathlib import Path

import pytest
from facts import facts

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
    with pytest.raises(UnsafeFileError, match=facts("folder/list", os.strerror(errno.ENOTDIR))):
        files.stamp(tmp_path / "folder" / "list")


def test_a_folder_in_the_place_of_a_file_can_be_neither_read_nor_written(tmp_path: Path) -> None:
    with pytest.raises(UnsafeFileError, match=facts(tmp_path, os.strerror(errno.EISDIR))):
        files.read(tmp_path)
    (tmp_path / "place").mkdir()
    with pytest.raises(UnsafeFileError, match=facts("place", os.strerror(errno.EISDIR))):
        files.replace(tmp_path / "place", b"")
    assert [each.name for each in tmp_path.iterdir()] == ["place"]  # no draft is left


def test_a_file_in_a_missing_folder_cannot_be_written(tmp_path: Path) -> None:
    for write in (files.create, files.replace):
        with pytest.raises(UnsafeFileError, match=facts("gone/file", os.strerror(errno.ENOENT))):
            write(tmp_path / "gone" / "file", b"")
