"""Genotypes as PLINK writes them: what is read, which allele is counted, and what is refused."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts
from plink import alleles, genotypes, plink2, write_bed, write_bim

from dpspca.cli.render import to_json
from dpspca.client.steward.data_check import examine_file
from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import DpspcaError, MissingExtraError
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.storage.reading import Reading
from dpspca.common.storage.settings import ProviderSettings, read_settings
from dpspca.provider.data import require_unit
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.examination.preview import preview_row
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_rows
from dpspca.provider.data.tables import extras

COUNTS = genotypes(21, 10)
NAMES = tuple(f"rs{place}" for place in range(10))
FILLED = Reading(missing=0.5)


def dense(path: Path, reading: Reading = FILLED) -> np.ndarray:
    matrix = read_offered(path, reading).matrix
    assert isinstance(matrix, Genotypes)
    return matrix.toarray()


def expected(counts: np.ndarray = COUNTS, fill: float = 0.5) -> np.ndarray:
    return np.where(counts < 0, fill, counts)


@pytest.mark.parametrize("samples", [1, 4, 21])
@pytest.mark.parametrize("variants", [1, 4, 10])
def test_counts_of_the_first_allele_are_read(samples: int, variants: int, tmp_path: Path) -> None:
    counts = COUNTS[:samples, :variants]
    path = write_bed(tmp_path / "cohort.v1", counts)
    assert (dense(path) == expected(counts)).all()
    assert names_in(path) == NAMES[:variants]
    assert (dense(tmp_path / "cohort.v1") == expected(counts)).all()


def test_columns_are_chosen_by_name_and_order(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    names = ("rs7", "rs0", "rs3", "rs4", "rs9")
    assert (dense(path, Reading(columns=names, missing=0.5)) == expected()[:, [7, 0, 3, 4, 9]]).all()
    assert (dense(path, Reading(leave_out=NAMES[1:], missing=0.5)) == expected()[:, :1]).all()
    with pytest.raises(DpspcaError, match=facts("'rs99'", "'rs9'")):
        read_offered(path, Reading(columns=("rs99",)))


def test_cells_take_two_bits(tmp_path: Path) -> None:
    counts = genotypes(400, 120)
    rows = read_offered(write_bed(tmp_path / "cohort", counts), FILLED)
    assert isinstance(rows.matrix, Genotypes)
    assert rows.matrix.packed.nbytes == 400 * 120 // 4
    assert (rows.matrix.toarray() == expected(counts)).all()


def test_a_sample_that_lacks_a_genotype_is_zeros_if_nothing_is_declared(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    rows = read_offered(path)
    lacking = (COUNTS < 0).any(axis=1)
    assert rows.unusable is not None
    assert rows.unusable.count == lacking.sum()
    assert (dense(path, Reading()) == np.where(lacking[:, None], 0, COUNTS)).all()
    first = int(np.argmax(lacking))
    variant = int(np.argmax(COUNTS[first] < 0))
    with pytest.raises(DpspcaError, match=facts(f"Sample {first + 1}", f"'rs{variant}'")):
        read_rows(path)


def test_missing_genotypes_are_filled_by_variant(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    fills = dict(zip(NAMES, np.linspace(0.25, 1.5, 10).tolist(), strict=True))
    assert (dense(path, Reading(missing=fills)) == expected(COUNTS, np.array(list(fills.values())))).all()


def test_fingerprints_are_those_of_the_same_numbers_in_text(tmp_path: Path) -> None:
    rows = read_offered(write_bed(tmp_path / "cohort", COUNTS), FILLED)
    np.savetxt(tmp_path / "rows.csv", expected(), delimiter=",", header=",".join(NAMES), comments="")
    assert rows.fingerprints() & read_offered(tmp_path / "rows.csv").fingerprints()
    other = read_offered(tmp_path / "cohort", Reading(missing=1.0))
    assert rows.fingerprints() & other.fingerprints(), "other numbers for missing ones give no new budget"
    assert rows.digest() != other.digest()
    np.savetxt(
        tmp_path / "gaps.csv", np.where(COUNTS < 0, np.nan, COUNTS), delimiter=",", header=",".join(NAMES), comments=""
    )
    in_text = read_offered(tmp_path / "gaps.csv", Reading(missing=1.0))
    assert rows.fingerprints() & in_text.fingerprints(), "nor do they in text, where most samples lack some genotype"
    swapped = write_bed(tmp_path / "swapped", np.where(COUNTS < 0, COUNTS, 2 - COUNTS).astype(np.int8))
    assert read_offered(swapped, FILLED).digest() != rows.digest()


# --- Which allele is counted ------------------------------------------------------------------------------------------


def test_alleles_in_another_order_are_swapped(tmp_path: Path) -> None:
    pairs = alleles(10)
    turned = [pair[::-1] if place % 3 == 0 else pair for place, pair in enumerate(pairs)]
    path = write_bed(tmp_path / "cohort", COUNTS, turned)
    reference = write_bim(tmp_path / "reference.bim", pairs)
    swapped = np.array([place % 3 == 0 for place in range(10)])
    right = np.where((COUNTS >= 0) & swapped, 2 - COUNTS, COUNTS)
    reading = Reading(alleles=reference, missing=0.5)
    assert (dense(path, reading) == expected(right)).all()
    types = [column.type for column in examine_rows(path, reading).columns]
    assert types == [f"copies of {one}, not {two}, at 1:{place}" for place, (one, two) in enumerate(pairs, 1)]


def test_the_reference_lists_the_columns_in_its_order(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    lines = write_bim(tmp_path / "whole.bim", alleles(10)).read_text(encoding="utf-8").splitlines()
    (tmp_path / "reference.bim").write_text("\n".join([lines[5], lines[2], lines[8]]), encoding="utf-8")
    reading = Reading(alleles=tmp_path / "reference.bim", missing=0.5)
    assert names_in(path, reading) == ("rs5", "rs2", "rs8")
    assert (dense(path, reading) == expected()[:, [5, 2, 8]]).all()
    assert names_in(path, Reading(alleles=tmp_path / "reference.bim", leave_out=("rs2",))) == ("rs5", "rs8")


def test_frequencies_of_the_reference_fill_in_missing_genotypes(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    frequencies = np.linspace(0.05, 0.95, 10)
    lines = ["#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n"]
    for place, ((one, two), each) in enumerate(zip(alleles(10), frequencies, strict=True)):
        lines.append(f"1\trs{place}\t{two}\t{one}\t{each}\t100\n")
    (tmp_path / "reference.afreq").write_text("".join(lines), encoding="utf-8")
    reading = Reading(alleles=tmp_path / "reference.afreq")
    assert dense(path, reading) == pytest.approx(expected(COUNTS, 2 * frequencies))
    one = Reading(alleles=tmp_path / "reference.afreq", missing={"rs3": 0.0})
    assert dense(path, one) == pytest.approx(expected(COUNTS, np.where(np.arange(10) == 3, 0, 2 * frequencies)))


@pytest.mark.parametrize(
    ("own", "known", "named"),
    [
        (("T", "G"), ("A", "C"), ("'rs1'", "(A for T, C for G)")),
        (("G", "T"), ("A", "C"), ("'rs1'", "(A for T, C for G)")),
        (("A", "G"), ("A", "C"), ("'rs1'", "(A and T, C and G)")),
        (("T", "A"), ("A", "T"), ("'rs1'", "(A and T, C and G)")),
        (("0", "0"), ("A", "C"), ("'rs1'", "(A and T, C and G)")),
    ],
)
def test_other_alleles_are_refused_by_name(
    own: tuple[str, str], known: tuple[str, str], named: Any, tmp_path: Path
) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS[:, :3], [("A", "C"), own, ("A", "C")])
    reference = write_bim(tmp_path / "reference.bim", [("A", "C"), known, ("A", "C")])
    with pytest.raises(DpspcaError, match=facts(named)):
        read_offered(path, Reading(alleles=reference))


@pytest.mark.parametrize(("own", "swapped"), [(("0", "C"), False), (("0", "A"), True), (("A", "C"), False)])
def test_an_allele_that_no_sample_has_may_be_unknown(own: tuple[str, str], swapped: bool, tmp_path: Path) -> None:
    counts = np.zeros((5, 1), dtype=np.int8)
    path = write_bed(tmp_path / "cohort", counts, [own])
    reference = write_bim(tmp_path / "reference.bim", [("A", "C")])
    assert (dense(path, Reading(alleles=reference)) == (2 if swapped else 0)).all()


def test_a_variant_that_the_reference_lacks_is_refused_by_name(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    reference = write_bim(tmp_path / "reference.bim", alleles(8))
    with pytest.raises(DpspcaError, match=facts("'rs9'", "leave_out", "[reading]")):
        read_offered(path, Reading(columns=("rs1", "rs9"), alleles=reference))
    with pytest.raises(DpspcaError, match=facts("'rs10'", "'rs1'")):
        read_offered(path, Reading(alleles=write_bim(tmp_path / "more.bim", alleles(11))))


def test_a_variant_without_a_name_is_named_by_its_place_and_alleles(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS[:, :2], [("A", "C"), ("G", "T")])
    (tmp_path / "cohort.bim").write_text("chr2 . 0 500 A C\n2 rs1 0 501 G T\n", encoding="utf-8")
    assert names_in(path) == ("chr2:500:C:A", "rs1")


DICTIONARY = """format = "dpspca-dictionary-1"
[features]
rs3 = { kind = "genotype", allele = "T", frequency = 0.3 }
rs1 = { kind = "genotype", allele = "A", frequency = 0.4, missing = 2 }
rs0 = { kind = "genotype" }
"""


def described(text: str = DICTIONARY) -> Reading:
    return Reading().prepared(Preparation.parse(Dictionary.parse(tomllib.loads(text)), None, None))


def test_genotypes_are_prepared_for_a_dictionary_and_stay_packed(tmp_path: Path) -> None:
    """The dictionary counts A of rs1, which the file has as its second allele, and T of rs3, its first."""
    path = write_bed(tmp_path / "cohort", COUNTS, [("A", "C"), ("G", "A"), ("C", "T"), ("T", "G"), *alleles(6)])
    rows = read_offered(path, described())
    assert isinstance(rows.matrix, Genotypes)
    assert rows.names == ("rs3", "rs1", "rs0")
    counts = np.where(COUNTS < 0, np.nan, COUNTS)
    counts[:, 1] = 2 - counts[:, 1]
    np.savetxt(tmp_path / "rows.csv", counts, delimiter=",", header=",".join(NAMES), comments="")
    same = read_offered(tmp_path / "rows.csv", described())
    assert rows.matrix.toarray() == pytest.approx(same.matrix)
    assert rows.fingerprints() & same.fingerprints()
    facts = examine_rows(path, described())
    assert [each.missing for each in facts.features] == [(COUNTS[:, place] < 0).sum() for place in (3, 1, 0)]
    assert preview_row(path, described(), 1).is_usable
    assert read_rows(path, described()).names == rows.names


def test_a_dictionary_decides_where_a_reference_counts_the_other_allele(tmp_path: Path) -> None:
    """The reference knows the strand of both alleles; its frequencies fill in nothing."""
    path = write_bed(tmp_path / "cohort", COUNTS, [("A", "C"), ("G", "A"), ("C", "T"), ("T", "G"), *alleles(6)])
    lines = ["#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT"]
    lines += [f"1\trs{place}\t{second}\t{first}\t0.11\t9" for place, (first, second) in enumerate(alleles(10))]
    (tmp_path / "reference.afreq").write_text("\n".join(lines), encoding="utf-8")
    both = replace(described(), alleles=tmp_path / "reference.afreq")
    plain, told = (read_offered(path, each).matrix for each in (described(), both))
    assert isinstance(plain, Genotypes)
    assert isinstance(told, Genotypes)
    assert (told.toarray() == plain.toarray()).all()
    (tmp_path / "reference.afreq").write_text("\n".join(lines).replace("\tA\tG\t", "\tT\tC\t"), encoding="utf-8")
    with pytest.raises(DpspcaError, match=facts("'rs1'", "(A and T, C and G)", "absent", "[dictionaries]")) as refused:
        read_offered(path, both)
    assert "leave_out" not in refused.value.remedy, "settings with a dictionary refuse it"


def test_an_allele_of_the_dictionary_that_the_file_lacks_is_refused_by_name(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    with pytest.raises(DpspcaError, match=facts("'rs1'", "(A and T, C and G)")):
        read_offered(path, described(DICTIONARY.replace('"A"', '"AT"')))
    with pytest.raises(DpspcaError, match=facts("'rs1'", "(A and T, C and G)")):
        read_offered(path, described(DICTIONARY.replace('"A"', '"C"')))


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda bed: b"\x00" + bed[1:], (".bed file", "plink2 --make-bed")),
        (lambda _bed: b"", (".bed file", "plink2 --make-bed")),
        (lambda bed: bed[:2] + b"\x00" + bed[3:], "plink2 --bfile PREFIX --make-bed --out OTHER"),
        (lambda bed: bed[:2] + b"\x07" + bed[3:], ("63 bytes", 10, 21)),
        (lambda bed: bed[:-1], ("62 bytes", "10 variants in .bim", "21 samples in .fam")),
        (lambda bed: bed + b"\x00", ("64 bytes", 10, 21)),
    ],
)
def test_a_malformed_bed_file_is_refused(spoil, named: Any, tmp_path: Path) -> None:  # noqa: ANN001
    path = write_bed(tmp_path / "cohort", COUNTS)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(DpspcaError, match=facts(named)) as caught:
        read_offered(path, FILLED)
    assert "cohort.bed" in str(caught.value)


@pytest.mark.parametrize("gone", [".bim", ".fam"])
def test_a_missing_companion_is_named(gone: str, tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    path.with_suffix(gone).unlink()
    with pytest.raises(DpspcaError, match=facts(f"cohort{gone}")):
        read_offered(path)


def test_a_file_without_samples_is_refused(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    (tmp_path / "cohort.fam").write_text("", encoding="utf-8")
    with pytest.raises(DpspcaError, match=facts(".fam file", "plink2 --make-bed")):
        read_offered(path)


def test_a_line_with_too_few_cells_is_named(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    with (tmp_path / "cohort.bim").open("a", encoding="utf-8") as bim:
        bim.write("1 rs10 0\n")
    with pytest.raises(DpspcaError, match=facts("cohort.bim, line 11")):
        read_offered(path)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("cohort.bed.gz", "gunzip"),
        ("cohort.pgen.zst", "unzstd"),
        ("cohort.vcf.gz", "plink2 --vcf"),
        ("cohort.bgen", "plink2 --bgen"),
        ("cohort.ped", "plink2 --pedmap"),
        ("cohort.map", "plink2 --pedmap"),
        ("cohort.tped", "plink --tfile"),
        ("cohort.haps", "plink2 --haps"),
        ("cohort.gen", "plink2 --gen"),
        ("cohort.sample", "plink2 --gen"),
        ("cohort.raw", "delimiter"),
        ("cohort.bim", ".bed file"),
        ("cohort.psam", ".pgen file"),
    ],
)
def test_files_beside_are_refused_with_what_to_do(name: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(MissingExtraError, match=facts(remedy)):
        read_offered(tmp_path / name)


def test_a_prefix_of_two_files_needs_its_ending(tmp_path: Path) -> None:
    write_bed(tmp_path / "cohort", COUNTS)
    (tmp_path / "cohort.pgen").touch()
    with pytest.raises(DpspcaError, match=facts("cohort.bed", "cohort.pgen")):
        read_offered(tmp_path / "cohort")


def test_genotypes_are_not_a_matrix_and_have_no_largest_entries(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    rows = read_offered(path, FILLED)
    with pytest.raises(DpspcaError, match=facts("unit entry", "row_entries")):
        require_unit(PrivacyUnit.ENTRY, persons=False, cut=rows.uncut is not None)
    with pytest.raises(DpspcaError, match=facts("Genotypes", "row_entries")):
        rows.as_matrix()
    with pytest.raises(DpspcaError, match=facts("row_entries")):
        read_offered(path, FILLED, row_entries=3)


# --- Persons, settings, data check ------------------------------------------------------------------------------------


def test_samples_are_persons_or_families(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    fam = tmp_path / "cohort.fam"
    fam.write_text(fam.read_text(encoding="utf-8").replace("F0 ", "0 "), encoding="utf-8")
    by_person = read_offered(path, FILLED, persons=fam)
    by_family = read_offered(path, Reading(missing=0.5, person="FID"), persons=fam)
    assert by_person.bounded(1).count == 21
    assert by_family.bounded(1).count == 12, "a family of 0 is none"
    kept = by_family.bounded(1).matrix
    assert isinstance(kept, Genotypes)
    assert (kept.toarray() == expected()[[0, 1, *range(2, 21, 2)]]).all()


def test_paths_are_taken_from_the_folder_of_the_settings(tmp_path: Path) -> None:
    text = """
coordinator = "localhost:7443"
identity = "identity"
revocations = "revocations.json"
policy = "policy.toml"
[data_sets]
cohort = "genotypes/cohort"
[reading.cohort]
alleles = "public/reference.afreq"
missing = 0
"""
    (tmp_path / "provider.toml").write_text(text, encoding="utf-8")
    reading = read_settings(ProviderSettings, tmp_path / "provider.toml").reading_of("cohort")
    assert reading.alleles == tmp_path / "public" / "reference.afreq"
    assert reading.fill_of("rs1") == 0


def test_data_check_counts_missing_genotypes(tmp_path: Path) -> None:
    counts = COUNTS.copy()
    counts[:, 4] = 1
    path = write_bed(tmp_path / "cohort", counts)
    facts = examine_rows(path, FILLED, tmp_path / "cohort.fam")
    assert [column.missing for column in facts.columns] == (counts < 0).sum(axis=0).tolist()
    assert [column.is_constant for column in facts.columns] == [place == 4 for place in range(10)]
    assert facts.rows_as_zeros == 0
    assert examine_rows(path, Reading()).rows_as_zeros == (counts < 0).any(axis=1).sum()
    assert facts.persons is not None
    assert facts.persons.persons == 21
    assert facts.memory.rows < 21 * 10 * 8
    assert json.loads(to_json(examine_file(path).to_dict()))["facts"]["rows"] == 21


# --- PLINK 2 ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("zipped", [False, True])
def test_pgen_files_of_the_real_program_are_read(zipped: bool, tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    form = "vzs" if zipped else ""
    plink2("--bfile", path.with_suffix(""), "--make-pgen", *([form] if form else []), "--out", tmp_path / "second")
    reading = Reading(columns=("rs7", "rs0", "rs3", "rs4", "rs9"), missing=0.5)
    for ending in ("", ".pgen"):
        assert (dense(tmp_path / f"second{ending}", reading) == expected()[:, [7, 0, 3, 4, 9]]).all()
    by_person = read_offered(tmp_path / "second", FILLED, persons=tmp_path / "second.psam")
    assert by_person.bounded(1).count == 21
    assert by_person.fingerprints() == read_offered(path, FILLED).fingerprints()


def test_counts_are_those_that_the_real_program_exports(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    firsts = "".join(f"rs{place}\t{one}\n" for place, (one, _) in enumerate(alleles(10)))
    (tmp_path / "counted.txt").write_text(firsts, encoding="utf-8")
    prefix = tmp_path / "cohort"
    plink2("--bfile", prefix, "--export", "A", "--export-allele", tmp_path / "counted.txt", "--out", tmp_path / "out")
    lines = [line.split()[6:] for line in (tmp_path / "out.raw").read_text(encoding="utf-8").splitlines()[1:]]
    exported = np.array([[-1 if cell == "NA" else int(cell) for cell in line] for line in lines])
    assert (dense(path, Reading(missing=-1.0)) == exported).all()


def test_several_alternative_alleles_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "cohort.pgen").touch()
    (tmp_path / "cohort.psam").write_text("#IID\nS0\n", encoding="utf-8")
    (tmp_path / "cohort.pvar").write_text("##x\n#CHROM\tPOS\tID\tREF\tALT\n1\t5\trs1\tA\tC,G\n", encoding="utf-8")
    with pytest.raises(DpspcaError, match=facts("'rs1'", "plink2 --pfile PREFIX --max-alleles 2")):
        read_offered(tmp_path / "cohort.pgen")


@pytest.mark.slow
def test_a_spoilt_pgen_file_is_refused(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS)
    plink2("--bfile", path.with_suffix(""), "--make-pgen", "--out", tmp_path / "second")
    whole = (tmp_path / "second.pgen").read_bytes()
    for content in (b"", b"SECRET" * 9, whole[:-7]):
        (tmp_path / "second.pgen").write_bytes(content)
        with pytest.raises(DpspcaError, match=facts("second.pgen", ".pgen")) as caught:
            read_offered(tmp_path / "second.pgen", FILLED)
        assert "SECRET" not in str(caught.value)


def test_without_pgenlib_the_error_names_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(extras, "import_module", missing)
    (tmp_path / "cohort.pgen").touch()
    (tmp_path / "cohort.psam").write_text("#IID\nS0\n", encoding="utf-8")
    (tmp_path / "cohort.pvar").write_text("#CHROM\tPOS\tID\tREF\tALT\n1\t5\trs1\tA\tC\n", encoding="utf-8")
    with pytest.raises(MissingExtraError, match=facts("'.[genetics]'")):
        read_offered(tmp_path / "cohort.pgen")
