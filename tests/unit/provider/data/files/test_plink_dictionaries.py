"""A dictionary says which variant each genotype is: another strand, allele or build is refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts
from plink import genotypes, plink2, write_bed

from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import read_dictionary
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import types_in

COUNTS = genotypes(21, 3)
OWN = [("A", "C"), ("G", "A"), ("A", "T")]
"""What the file has: the alleles of rs0, rs1 and rs2, at positions 1, 2 and 3 of chromosome 1."""


def described(**changes: dict[str, Any]) -> Reading:
    """Return how to read genotypes by a dictionary that agrees with the file, but for some changes."""
    features = {
        f"rs{place}": {
            "kind": "genotype", "allele": one, "other_allele": other, "chromosome": "chr1", "position": place + 1,
        } | changes.get(f"rs{place}", {})
        for place, (one, other) in enumerate(OWN)
    }  # fmt: skip
    given = {name: {key: fact for key, fact in each.items() if fact is not None} for name, each in features.items()}
    dictionary = Dictionary.parse({"format": "dpspca-dictionary-1", "features": given})
    return Reading().prepared(Preparation.parse(dictionary, None, None))


def matrix(path: Path, reading: Reading) -> np.ndarray:
    rows = read_offered(path, reading).matrix
    assert isinstance(rows, Genotypes)
    return rows.toarray()


def swap(one: str, other: str) -> dict[str, Any]:
    return {"allele": one, "other_allele": other}


def test_the_dictionary_decides_which_allele_is_counted(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, OWN)
    right = matrix(path, described())
    turned = matrix(path, described(rs0=swap("C", "A")))
    assert (turned[:, 0] == -right[:, 0]).all()
    assert (turned[:, 1:] == right[:, 1:]).all()
    assert types_in(path, described(rs0=swap("C", "A")))[0] == "copies of C, not A, at 1:1"  # type: ignore[index]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rs0": swap("T", "G")}, "'rs0'"),
        ({"rs0": swap("G", "T")}, "'rs0'"),
        ({"rs1": swap("G", "T")}, "'rs1'"),
        ({"rs2": swap("T", "A")}, "'rs2'"),
        ({"rs0": {"chromosome": "7"}}, "'rs0'"),
        ({"rs1": {"position": 54_321}}, "'rs1'"),
    ],
    ids=["other strand", "other strand and order", "other allele", "strand or order", "chromosome", "build"],
)
def test_another_variant_is_refused_by_name(changes: dict[str, Any], named: str, tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, OWN)
    with pytest.raises(InvalidDataError, match=facts(named, "absent", "[dictionaries]")) as refused:
        read_offered(path, described(**changes))
    others = {"'rs0'", "'rs1'", "'rs2'"} - {named}
    assert not any(each in str(refused.value) for each in others)


def test_what_a_dictionary_or_a_file_does_not_say_is_not_compared(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, OWN)
    right = matrix(path, described())
    for silent in ({"other_allele": ""}, {"position": None}, {"position": None, "chromosome": ""}):
        assert (matrix(path, described(**{f"rs{place}": silent for place in range(3)})) == right).all()
    bim = tmp_path / "cohort.bim"
    bim.write_text("0\trs0\t0\t0\t0\tC\n1\trs1\t0\t0\tG\tA\n1\trs2\t0\t3\tA\tT\n", encoding="utf-8")
    assert (matrix(path, described()) == right).all()


@pytest.mark.parametrize("columns", ["", "+pos"])
def test_a_list_of_the_real_program_says_which_variant_each_is(columns: str, tmp_path: Path) -> None:
    """The reference of a study, as its docs say to write it. A file that was moved to another build does not fit."""
    write_bed(tmp_path / "public", genotypes(200, 3, 1, missing=0), OWN)
    words = ("--freq", f"cols={columns}") if columns else ("--freq",)
    plink2("--bfile", tmp_path / "public", *words, "--out", tmp_path / "panel")
    (tmp_path / "study.toml").write_text(
        'format = "dpspca-dictionary-1"\n[genotypes]\nfile = "panel.afreq"\n', encoding="utf-8"
    )
    reading = Reading().prepared(Preparation.parse(read_dictionary(tmp_path / "study.toml"), None, None))
    path = write_bed(tmp_path / "cohort", COUNTS, OWN)
    assert matrix(path, reading).shape == COUNTS.shape
    bim = (tmp_path / "cohort.bim").read_text(encoding="utf-8")
    (tmp_path / "cohort.bim").write_text(bim.replace("\t0\t2\t", "\t0\t20002\t"), encoding="utf-8")
    if columns:
        with pytest.raises(InvalidDataError, match=facts("'rs1'")):
            read_offered(path, reading)
    else:
        assert matrix(path, reading).shape == COUNTS.shape
