"""Tables of text in the dialects that people have. What a row holds changes nothing but that row."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError, InvalidDataError, RefusedError
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.checked.persons import require_unit
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import names_in, read_as_stored, read_rows

ROWS = [[1.5, -2.0], [3.25, 4.0], [0.0, 1e-3]]
WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


def text(delimiter: str = ",", decimal: str = ".", quote: str = "") -> str:
    lines = [["größe", "bmi"], *([repr(each).replace(".", decimal) for each in row] for row in ROWS)]
    return "".join(delimiter.join(f"{quote}{cell}{quote}" for cell in line) + "\r\n" for line in lines)


def saved(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def zst(content: bytes) -> bytes:
    return bytes(pa.compress(content, codec="zstd", asbytes=True))


def both(path: Path, reading: Reading | None = None) -> CheckedRows:
    """Read rows in both ways, which agree where all rows are usable."""
    reading = reading or Reading()
    strict, lenient = read_rows(path, reading), read_offered(path, reading)
    assert (strict.matrix == lenient.matrix).all()
    assert strict.names == lenient.names == names_in(path, reading)
    assert lenient.unusable is None
    return lenient


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("delimiter", WORDS, ids=WORDS.values())
@pytest.mark.parametrize("ending", [".csv", ".txt", ".CSV", ".Txt"])
def test_the_line_of_names_tells_the_delimiter(ending: str, delimiter: str, quote: str, tmp_path: Path) -> None:
    rows = both(saved(tmp_path / f"rows{ending}", text(delimiter, quote=quote)))
    assert rows.names == ("größe", "bmi")
    assert (rows.matrix == ROWS).all()


@pytest.mark.parametrize("pack", [None, gzip.compress, zst])
@pytest.mark.parametrize(("encoding", "declared"), [
    ("utf-8", None), ("utf-8-sig", None), ("utf-8-sig", "utf-8"), ("utf-16", None), ("utf-16", "utf-16"),
    ("latin-1", "latin-1"), ("cp1252", "cp1252"), ("cp1250", "cp1250"), ("iso-8859-15", "iso-8859-15"),
])  # fmt: skip
def test_encodings_and_packed_files(
    encoding: str, declared: str | None, pack: Callable[[bytes], bytes] | None, tmp_path: Path
) -> None:
    content = text("\t").encode(encoding)
    ending = {None: "", gzip.compress: ".gz", zst: ".ZST"}[pack]
    path = saved(tmp_path / f"rows.tsv{ending}", pack(content) if pack else content)
    rows = both(path, Reading(encoding=declared))
    assert rows.names == ("größe", "bmi")
    assert (rows.matrix == ROWS).all()


def test_a_decimal_comma_is_declared(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", text(";", ","))
    assert (both(path, Reading(decimal=",")).matrix == ROWS).all()
    assert read_offered(path).unusable is not None
    with pytest.raises(DpspcaError, match=facts("Line 2, column 1", 'decimal = ","')) as caught:
        read_rows(path)
    assert "decimal" in caught.value.remedy
    quoted = saved(tmp_path / "quoted.csv", text(",", ",", '"'))
    assert (both(quoted, Reading(decimal=",")).matrix == ROWS).all()
    thousands = saved(tmp_path / "thousands.csv", "a;b\n1.234,5;1\n1.5;2\n1;2\n")
    assert (read_offered(thousands, Reading(decimal=",")).matrix == [[0, 0], [0, 0], [1, 2]]).all()
    with pytest.raises(DpspcaError, match=facts("Line 2, column 1 ('a')", "point", "comma")):
        read_rows(saved(thousands, "a;b\n1.5;2\n"), Reading(decimal=","))


def test_a_declared_delimiter_is_not_guessed(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "a,b,c;d,e,f\n1;2\n3;4\n")
    assert both(path, Reading(delimiter=";")).names == ("a,b,c", "d,e,f")
    tabbed = saved(tmp_path / "rows.tsv", "a,b,c\td\n1\t2\n3\t4\n")
    assert both(tabbed).names == ("a,b,c", "d")


# --- Columns ----------------------------------------------------------------------------------------------------------

MIXED = "id,Age,bmi,name\nx1,50,24,ann\nx2,60,25,bob\n"


def test_columns_are_chosen_by_name_and_others_may_hold_anything(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", MIXED)
    chosen = both(path, Reading(columns=("bmi", "Age")))
    assert chosen.names == ("bmi", "Age")
    assert (chosen.matrix == [[24, 50], [25, 60]]).all()
    left = both(path, Reading(leave_out=("id", "name")))
    assert left.names == ("Age", "bmi")
    indexed = saved(tmp_path / "indexed.csv", ",a,b\n0,1,2\n1,3,4\n")
    assert (both(indexed, Reading(leave_out=("",))).matrix == [[1, 2], [3, 4]]).all()
    with pytest.raises(DpspcaError, match=facts("Column 1 of 3", 'leave_out = [""]')):
        read_offered(indexed)


@pytest.mark.parametrize(
    ("reading", "facts"),
    [
        (Reading(columns=("age",)), ("no column 'age'", "'Age'")),
        (Reading(columns=("BMI ",)), ("no column 'BMI '", "'bmi'")),
        (Reading(columns=("weight",)), ("no column 'weight'",)),
        (Reading(leave_out=("ids",)), ("no column 'ids'", "'id'")),
        (Reading(leave_out=("",)), ("no column ''",)),
        (Reading(leave_out=("id", "Age", "bmi", "name")), ("No column is left",)),
        (Reading(missing={"agee": 1.0}), ("no column 'agee'", "'Age'")),
        (Reading(columns=("bmi",), missing={"Age": 1.0}), ("no column 'Age'",)),
        (Reading(missing_codes={"agee": (9,)}), ("no column 'agee'",)),
        (Reading(array="x"), ("array", ".csv")),
        (Reading(array="x", table="y"), ("array, table", ".csv")),
    ],
)
def test_a_column_that_is_not_there_is_refused_with_similar_names(
    reading: Reading, facts: tuple[str, ...], tmp_path: Path
) -> None:
    path = saved(tmp_path / "rows.csv", MIXED)
    for read in (read_rows, read_offered):
        with pytest.raises(DpspcaError) as caught:
            read(path, reading)
        for fact in (str(path), *facts):
            assert fact in str(caught.value)
    assert names_in(path, reading) is None


def test_similar_names_are_never_numbers_of_a_row_that_was_taken_for_names(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "ann,1234567\nbob,2\n")
    with pytest.raises(DpspcaError) as caught:
        read_offered(path, Reading(columns=("123456",)))
    assert "1234567" not in str(caught.value)


def test_a_name_that_occurs_twice_is_refused_only_if_it_is_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "a,b,a\n1,2,3\n4,5,6\n")
    assert both(path, Reading(columns=("b",))).names == ("b",)
    with pytest.raises(DpspcaError, match=facts("'a'")):
        read_offered(path, Reading(columns=("a",)))


# --- Missing values ---------------------------------------------------------------------------------------------------

HOLES = "age,bmi\n50,\n999,24\nNA,-9\ntall,24\n60,25\ninf,24\n1e300,24\n7\n"


def test_a_row_that_lacks_a_value_is_zeros_unless_a_number_is_declared(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", HOLES)
    plain = read_offered(path, Reading(missing_codes=(999, -9, "NA")))
    assert (plain.matrix == [[0, 0], [0, 0], [0, 0], [0, 0], [60, 25], [0, 0], [0, 0], [0, 0]]).all()
    reading = Reading(missing_codes=("999", "-9", "NA"), missing={"age": 40.0, "bmi": 22.0})
    filled = read_offered(path, reading)
    assert (filled.matrix == [[50, 22], [40, 24], [40, 22], [0, 0], [60, 25], [0, 0], [0, 0], [0, 0]]).all()
    assert filled.unusable is not None
    assert filled.unusable.count == 4
    by_column = Reading(missing_codes={"age": (999,)}, missing={"bmi": 22.0})
    assert (read_offered(path, by_column).matrix[:3] == [[50, 22], [0, 0], [0, 0]]).all()
    assert (read_arriving(path, reading)[0].matrix == filled.matrix).all()


def test_missing_values_may_be_filled_in_for_those_who_may_see_rows(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "age,bmi\n50,\nNA,-9\n")
    reading = Reading(missing_codes=(-9, "NA"), missing={"age": 40.0, "bmi": 22.0})
    assert (read_rows(path, reading).matrix == [[50, 22], [40, 22]]).all()
    with pytest.raises(DpspcaError, match=facts("Line 2, column 2 ('bmi')")):
        read_rows(path, Reading(missing_codes=("NA",), missing={"age": 40.0}))
    with pytest.raises(DpspcaError, match=facts("NaN")):  # a code for which nothing is declared
        read_rows(saved(path, "age,bmi\n50,-9\n1,2\n"), Reading(missing_codes=(-9,)))


def test_other_numbers_for_missing_values_give_rows_no_second_budget(tmp_path: Path) -> None:
    random = np.random.default_rng(0).standard_normal((40, 3))
    random[::7, 1] = np.nan
    path = tmp_path / "rows.csv"
    np.savetxt(path, random, delimiter=",", header="a,b,c", comments="")
    ways = (Reading(), Reading(missing={"b": 1.0}), Reading(missing={"b": 2.0}), Reading(missing_codes=(random[1, 0],)))
    names = [read_offered(path, each).fingerprints() for each in ways]
    assert frozenset.intersection(*names)
    assert len({read_offered(path, each).digest() for each in ways}) == len(ways)


@pytest.mark.parametrize("reading", [Reading(missing={"a": 1.0}), Reading(missing_codes=(-9,))])
def test_a_matrix_with_values_filled_in_is_refused(reading: Reading, tmp_path: Path) -> None:
    """Otherwise one entry would decide whether what is left is symmetric."""
    rows = read_offered(saved(tmp_path / "rows.csv", "a,b\n1,2\n2,1\n"), reading)
    assert rows.uncut is not None
    with pytest.raises(RefusedError, match=facts("missing_codes")):
        require_unit(PrivacyUnit.ENTRY, persons=False, cut=rows.uncut is not None)


def test_text_in_a_matrix_of_text_is_one_entry_and_not_a_row(tmp_path: Path) -> None:
    share = read_offered(saved(tmp_path / "share.csv", "a,b,c\n1,x,2\nx,3,4\n2,4,5\n"))
    assert (share.as_matrix().matrix == [[1, 0, 2], [0, 3, 4], [2, 4, 5]]).all()


def test_what_is_stored_is_kept_for_reports(tmp_path: Path) -> None:
    stored: Any = read_as_stored(saved(tmp_path / "rows.csv", HOLES)).matrix
    assert np.isnan(stored).sum(axis=0).tolist() == [0, 1]
    assert np.isinf(stored[2]).tolist() == [True, False]


# --- One line is one row ----------------------------------------------------------------------------------------------

READINGS = [
    Reading(),
    Reading(delimiter=";", decimal=","),
    Reading(encoding="cp1252", columns=("c", "a")),
    Reading(encoding="utf-16"),
    Reading(missing_codes=(-9, "NA", ""), missing={"a": 3.0, "c": 1.0}),
]
_LINES = st.one_of(
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=30),
    st.text('0123456789.,;-"\t| NAeinf', max_size=30),
)


@pytest.mark.parametrize("reading", READINGS, ids=lambda each: ",".join(sorted(each.declared)))
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@given(odd=_LINES, place=st.integers(0, 3))
def test_neighbouring_texts_are_neighbouring_tables_in_every_dialect(
    reading: Reading, pack: Callable[[bytes], bytes], odd: str, place: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is on one line of several."""
    mark = reading.delimiter or ","
    lines = [mark.join((f"{each}", "2", "3")) for each in range(4)]
    path = tmp_path_factory.mktemp("rows") / ("rows.csv" if pack is bytes else "rows.csv.gz")

    def read(rows: list[str]) -> CheckedRows:
        whole = "".join(f"{line}\n" for line in (mark.join("abc"), *rows))
        return read_offered(saved(path, pack(whole.encode(reading.encoding or "utf-8", "replace"))), reading)

    usual, other = read(lines), read([*lines[:place], odd, *lines[place + 1 :]])
    assert (other.count, other.names) == (usual.count, usual.names)
    assert np.flatnonzero((other.matrix != usual.matrix).any(axis=1)).tolist() in ([], [place])


@pytest.mark.parametrize("unit", [b"\x00\xd8", b"\x00\xdc", b"\xff\xff"])
def test_a_character_that_is_none_spoils_one_row_of_utf_16(unit: bytes, tmp_path: Path) -> None:
    head, rows = "a,b\n".encode("utf-16"), ["1,2\n".encode("utf-16-le"), "3,4\n".encode("utf-16-le")]
    path = saved(tmp_path / "rows.csv", head + rows[0] + "5,".encode("utf-16-le") + unit + b"\n\0" + rows[1])
    assert (read_offered(path).matrix == [[1, 2], [0, 0], [3, 4]]).all()


@pytest.mark.parametrize(("name", "pack"), [("rows.csv.gz", gzip.compress), ("rows.csv.zst", zst)])
def test_a_packed_file_that_is_broken_is_named_and_not_quoted(
    name: str, pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    whole = pack(("a,b\n" + "1,2\n" * 9000).encode())
    for content in (b"SECRET" * 9, whole[:-6], b""):
        with pytest.raises(DpspcaError) as caught:
            read_offered(saved(tmp_path / name, content))
        assert name in str(caught.value)
        assert "SE" not in str(caught.value).replace(name, "")


@pytest.mark.parametrize("lenient", [True, False])
@pytest.mark.parametrize("text", ["a b\n1 2\n3 4\n", "  a   b\r\n 1  2 \r\n3 4\r\n", '"a" "b"\n"1"   2\n 3 4\n'])
def test_spaces_divide_cells_where_no_other_mark_does(tmp_path: Path, text: str, lenient: bool) -> None:
    path = saved(tmp_path / "rows.txt", text)
    rows = (read_as_stored if lenient else read_rows)(path)
    assert rows.names == ("a", "b")
    assert np.array_equal(rows.matrix, [[1, 2], [3, 4]])


def test_names_may_have_spaces(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "year of birth;mean blood pressure at rest\n1;2\n3;4\n")
    assert read_rows(path).names == ("year of birth", "mean blood pressure at rest")


@pytest.mark.parametrize(
    ("ending", "text", "delimiter"),
    [
        ("csv", "1,2\n3,4\n", None),
        ("tsv", "1\t2\n3\t4\n", None),
        ("txt", "1 2\n3 4\n", " "),
        ("csv", "1;2\n3;4\n", ";"),
    ],
)
@pytest.mark.parametrize("lenient", [True, False])
def test_names_are_declared_for_text_without_a_line_of_names(
    tmp_path: Path, ending: str, text: str, delimiter: str | None, lenient: bool
) -> None:
    path = saved(tmp_path / f"rows.{ending}", text)
    reading = Reading(names=("a", "b"), columns=("b", "a"), delimiter=delimiter)
    rows = (read_as_stored if lenient else read_rows)(path, reading)
    assert names_in(path, reading) == rows.names == ("b", "a")
    assert np.array_equal(rows.matrix, [[2, 1], [4, 3]])


def test_a_line_that_does_not_fit_declared_names_spoils_only_itself(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "1,2,3\n3,4\n")
    rows = read_as_stored(path, Reading(names=("a", "b")))
    assert np.isinf(rows.matrix[0]).all()
    assert np.array_equal(rows.matrix[1], [3, 4])


@pytest.mark.parametrize(("ending", "pack"), [("bz2", bz2.compress), ("xz", lzma.compress), ("gz", gzip.compress)])
def test_packed_text_is_read(tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / f"rows.tsv.{ending}"
    path.write_bytes(pack(b"a\tb\n1\t2\n3\t4\n"))
    assert np.array_equal(read_rows(path).matrix, [[1, 2], [3, 4]])


@pytest.mark.parametrize("ending", ["bz2", "xz"])
def test_damaged_packed_text_is_refused(tmp_path: Path, ending: str) -> None:
    whole = {"bz2": bz2, "xz": lzma}[ending].compress(b"a,b\n" + b"1,2\n" * 10_000)
    path = tmp_path / f"rows.csv.{ending}"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidDataError):
        read_rows(path)
