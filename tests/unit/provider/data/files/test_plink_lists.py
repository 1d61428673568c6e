"""Lists of samples and variants beside genotypes: whose rows are, how files begin, and which lists are no reference."""

import codecs
import gzip
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from facts import facts, names_facts
from plink import alleles, genotypes, plink2, write_bed, write_bim

from dpspca.client.steward.data_check import examine_file
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.files.variants import read_samples, read_variants
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in

COUNTS = genotypes(21, 10)
FILLED = Reading(missing=0.5)


def dense(path: Path, reading: Reading) -> np.ndarray:
    matrix = read_offered(path, reading).matrix
    assert isinstance(matrix, Genotypes)
    return matrix.toarray()


def test_a_name_in_several_families_needs_a_persons_file(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS[:3])
    fam = tmp_path / "cohort.fam"
    fam.write_text("F0 1 0 0 0 -9\nF1 2 0 0 0 -9\nF1 1 0 0 0 -9\n", encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("cohort.fam", "lines 1 and 3", "IID", "FID", "awk")) as told:
        read_offered(path, FILLED, persons=fam)
    commands = re.findall(r"awk [^>]*> persons.txt", str(told.value))
    for command, persons in zip(commands, (3, 2), strict=True):
        subprocess.run(command, shell=True, check=True, cwd=tmp_path)  # the error shows it  # noqa: S602
        rows = read_offered(path, FILLED, persons=tmp_path / "persons.txt")
        assert rows.bounded(1).count == persons
    assert read_offered(path, FILLED).count == 3
    by_family = read_offered(path, Reading(missing=0.5, person="FID"), persons=fam)
    assert by_family.bounded(1).count == 2


def test_a_line_of_names_is_no_sample(tmp_path: Path) -> None:
    """Where a byte has room for one more sample, all rows would have the names of their neighbours."""
    path = tmp_path / "x.bed"
    write_bed(path.with_suffix(""), np.zeros((10, 3), dtype=np.int8))
    fam = path.with_suffix(".fam")
    fam.write_text("FID IID PAT MAT SEX PHENO\n" + fam.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("x.fam", "line 1")):
        read_offered(path, Reading())


def test_a_line_that_lacks_an_allele_does_not_move_the_cells_of_others(tmp_path: Path) -> None:
    path = tmp_path / "x.bim"
    path.write_text("1 rs0 0 1 A\n1 rs1 0 2 A C\n", encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("x.bim", "line 2")):
        read_variants(path)
    path.write_text("1 rs0 1 A C\n1 rs1 2 A C\n", encoding="utf-8")
    assert [each.other for each in read_variants(path)] == ["C", "C"]


def test_byte_order_marks_are_no_part_of_a_name(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    (tmp_path / "reference.afreq").write_text("#CHROM ID REF ALT ALT_FREQS\n1 rs0 C A 0.5\n", encoding="utf-8")
    before = read_offered(path, FILLED, persons=tmp_path / "cohort.fam")
    for name in ("cohort.bim", "cohort.fam", "reference.afreq"):
        (tmp_path / name).write_bytes(codecs.BOM_UTF8 + (tmp_path / name).read_bytes())
    after = read_offered(path, FILLED, persons=tmp_path / "cohort.fam")
    assert after.digest() == before.digest()
    assert names_in(path, Reading(alleles=tmp_path / "reference.afreq")) == ("rs0",)
    (tmp_path / "cohort.psam").write_bytes(codecs.BOM_UTF8 + b"#IID\tSEX\nS0\t1\n")
    assert read_samples(tmp_path / "cohort.psam") == [b"S0"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b" CHR SNP A1 A2 MAF NCHROBS\n 1 rs0 A C 0.1 42\n", "plink2 --bfile PREFIX --freq --out OTHER"),
        (gzip.compress(b"1 rs0 0 1 A C\n", mtime=0), "gunzip"),
    ],
    ids=["frequencies of PLINK 1.9", "packed"],
)
def test_another_kind_of_reference_is_refused_with_what_to_do(content: bytes, named: str, tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    (tmp_path / "reference").write_bytes(content)
    with pytest.raises(InvalidDataError, match=facts("reference", named)):
        read_offered(path, Reading(alleles=tmp_path / "reference", missing=0.5))


def test_alleles_in_small_letters_are_named(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS[:, :2], [("a", "c"), ("G", "A")])
    reference = write_bim(tmp_path / "reference.bim", alleles(2))
    with pytest.raises(InvalidDataError, match=facts("small letters", "'rs0'")) as told:
        read_offered(path, Reading(alleles=reference, missing=0.5))
    assert "'rs1'" not in str(told.value)


def test_variants_of_several_alternative_alleles_may_be_left_out(tmp_path: Path) -> None:
    calls = ["1/2\t0/2\t2/2", "0/1\t1/1\t./.", "0/1\t1/2\t0/0", "0/0\t0/1\t1/1"]
    lines = [
        f"1\t{place}\trs{place}\tA\t{'C' if place % 2 else 'C,G'}\t.\t.\t.\tGT\t{each}\n"
        for place, each in enumerate(calls)
    ]
    heads = "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tS0\tS1\tS2\n"
    vcf = tmp_path / "cohort.vcf"
    vcf.write_text("##fileformat=VCFv4.2\n##contig=<ID=1>\n" + heads + "".join(lines), encoding="utf-8")
    plink2("--vcf", vcf, "--make-pgen", "--out", tmp_path / "cohort")
    right = [[1, 0], [2, 1], [0.5, 2]]
    assert dense(tmp_path / "cohort.pgen", Reading(columns=("rs1", "rs3"), missing=0.5)).tolist() == right
    assert dense(tmp_path / "cohort.pgen", Reading(leave_out=("rs0", "rs2"), missing=0.5)).tolist() == right
    with pytest.raises(InvalidDataError, match=facts("'rs2'", "leave_out")):
        read_offered(tmp_path / "cohort.pgen", Reading(columns=("rs1", "rs2")))


def test_an_error_about_the_reference_names_its_file(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS[:, :3])
    reading = Reading(missing=0.5, alleles=tmp_path / "public.bim")
    with pytest.raises(InvalidDataError, match=facts("public.bim", "alleles", "[reading]")):
        read_offered(path, reading)
    pairs = alleles(3)
    file = write_bim(tmp_path / "public.bim", [*pairs, pairs[0]])
    file.write_text(file.read_text(encoding="utf-8").replace("rs3", "rs1"), encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("public.bim", "'rs1'")):
        read_offered(path, reading)
    assert dense(path, Reading(missing=0.5, alleles=file, columns=("rs0", "rs2"))).shape == (21, 2)
    write_bim(file, [pairs[0], (f"{pairs[1][0]},T", pairs[1][1]), pairs[2]])
    with pytest.raises(InvalidDataError, match=facts("public.bim", "'rs1'", "--max-alleles 2")):
        read_offered(path, reading)


@pytest.mark.parametrize("more", [0, 2])
def test_variants_of_several_alleles_are_counted_if_there_are_others(more: int, tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS[:, :4], [("A,G", "C")] * (1 + more) + [("A", "C")] * (3 - more))
    with pytest.raises(InvalidDataError, match=facts("'rs0'", "--max-alleles 2")) as refused:
        read_offered(path, FILLED)
    assert (f"{more} more" in str(refused.value)) == (more > 0)


def test_samples_that_are_listed_twice_are_remarked(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS[:3])
    fam = tmp_path / "cohort.fam"
    assert not any("FID" in each for each in examine_file(path).remarks)
    fam.write_text("F0 1 0 0 0 -9\nF0 1 0 0 0 -9\nF0 1 0 0 0 -9\n", encoding="utf-8")
    assert any(names_facts(each, 2, "FID", "IID") for each in examine_file(path).remarks)
