"""Files as people have them: what is read is what was meant, and what is not read is refused with what to do."""

import gzip
import zipfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse
from facts import facts, names_facts

from dpspca.client.steward.data_check import Examined, examine_file
from dpspca.common.errors import DpspcaError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data import sources
from dpspca.provider.data.examination.data_set_facts import DataSetFacts, examine_rows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_as_stored

ROWS = [[53.0, 26.0], [55.0, 24.9], [72.0, 31.2]]


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read HDF5 without another process, which takes a second: no file here is damaged."""
    monkeypatch.setattr(sources, "require_readable", lambda _source: None)


def saved(path: Path, content: str | bytes, encoding: str = "utf-8") -> Path:
    path.write_bytes(content.encode(encoding) if isinstance(content, str) else content)
    return path


def rows_of(path: Path, reading: Reading | None = None) -> list[list[float]]:
    """Read rows as a provider does. What a steward is told agrees."""
    reading = reading or Reading()
    facts, read = examine_rows(path, reading), read_offered(path, reading)
    matrix: Any = read.matrix
    zeros = 0 if read.unusable is None else read.unusable.count
    assert (facts.rows, facts.rows_as_zeros) == (read.count, zeros)
    assert (facts.first_fault is not None) == (zeros > 0)
    found: list[list[float]] = matrix.tolist()
    return found


def refusal(path: Path, reading: Reading | None = None) -> str:
    with pytest.raises(DpspcaError) as caught:
        read_offered(path, reading or Reading())
    assert str(path.name) in str(caught.value)
    return str(caught.value)


def remarks_on(path: Path) -> str:
    examined: Examined = examine_file(path)
    return "\n".join(examined.remarks)


# --- Text that is read as it was meant --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "encoding", "reading"),
    [
        ("a;b\n53;26,0\n55;24,9\n72;31,2\n", "utf-8-sig", {"decimal": ","}),
        ('"a, years";"b, kg"\n53;26\n55;24.9\n72;31.2\n', "utf-8", {}),
        ("sep=;\r\na;b\r\n53;26\r\n55;24.9\r\n72;31.2\r\n", "utf-8", {}),
        ("a\tb\n53\t26\n55\t24.9\n72\t31.2\n", "utf-16-le", {"encoding": "utf-16"}),
        ("a\tb\n53\t26\n55\t24.9\n72\t31.2\n", "utf-16-be", {"encoding": "utf-16"}),
        ("größe;b\n53;26\n55;24.9\n72;31.2\n", "latin-1", {"encoding": "latin-1"}),
        ("a,b,,\n53,26,,\n55,24.9,,\n72,31.2,,\n", "utf-8", {"leave_out": ("",)}),
        ('"two\nlines";b\n53;26\n55;24.9\n72;31.2\n', "utf-8", {}),
        ("id,a,b\n1_1,53,26\n1_2,55,24.9\n1_3,72,31.2\n", "utf-8", {"leave_out": ("id",)}),
        ("53;26\n55;24.9\n72;31.2\n", "utf-8", {"names": ("a", "b"), "delimiter": ";"}),
    ],
)
def test_text_is_read_as_it_was_meant(text: str, encoding: str, reading: Mapping[str, Any], tmp_path: Path) -> None:
    assert rows_of(saved(tmp_path / "rows.csv", text, encoding), Reading(**reading)) == ROWS


@pytest.mark.parametrize("cell", ["12_5", "1_000", '"5"10', '"5"0', "1'000", "1\u00a0000", "0x10", "(5)", "5D+00"])
def test_a_cell_that_is_hardly_a_number_is_none(cell: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", f"a,b\n1,2\n{cell},3\n")
    assert rows_of(path) == [[1, 2], [0, 0]]


@pytest.mark.parametrize(
    ("cell", "facts"),
    [
        ("NA", ("often stands for a missing value", 'missing_codes = ["NA"]')),
        ("01.03.2020", ("a date",)),
        ("2020-03-01 10:00", ("a date",)),
        ("3 Mar 2020", ("a date",)),
        ("1.234.567", ("marks between thousands",)),
        ("1.234,5", ("marks between thousands", "decimal")),
        ("1'234.5", ("marks between thousands",)),
        ("12%", ("percent sign",)),
        ("<0.5", ("a comparison",)),
        ("TRUE", ("a word for yes or no",)),
        ("\u22125", ("a dash for a minus sign",)),
        ("tall", ("holds text",)),
        ("F", ("holds text",)),
        ("1e300", ("a number above 1e+30", "Rescale")),
        ("9" * 50, ("a number above 1e+30",)),
    ],
)
def test_the_kind_of_a_cell_that_is_not_a_number_is_named(cell: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    told = examine_rows(saved(tmp_path / "rows.csv", f"age;bmi\n1;2\n3;{cell}\n"), Reading()).first_fault
    assert told is not None
    for fact in ("rows.csv: Line 3, column 2 ('bmi') holds ", *facts):
        assert fact in told
    assert cell not in told or cell == "NA"


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("a,b\n1,2,\n3,4,\n", ("Line 2 has 3 cells under 2 names", "end the first line with it too")),
        ('"a" "b"\n"1" 2 3\n"2" 4 5\n', ("3 cells under 2 names", "row.names = FALSE")),
        ("# exported\na,b\n1,2\n", ("Line 2 has ", "comments")),
        ("a,b,c\n1;2;3\n4;5;6\n", ("1 cell under 3 names", "delimiter = ';'")),
        ("a,b\nyears,kg\n1,2\n", ("Line 2, ", "units")),
        ("a,b\n1,2\n\n\n", ("Line 3 is blank, and counts as a row",)),
        ("a,b\n1,2\n,\n", ("Line 3 has no value",)),
    ],
)
def test_faults_of_lines_are_reported(text: str, facts: tuple[str, ...], tmp_path: Path) -> None:
    told = examine_rows(saved(tmp_path / "rows.csv", text), Reading()).first_fault
    assert told is not None
    for fact in facts:
        assert fact in told


def test_a_cell_with_a_line_break_is_reported_even_in_an_unused_column(tmp_path: Path) -> None:
    """Its lines would count as rows, and the second may look like one."""
    path = saved(tmp_path / "rows.csv", 'a,b,note\n1,2,"first\n7,8,second"\n3,4,\n')
    facts = examine_rows(path, Reading(leave_out=("note",)))
    assert facts.rows_as_zeros == 1
    assert facts.first_fault is not None
    assert names_facts(facts.first_fault, "Line 2", "quote", "line break")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("a;b,c\n1;2\n", ("Both ',' and ';' divide", 'delimiter = ";"')),
        ("a,b,b\n1,2,3\n", ("Columns 2 and 3 of 3", "'b'", "a name of its own")),
        ("a,b,,\n1,2,,\n", ("Column 3 of 4 has an empty name, and 1 more have", 'leave_out = [""]')),
        ("a\tb\n1\t2\n".encode("utf-16-le"), ("zero bytes", 'encoding = "utf-16"')),
        ("größe;b\n1;2\n".encode("latin-1"), ("not in UTF-8", '"cp1252"')),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), ("packed with gzip", ".gz")),
        (b"PK\x03\x04rest", ("a zip archive or a workbook", ".xlsx")),
        (b"PAR1rest", ("Parquet",)),
        (b"SQLite format 3\0rest", ("SQLite",)),
        (b"\x89HDF\r\n\x1a\n", ("HDF5",)),
    ],
)
def test_a_file_is_refused_for_its_first_line_alone(text: str | bytes, facts: tuple[str, ...], tmp_path: Path) -> None:
    told = refusal(saved(tmp_path / "rows.csv", text))
    for fact in facts:
        assert fact in told


def test_a_name_that_says_how_a_file_is_packed_is_compared_with_it(tmp_path: Path) -> None:
    told = refusal(saved(tmp_path / "rows.csv.gz", "a,b\n1,2\n"))
    assert names_facts(told, " .gz")
    cut = gzip.compress(b"a,b\n" + b"1,2\n" * 9999)[:-20]
    told = refusal(saved(tmp_path / "rows.csv.gz", cut))
    assert names_facts(told, "damaged")
    assert not names_facts(told, " .gz"), "its name is right"


def test_commas_in_a_file_of_tabs_need_a_declaration(tmp_path: Path) -> None:
    """With a decimal comma, the two columns would be one, and 1,2 would be 1.2."""
    path = saved(tmp_path / "rows.tsv", "a,b\n1,2\n3,4\n")
    assert 'delimiter = ","' in refusal(path, Reading(decimal=","))
    assert rows_of(path, Reading(delimiter=",")) == [[1, 2], [3, 4]]


def test_the_mark_of_another_encoding_than_the_declared_one_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "a,b\n1,2\n", "utf-8-sig")
    assert names_facts(refusal(path, Reading(encoding="cp1252")), "cp1252", "encoding", "[reading]")


@pytest.mark.parametrize("first", [b"\xff\xfe", b"\xfe\xff", b"PK\x03\x04", b"\x1f\x8b", b"sep=;"])
def test_no_row_is_taken_for_the_mark_of_a_file(first: bytes, tmp_path: Path) -> None:
    """Where names are declared, the first line is a row, and decides about itself alone."""
    path = saved(tmp_path / "rows.csv", first + b",2\n3,4\n")
    assert rows_of(path, Reading(names=("a", "b"))) == [[0, 0], [3, 4]]


def test_one_column_whose_name_has_spaces_is_read_with_a_declared_mark(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.csv", "systolic blood pressure\n120\n130\n")
    assert 'delimiter = ","' in remarks_on(path)
    assert rows_of(path, Reading(delimiter=",")) == [[120], [130]]


def test_a_file_that_is_in_a_folder_packed_and_unpacked_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for name in ("a.csv", "b.csv"):
        saved(tmp_path / "rows" / name, "a,b\n1,2\n3,5\n")
    assert "packed" not in remarks_on(tmp_path / "rows")
    (tmp_path / "rows" / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n3,5\n"))
    assert f"{tmp_path / 'rows' / 'a.csv'} is there packed and unpacked" in remarks_on(tmp_path / "rows")


def test_a_named_index_of_a_data_frame_is_remarked_on(tmp_path: Path) -> None:
    index = pd.Index([17, 4, 9], name="patient")
    pd.DataFrame({"a": [1.0, 2, 4], "b": [3.0, 5, 4]}, index=index).to_parquet(tmp_path / "rows.parquet")
    assert names_facts(remarks_on(tmp_path / "rows.parquet"), "'patient'", "leave_out")
    plain = pd.DataFrame({"patient": [17, 4, 9], "a": [1.0, 2, 4]})
    plain.to_parquet(tmp_path / "plain.parquet", index=False)
    assert "'patient'" not in remarks_on(tmp_path / "plain.parquet")


# --- What a steward is told about numbers that may not be measurements ------------------------------------------------


def test_a_point_between_thousands_is_suspected(tmp_path: Path) -> None:
    lines = "".join(f"{place};{4 + place % 6}.{100 + place}\n" for place in range(40))
    told = remarks_on(saved(tmp_path / "rows.csv", "id;leucocytes\n" + lines))
    assert names_facts(told, "'leucocytes'", "thousandth")
    assert "'leucocytes'" not in remarks_on(saved(tmp_path / "rows.csv", "id;leucocytes\n" + lines + "41;5.25\n"))


def test_thousands_are_suspected_in_every_file_and_with_a_dictionary(tmp_path: Path) -> None:
    """A number below a thousand has no point, so no factor would mend the column."""
    marked = "".join(f"{1 + place % 3}.{100 + place};1\n{500 + place};2\n" for place in range(60))
    (tmp_path / "parts").mkdir()
    saved(tmp_path / "parts" / "1.csv", "leucocytes;b\n" + "".join(f"{1000 + place};3\n" for place in range(40)))
    saved(tmp_path / "parts" / "2.csv", "leucocytes;b\n" + marked)
    assert names_facts(remarks_on(tmp_path / "parts"), "'leucocytes'", "thousandth")
    study = 'format = "dpspca-dictionary-1"\n[features.leucocytes]\nkind = "number"\nunit = "/µl"\nrange = [0, 10000]\n'
    examined = examine_file(tmp_path / "parts" / "2.csv", saved(tmp_path / "study.toml", study))
    told = [each for each in examined.remarks if "'leucocytes'" in each]
    assert [names_facts(each, "thousandth") for each in told] == [True]


def test_dates_and_codes_and_identifiers_are_suspected(tmp_path: Path) -> None:
    lines = "".join(
        f"{20200101 + place % 28},{1000 + 7 * place},{999 if place == 5 else 20 + place % 9},{place % 3}\n"
        for place in range(40)
    )
    told = remarks_on(saved(tmp_path / "rows.csv", "visit,patient,bmi,99\n" + lines))
    for named in (("'visit'", "dates"), ("'patient'", "identifiers"), ("'bmi'", 999, "missing_codes")):
        assert any(names_facts(remark, *named) for remark in told.splitlines()), named
    assert any(names_facts(remark, "names: 4") for remark in told.splitlines())


def test_numbers_that_are_too_large_to_be_exact_are_reported(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([2**60 + each % 3 for each in range(20)]), "b": np.arange(20) % 5 / 4})
    pa.parquet.write_table(table, tmp_path / "rows.parquet")
    told = remarks_on(tmp_path / "rows.parquet").splitlines()
    assert any(names_facts(remark, "'a'", "exact", "leave_out") for remark in told)


# --- Other forms ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [pa.decimal128(12, 2), pa.decimal128(38, 2), pa.decimal256(50, 2), pa.decimal64(9, 2), pa.decimal32(6, 2)]
)
def test_decimal_numbers_are_the_same_as_in_text(kind: Any, tmp_path: Path) -> None:
    """Pyarrow's own conversion makes 24.900000000000002 of 24.90."""
    numbers = [Decimal(place).scaleb(-2) for place in range(1, 2000, 7)]
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"a": pa.array([*numbers, None], kind), "b": [1.0] * (len(numbers) + 1)}), path)
    stored: Any = read_as_stored(path).matrix
    assert stored[:-1, 0].tolist() == [float(str(each)) for each in numbers]
    assert np.isnan(stored[-1, 0])
    coded = read_offered(path, Reading(missing_codes=(float(numbers[3]),), missing=-1.0))
    assert coded.matrix[3, 0] == -1.0  # type: ignore[index]


def test_an_arrow_stream_and_old_feather_are_told_apart_from_damaged_files(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0]})
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    assert "ipc.open_stream" in refusal(tmp_path / "rows.arrow")
    assert "version 1" in refusal(saved(tmp_path / "rows.feather", b"FEA1rest"))


def test_levels_in_views_of_text_are_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    pa.feather.write_feather(pa.table({"a": [1.0], "sex": pa.array(["m"], pa.string_view())}), path)
    assert "'sex' (string_view)" in refusal(path)


def test_an_array_of_matlab_is_not_read_with_rows_and_columns_exchanged(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("X", data=np.ones((2, 3))).attrs["MATLAB_class"] = np.bytes_("double")
    told = refusal(tmp_path / "rows.h5")
    assert names_facts(told, "MATLAB", "[()].T")


def test_a_table_of_pandas_in_hdf5_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        frame = file.create_group("df")
        frame.attrs["pandas_type"] = np.bytes_("frame")
        frame["block0_values"] = np.ones((3, 2))
    assert "read_hdf" in refusal(tmp_path / "rows.h5")
    with h5py.File(tmp_path / "rows.h5", "a") as file:
        file["df"]["block1_values"] = np.ones((3, 1))
    assert "read_hdf" in refusal(tmp_path / "rows.h5")
    assert rows_of(tmp_path / "rows.h5", Reading(array="df/block1_values")) == [[1.0]] * 3


@pytest.mark.parametrize("main", [True, False])
def test_anndata_may_have_names_in_the_newer_form_and_no_main_matrix(main: bool, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "cells.h5ad", "w") as file:
        file.create_group("layers")
        file["X" if main else "layers/counts"] = np.array(ROWS)
        genes = file.create_group("var/_index")
        file["var"].attrs["_index"] = "_index"
        genes.attrs["encoding-type"] = "nullable-string-array"
        genes["values"], genes["mask"] = ["g1", "g2"], [False, False]
    path, reading = tmp_path / "cells.h5ad", Reading(array=None if main else "counts")
    assert (rows_of(path, reading), names_in(path, reading)) == (ROWS, ("g1", "g2"))
    if not main:
        assert names_facts(refusal(path), "'X'", "counts", "[reading]")
    with h5py.File(path, "a") as file:
        file["var/_index/mask"][0] = True
    assert names_facts(refusal(path, reading), "gene", "no name")


def test_a_matrix_of_genes_and_cells_is_turned(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "matrix.mtx.gz", "wb") as file:
        scipy.io.mmwrite(file, scipy.sparse.coo_array(np.eye(3, 2)))
    assert "mmread(sys.argv[1]))" in refusal(tmp_path / "matrix.mtx.gz")
    saved(tmp_path / "features.tsv", "g1\tG1\ng2\tG2\ng3\tG3\n")
    saved(tmp_path / "barcodes.tsv", "c1\nc2\n")
    for place in (tmp_path / "matrix.mtx.gz", tmp_path):
        with pytest.raises(DpspcaError) as caught:
            read_offered(place)
        for fact in ("matrix.mtx.gz", "mmread(sys.argv[1]).T)", "names under [reading]", "features.tsv"):
            assert fact in str(caught.value)


def test_a_zip_with_a_table_in_it_is_unpacked_first(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.csv.zip", "w") as file:
        file.writestr("rows.csv", "a,b\n1,2\n")
    assert f"unzip {tmp_path / 'rows.csv.zip'}" in refusal(tmp_path / "rows.csv.zip")


def test_files_of_two_forms_in_a_folder_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "1.npy", np.ones((2, 3)))
    scipy.sparse.save_npz(tmp_path / "2.npz", scipy.sparse.csr_array(np.ones((2, 3))))
    with pytest.raises(DpspcaError, match=facts("2.npz", "sparse")):
        examine_rows(tmp_path, Reading())


def test_the_first_fault_of_files_without_lines_is_a_row_and_a_column(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0, 3.0], "b": pa.array([1, None, 3], pa.int32())})
    for name in ("1.parquet", "2.parquet"):
        pa.parquet.write_table(table.slice(2) if name.startswith("1") else table, tmp_path / name)
    facts: DataSetFacts = examine_rows(tmp_path, Reading())
    assert facts.first_fault is not None
    for fact in ("2.parquet: Row 2, column 2 ('b') has no value", "missing under [reading]"):
        assert fact in facts.first_fault
    assert names_in(tmp_path) == ("a", "b")


def test_marks_between_thousands_beside_a_decimal_comma(tmp_path: Path) -> None:
    """Both steps are told at once: declaring the comma alone does not help."""
    for reading, told in ((Reading(), "1234,56"), (Reading(decimal=","), "without marks between thousands")):
        path = saved(tmp_path / "rows.csv", "a;b\n1;1.234,56\n")
        fault = examine_rows(path, reading).first_fault
        assert fault is not None
        assert told in fault
        assert ("declare decimal" in fault) == (reading.decimal == ".")


def test_comments_before_the_names_are_suspected(tmp_path: Path) -> None:
    fault = examine_rows(saved(tmp_path / "rows.csv", "# exported 2024\n# by me\na,b\n1,2\n"), Reading()).first_fault
    assert fault is not None
    assert "comments" in fault
