"""The lock file and the head file beside a ledger: reading, locking, and errors."""

import errno
import os
from pathlib import Path

import pytest
from facts import facts

from dpspca.provider.ledger import files
from dpspca.provider.ledger.entries import Head, LedgerDiskError
from dpspca.provider.ledger.files import HeadFile, WriterLock, read_head


def test_a_missing_head_file_has_no_head(tmp_path: Path) -> None:
    assert read_head(tmp_path / "head") is None


def test_the_head_can_be_read_while_the_head_file_is_in_use(tmp_path: Path) -> None:
    second, head = HeadFile(tmp_path / "head"), Head("one", 3, "0" * 64)
    second.write(head)
    assert read_head(tmp_path / "head") == head
    second.end()


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerDiskError, match=facts("nowhere/lock", os.strerror(errno.ENOENT))):
        WriterLock(tmp_path / "nowhere" / "lock", "instance")


def test_a_failing_lock_is_not_reported_as_a_file_in_use(tmp_path: Path) -> None:
    """A network disk may refuse to lock, and so does a closed file."""
    gone = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    os.close(gone)
    with pytest.raises(LedgerDiskError, match=facts(tmp_path / "lock", os.strerror(errno.EBADF))):
        files._lock(gone, tmp_path / "lock", "another")


def test_a_head_with_a_valid_checksum_and_wrong_types_is_unreadable(tmp_path: Path) -> None:
    """The checksum is valid, but there are numbers instead of names."""
    (tmp_path / "head").write_bytes(files._copy(1, Head(7, -3, None)))  # type: ignore[arg-type]
    assert read_head(tmp_path / "head") == files.UNREADABLE
