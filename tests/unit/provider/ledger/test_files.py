"""The small files beside a ledger: where one cannot be had, its operator is told in words."""

import os
from pathlib import Path

import pytest

from dpspca.provider.ledger import files
from dpspca.provider.ledger.entries import Head, LedgerError
from dpspca.provider.ledger.files import HeadFile, WriterLock, read_head


def test_where_there_is_no_head_file_nothing_is_remembered(tmp_path: Path) -> None:
    assert read_head(tmp_path / "head") is None


def test_what_the_head_file_was_told_is_read_while_it_is_in_use(tmp_path: Path) -> None:
    second, head = HeadFile(tmp_path / "head"), Head("one", 3, "0" * 64)
    second.write(head)
    assert read_head(tmp_path / "head") == head
    second.end()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="lock cannot be used: No such file"):
        WriterLock(tmp_path / "nowhere" / "lock", "instance")


def test_a_file_that_cannot_be_locked_is_not_taken_for_one_that_is_in_use(tmp_path: Path) -> None:
    """Network disks refuse; so does a file that is not open any more."""
    gone = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.close(gone)
    with pytest.raises(LedgerError, match="cannot be locked"):
        files._lock(gone, tmp_path / "lock", "another")


def test_a_head_file_whose_words_are_whole_and_mean_nothing_cannot_be_read(tmp_path: Path) -> None:
    """Its own hash holds, so that it was written so: with numbers where there are names."""
    (tmp_path / "head").write_bytes(files._slot(1, Head(7, -3, None)))  # type: ignore[arg-type]
    assert read_head(tmp_path / "head") == files.UNREADABLE
