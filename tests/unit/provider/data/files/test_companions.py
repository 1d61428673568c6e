"""Files that PLINK writes together are found by one name, in capital letters too, and in a folder count as one."""

from pathlib import Path

import numpy as np
import pytest
from facts import facts
from plink import genotypes, plink2, write_bed

from dpspca.client.files.score_files import names_beside
from dpspca.common.errors import DpspcaError, InvalidDataError, MissingExtraError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.offered_rows import read_offered

COUNTS = genotypes(21, 10)
FILLED = Reading(missing=0.5)


def dense(path: Path, reading: Reading = FILLED) -> np.ndarray:
    matrix = read_offered(path, reading).matrix
    assert isinstance(matrix, Genotypes)
    return matrix.toarray()


def in_capitals(stem: Path, *endings: str) -> None:
    for ending in endings:
        stem.with_suffix(ending).rename(stem.with_suffix(ending.upper()))


@pytest.mark.parametrize("made", ["bed", "pgen", "pgen vzs"])
def test_endings_may_be_in_capital_letters(made: str, tmp_path: Path) -> None:
    stem = tmp_path / "cohort"
    right = dense(write_bed(stem, COUNTS))
    if made != "bed":
        plink2("--bfile", stem, "--make-pgen", *made.split()[1:], "--out", tmp_path / "made")
        stem = tmp_path / "made"
    ends = {"bed": (".bed", ".bim", ".fam"), "pgen": (".pgen", ".pvar", ".psam")}
    in_capitals(stem, *ends.get(made, (".pgen", ".pvar.zst", ".psam")))
    path = stem.with_suffix(f".{made[:4].strip().upper()}")
    assert (dense(path) == right).all()
    assert (dense(stem) == right).all()
    assert (dense(stem, Reading(missing=0.5, person="FID")) == right).all()
    assert (
        names_beside(stem)
        == names_beside(path)
        == stem.with_suffix(path.suffix.replace("BED", "FAM").replace("PGEN", "PSAM"))
    )


def test_a_folder_of_genotypes_has_their_rows_one_after_the_other(tmp_path: Path) -> None:
    folder = tmp_path / "panel"
    folder.mkdir()
    for name, part in (("a", COUNTS[:8]), ("b", COUNTS[8:])):
        write_bed(folder / name, part)
        (folder / f"{name}.log").write_text("PLINK", encoding="utf-8")
    plink2("--bfile", folder / "b", "--make-pgen", "--out", folder / "b")
    for gone in ("b.bed", "b.bim", "b.fam"):
        (folder / gone).unlink()
    assert (dense(folder) == np.where(COUNTS < 0, 0.5, COUNTS)).all()
    (folder / "notes.log").touch()
    with pytest.raises(DpspcaError, match=facts("notes.log")):
        read_offered(folder, FILLED)
    (folder / "notes.log").unlink()
    (folder / "a.bed").unlink()
    with pytest.raises(DpspcaError, match=facts("a.bim", ".bed")):
        read_offered(folder, FILLED)


def test_lists_of_another_pgen_file_are_refused_with_all_numbers(tmp_path: Path) -> None:
    write_bed(tmp_path / "cohort", COUNTS)
    plink2("--bfile", tmp_path / "cohort", "--make-pgen", "--out", tmp_path / "cohort")
    (tmp_path / "cohort.bed").unlink()
    for ending, named in ((".psam", (10, 21, 10, 20)), (".pvar", (10, 21, 9, 20))):
        file = tmp_path / f"cohort{ending}"
        file.write_text("".join(file.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
        with pytest.raises(InvalidDataError, match=facts(*named, ".pvar", ".psam")):
            read_offered(tmp_path / "cohort", FILLED)


@pytest.mark.parametrize(("gone", "there"), [(".bed", ("cohort.bim", "cohort.fam")), (".bim", ()), (".fam", ())])
def test_a_stem_with_some_of_its_files_names_the_missing_one(gone: str, there: tuple[str, ...], tmp_path: Path) -> None:
    write_bed(tmp_path / "cohort", COUNTS).with_suffix(gone).unlink()
    with pytest.raises(DpspcaError, match=facts(f"cohort{gone}", *there)) as refused:
        read_offered(tmp_path / "cohort", FILLED)
    assert isinstance(refused.value, MissingExtraError) == (gone == ".bed")
