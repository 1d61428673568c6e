"""Models for other programs: PLINK 2 computes the scores that we compute, and scores go where a steward wants them."""

import json
import shlex
import sqlite3
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import database
import duckdb
import numpy as np
import pandas as pd
import psycopg
import pyarrow.parquet
import pytest
from facts import names_facts
from numpy.typing import NDArray
from plink import alleles, genotypes, plink2, write_bed, write_bim
from typer.testing import CliRunner, Result

from dpspca import save_model
from dpspca.cli.app import app
from dpspca.common.algorithms import catalogue
from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import Model, PrivacyStatement
from dpspca.common.storage.reading import Reading
from dpspca.provider.data import read_variants
from dpspca.provider.data.sources import read_rows

VARIANTS = 12
SPEC = JobSpec(
    schema=Schema(VARIANTS),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=3.0,
    components=3,
    options={"sparsity": 4},
    method="dps-pca",
)
STATEMENT = PrivacyStatement.of(catalogue.plan(SPEC), parties=3, fresh_noise=True, federated=True)
NAMES = tuple(f"rs{place}" for place in range(VARIANTS))
PAIRS = alleles(VARIANTS)
COUNTS = genotypes(37, VARIANTS, missing=0.0)
MEANS = np.linspace(0.1, 1.9, VARIANTS)


def model(
    folder: Path, mean: NDArray[np.float64] | None = MEANS, names: Sequence[str] | None = NAMES, dictionary: str = ""
) -> Path:
    basis, _ = thin_qr(np.random.default_rng(0).standard_normal((VARIANTS, 3)))
    loadings = basis.T.copy()
    loadings[:, 5] = 0
    statement = replace(STATEMENT, dictionary=dictionary)
    save_model(Model(loadings, statement, mean=mean, feature_names=names and tuple(names)), folder / "model.dpspca")
    return folder / "model.dpspca"


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def facts(*words: object) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sscore(path: Path) -> NDArray[np.float64]:
    head, *lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    sums = [place for place, name in enumerate(head) if name.endswith("_SUM") and name.startswith("PC")]
    return np.array([[float(line[place]) for place in sums] for line in lines])


def scored_by_plink(folder: Path, prefix: Path, made: dict[str, Any]) -> NDArray[np.float64]:
    score, frequencies = made["files"]
    columns = ["cols=+scoresums,-scoreavgs", "--score-col-nums", "3-5"]
    how = ["--read-freq", frequencies, "--score", score, 1, 2, "header-read", "center", "no-mean-imputation", *columns]
    assert " ".join(map(str, how)) in made["command"]
    assert made["command"].replace("--pfile PREFIX", "--bfile PREFIX") == made["command_for_bed"] != made["command"]
    plink2("--bfile", prefix, *how, "--out", folder / "plink")
    return sscore(folder / "plink.sscore")


def assert_scored_alike(sums: NDArray[np.float64], ours: NDArray[np.float64], made: dict[str, Any]) -> None:
    """PLINK prints six digits of a sum. Apart from this rounding, its scores are ours to one in a million."""
    rounding = 0.5 * 10.0 ** (np.floor(np.log10(np.abs(sums).clip(1e-12))) - 5)
    assert (np.abs(sums + np.array(made["offsets"]) - ours) <= rounding + 1e-6).all()


@pytest.mark.parametrize("counted", ["first", "second", "mixed"])
def test_plink_computes_our_scores(counted: str, tmp_path: Path) -> None:
    """The study counts the reference's allele; the file lists it first or second."""
    turned = [counted == "second" or (counted == "mixed" and place % 2 == 1) for place in range(VARIANTS)]
    path = write_bed(
        tmp_path / "cohort", COUNTS, [pair[::-1] if turn else pair for pair, turn in zip(PAIRS, turned, strict=True)]
    )
    reference = write_bim(tmp_path / "reference.bim", PAIRS)
    made = facts(
        "model", "export", model(tmp_path), "--format", "plink2", "--alleles", reference, "--out", tmp_path / "panel"
    )
    assert made["offsets"] == pytest.approx([0, 0, 0], abs=1e-12)
    assert "rs5" not in (tmp_path / "panel.score").read_text(encoding="utf-8")
    rows = read_rows(path, Reading(alleles=reference)).matrix.toarray()  # type: ignore[union-attr]
    stored = Model.from_bytes((tmp_path / "model.dpspca").read_bytes())
    ours = stored.transform(rows)
    assert np.abs(ours).max() > 0.5
    assert_scored_alike(scored_by_plink(tmp_path, tmp_path / "cohort", made), ours, made)


def test_missing_genotypes_count_as_the_mean_for_plink(tmp_path: Path) -> None:
    counts = genotypes(37, VARIANTS, missing=0.2)
    path, reference = write_bed(tmp_path / "cohort", counts, PAIRS), tmp_path / "panel.afreq"
    made = facts(
        "model", "export", model(tmp_path), "--format", "plink2", "--alleles", tmp_path / "cohort.bim", "--out",
        tmp_path / "panel",
    )  # fmt: skip
    stored = Model.from_bytes((tmp_path / "model.dpspca").read_bytes())
    filled = Reading(missing=dict(zip(NAMES, MEANS.tolist(), strict=True)))
    ours = stored.transform(read_rows(path, filled).matrix.toarray())  # type: ignore[union-attr]
    assert_scored_alike(scored_by_plink(tmp_path, tmp_path / "cohort", made), ours, made)
    assert read_rows(path, Reading(alleles=reference, leave_out=("rs5",))).dimension == VARIANTS - 1
    for other, is_same in ((MEANS, True), (MEANS + 0.01, False)):
        declared = Reading(missing=dict(zip(NAMES, other.tolist(), strict=True)))
        scores = stored.transform(read_rows(path, declared).matrix.toarray())  # type: ignore[union-attr]
        assert np.allclose(scores, ours, rtol=1e-5, atol=1e-6) == is_same
    assert "missing genotype" in made["warning"]


@pytest.mark.parametrize("mean", [None, MEANS * 1.5 - 0.4])
def test_a_mean_outside_0_to_2_leaves_an_offset(mean: NDArray[np.float64] | None, tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    words = ("--format", "plink2", "--alleles", path.with_suffix(".bim"), "--out", tmp_path / "panel")
    made = facts("model", "export", model(tmp_path, mean), *words)
    assert any(made["offsets"]) == (mean is not None)
    stored = Model.from_bytes((tmp_path / "model.dpspca").read_bytes())
    ours = stored.transform(COUNTS.astype(float))
    assert_scored_alike(scored_by_plink(tmp_path, tmp_path / "cohort", made), ours, made)
    shown = ", ".join(f"{offset:.9g}" for offset in made["offsets"])
    again = run("model", "export", tmp_path / "model.dpspca", *words, "--force")
    assert (shown in again.output) == (mean is not None)


@pytest.mark.parametrize("codes", [("X", "Y", "MT"), ("X", "Y", "M"), ("23", "24", "26"), ("X", "PAR1", "MT")])
@pytest.mark.parametrize("prefix", ["", "chr"])
def test_plink_scores_variants_without_names_and_beside_autosomes(
    prefix: str, codes: tuple[str, str, str], tmp_path: Path
) -> None:
    """The whole command is run, as it is written. PLINK counts Y and mitochondria in halves, and Y not for women."""
    x, y, mt = codes
    places = ["1", "1", "2", "3", "22", x, x, x, y, y, mt, mt]
    lines = [
        f"{prefix}{at}\t{'.' if place % 3 != 1 else f'rs{place}'}\t0\t{place + 1}\t{one}\t{two}\n"
        for place, (at, (one, two)) in enumerate(zip(places, PAIRS, strict=True))
    ]
    counts = COUNTS.copy()
    for place, at in enumerate(places):
        if at in {y, mt}:
            counts[:, place] = 2 * (counts[:, place] > 0)  # PLINK takes a mixture of both alleles for a missing one
    path = write_bed(tmp_path / "cohort", counts, PAIRS)
    path.with_suffix(".bim").write_text("".join(lines), encoding="utf-8")
    men = "".join(f"F{place} S{place} 0 0 1 -9\n" for place in range(len(counts)))
    path.with_suffix(".fam").write_text(men, encoding="utf-8")
    names = [each.name for each in read_variants(path.with_suffix(".bim"))]
    loadings = np.random.default_rng(1).standard_normal((1, VARIANTS))
    stored = Model(loadings / np.linalg.norm(loadings), STATEMENT, mean=MEANS, feature_names=tuple(names))
    save_model(stored, tmp_path / "model.dpspca")
    made = facts(
        "model", "export", tmp_path / "model.dpspca", "--format", "plink2", "--alleles", path.with_suffix(".bim"),
        "--out", tmp_path / "panel",
    )  # fmt: skip
    if y == "PAR1":  # PLINK writes it otherwise
        assert f"'{prefix}1:1:" in made["warning"]
        return
    assert "warning" not in made or "without an ID" not in made["warning"]
    command = made["command_for_bed"].replace("PREFIX", str(tmp_path / "cohort"))
    plink2(*shlex.split(command.replace("--out scores", f"--out {tmp_path / 'scores'}"))[1:])
    ours = stored.transform(counts.astype(float))
    assert_scored_alike(sscore(tmp_path / "scores.sscore"), ours, made)


def test_scaling_of_a_dictionary_is_part_of_the_weights(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    lines = ['format = "dpspca-dictionary-1"', "[features]"]
    for place, (first, second) in enumerate(PAIRS):
        allele = second if place % 2 else first
        lines.append(f'rs{place} = {{ kind = "genotype", allele = "{allele}", frequency = {0.1 + 0.05 * place} }}')
    (tmp_path / "panel.toml").write_text("\n".join(lines), encoding="utf-8")
    dictionary = Dictionary.parse(tomllib.loads("\n".join(lines)))
    made = facts(
        "model", "export", model(tmp_path, MEANS / 9, dictionary=dictionary.digest()), "--format", "plink2",
        "--alleles", path.with_suffix(".bim"),
        "--dictionary", tmp_path / "panel.toml", "--out", tmp_path / "panel",
    )  # fmt: skip
    assert "missing genotype" in made["warning"]
    bare = facts(
        "model", "export", model(tmp_path, None, dictionary=dictionary.digest()), "--format", "plink2",
        "--alleles", path.with_suffix(".bim"),
        "--dictionary", tmp_path / "panel.toml", "--out", tmp_path / "bare",
    )  # fmt: skip
    assert "warning" not in bare  # a missing genotype is the centre at both
    model(tmp_path, MEANS / 9, dictionary=dictionary.digest())
    prepared = read_rows(path, Reading().prepared(Preparation.parse(dictionary, None, None)))
    stored = Model.from_bytes((tmp_path / "model.dpspca").read_bytes())
    ours = stored.transform(prepared.matrix.toarray(), prepared=True)  # type: ignore[union-attr]
    assert_scored_alike(scored_by_plink(tmp_path, tmp_path / "cohort", made), ours, made)
    out = ("--dictionary", tmp_path / "panel.toml", "--out", tmp_path / "scores.npy")
    assert run("model", "project", tmp_path / "model.dpspca", path, *out).exit_code == 0
    assert np.load(tmp_path / "scores.npy") == pytest.approx(ours)
    words = ("--format", "plink2", "--dictionary", tmp_path / "panel.toml", "--out", tmp_path / "alone")
    assert "'rs0'" in str(run("model", "export", tmp_path / "model.dpspca", *words).exception)
    for place, pair in enumerate(PAIRS):
        lines[2 + place] = lines[2 + place].replace(" frequency", f' other_allele = "{pair[1 - place % 2]}", frequency')
    whole = Dictionary.parse(tomllib.loads("\n".join(lines)))
    (tmp_path / "panel.toml").write_text("\n".join(lines), encoding="utf-8")
    model(tmp_path, MEANS / 9, dictionary=whole.digest())
    alone = facts("model", "export", tmp_path / "model.dpspca", *words)
    for one, other in zip(alone["files"], made["files"], strict=True):
        assert Path(one).read_text(encoding="utf-8") == Path(other).read_text(encoding="utf-8")
    without = run("model", "export", tmp_path / "model.dpspca", "--format", "plink2", "--alleles",
                  path.with_suffix(".bim"), "--out", tmp_path / "panel", "--force")  # fmt: skip
    assert "Give --dictionary" in without.output + str(without.exception)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--format", "plink2"], "Give --alleles"),
        (["--format", "xlsx"], "Unknown format 'xlsx'"),
        (["--format", "csv", "--alleles", "few.bim"], "--alleles goes with"),
        (["--format", "plink2", "--alleles", "few.bim"], "lacks 'rs3'"),
        (["--format", "plink2", "--alleles", "gone.bim"], "gone.bim"),
    ],
)
def test_an_export_that_cannot_be_made_is_refused(
    words: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_bim(tmp_path / "few.bim", PAIRS[:3])
    done = run("model", "export", model(tmp_path), *words, "--out", "panel")
    assert done.exit_code != 0
    assert told in done.output + str(done.exception)


def test_loadings_as_parquet(tmp_path: Path) -> None:
    assert run("model", "export", model(tmp_path), "--out", tmp_path / "loadings.parquet").exit_code == 0
    table = pyarrow.parquet.read_table(tmp_path / "loadings.parquet").to_pydict()
    assert tuple(table["feature"]) == NAMES
    stored = Model.from_bytes((tmp_path / "model.dpspca").read_bytes())
    assert table["component 2"] == stored.components[1].tolist()


# --- Scores -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[database.Server]:
    with database.server() as running:
        yield running


def expected(folder: Path) -> NDArray[np.float64]:
    return Model.from_bytes((folder / "model.dpspca").read_bytes()).transform(COUNTS.astype(float))


def test_covariates_of_samples_are_what_plink_reads(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    done = run("model", "project", model(tmp_path), path, "--out", tmp_path / "pcs.eigenvec")
    assert done.exit_code == 0, done.output
    head, *lines = [line.split("\t") for line in (tmp_path / "pcs.eigenvec").read_text(encoding="utf-8").splitlines()]
    assert head == ["FID", "IID", "PC1", "PC2", "PC3"]  # REGENIE refuses all other headings
    assert [line[:2] for line in lines[:3]] == [["F0", "S0"], ["F0", "S1"], ["F1", "S2"]]
    assert (np.array([line[2:] for line in lines], dtype=float) == expected(tmp_path)).all()
    covariates = ("--covar", tmp_path / "pcs.eigenvec", "--write-covar", "--out", tmp_path / "read")
    plink2("--bfile", tmp_path / "cohort", *covariates)
    assert len((tmp_path / "read.cov").read_text(encoding="utf-8").splitlines()) == len(COUNTS) + 1


def test_scores_as_parquet_and_text_have_names_where_these_are_known(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    for out in ("scores.parquet", "scores.csv", "scores.npy"):
        assert run("model", "project", model(tmp_path), path, "--out", tmp_path / out).exit_code == 0
    table = pyarrow.parquet.read_table(tmp_path / "scores.parquet").to_pydict()
    assert table["id"][:2] == ["S0", "S1"]
    assert table["PC3"] == expected(tmp_path)[:, 2].tolist()
    assert (tmp_path / "scores.csv").read_text(encoding="utf-8").startswith("id,component 1")
    assert (np.load(tmp_path / "scores.npy") == expected(tmp_path)).all()
    np.savetxt(tmp_path / "rows.csv", COUNTS, delimiter=",", header=",".join(NAMES), comments="")
    done = run("model", "project", model(tmp_path), tmp_path / "rows.csv", "--out", tmp_path / "pcs.eigenvec")
    assert "--ids" in done.output + str(done.exception)
    (tmp_path / "ids.txt").write_text("".join(f"p{row}\n" for row in range(len(COUNTS))), encoding="utf-8")
    more = ("--ids", tmp_path / "ids.txt", "--out", tmp_path / "pcs.eigenvec")
    assert run("model", "project", model(tmp_path), tmp_path / "rows.csv", *more).exit_code == 0
    assert (tmp_path / "pcs.eigenvec").read_text(encoding="utf-8").startswith("FID\tIID\tPC1\tPC2\tPC3\n0\tp0\t")


@pytest.mark.parametrize("ending", ["sqlite", "duckdb", "postgresql"])
def test_scores_go_into_a_new_table_of_a_database(ending: str, server: database.Server, tmp_path: Path) -> None:
    path, out = write_bed(tmp_path / "cohort", COUNTS, PAIRS), tmp_path / f"scores.{ending}"
    url = server.database()
    if ending == "postgresql":
        out.write_text(url, encoding="utf-8")
        out.chmod(0o600)
    words = ("model", "project", model(tmp_path), path, "--out", out, "--table", "pcs")
    assert facts(*words)["table"] == "pcs"
    query = "SELECT id, pc1, pc2, pc3 FROM pcs"

    def stored() -> list[tuple[Any, ...]]:
        if ending == "sqlite":
            with closing(sqlite3.connect(out)) as there:
                return there.execute(query).fetchall()
        if ending == "duckdb":
            with duckdb.connect(str(out)) as there:
                return there.execute(query).fetchall()
        with psycopg.connect(url) as connection:
            return connection.execute(query.encode()).fetchall()

    lines = sorted(stored(), key=lambda line: int(line[0][1:]))
    assert [line[0] for line in lines] == [f"S{row}" for row in range(len(COUNTS))]
    assert (np.array([line[1:] for line in lines]) == expected(tmp_path)).all()
    again = run(*words)
    assert again.exit_code != 0
    assert "'pcs' already exists" in again.output + str(again.exception)
    assert len(stored()) == len(COUNTS)
    (tmp_path / "ids.txt").write_text("same\n" * len(COUNTS), encoding="utf-8")
    twice = run(*words[:-1], "other", "--ids", tmp_path / "ids.txt")
    assert names_facts(twice.output + str(twice.exception), "Rows", 1, 2)
    assert "same" not in str(twice.exception)
    for wrong in (words[:-2], (*words[:-1], 'a"; DROP TABLE pcs')):
        refused = run(*wrong)
        assert "--table" in refused.output + str(refused.exception)


def test_scores_go_into_a_schema_and_join_with_whole_numbers(server: database.Server, tmp_path: Path) -> None:
    path, out, url = write_bed(tmp_path / "cohort", COUNTS, PAIRS), tmp_path / "scores.postgresql", server.database()
    out.write_text(url, encoding="utf-8")
    out.chmod(0o600)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA results")
        connection.execute("CREATE TABLE person AS SELECT n::bigint AS person_id FROM generate_series(0, 36) AS s(n)")
    (tmp_path / "ids.txt").write_text("".join(f"{row}\n" for row in range(len(COUNTS))), encoding="utf-8")
    words = ("model", "project", model(tmp_path), path, "--ids", tmp_path / "ids.txt", "--out", out, "--table")
    assert facts(*words, "results.pcs")["table"] == "results.pcs"
    with psycopg.connect(url) as connection:
        joined = connection.execute("SELECT pc1 FROM results.pcs JOIN person ON id = person_id ORDER BY id").fetchall()
    assert np.array(joined)[:, 0].tolist() == expected(tmp_path)[:, 0].tolist()
    again = run(*words, "results.pcs")
    assert "'results.pcs' already exists" in again.output + str(again.exception)
    refused = run(*words, "nowhere.pcs")
    assert "nowhere.pcs" in refused.output + str(refused.exception)
    duck, lite = tmp_path / "new.duckdb", tmp_path / "new.sqlite"
    assert facts(*words[:-3], "--out", duck, "--table", "results.pcs")["table"] == "results.pcs"
    with duckdb.connect(str(duck)) as there:
        assert there.execute("SELECT typeof(id) FROM results.pcs LIMIT 1").fetchall() == [("BIGINT",)]
    refused = run(*words[:-3], "--out", lite, "--table", "results.pcs")
    assert "SQLite" in refused.output + str(refused.exception)
    assert not lite.exists()


def test_names_of_other_rows_are_refused(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    (tmp_path / "ids.txt").write_text("one\n", encoding="utf-8")
    done = run("model", "project", model(tmp_path), path, "--ids", tmp_path / "ids.txt")
    assert names_facts(done.output + str(done.exception), "ids.txt", 1, 37)


def test_project_tells_whoever_holds_the_rows_of_values_that_cannot_be_meant(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"age": {"kind": "number", "unit": "years", "range": [0, 110]}}
    keys["sex"] = {"kind": "category", "levels": ["f", "m"]}
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": keys})
    statement = replace(STATEMENT, dictionary=known.digest())
    made = Model(np.eye(3), statement, feature_names=known.columns).with_dictionary(known)
    save_model(made, tmp_path / "model.dpspca")
    out = ("--out", tmp_path / "s.npy", "--force")
    for cells, said in (("50,f\n60,m", ()), ("5000,F\n6000,M", ("'age'", "110", "'sex'", "'f'", "2 of 2"))):
        (tmp_path / "rows.csv").write_text(f"age,sex\n{cells}\n", encoding="utf-8")
        ended = run("model", "project", tmp_path / "model.dpspca", tmp_path / "rows.csv", *out)
        assert ended.exit_code == 0, ended.output
        assert ("2 of 2" in ended.stderr) == bool(said)
        assert all(each in ended.stderr for each in said)


def test_a_rotated_model_replaces_no_file_unless_told_to(tmp_path: Path) -> None:
    """A model cost budget that cannot be had back."""
    stored = model(tmp_path)
    before = stored.read_bytes()
    refused = CliRunner().invoke(app, ["model", "rotate", str(stored), "--out", str(stored)])
    assert (refused.exit_code, stored.read_bytes()) == (1, before)
    done = CliRunner().invoke(app, ["model", "rotate", str(stored), "--out", str(stored), "--force"])
    assert done.exit_code == 0, done.output
    assert stored.read_bytes() != before


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("project", "cohort.bed", "--out", "pcs.eigenvec"), "pcs.eigenvec"),
        (("project", "cohort.bed", "--phenotypes", "traits.csv", "--out", "traits.csv"), "traits.csv"),
        (("export", "--out", "loadings.csv"), "loadings.csv"),
        (("export", "--format", "plink2", "--alleles", "cohort.bim", "--out", "panel"), "panel.afreq"),
    ],
)
def test_scores_and_loadings_replace_no_file_unless_told_to(
    words: tuple[str, ...], file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    before = "IID,y\nS0,1\n"
    (tmp_path / file).write_text(before, encoding="utf-8")
    what, *more = words
    refused = run("model", what, model(tmp_path), *more)
    assert refused.exit_code == 1
    assert names_facts(str(refused.exception), file, "--force")
    assert (tmp_path / file).read_text(encoding="utf-8") == before
    done = run("model", what, model(tmp_path), *more, "--force")
    assert done.exit_code == 0, done.output
    assert (tmp_path / file).read_text(encoding="utf-8") != before


def test_a_report_replaces_no_file_unless_told_to(tmp_path: Path) -> None:
    stored, report = model(tmp_path), tmp_path / "report.html"
    report.write_text("mine", encoding="utf-8")
    refused = run("report", stored, "--out", report)
    assert refused.exit_code == 1
    assert names_facts(str(refused.exception), "report.html", "--force")
    assert report.read_text(encoding="utf-8") == "mine"
    assert facts("report", stored, "--out", report, "--force") == {"file": str(report)}
    assert report.read_text(encoding="utf-8") != "mine"


# --- Phenotypes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mark", "out"), [("\t", "with.txt"), (",", "with.csv"), (" ", "with.tsv")])
def test_scores_are_added_to_a_table_of_phenotypes(mark: str, out: str, tmp_path: Path) -> None:
    """Samples are found by name, in any order; one that has no scores gets NA."""
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    rows = [["y", "IID", "age"], ["1", "S2", "50"], ["0", "S0", "60"], ["1", "elsewhere", "NA"]]
    (tmp_path / "traits.txt").write_text("\n".join(map(mark.join, rows)) + "\n", encoding="utf-8")
    words = ("model", "project", model(tmp_path), path, "--phenotypes", tmp_path / "traits.txt", "--out")
    done = run(*words, tmp_path / out)
    assert done.exit_code == 0, done.output
    assert "1 rows" in done.output
    table = pd.read_csv(tmp_path / out, sep="," if out.endswith("csv") else "\t")
    assert list(table.columns) == ["y", "IID", "age", "PC1", "PC2", "PC3"]
    assert list(table["IID"]) == ["S2", "S0", "elsewhere"]
    assert (table[["PC1", "PC2", "PC3"]].to_numpy()[:2] == expected(tmp_path)[[2, 0]]).all()
    assert table["PC1"].isna().tolist() == [False, False, True]
    assert facts(*words, tmp_path / out, "--force")["samples_without"] == 1


@pytest.mark.parametrize(
    ("table", "words", "named"),
    [
        ("id y\nS0 1\n", (), ("'IID'", "--id-column", "'id'")),
        ("IID y\nX 1\n", (), ("'IID'", "--ids")),
        ("IID PC2\nS0 1\n", (), "PC2"),
        ("IID y\n\nS0\n", (), ("line 3", 1, 2)),
        ('IID\ty\nS0\t"5 mg\nS1\tfine\n', (), "line 2"),
        ("", (), "traits.txt"),
        ("IID y\nS0 1\n", ("--table", "pcs"), "--table"),
    ],
)
def test_a_table_to_which_scores_cannot_be_added_is_refused(
    table: str, words: tuple[str, ...], named: Any, tmp_path: Path
) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    (tmp_path / "traits.txt").write_text(table, encoding="utf-8")
    out = ("--phenotypes", tmp_path / "traits.txt", "--out", tmp_path / "with.txt", *words)
    done = run("model", "project", model(tmp_path), path, *out)
    assert done.exit_code != 0
    assert not (tmp_path / "with.txt").exists()
    assert names_facts(done.output + str(done.exception), *(named if isinstance(named, tuple) else (named,)))


@pytest.mark.parametrize(
    "table",
    [
        '"FID" "IID" "y"\n"F0" "S0" 1\n"F0" "S1" "a b"\n',
        "IID ,y\r\nS0 ,1\r\nS1,2\r\n",
        '#FID\tIID\ty\nF\tS0\t\nF\tS1\t"x\ty"\n',
    ],
    ids=["of R", "spaces and CRLF", "empty and quoted"],
)
def test_tables_as_programs_write_them_keep_their_cells(table: str, tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    (tmp_path / "traits.txt").write_text(table, encoding="utf-8")
    out = ("--phenotypes", tmp_path / "traits.txt", "--out", tmp_path / "with.csv")
    assert facts("model", "project", model(tmp_path), path, *out)["samples_without"] == 0
    read = pd.read_csv(tmp_path / "with.csv")
    assert (read[["PC1", "PC2", "PC3"]].to_numpy() == expected(tmp_path)[:2]).all()


def test_a_name_of_several_samples_gets_no_scores(tmp_path: Path) -> None:
    path = write_bed(tmp_path / "cohort", COUNTS, PAIRS)
    fam = (tmp_path / "cohort.fam").read_text(encoding="utf-8").replace("F0 S1 ", "F9 S0 ")
    (tmp_path / "cohort.fam").write_text(fam, encoding="utf-8")
    (tmp_path / "traits.txt").write_text("IID y\nS0 1\n", encoding="utf-8")
    out = ("--phenotypes", tmp_path / "traits.txt", "--out", tmp_path / "with.txt")
    assert "'S0'" in str(run("model", "project", model(tmp_path), path, *out).exception)
    assert run("model", "project", model(tmp_path), path, *out[:-1], tmp_path / "with.npy").exit_code != 0
