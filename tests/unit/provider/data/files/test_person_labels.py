"""One person has one label, however a program writes the persons file."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from facts import facts

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.files.person_labels import labels_in
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.row_persons import RowPersons

MARK = "\ufeff"


def persons_in(folder: Path, content: bytes, rows: int) -> int:
    np.save(folder / "rows.npy", np.arange(2.0 * rows).reshape(rows, 2))
    (folder / "whose.txt").write_bytes(content)
    return read_offered(folder / "rows.npy", persons=folder / "whose.txt").bounded(1).count


@pytest.mark.parametrize(
    "text",
    [
        f"{MARK}ann\nann\nbob\n",
        f"{MARK}ann\r\nbob\r\n{MARK}ann\r\n",  # of two files that were put together
        "Jos\u00e9\nJose\u0301\nbob\n",
    ],
)
def test_t18_marks_and_composed_letters_divide_no_person(text: str, tmp_path: Path) -> None:
    assert persons_in(tmp_path, text.encode(), 3) == 2


def test_t18_a_mark_in_a_list_of_samples_divides_no_family(tmp_path: Path) -> None:
    (tmp_path / "panel.fam").write_text(f"{MARK}f1 a 0 0 1 0\nf1 b 0 0 1 0\n", encoding="utf-8")
    whose = RowPersons.of(tmp_path / "panel.bed", Reading(person="FID"), tmp_path / "panel.fam", None)
    assert whose is not None
    assert whose.of_rows(2) == [b"f1", b"f1"]


def test_a_first_line_of_nothing_but_a_mark_names_nobody(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.eye(2) + 1)
    (tmp_path / "whose.txt").write_text(f"{MARK}\nbob\n", encoding="utf-8")
    rows = read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt")
    assert rows.unusable is not None
    assert rows.unusable.count == 1


def test_labels_that_are_not_in_utf8_stay(tmp_path: Path) -> None:
    assert persons_in(tmp_path, "J\u00f6rg\nJ\u00e4rg\nJ\u00f6rg\n".encode("cp1252"), 3) == 2


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ("ann\nbob\n".encode("utf-16"), "UTF-16"),
        ("ann\nbob\n".encode("utf-16-le"), "UTF-16"),
        (gzip.compress(b"ann\nbob\n", mtime=0), "gzip"),
    ],
)
def test_t18_a_persons_file_that_is_no_plain_text_is_refused(content: bytes, fact: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match=facts("whose.txt", fact)):
        persons_in(tmp_path, content, 2)


def test_a_person_may_be_called_like_the_beginning_of_a_packed_file(tmp_path: Path) -> None:
    assert persons_in(tmp_path, b"PAR1\nPAR2\n", 2) == 2


@pytest.mark.parametrize(
    ("text", "alike", "divided"),
    [
        ("ann\nbob\nann\n", 0, 0),
        ('ann\n"ann"\nAnn\n', 2, 0),
        ("a b\na\u00a0b\nb\n", 1, 0),
        ("12\n12.0\n120\n", 1, 0),
        ("ann;1\nann;2\nbob;1\n", 0, 3),
    ],
)
def test_labels_that_may_be_those_of_one_person_are_counted(
    text: str, alike: int, divided: int, tmp_path: Path
) -> None:
    np.save(tmp_path / "rows.npy", np.eye(3))
    (tmp_path / "whose.txt").write_text(text, encoding="utf-8")
    found = examine_rows(tmp_path / "rows.npy", Reading(), tmp_path / "whose.txt").persons
    assert found is not None
    assert (found.alike, found.divided) == (alike, divided)


def test_one_label_with_a_zero_byte_decides_nothing() -> None:
    """A provider that does not start shows that its rows are others."""
    assert labels_in(b"a\nb\0\nc") == [b"a", b"b\0", b"c"]
    with pytest.raises(InvalidDataError, match=facts("UTF-16")):
        labels_in("a\nb\nc".encode("utf-16-le"))
