"""Files that other programs write in forms of their own: nothing is read as something else without a word."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
import zarr
from facts import facts, names_facts
from plink import alleles, genotypes, plink2, write_bed

from dpspca.client.steward.data_check import examine_file
from dpspca.common.dictionary.codes import LevelCodes, category_text
from dpspca.common.dictionary.features import Category
from dpspca.common.errors import DpspcaError
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.triplets import Triplets
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in


def values_of(path: Path, reading: Reading | None = None) -> list[list[float]]:
    matrix: Any = read_offered(path, reading or Reading()).matrix
    return (matrix.toarray() if hasattr(matrix, "toarray") else matrix).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.bool_, np.float32, np.int64])
def test_repeated_entries_add_up_alike_in_every_sparse_form(kind: type, tmp_path: Path) -> None:
    """A type of one byte holds the entries, and not their sum."""
    times = 300
    places = np.zeros(times, dtype=np.int64)
    np.savez(tmp_path / "coo.npz", data=np.ones(times, dtype=kind), row=places, col=places, shape=(2, 2), format=b"coo")
    rows = scipy.sparse.csr_array((np.ones(times, dtype=kind), places, [0, times, times]), shape=(2, 2))
    scipy.sparse.save_npz(tmp_path / "csr.npz", rows)
    assert values_of(tmp_path / "coo.npz") == values_of(tmp_path / "csr.npz") == [[300, 0], [0, 0]]


def test_a_file_with_two_arrays_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "rows.npy").open("wb") as file:
        for _ in range(2):
            np.save(file, np.eye(4))
    with pytest.raises(DpspcaError, match=facts("rows.npy", "numpy.savez")):
        read_offered(tmp_path / "rows.npy")


def test_the_check_fails_if_every_row_counts_as_zeros_whatever_spoils_it(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age,bmi\n50,\n,20\n60,\n", encoding="utf-8")
    examined = examine_file(tmp_path / "rows.csv")
    assert not examined.passed
    assert any(names_facts(each, "3 rows", "missing_codes") for each in examined.remarks)


def test_line_ends_that_make_empty_lines_are_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"age,bmi\r\r\n50,20\r\r\n60,30\r\r\n")
    assert "line ends" in " ".join(examine_file(tmp_path / "rows.csv").remarks)


def test_a_decimal_comma_divides_no_cells_of_a_single_column(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("weight\n72,5\n80,25\n", encoding="utf-8")
    assert values_of(tmp_path / "rows.csv", Reading(decimal=",")) == [[72.5], [80.25]]


def test_frames_of_pzstd_that_are_skipped_are_skipped(tmp_path: Path) -> None:
    skipped = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"
    packed = pa.Codec("zstd").compress(b"age,bmi\n50,20\n", asbytes=True)
    (tmp_path / "rows.csv.zst").write_bytes(skipped + packed)
    assert values_of(tmp_path / "rows.csv.zst") == [[50, 20]]


def labelled(folder: Path, labels: Sequence[str], within: str = "") -> Path:
    """Write an array as xarray does, with labels of its columns."""
    group = zarr.open_group(str(folder), mode="w", zarr_format=2)
    inner = group.create_group(within) if within else group
    inner.create_array("x", data=np.array([[1.0, 2.0], [3.0, 4.0]])).attrs["_ARRAY_DIMENSIONS"] = ["row", "column"]
    texts = np.array(labels)
    inner.create_array("column", data=texts).attrs["_ARRAY_DIMENSIONS"] = ["column"]
    return folder


def test_labels_of_xarray_are_the_names_of_columns(tmp_path: Path) -> None:
    path = labelled(tmp_path / "rows.zarr", ["bmi", "age"])
    assert names_in(path) == ("bmi", "age")
    assert values_of(path, Reading(columns=("age", "bmi"))) == [[2, 1], [4, 3]]
    assert values_of(path, Reading(names=("bmi", "age"))) == [[1, 2], [3, 4]]
    with pytest.raises(DpspcaError, match=facts("'bmi', 'age'")):
        read_offered(path, Reading(names=("age", "bmi")))


def test_an_array_of_a_group_in_a_group_is_read(tmp_path: Path) -> None:
    path = labelled(tmp_path / "rows.zarr", ["bmi", "age"], within="study")
    assert values_of(path) == values_of(path, Reading(array="study/x")) == [[1, 2], [3, 4]]
    assert names_in(path) == ("bmi", "age")


def test_a_level_that_looks_like_a_power_is_a_word() -> None:
    """Codes such as 10E49 of the ICD are no numbers, while programs write the number 100000 in many ways."""
    codes = LevelCodes.of(Category(name="code", levels=("1E5", "100000")))
    read = {text: place for place, text in enumerate(codes.texts)}
    cells = np.array([category_text(cell, read) for cell in ("1E5", "100000", "1e+05", "100000.0")] + [100000.0])
    assert codes.places(cells).tolist() == [0, 1, 1, 1, 1]


def test_unsigned_numbers_of_duckdb_name_rows(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "long.duckdb")) as database:
        database.execute("CREATE TABLE long (person UBIGINT, concept UINTEGER, value DOUBLE)")
        database.execute("INSERT INTO long VALUES (1, 7, 2.5), (2, 8, 3.5)")
    (tmp_path / "persons.txt").write_text("1\n2\n", encoding="utf-8")
    how = Triplets(row="person", column="concept", value="value", rows=tmp_path / "persons.txt")
    reading = Reading(triplets=how, columns=("7", "8"))
    assert sorted(values_of(tmp_path / "long.duckdb", reading)) == [[0, 3.5], [2.5, 0]]


def moved(lines: str, chromosome: str, position: int) -> str:
    """Put the first variant of a .bim file at another place."""
    first, *others = lines.splitlines()
    _, name, distance, _, counted, other = first.split()
    return "\n".join(["\t".join([chromosome, name, distance, str(position), counted, other]), *others]) + "\n"


@pytest.mark.parametrize(
    ("chromosome", "position", "agrees"),
    [("1", 999_100, False), ("7", 1, False), ("chr1", 1, True), ("1", 0, True), ("0", 0, True)],
)
def test_another_build_of_the_genome_is_refused(
    chromosome: str,
    position: int,
    agrees: bool,
    tmp_path: Path,
) -> None:
    path = write_bed(tmp_path / "cohort", genotypes(4, 3, missing=0), alleles(3))
    lines = moved((tmp_path / "cohort.bim").read_text(encoding="utf-8"), "1", 1)
    (tmp_path / "cohort.bim").write_text(lines, encoding="utf-8")
    (tmp_path / "reference.bim").write_text(moved(lines, chromosome, position), encoding="utf-8")
    reading = Reading(alleles=tmp_path / "reference.bim")
    if agrees:
        read_offered(path, reading)
        return
    name = lines.split()[1]
    with pytest.raises(DpspcaError, match=facts("reference", name)):
        read_offered(path, reading)


def test_variants_of_sex_chromosomes_are_pointed_out(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", genotypes(4, 3, missing=0), alleles(3))
    assert not any("chromosome X" in each for each in examine_file(path).remarks)
    lines = moved((tmp_path / "cohort.bim").read_text(encoding="utf-8"), "23", 5)
    (tmp_path / "cohort.bim").write_text(lines, encoding="utf-8")
    assert any(names_facts(each, 1, "chromosome X", "leave_out") for each in examine_file(path).remarks)


def test_dosages_between_whole_counts_are_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "cohort.vcf").write_text(
        "##fileformat=VCFv4.2\n##FORMAT=<ID=GT,Number=1,Type=String,Description=GT>\n"
        "##FORMAT=<ID=DS,Number=1,Type=Float,Description=DS>\n##contig=<ID=1>\n"
        "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts1\ts2\n"
        "1\t5\trs1\tA\tC\t.\t.\t.\tGT:DS\t0/1:1.2\t0/0:0\n1\t6\trs2\tA\tC\t.\t.\t.\tGT:DS\t0/1:1\t1/1:2\n",
        encoding="utf-8",
    )
    plink2("--vcf", tmp_path / "cohort.vcf", "dosage=DS", "--make-pgen", "--out", tmp_path / "cohort")
    remarks = examine_file(tmp_path / "cohort.pgen").remarks
    assert any(names_facts(each, "cohort.pgen", 1, "2 variants", "--hard-call-threshold") for each in remarks)
    json.dumps(remarks)
