"""`dpspca data check` and `preview` describe features by their dictionary, and suspect wrong units and codes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts
from plink import write_bed

from dpspca.common.storage import ProviderSettings, read_settings
from dpspca.provider.startup import read_data_set

Here = Callable[..., Ended]

STUDY = """
format = "dpspca-dictionary-1"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features."mean area"]
kind = "number"
unit = "µm²"
range = [0, 3000]
[features.temperature]
kind = "number"
unit = "°C"
range = [34, 42]
[features.sex]
kind = "category"
levels = ["female", "male"]
[features.bmi]
kind = "number"
unit = "kg/m²"
range = [10, 60]
"""
SETTINGS = """
coordinator = "127.0.0.1:1"
identity = "provider-north"
revocations = "revoked.pem"
policy = "policy.toml"
[data_sets]
cohort = "rows.csv"
[persons]
cohort = "whose.txt"
[dictionaries.cohort]
file = "study.toml"
absent = ["bmi"]
[dictionaries.cohort.columns]
age = { column = "Alter", missing_codes = [999] }
sex = { column = "Geschlecht", levels = { w = "female", 2 = "male" } }
"""


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Here:
    drawn = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "Alter": [*drawn.integers(20, 90, 37).tolist(), 999, 120, -9],
            "mean area": drawn.uniform(200, 2500, 40).round(2),
            "temperature": drawn.normal(37, 0.5, 40).round(1),
            "Geschlecht": [*["w", "2"] * 19, "?", ""],
            "note": "text",
        }
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "whose.txt").write_text("\n".join(f"p{place // 2}" for place in range(40)) + "\n", encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "north.toml").write_text(SETTINGS, encoding="utf-8")
    return commands_in(tmp_path, monkeypatch, capfd)


def rewrite(folder: Path, column: str, change: Callable[[Any], Any]) -> None:
    frame = pd.read_csv(folder / "rows.csv", keep_default_na=False)
    frame[column] = change(frame[column])
    frame.to_csv(folder / "rows.csv", index=False)


def features(ended: Ended) -> dict[str, dict[str, Any]]:
    (found,) = ended.facts["data_sets"]
    return {each["name"]: each for each in found["facts"]["features"]}


def test_each_feature_is_described_and_none_is_suspected(here: Here) -> None:
    ended = here("data", "check", "--config", "north.toml", "--json")
    found = features(ended)
    assert list(found) == ["age", "mean area", "temperature", "sex"]
    age = found["age"]
    assert (age["column"], age["missing"], age["above"], age["below"], age["codes"]) == ("Alter", 1, 1, 1, [-9.0])
    assert (found["sex"]["missing"], found["sex"]["unknown"], found["sex"]["values"]) == (1, 1, 39)
    assert not any(each["suspicion"] or each["is_wrong"] for each in found.values())
    assert ended.facts["data_sets"][0]["facts"]["persons"]["most_rows"] == 2
    said = here("data", "check", "--config", "north.toml")
    assert said.code == 0
    for fact in (
        "does not have 'bmi'",
        "missing_codes = [-9]",
        "2 of 39 values of 'age'",
    ):
        assert fact in said.out
    assert a_line_names(said.out, 1, 39, "'sex'", "such as '?'", "levels", "missing_codes", "[dictionaries]")


def test_numbers_that_are_no_level_are_named(here: Here, tmp_path: Path) -> None:
    rewrite(tmp_path, "Geschlecht", lambda values: values.replace({"?": "7"}))
    assert features(here("data", "check", "--config", "north.toml", "--json"))["sex"]["unknown_numbers"] == [7]
    assert a_line_names(here("data", "check", "--config", "north.toml").out, "'sex'", "such as 7", "levels")


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_texts_that_are_no_level_are_named_once(here: Here, tmp_path: Path, kind: str) -> None:
    """In the order in which they are found, shortened, and without levels, numbers and missing values."""
    rewrite(tmp_path, "Geschlecht", lambda values: values.replace({"?": "divers"}).where(values.index != 3, "x" * 900))
    frame = pd.read_csv(tmp_path / "rows.csv", dtype={"Geschlecht": str}).drop(columns="note")
    if kind == "parquet":
        frame.to_parquet(tmp_path / "rows.parquet")
    elif kind == "feather":
        frame.to_feather(tmp_path / "rows.feather")
    settings = (tmp_path / "north.toml").read_text(encoding="utf-8").replace("rows.csv", f"rows.{kind}")
    (tmp_path / "north.toml").write_text(settings, encoding="utf-8")
    sex = features(here("data", "check", "--config", "north.toml", "--json"))["sex"]
    assert (sex["unknown"], sex["unknown_texts"], sex["unknown_numbers"]) == (2, ["x" * 60, "divers"], [])
    assert a_line_names(here("data", "check", "--config", "north.toml").out, "'sex'", "'divers'")


def test_numbers_with_a_decimal_comma_are_no_texts(here: Here, tmp_path: Path) -> None:
    frame = pd.read_csv(tmp_path / "rows.csv", dtype=str, keep_default_na=False)
    frame["Geschlecht"] = ["3,5", "7", "1" * 90 + "x", *["w"] * 37]
    frame.map(lambda text: text.replace(".", ",")).to_csv(tmp_path / "rows.csv", index=False, sep=";")
    settings = (tmp_path / "north.toml").read_text(encoding="utf-8")
    (tmp_path / "north.toml").write_text(f'{settings}\n[reading.cohort]\ndecimal = ","\n', encoding="utf-8")
    sex = features(here("data", "check", "--config", "north.toml", "--json"))["sex"]
    assert (sex["unknown_numbers"], sex["unknown_texts"]) == ([3.5, 7.0], ["1" * 60])


@pytest.mark.parametrize(
    ("column", "change", "factor", "offset"),
    [
        ("mean area", lambda values: values / 100, 100, 0),
        ("mean area", lambda values: values * 1000, 0.001, 0),
        ("temperature", lambda values: values * 9 / 5 + 32, 5 / 9, -160 / 9),
        ("temperature", lambda values: values + 273.15, 1, -273.15),
        ("temperature", lambda values: values * 10, 0.1, 0),
    ],
)
def test_a_column_in_another_unit_is_suspected(
    here: Here, tmp_path: Path, column: str, change: Callable[[Any], Any], factor: float, offset: float
) -> None:
    rewrite(tmp_path, column, change)
    ended = here("data", "check", "--config", "north.toml")
    assert f"'{column}' may be in another unit" in ended.out
    assert f"factor = {factor:.9g}" in ended.out
    assert not offset or f"offset = {offset:.9g}" in ended.out
    declared = f'columns]\n"{column}" = {{ factor = {factor!r}, offset = {offset!r} }}'
    settings = (tmp_path / "north.toml").read_text(encoding="utf-8").replace("columns]", declared)
    (tmp_path / "north.toml").write_text(settings, encoding="utf-8")
    assert "another unit" not in here("data", "check", "--config", "north.toml").out


def test_values_mostly_out_of_range_or_of_no_level_fail_the_check(here: Here, tmp_path: Path) -> None:
    rewrite(tmp_path, "temperature", lambda values: values - 60)
    rewrite(tmp_path, "Geschlecht", lambda values: values.replace({"w": "f", "2": "m"}))
    ended = here("data", "check", "--config", "north.toml")
    assert ended.code == 1
    assert a_line_names(ended.out, "40 of 40", "'temperature'", 34, 42, "°C")
    assert a_line_names(ended.out, "39 of 39", "'sex'", "[dictionaries]")


def test_constants_and_cells_that_are_not_numbers_are_named(here: Here, tmp_path: Path) -> None:
    rewrite(tmp_path, "mean area", lambda values: values * 0 + 500.0)
    rewrite(tmp_path, "temperature", lambda values: values.astype(str).where(values.index != 3, "warm"))
    ended = here("data", "check", "--config", "north.toml")
    assert a_line_names(ended.out, "'mean area'")
    assert a_line_names(ended.out, "40 rows", "1 row")
    assert a_line_names(ended.out, "Line 5", "'temperature'")
    assert len([line for line in ended.out.splitlines() if names_facts(line, "'temperature'")]) == 2
    found = features(here("data", "check", "--config", "north.toml", "--json"))
    assert [name for name, each in found.items() if each["is_constant"]] == ["mean area"]
    assert [name for name, each in found.items() if each["unusable"]] == ["temperature"]


def test_a_file_alone_is_checked_by_the_names_of_its_columns(here: Here) -> None:
    ended = here("data", "check", "rows.csv", "--dictionary", "study.toml", "--json")
    assert list(features(ended)) == ["mean area", "temperature"]
    assert here("data", "check", "--config", "north.toml", "--dictionary", "study.toml").code == 2
    assert here("data", "preview", "rows.csv").code == 2


def test_a_preview_shows_where_each_number_of_a_row_came_from(here: Here, tmp_path: Path) -> None:
    shown = here("data", "preview", "--config", "north.toml", "--row", "38", "--json").facts
    by_name = {each["name"]: each for each in shown["features"]}
    assert (by_name["age"]["read"], by_name["age"]["value"], by_name["age"]["prepared"]) == (999.0, None, {"age": 0.0})
    assert by_name["age"]["remark"] == "missing: 55.0 is used"
    assert by_name["sex"]["read"] == 2.0
    assert by_name["sex"]["value"] == "male"
    assert by_name["sex"]["prepared"] == {"sex=female": -0.5, "sex=male": 0.5}
    settings = read_settings(ProviderSettings, tmp_path / "north.toml")
    row = read_data_set(settings, "cohort").part(slice(37, 38))
    prepared = [value for each in shown["features"] for value in each["prepared"].values()]
    np.testing.assert_array_equal(np.asarray(row)[0], prepared)
    said = here("data", "preview", "--config", "north.toml", "--row", "39")
    assert "clipped to 110" in said.out
    assert a_line_names(said.out, "sex", "zero")
    assert names_facts(here("data", "preview", "--config", "north.toml", "--row", "41").error_line, 41, "1 to 40")


def test_a_preview_needs_only_what_the_settings_say_of_data(here: Here, tmp_path: Path) -> None:
    with_all = here("data", "preview", "--config", "north.toml", "--json")
    text = (tmp_path / "north.toml").read_text(encoding="utf-8")
    (tmp_path / "north.toml").write_text(text[text.index("[data_sets]") :], encoding="utf-8")
    ended = here("data", "preview", "--config", "north.toml", "--json")
    assert (ended.code, ended.facts) == (0, with_all.facts)
    drafted = here("dictionary", "init", "rows.csv", "--config", "north.toml", "--data-set", "cohort")
    assert (drafted.code, "[features" in drafted.out) == (0, True)


def test_a_variant_whose_other_allele_seems_to_be_counted_is_named(here: Here, tmp_path: Path) -> None:
    """A and T are each other on the other strand, so that no list of alleles shows it. Frequencies may."""
    drawn = np.random.default_rng(1)
    public = {"rs0": 0.2, "rs1": 0.8, "rs2": 0.45, "rs3": 0.2}
    own = {**public, "rs0": 0.8, "rs1": 0.2, "rs2": 0.55}
    counts = np.column_stack([drawn.binomial(2, p, 400) for p in own.values()]).astype(np.int8)
    write_bed(tmp_path / "panel", counts, [("A", "T")] * 4)
    features = [
        f'{name} = {{ kind = "genotype", allele = "A", other_allele = "T", frequency = {p} }}'
        for name, p in public.items()
    ]
    text = "\n".join(['format = "dpspca-dictionary-1"', "[features]", *features])
    (tmp_path / "panel.toml").write_text(text, encoding="utf-8")
    checked = here("data", "check", "panel.bed", "--dictionary", "panel.toml", "--json")
    assert checked.code == 0
    (found,) = checked.facts["data_sets"]
    assert [each["looks_swapped"] for each in found["facts"]["features"]] == [True, True, False, False]
    (remark,) = [each for each in found["remarks"] if "'rs0'" in each]
    assert "'rs1'" in remark
    assert "'rs2'" not in remark
    assert "'rs3'" not in remark


def genotypes_in(folder: Path, counts: np.ndarray, frequencies: list[float]) -> None:
    """Write a panel of A/C variants in PLINK's form and as text, and its dictionary."""
    write_bed(folder / "panel", counts, [("A", "C")] * counts.shape[1])
    names = [f"rs{place}" for place in range(counts.shape[1])]
    pd.DataFrame(np.where(counts < 0, -9, counts), columns=names).to_csv(folder / "panel.csv", index=False)
    features = [
        f'{name} = {{ kind = "genotype", allele = "A", other_allele = "C", frequency = {p} }}'
        for name, p in zip(names, frequencies, strict=True)
    ]
    text = "\n".join(['format = "dpspca-dictionary-1"', "[features]", *features])
    (folder / "panel.toml").write_text(text, encoding="utf-8")


def remarks(ended: Ended) -> list[str]:
    (found,) = ended.facts["data_sets"]
    listed: list[str] = found["remarks"]
    return listed


def test_a_file_whose_labels_are_exchanged_is_suspected_as_a_whole(here: Here, tmp_path: Path) -> None:
    counts = np.random.default_rng(1).binomial(2, 0.8, (400, 12)).astype(np.int8)
    for swapped, whole in ((12, True), (3, False)):
        genotypes_in(tmp_path, counts, [0.2] * swapped + [0.8] * (12 - swapped))
        found = remarks(here("data", "check", "panel.bed", "--dictionary", "panel.toml", "--json"))
        assert any(names_facts(each, "A1", "A2", f"{swapped} of 12") for each in found) == whole


def test_samples_without_any_genotype_are_counted(here: Here, tmp_path: Path) -> None:
    counts = np.random.default_rng(1).binomial(2, 0.5, (40, 5)).astype(np.int8)
    counts[4:7] = -1
    genotypes_in(tmp_path, counts, [0.5] * 5)
    found = remarks(here("data", "check", "panel.bed", "--dictionary", "panel.toml", "--json"))
    assert any(names_facts(each, "3 samples", "plink2", "--mind 0.9") for each in found)
    counts[4:7, 1] = 0
    genotypes_in(tmp_path, counts, [0.5] * 5)
    found = remarks(here("data", "check", "panel.bed", "--dictionary", "panel.toml", "--json"))
    assert not any("--mind" in each for each in found)


def test_many_features_have_one_remark_together(here: Here, tmp_path: Path) -> None:
    """A missing genotype in a matrix or a text is -9, and outside the range of all features."""
    counts = np.random.default_rng(1).binomial(2, 0.5, (40, 12)).astype(np.int8)
    counts[:4] = -1
    genotypes_in(tmp_path, counts, [0.5] * 12)
    found = remarks(here("data", "check", "panel.csv", "--dictionary", "panel.toml", "--json"))
    (outside,) = [each for each in found if names_facts(each, "4 of 40", "'rs0'")]
    assert names_facts(outside, "'rs7'", "4 more", "0 to 2 alleles")
    (codes,) = [each for each in found if "missing_codes" in each]
    assert names_facts(codes, "'rs0'", "'rs7'", "4 more", "-9")
    shown = here("data", "preview", "panel.csv", "--dictionary", "panel.toml", "--row", "1", "--json").facts
    assert {each["remark"] for each in shown["features"]} == {"missing: 1.0 is used"}
