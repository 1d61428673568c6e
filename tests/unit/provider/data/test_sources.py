"""Rows come from files as they were written, and nothing in a file is executed."""

import errno
import os
import pickle  # noqa: TID251  # to see that one is refused
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from facts import facts, names_facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.checked.persons import with_persons
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.files.folders import TemporarilyUnreadableError
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import read_rows

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


def test_an_array_of_several_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, x=ROWS)
    assert (read_offered(path).matrix == ROWS).all()
    np.savez_compressed(path, x=ROWS, y=ROWS[:, :1])
    with pytest.raises(DpspcaError, match=facts("x, y", "array", "[reading]")):
        read_offered(path)
    with pytest.raises(DpspcaError, match=facts("'z'", "x, y", "[reading]")):
        read_offered(path, Reading(array="z"))
    assert (read_rows(path, Reading(array="y")).matrix == ROWS[:, :1]).all()


def test_columns_of_a_file_without_names_cannot_be_named(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    for reading in (Reading(columns=("a",)), Reading(missing={"a": 1.0}), Reading(missing_codes={"a": (9,)})):
        with pytest.raises(DpspcaError, match=facts("rows.npy", "names", "[reading]")):
            read_offered(tmp_path / "rows.npy", reading)
    coded = read_offered(tmp_path / "rows.npy", Reading(missing_codes=(4,)))
    assert (coded.matrix == np.where(np.arange(4)[:, None] == 1, 0, ROWS)).all()
    scipy.sparse.save_npz(tmp_path / "rows.npz", scipy.sparse.csr_array(ROWS))
    sparse = read_offered(tmp_path / "rows.npz", Reading(missing_codes=(4,)))
    assert (sparse.matrix.toarray() == coded.matrix).all()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("rows.xlsx", ("read_excel", "rows.xlsx", "rows.csv", "first sheet", "openpyxl")),
        ("my rows.XLS", ("read_excel", "my rows.XLS'", "xlrd")),
        ("rows.ods", ("read_excel", "odfpy")),
        ("rows.dta", ("read_dta", "rows.parquet", "pyreadstat")),
        ("rows.xpt", ("pyreadstat.read_xport",)),
        ("rows.pkl", ("read_pickle", "can run any program")),
        ("rows.bgen", ("ref-first", "ref-last")),
        ("rows.rds", ("write_parquet", "rows.parquet")),
        ("rows.json", ("read_json", "dtype=False", "convert_dates=False")),
        ("rows.jsonl", ("pyarrow.json.read_json", "rows.parquet")),
        ("genes.mtx.gz", ("mmread", "genes.npz")),
        ("rows.mat", ("loadmat", "rows.npy")),
        ("rows.zip", ("unzip",)),
        ("rows.por", ("read_por", "pyreadstat")),
        ("rows.avro", ("fastavro", "rows.parquet")),
        ("rows.arrows", ("open_stream", "rows.arrow")),
        ("rows.svmlight", ("load_svmlight_file", "rows.npz")),
        ("rows.pvar.zst", ("'.pvar.zst'", ".pgen")),
        ("rows.hex", ("'.hex'", ".csv", ".parquet", ".npy", ".gz")),
        ("rows", ("''", ".csv")),
        ("rows.npy.gz", ("'.npy.gz'", "gunzip")),
        ("rows.dta.bz2", ("'.dta.bz2'", "bunzip2")),
        ("rows.hex.gz", ("'.gz'", ".csv")),
    ],
)
def test_other_kinds_of_files_are_refused_with_what_to_do(name: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / name).touch()
    for read in (read_rows, read_offered):
        with pytest.raises(MissingExtraError) as caught:
            read(tmp_path / name)
        for fact in (str(tmp_path / name), *facts):
            assert fact in str(caught.value)


def test_a_file_of_newer_matlab_is_converted_by_another_library(tmp_path: Path) -> None:
    (tmp_path / "rows.mat").write_bytes(b"MATLAB 7.3 MAT-file, Platform: GLNXA64")
    with pytest.raises(MissingExtraError, match=facts("h5py", "rows.npy")):
        read_rows(tmp_path / "rows.mat")


def test_a_pattern_stands_for_the_files_that_match(tmp_path: Path) -> None:
    for number in (2, 1, 3):
        np.save(tmp_path / f"visits-{number}.npy", ROWS + number)
    np.save(tmp_path / "others.npy", ROWS)
    for pattern in ("visits-*.npy", "visits-[123].npy", "v*"):
        assert (read_offered(tmp_path / pattern).matrix == np.vstack([ROWS + 1, ROWS + 2, ROWS + 3])).all()
    assert read_rows(tmp_path / "visits-[!3].npy").count == 2 * len(ROWS)
    np.save(tmp_path / "odd[1].npy", ROWS[:2])
    assert read_rows(tmp_path / "odd[1].npy").count == 2
    with pytest.raises(DpspcaError, match=facts("none-*.npy", "0 files")):
        read_offered(tmp_path / "none-*.npy")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DpspcaError, match=facts("gone.npy", os.strerror(errno.ENOENT))):
        read_rows(tmp_path / "gone.npy")


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[{}, 1], [2, 3]], dtype=object), allow_pickle=True)
    with pytest.raises(DpspcaError, match=facts("a.npy", "numpy.save")):
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
    with pytest.raises(DpspcaError, match=facts("names", "[reading]")):
        read_rows(path)


def table(folder: Path, content: str | bytes) -> Path:
    path = folder / "rows.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def error_line(folder: Path, content: str | bytes) -> str:
    with pytest.raises(DpspcaError) as caught:
        read_rows(table(folder, content))
    assert str(caught.value).startswith(f"{folder / 'rows.csv'}: ")
    return str(caught.value)


HEAD = "age,bmi\n1,2\n"

FAULTS: dict[str, tuple[str | bytes, str]] = {
    "text": (HEAD + "3,tall\n", "Line 3, column 2 ('bmi') holds text, not a number. Code it as numbers, or drop"),
    "an empty cell": (HEAD + ",4\n", "Line 3, column 1 ('age') holds an empty cell, not a number. Declare"),
    "a blank cell": (HEAD + "3,  \n", "Line 3, column 2 ('bmi') holds an empty cell"),
    "NaN": (HEAD + "3,nan\n", "Line 3, column 2 ('bmi') holds NaN or infinity, not a number. Fill in"),
    "infinity": (HEAD + "-inf,4\n", "Line 3, column 1 ('age') holds NaN or infinity"),
    "a decimal comma": (HEAD + '3,"4,5"\n', "Line 3, column 2 ('bmi') holds a number with a comma in it"),
    "a row too short": (HEAD + "3\n", "Line 3 has 1 cell under 2 names. Give every row as many"),
    "a row too long": (HEAD + "3,4,5\n", "Line 3 has 3 cells under 2 names."),
    "rows all too short": ("age,bmi,sex\n1,2\n3,4\n", "Line 2 has 2 cells under 3 names."),
    "a blank line between rows": (HEAD + "\n3,4\n", "Line 3 is blank, and counts as a row. Remove it"),
    "semicolons, without names": ("1;2\n3;4\n", "The first line holds numbers, not the names of the columns."),
    "text between tabs": ("age\tbmi\n1\ttall\n", "Line 2, column 2 ('bmi') holds text, not a number."),
    "names in latin-1": ("größe,bmi\n1,2\n3,4\n".encode("latin-1"), "The names of the columns are not in UTF-8. Save"),
    "cells in latin-1": ("age,bmi\n1,2\n3,groß\n".encode("latin-1"), "('bmi') holds text that is not in UTF-8"),
    "UTF-16 without a mark": (
        "größe,bmi\n1,2\n".encode("utf-16-le"),
        "zero bytes, as in UTF-16 without a mark. Declare",
    ),
    "names alone": ("age,bmi\n", "There are no rows under the line of names. Write one line of column names"),
    "one row": (HEAD, "There is one row"),
    "nothing": ("", "The file or its first line is empty. Write one line of column names"),
    "a blank first line": ("\n1,2\n", "The file or its first line is empty."),
    "one name twice": ("a,a\n1,2\n3,4\n", "Columns 1 and 2 of 2 have the same name, 'a'. Give each"),
    "a cell without end": ('age,bmi\n1,"' + "x" * 200_000, "Line 2 is not a line of cells."),
}


@pytest.mark.parametrize(("content", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_of_a_table_are_reported_with_place_and_remedy(tmp_path: Path, content: str | bytes, said: str) -> None:
    assert said in error_line(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        "age,bmi\n1,2\n3,SECRET\n",
        "age,bmi\n1,2\n3,SECRET,5\n",
        "SECRET,34\nother,35\n",
        "SECRET,SECRETS\nother,more\n",
        "age,bmi\n1,2\n3,SECRET\xe9\n".encode("latin-1"),
    ],
)
def test_no_cell_is_quoted_not_even_of_a_row_taken_for_names(tmp_path: Path, content: str | bytes) -> None:
    assert "SECRET" not in error_line(tmp_path, content)


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n", "\n \n"])
def test_a_table_may_end_with_blank_lines(tmp_path: Path, end: str) -> None:
    assert (read_rows(table(tmp_path, HEAD + "3,4" + end)).matrix == [[1, 2], [3, 4]]).all()


def test_a_byte_order_mark_is_not_part_of_a_column_name(tmp_path: Path) -> None:
    assert read_rows(table(tmp_path, ("größe,bmi\r\n1,2\r\n3,4\r\n").encode("utf-8-sig"))).names == ("größe", "bmi")


def test_quoted_names_may_have_commas_and_line_numbers_match_an_editor(tmp_path: Path) -> None:
    rows = read_rows(table(tmp_path, '"age, in years","bmi;raw"\n1,"2"\n3,4e-1\n'))
    assert rows.names == ("age, in years", "bmi;raw")
    assert (rows.matrix == [[1, 2], [3, 0.4]]).all()
    assert "Line 4, column 2" in error_line(tmp_path, '"two\nlines",bmi\n1,2\n3,x\n')


def test_a_single_row_is_enough_for_a_caller_that_needs_one(tmp_path: Path) -> None:
    assert read_rows(table(tmp_path, HEAD), least=1).count == 1
    np.save(tmp_path / "one.npy", np.ones((1, 3)))
    assert read_rows(tmp_path / "one.npy", least=1).count == 1
    with pytest.raises(DpspcaError, match=facts("n_samples = 1")):
        read_rows(tmp_path / "one.npy")


def test_a_sparse_file_cut_short_is_refused(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_array(ROWS))
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:-40])
    with pytest.raises(DpspcaError, match=facts("a.npz", "scipy.sparse.save_npz")):
        read_rows(tmp_path / "a.npz")


def header(shape: str, dtype: str = "<f8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    whole = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(whole).to_bytes(2, "little") + whole


def test_whatever_a_broken_file_sets_off_it_is_named_in_words(tmp_path: Path) -> None:
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_array(np.random.default_rng(0).random((90, 40))))
    packed = (tmp_path / "a.npz").read_bytes()
    broken = {
        "flipped.npz": packed[:200] + bytes(byte ^ 0xFF for byte in packed[200:2000]) + packed[2000:],
        "method.npz": packed.replace(b"\x08\x00", b"\x63\x00"),
        "token.npy": header("(3, 3"),
        "syntax.npy": header("(3 3)"),
        "type.npy": header("(3, 3)", "<q9"),
        "negative.npy": header("(-3, 3)") + bytes(72),
        "large.npy": header("(10000000000000, 3)") + bytes(72),
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidDataError, match=rf"{name}.*(numpy\.save|memory_mebibytes)"):
            read_rows(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "large.npz", "w") as file:
        file.writestr("rows.npy", broken["large.npy"])
    with pytest.raises(TemporarilyUnreadableError):  # there may be more memory at another time
        read_rows(tmp_path / "large.npz")


def test_a_table_of_text_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([["x", "y"], ["z", "w"]]))
    with pytest.raises(InvalidDataError, match=facts("a.npy", "<U1")):
        read_rows(tmp_path / "a.npy")


# --- Whose the rows are -----------------------------------------------------------------------------------------------


def test_t18_the_first_rows_of_each_person_are_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(14.0).reshape(7, 2))
    (tmp_path / "whose.txt").write_text("eve\nada\neve\n 7 \neve\nada\n7\n", encoding="utf-8")
    rows = read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt")
    for most, kept in ((1, [0, 1, 3]), (2, [0, 1, 2, 3, 5, 6]), (3, list(range(7))), (99, list(range(7)))):
        assert (rows.bounded(most).matrix == rows.matrix[kept]).all()
    assert (rows.bounded(2).bounded(1).matrix == rows.bounded(1).matrix).all()


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.integers(1, 4), st.data())
def test_t18_a_person_who_leaves_removes_only_own_rows_up_to_the_bound(
    whose: list[int], most: int, data: st.DataObject
) -> None:
    table = np.arange(2.0 * len(whose)).reshape(-1, 2)
    leaver = data.draw(st.sampled_from(whose))
    stays = np.array(whose) != leaver
    both = [CheckedRows(table, persons=np.array(whose)), CheckedRows(table[stays], persons=np.array(whose)[stays])]
    before, after = ({tuple(row) for row in rows.bounded(most).matrix} for rows in both)
    assert after <= before
    assert len(before - after) <= most


def test_whose_rows_they_are_is_part_of_what_names_the_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    names = set()
    for each in ("a\nb\n", "a\na\n"):
        (tmp_path / "whose.txt").write_text(each * (len(ROWS) // 2) + "a\n" * (len(ROWS) % 2), encoding="utf-8")
        names.add(read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt").digest())
    assert len(names) == 2


def test_persons_that_differ_in_a_zero_byte_are_two() -> None:
    whose = [b"a" + b"\0" * (row % 2) for row in range(len(ROWS))]
    assert with_persons(CheckedRows(ROWS), whose).bounded(1).count == 2


@pytest.mark.parametrize(("text", "lines"), [("a\n", 1), ("", 0)])
def test_a_file_of_persons_of_another_length_is_refused(tmp_path: Path, text: str, lines: int) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    (tmp_path / "whose.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("whose.txt", lines, len(ROWS))):
        read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("is_ended", [False, True])
def test_a_last_row_without_a_person_needs_no_line_break(end: str, is_ended: bool, tmp_path: Path) -> None:
    """Otherwise whether the last person is known would decide whether the provider starts."""
    np.save(tmp_path / "rows.npy", ROWS)
    lines = [*(f"p{row}" for row in range(len(ROWS) - 1)), ""]
    (tmp_path / "whose.txt").write_bytes((end.join(lines) + end * is_ended).encode())
    read = read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt")
    assert not np.asarray(read.matrix)[-1].any()
    assert (np.asarray(read.matrix)[:-1] == ROWS[:-1]).all()


def test_a_file_of_persons_that_is_not_there_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    with pytest.raises(InvalidDataError, match=facts("gone.txt", os.strerror(errno.ENOENT))):
        read_offered(tmp_path / "rows.npy", persons=tmp_path / "gone.txt")


@pytest.mark.parametrize("arriving", [False, True])
def test_longer_rows_are_cut_while_they_are_read_and_the_log_says_so(
    arriving: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = np.array([[1.0, -5.0, 3.0], [0.0, 0.0, 2.0]])
    path = tmp_path / "rows.npz"
    scipy.sparse.save_npz(path, scipy.sparse.csr_array(values))

    def read(most: int) -> list[list[float]]:
        rows = read_arriving(path, row_entries=most)[0] if arriving else read_offered(path, row_entries=most)
        return rows.matrix.toarray().tolist()  # type: ignore[union-attr, no-any-return]

    assert read(3) == values.tolist()
    assert not caplog.records
    assert read(2) == [[0.0, -5.0, 3.0], [0.0, 0.0, 2.0]]
    assert names_facts(caplog.text, path, "2 entries")


def test_a_row_without_a_person_is_zeros_and_takes_no_persons_place(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(1.0, 11.0).reshape(5, 2))
    (tmp_path / "whose.txt").write_text("eve\n \neve\n\nada\n", encoding="utf-8")
    rows = read_offered(tmp_path / "rows.npy", persons=tmp_path / "whose.txt")
    assert (rows.matrix == [[1, 2], [0, 0], [5, 6], [0, 0], [9, 10]]).all()
    assert rows.bounded(1).count == 4
    assert rows.unusable is not None
    assert rows.unusable.count == 2
