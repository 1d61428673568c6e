"""Variants that a file names otherwise than the dictionary are found by their place and alleles."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from facts import facts
from plink import genotypes, plink2, write_bed

from dpspca import Budget, simulate
from dpspca.client.steward.data_check import examine_file, reading_of_file
from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import InvalidDataError, RowsWarning
from dpspca.common.storage.reading import Reading
from dpspca.provider.data import trial_reading
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import read_rows

COUNTS = genotypes(21, 4)
OWN = [("A", "C"), ("G", "A"), ("C", "T"), ("A", "T")]
"""The alleles of rs0 to rs3, at positions 1 to 4 of chromosome 1."""


def known(**others: dict[str, Any]) -> Dictionary:
    features = {
        f"rs{place}": {
            "kind": "genotype", "allele": one, "other_allele": other, "chromosome": 1, "position": place + 1,
            "frequency": 0.4,
        }
        for place, (one, other) in enumerate(OWN)
    }  # fmt: skip
    return Dictionary.parse({"format": "dpspca-dictionary-1", "features": features | others})


def declared(dictionary: Dictionary, absent: object = None) -> Reading:
    return Reading().prepared(Preparation.parse(dictionary, None, absent))


def matrix(path: Path, reading: Reading) -> np.ndarray:
    rows = read_offered(path, reading).matrix
    assert isinstance(rows, Genotypes)
    return rows.toarray()


def renamed(path: Path, change: Callable[[list[list[str]]], list[list[str]]]) -> Path:
    """Write other lines of the list of variants."""
    bim = path.with_suffix(".bim")
    lines = [line.split("\t") for line in bim.read_text(encoding="utf-8").splitlines()]
    bim.write_text("".join("\t".join(line) + "\n" for line in change(lines)), encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_bed(tmp_path / "cohort", COUNTS, OWN)


CHANGES: dict[str, Callable[[list[list[str]]], list[list[str]]]] = {
    "no names": lambda lines: [[one, ".", *others] for one, _, *others in lines],
    "other names": lambda lines: [["chr01", f"other{number}", *line[2:]] for number, line in enumerate(lines)],
    "one other name": lambda lines: [[lines[0][0], "x", *lines[0][2:]], *lines[1:]],
    "an allele that nobody has": lambda lines: [[lines[0][0], "x", *lines[0][2:4], "0", "C"], *lines[1:]],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_variant_is_found_by_place_and_alleles(change: Any, path: Path) -> None:
    right = matrix(path, declared(known()))
    renamed(path, change)
    assert (matrix(path, declared(known())) == right).all()
    assert (matrix(path, reading_of_file(path, written(path, known()))) == right).all()


def written(path: Path, dictionary: Dictionary) -> Path:
    file = path.with_name("study.json")
    file.write_text(dictionary.to_json(), encoding="utf-8")
    return file


def test_alleles_in_the_other_order_are_converted(path: Path) -> None:
    """An A/T variant in the other order is refused, as one with the name of its feature is."""
    right = matrix(path, declared(known()))
    swapped = [*(pair[::-1] for pair in OWN[:3]), OWN[3]]
    own = [*(2 - COUNTS[:, :3].T), COUNTS[:, 3]]
    turned = write_bed(path.with_name("turned"), np.where(COUNTS < 0, -1, np.transpose(own)), swapped)
    renamed(turned, CHANGES["no names"])
    np.testing.assert_allclose(matrix(turned, declared(known())), right)
    renamed(turned, lambda lines: [*lines[:3], [*lines[3][:4], "T", "A"]])
    with pytest.raises(InvalidDataError, match=facts("'rs3'")):
        matrix(turned, declared(known()))


def test_a_name_in_the_file_decides(path: Path) -> None:
    """The variant at the right place has another name: nobody knows which of the two names is wrong."""
    renamed(path, lambda lines: [[*lines[0][:3], "77", *lines[0][4:]], *lines[1:], ["1", "x", "0", "1", "A", "C"]])
    with path.open("ab") as file:
        file.write(bytes(6))
    with pytest.raises(InvalidDataError, match=facts("'rs0'", "absent")):
        matrix(path, declared(known()))


def test_several_variants_that_fit_are_refused_by_name(path: Path) -> None:
    renamed(path, lambda lines: [["1", "x", *lines[0][2:]], ["1", "y", "0", "1", "C", "A"], *lines[2:]])
    with pytest.raises(InvalidDataError, match=facts("'rs0'", "'x'", "'y'", "absent", "[dictionaries]")):
        matrix(path, declared(known(), absent=["rs1"]))
    assert matrix(path, declared(known(), absent=["rs0", "rs1"])).shape == (21, 2)


def test_two_features_of_one_variant_are_refused(path: Path) -> None:
    renamed(path, CHANGES["no names"])
    twin = {"twin": known().to_dict()["features"]["rs0"]}
    with pytest.raises(InvalidDataError, match=facts("'rs0'", "'twin'")):
        matrix(path, declared(known(**twin)))


def test_a_file_without_any_feature_shows_how_both_write_variants(path: Path) -> None:
    renamed(path, lambda lines: [["chr7", f"x{line[1]}", *line[2:]] for line in lines])
    named = "'xrs0'", "7:1", "A/C", "'rs0'", "1:1", "'rs1'", "1:2", "`plink2 --freq cols=+pos`"
    with pytest.raises(InvalidDataError, match=facts(*named)):
        matrix(path, declared(known()))
    with pytest.raises(InvalidDataError, match=facts(*named)):
        reading_of_file(path, written(path, known()))


def test_a_dictionary_without_places_finds_names_alone(path: Path) -> None:
    features = {"rs0": {"kind": "genotype", "allele": "A", "other_allele": "C"}, "x": {"kind": "genotype"}}
    bare = Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})
    assert reading_of_file(path, written(path, bare)).columns == ("rs0",)
    renamed(path, CHANGES["other names"])
    with pytest.raises(InvalidDataError, match=facts("'rs0'", "'x'")):
        reading_of_file(path, written(path, bare))


def test_what_the_dictionary_does_not_use_may_be_anything(path: Path) -> None:
    """The variant of several alleles, and names that occur twice, are of no feature."""
    some = Dictionary(known().features[:2])
    renamed(path, lambda lines: [*lines[:2], ["1", "x", "0", "3", "C,G", "T"], ["1", "x", "0", "4", "A", "T"]])
    assert examine_file(path, written(path, some)).passed
    assert matrix(path, declared(some)).shape == (21, 2)


@pytest.mark.parametrize("line", [["1", "rs0", "0", "3", "C", "T"], ["1", "rs2", "0", "3", "C,G", "T"]])
def test_what_the_dictionary_uses_is_refused_by_name(line: list[str], path: Path) -> None:
    renamed(path, lambda lines: [*lines[:2], line, lines[3]])
    features = Dictionary(tuple(each for each in known().features if each.name != "rs2" or line[1] == "rs2"))
    with pytest.raises(InvalidDataError, match=facts(f"'{line[1]}'", "absent", "[dictionaries]")):
        matrix(path, declared(features))
    assert f"'{line[1]}'" in (examine_file(path, written(path, features)).problem or "")


def test_a_model_projects_a_file_with_other_names(path: Path) -> None:
    """What the model does not use may be anything, although the dictionary has it."""
    study = known()
    job = study.job(["rs2", "rs0"], unit="row-replace-one", budget=Budget(4.0, 1e-6), components=1)
    rows = np.where(COUNTS < 0, np.nan, COUNTS)
    model = simulate([pd.DataFrame(rows, columns=study.names)] * 2, job, noise_seed=1, dictionary=study)
    right = model.transform(path)
    renamed(path, CHANGES["other names"])
    renamed(path, lambda lines: [lines[0], ["1", "rs3", *lines[1][2:]], lines[2], ["1", "rs3", *lines[3][2:]]])
    np.testing.assert_allclose(model.transform(path), right)


def test_samples_without_the_genotypes_of_a_model_are_warned_of(tmp_path: Path) -> None:
    study, counts = known(), COUNTS.copy()
    counts[3:5] = -1
    job = study.job(["rs2", "rs0"], unit="row-replace-one", budget=Budget(4.0, 1e-6), components=1)
    rows = pd.DataFrame(np.where(COUNTS < 0, np.nan, COUNTS), columns=study.names)
    model = simulate([rows] * 2, job, noise_seed=1, dictionary=study)
    path = write_bed(tmp_path / "cohort", counts, OWN)
    lacking = int((counts[:, [0, 2]] < 0).all(axis=1).sum())
    with pytest.warns(RowsWarning, match=facts(f"{lacking} samples")):
        scores = model.transform(path)
    assert (scores[3] == scores[4]).all()


def test_a_pgen_file_is_tried_with_the_names_of_the_dictionary(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plink2("--bfile", path.with_suffix(""), "--make-pgen", "--out", path.with_suffix(""))
    stored = path.with_suffix(".pgen")
    pvar = stored.with_suffix(".pvar")
    right = matrix(stored, declared(known()))
    ended: list[Any] = []
    run = trial_reading.subprocess.run
    monkeypatch.setattr(trial_reading.subprocess, "run", lambda *a, **b: ended.append(run(*a, **b)) or ended[-1])
    pvar.write_text(pvar.read_text(encoding="utf-8").replace("rs", "other"), encoding="utf-8")
    assert (matrix(stored, declared(known())) == right).all()
    assert [each.returncode for each in ended] == [0]


@pytest.mark.parametrize("is_described", [False, True])
def test_files_of_one_chromosome_each_are_to_be_joined(tmp_path: Path, is_described: bool) -> None:
    for number in (1, 2):
        one = write_bed(tmp_path / f"chr{number}", COUNTS[:, :2], OWN[:2])
        renamed(one, lambda lines, number=number: [[str(number), f"{line[1]}of{number}", *line[2:]] for line in lines])
    features = {f"rs{place}of{number}": {"kind": "genotype"} for number in (1, 2) for place in (0, 1)}
    dictionary = Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})
    reading = declared(dictionary) if is_described else Reading(missing=0.0)
    with pytest.raises(InvalidDataError, match=facts("--pmerge-list", "--make-bed")) as refused:
        read_rows(tmp_path / "chr*.bed", reading)
    assert "absent" not in str(refused.value)
    with pytest.raises(InvalidDataError, match=facts("--pmerge-list", "chr{1..2}.bed")):
        read_rows(tmp_path / "chr{1..2}.bed", reading)


def test_what_no_file_of_a_folder_has_may_be_absent(path: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_bed(tmp_path / name, COUNTS[:, :2], OWN[:2])
    path.unlink()
    with pytest.raises(InvalidDataError, match=facts("'rs2'", "'rs3'", "absent")) as refused:
        read_rows(tmp_path / "?.bed", declared(known()))
    assert "--pmerge-list" not in str(refused.value)
