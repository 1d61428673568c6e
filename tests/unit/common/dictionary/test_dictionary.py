"""A dictionary has one meaning and one digest, its faults are named, and a draft holds no number of the rows."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import facts, names_facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.decoding import decode
from dpspca.common.dictionary import (
    NO_CELL,
    UNKNOWN,
    Category,
    Dictionary,
    Genotype,
    LevelCodes,
    Number,
    category_text,
    differences,
    draft,
    faults,
    feature_of,
    has_level,
    has_values_as_names,
    may_be_value,
    parse_frequencies,
    raw_values,
    remarks,
)
from dpspca.common.errors import InvalidParameterError
from dpspca.common.storage import dictionary_faults, read_dictionary
from dpspca.common.text import printable

SAMPLE = Path(__file__).parents[4] / "deploy" / "samples" / "dictionary.toml"
STUDY = """
format = "dpspca-dictionary-1"
title = "Three hospitals"

[features.age]
kind = "number"
unit = "years"
range = [0, 110]

[features."mean area (µm²)"]
kind = "number"
unit = "µm²"
range = [100, 3000]
centre = 500
missing_codes = [-9, "NA"]

[features."smoking.status"]
kind = "category"
levels = ["never", "former", "current"]
missing = "never"

[features.rs1]
kind = "genotype"
allele = "A"
frequency = 0.3
"""


def study(**changes: Any) -> dict[str, Any]:
    """Return the content of the example, with other keys of single features."""
    raw = tomllib.loads(STUDY)
    for name, keys in changes.items():
        raw["features"].setdefault(name, {}).update(keys)
    return raw


NUMBER = {"kind": "number", "unit": "m", "range": [0, 1]}


def test_toml_and_json_in_any_order_have_one_digest(tmp_path: Path) -> None:
    raw = study()
    other = {"features": dict(reversed(raw["features"].items())), "title": raw["title"], "format": raw["format"]}
    (tmp_path / "a.toml").write_text(STUDY + "# a comment\n", encoding="utf-8")
    (tmp_path / "b.json").write_text(json.dumps(other), encoding="utf-8")
    one, two = read_dictionary(tmp_path / "a.toml"), read_dictionary(tmp_path / "b.json")
    assert one.digest() == two.digest() == Dictionary.from_json(one.to_json()).digest()
    assert one.names == tuple(reversed(two.names))
    assert not differences(one, two)


def test_the_digest_of_the_example_stays_what_it_is() -> None:
    """Signed jobs name digests, so the canonical form never changes."""
    assert Dictionary.parse(study()).digest() == "3aca13dafec2fd1e633d1d8b534d747653da7d8051bc7e53770d5f79550b0d81"


def test_the_shipped_sample_is_a_dictionary() -> None:
    assert len(read_dictionary(SAMPLE).features) == 4


def test_omitted_defaults_and_those_written_out_are_the_same() -> None:
    written = {"centre": 55, "missing": 55.0, "scale": "range", "missing_codes": [], "description": ""}
    assert Dictionary.parse(study(age=written)).digest() == Dictionary.parse(study()).digest()


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("age", {"unit": "months"}),
        ("age", {"range": [0, 120]}),
        ("age", {"centre": 50}),
        ("age", {"missing_codes": [999]}),
        ("smoking.status", {"levels": ["never", "current", "former"]}),
        ("rs1", {"frequency": 0.31}),
        ("rs1", {"allele": "C"}),
    ],
)
def test_every_change_of_meaning_changes_the_digest_and_is_named(name: str, keys: dict[str, Any]) -> None:
    one, two = Dictionary.parse(study()), Dictionary.parse(study(**{name: keys}))
    assert one.digest() != two.digest()
    assert set(keys) <= {key for feature, key, _, _ in differences(one, two) if feature == name}


def test_a_name_with_an_equals_sign_is_no_level() -> None:
    """FeatureExtraction names a covariate "gender = MALE", and a column "sex=f" is a level of the category "sex"."""
    known = Dictionary.parse(study(**{"gender = MALE": NUMBER, "x": {"kind": "category", "levels": ["a = b", "=c"]}}))
    assert {"gender = MALE", "x=a = b", "x==c"} <= set(known.columns)
    assert [feature_of(name) for name in known.columns] == [each.name for each in known.features for _ in each.columns]
    assert [has_level(name) for name in ("gender = MALE", "x=a = b", "= c")] == [False, True, False]
    assert known.with_columns(["gender = MALE", "x=a = b", "x==c"]).names == ("gender = MALE", "x")


@pytest.mark.parametrize("name", ["23.5", "41,5", "<5", ">= 80", "12 %", "1e5", "-9", "1.027,1", "1,027"])
def test_a_name_that_is_surely_a_value_is_known(name: str) -> None:
    assert has_values_as_names(["Smith", name])
    assert may_be_value(name)


@pytest.mark.parametrize(
    ("name", "may_be"),
    [
        (name, True)
        for name in (
            "2019",
            "2020-01-31",
            "1.2.2020",
            "2-Mar-1968",
            "3 March 1968",
            "03/1968",
            "12:30",
            "12:30:05",
            "120/80",
            "5 mg",
            "1.5 mg",
            "1 234",
            "+49 30 1234567",
            "a@b.de",
            "TRUE",
            "# age",
        )
    ]
    + [
        (name, False)
        for name in ("x.1", "NA", "2 hour glucose", "HLA-A*02:01", "#FID", "PC1", "24h glucose", "a/b", "1:12345:A:G")
    ],
)
def test_years_and_days_may_be_names(name: str, may_be: bool) -> None:  # one row of a table
    assert not has_values_as_names([name, "1007_s_at", "V1", "3.2.1", "NA", ""])
    assert may_be_value(name) is may_be


def test_a_feature_of_one_dictionary_alone_is_a_difference() -> None:
    one, two = Dictionary.parse(study(extra=NUMBER)), Dictionary.parse(study())
    assert differences(one, two) == [("extra", "feature", "number", None)]


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("x", NUMBER | {"range": [2, 1]}, "must be below the second"),
        ("x", NUMBER | {"range": [1, 1]}, "must be below the second"),
        ("x", NUMBER | {"range": [0, float("inf")]}, "finite"),
        ("x", NUMBER | {"range": [0, float("nan")]}, "finite"),
        ("x", NUMBER | {"range": [0, 10**400]}, "finite"),
        ("x", NUMBER | {"range": ["?", "?"]}, "not filled in"),
        ("x", NUMBER | {"unit": "?"}, "not filled in"),
        ("x", NUMBER | {"centre": 2}, "outside the range"),
        ("x", NUMBER | {"missing": -1}, "outside the range"),
        ("x", NUMBER | {"scale": "sd"}, "range, none"),
        ("x", NUMBER | {"scale": 0}, "2^-64"),
        ("x", NUMBER | {"ranges": [0, 1]}, "Did you mean 'range'"),
        ("x", NUMBER | {"levels": ["a", "b"]}, "unknown key"),
        ("x", {"kind": "number", "range": [0, 1]}, "lacks unit"),
        ("x", {"kind": "date"}, "age on a public day"),
        ("x", {"kind": "boolean"}, 'levels = ["false", "true"]'),
        ("x", {"kind": "category", "levels": ["a"]}, "one level"),
        ("x", {"kind": "category", "levels": ["a", "a"]}, "twice"),
        ("x", {"kind": "category", "levels": [1, "1"]}, "twice"),
        ("x", {"kind": "category", "levels": ["?"]}, "not filled in"),
        ("x", {"kind": "category", "levels": ["a", "b"], "unknown": "c"}, "no level"),
        ("x", {"kind": "category", "levels": ["a", "b"], "shares": [1]}, "one number for each level"),
        ("x", {"kind": "genotype", "frequency": 0}, "between 0 and 1"),
        ("x", {"kind": "genotype", "scale": "frequency"}, "missing"),
        ("x", {"kind": "genotype", "frequency": 1.5}, "from 0 to 1"),
        ("a=b", NUMBER, "one before '='"),
        (" x", NUMBER, "no spaces at the ends"),
        ("", NUMBER, "printable"),
        ("a\nb", NUMBER, "printable"),
    ],
)
def test_what_is_wrong_with_a_feature_is_named(name: str, keys: dict[str, Any], said: str) -> None:
    (fault,) = faults(study(**{name: keys}))
    assert said in str(fault)
    if name.isprintable():
        assert repr(name)[1:-1] in str(fault)


def test_all_faults_are_found_at_once() -> None:
    found = list(faults(study(age={"unit": "?"}, rs1={"frequency": 2}, x={"kind": "date"})))
    assert [name for name in ("age", "rs1", "x") if any(repr(name) in str(fault) for fault in found)] == [
        "age",
        "rs1",
        "x",
    ]


@pytest.mark.parametrize(
    "raw", [None, [], {}, {"format": "x", "features": {}}, {"format": "dpspca-dictionary-1", "features": [{}]}]
)
def test_text_that_is_not_a_dictionary_is_refused(raw: Any) -> None:
    assert list(faults(raw))
    with pytest.raises(InvalidParameterError):
        Dictionary.parse(raw)


def test_names_that_look_alike_in_unicode_are_one_name() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    (fault,) = faults(study(**{composed: NUMBER, decomposed: NUMBER}))
    assert names_facts(str(fault), repr(composed))


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"format": "dpspca-dictionary-1", "features": {"a": {}, "a": {}}}', encoding="utf-8")
    (fault,) = dictionary_faults(path)
    assert "given twice" in str(fault)
    toml = tmp_path / "a.toml"
    toml.write_text("[features.a]\n[features.a]\n", encoding="utf-8")
    (fault,) = dictionary_faults(toml)
    assert "not valid TOML" in str(fault)


def test_any_features_may_be_taken_in_any_order() -> None:
    known = Dictionary.parse(study())
    some = known.subset(["rs1", "smoking.status", "age"])
    assert some.columns == ("rs1", "smoking.status=never", "smoking.status=former", "smoking.status=current", "age")
    assert known.with_columns(some.columns) == some
    with pytest.raises(InvalidParameterError, match=facts("'weight'", "age, 'mean area (µm²)'")):
        known.subset(["weight"])
    with pytest.raises(InvalidParameterError, match=facts("column 2")):
        known.with_columns(("smoking.status=never", "age"))
    with pytest.raises(InvalidParameterError, match=facts("'age'")):
        known.subset(["age", "age"])


def test_a_norm_bound_follows_from_the_scaling_and_covers_every_row() -> None:
    known = Dictionary.parse(study())
    raw = {
        "age": np.array([0.0, 110.0, 55.0, np.nan, 1e9]),
        "mean area (µm²)": np.array([100.0, 3000.0, 500.0, np.nan, -1e9]),
        "smoking.status": np.array([0.0, 1.0, 2.0, np.nan, -1.0]),
        "rs1": np.array([0.0, 1.0, 2.0, np.nan, 0.5]),
    }
    lengths = np.linalg.norm(known.subset(["age", "mean area (µm²)", "smoking.status"]).encode(raw), axis=1)
    assert lengths.max() <= known.subset(["age", "mean area (µm²)", "smoking.status"]).norm_bound() + 1e-12
    assert known.norm_bound() == known.subset(reversed(known.names)).norm_bound()
    assert known.norm_bound() ** 2 == pytest.approx(1 + 1 + 2 / 3 + 2)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=1, max_size=20))
def test_each_value_is_prepared_by_itself_and_is_bounded(cells: list[float]) -> None:
    """Privacy: preparation is a function of one row, so that neighbouring tables stay neighbours."""
    for feature in Dictionary.parse(study()).features:
        raw = np.array(cells)
        whole = feature.encode(raw)
        alone = np.concatenate([feature.encode(raw[place : place + 1]) for place in range(len(raw))])
        np.testing.assert_array_equal(whole, alone)
        assert np.isfinite(whole).all()
        assert np.linalg.norm(whole, axis=1).max() <= feature.largest * (1 + 1e-12)


def test_a_missing_value_is_zero_by_default_and_else_what_is_declared() -> None:
    nan = np.array([np.nan])
    for feature in Dictionary.parse(study()).subset(["age", "rs1"]).features:
        assert feature.encode(nan).tolist() == [[0.0]]
    plain = Category(name="x", levels=("a", "b"))
    assert plain.encode(nan).tolist() == [[0.0, 0.0]]
    declared = Category(name="x", levels=("a", "b"), missing="b", unknown="a")
    assert declared.encode(nan).tolist() == [[-0.5, 0.5]]
    assert declared.encode(np.array([-1.0])).tolist() == [[0.5, -0.5]]
    number = Number(name="x", unit="", range=(0.0, 4.0), missing=3.0)
    assert number.encode(nan).tolist() == [[0.5]]


def test_numbers_are_clipped_and_scaled_by_public_numbers_alone() -> None:
    ends = {"unit": "cm", "range": [100, 200], "centre": 125}
    values = np.array([0.0, 100.0, 125.0, 200.0, 999.0])
    scaled = {
        scale: decode(Number, ends | {"scale": scale}, name="x").encode(values)[:, 0].tolist() for scale in ("none", 50)
    }
    assert scaled["none"] == [-25.0, -25.0, 0.0, 75.0, 75.0]
    assert scaled[50] == [-0.5, -0.5, 0.0, 1.5, 1.5]
    assert decode(Number, ends, name="x").encode(values)[:, 0].tolist() == [-1 / 3, -1 / 3, 0.0, 1.0, 1.0]


def test_a_cell_that_is_not_a_number_is_infinite_so_its_row_is_unusable() -> None:
    infinite = np.array([np.inf, -np.inf])
    assert np.isinf(decode(Number, {"unit": "", "range": [0, 1]}, name="x").encode(infinite)).all()
    category = decode(Category, {"levels": ["a", "b"], "unknown": "b"}, name="y")
    assert np.isinf(category.encode(np.array([NO_CELL]))).all()
    assert LevelCodes.of(category).places(infinite).tolist() == [UNKNOWN, NO_CELL]
    assert NO_CELL not in {category_text(text, {}) for text in ("inf", "-inf", "-Infinity", "-1e999")}


def test_genotypes_are_scaled_by_their_frequency() -> None:
    made = decode(Genotype, {"frequency": 0.25}, name="rs1")
    np.testing.assert_allclose(
        made.encode(np.array([0.0, 1.0, 2.0]))[:, 0], np.array([-0.5, 0.5, 1.5]) / np.sqrt(0.375)
    )
    rare = decode(Genotype, {"frequency": 0.001}, name="rs1")
    assert rare.bound**2 == pytest.approx(2)
    assert rare.largest > 40
    assert decode(Genotype, {}, name="rs1").encode(np.array([0.0, 1.0, 2.0]))[:, 0].tolist() == [-1.0, 0.0, 1.0]


def test_a_genotype_that_is_no_number_of_copies_is_missing() -> None:
    """A value near a whole number is one: it was computed in another order, or by a program that rounds."""
    stated = decode(Genotype, {"frequency": 0.25, "missing": 0.5, "scale": "none"}, name="rs1")
    centre = stated.centre
    values = np.array([-9.0, 9.0, 3.0, -1.0, 2.51, np.nan, 2.00001, -0.2, 1.4, np.inf])
    copies = stated.encode(values)[:, 0] + centre
    assert copies.tolist() == [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 2.0, 0.0, 1.4, np.inf]


FREQUENCIES = (
    "##comment\n#CHROM\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n"
    "1\trs1\tG\tA\t0.25\t100\n1\t1:77:C:T\tC\tT\t0.995\t100\n1\trs3\tC\tT\t0\t100\n"
)
VARIANT = {"allele": "A", "other_allele": "G", "chromosome": "1", "frequency": 0.25}


def test_genotypes_of_a_frequency_file_are_features(tmp_path: Path) -> None:
    (tmp_path / "panel.afreq").write_text(FREQUENCIES, encoding="utf-8")
    text = STUDY.replace("rs1", "rs9") + '[genotypes]\nfile = "panel.afreq"\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    known = read_dictionary(tmp_path / "study.toml")
    assert known.names[-2:] == ("rs1", "1:77:C:T")
    assert known.features[-2] == decode(Genotype, VARIANT, name="rs1")
    (tmp_path / "study.toml").write_text(text + "least_frequency = 0.01\n", encoding="utf-8")
    assert read_dictionary(tmp_path / "study.toml").names[-1] == "rs1"
    (tmp_path / "study.toml").write_text(STUDY + '[genotypes]\nfile = "panel.afreq"\n', encoding="utf-8")
    (fault,) = dictionary_faults(tmp_path / "study.toml")
    assert names_facts(str(fault), "'rs1'", "genotypes")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ("#CHROM", "`plink2 --freq cols=+pos`")),
        ("#CHROM ID\n", ("Line 1", "column ALT, ALT_FREQS", "`plink2 --freq cols=+pos`")),
        (FREQUENCIES.replace("ALT_FREQS", "ALT_CTS"), ("Line 2", "column ALT_FREQS")),
        (FREQUENCIES.replace("rs1", "."), ("Line 3", "column POS", "`plink2 --freq cols=+pos`")),
        (FREQUENCIES.replace("0.25", "1.25"), ("Line 3", "'1.25'")),
        (FREQUENCIES.replace("0.25", "0.1,0.2"), ("Line 3", "bcftools norm --multiallelics -any")),
        (FREQUENCIES.replace("1:77:C:T", "rs1"), ("Line 4", "'rs1'")),
        (FREQUENCIES.replace("\t100\n1\trs3", "\n1\trs3"), ("Line 4", 5, 6)),
    ],
)
def test_what_is_wrong_with_a_frequency_file_is_named(text: str, said: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts(said)):
        parse_frequencies(text)


def test_cells_of_any_library_become_raw_values() -> None:
    known = Dictionary.parse(study())
    area, smoking = known.features[1], known.features[2]
    cells = np.array([1, 2.5, "7", " NA ", "", None, -9, float("nan"), "text", 10**400, True], dtype=object)
    np.testing.assert_array_equal(
        raw_values(cells, area), [1, 2.5, 7, np.nan, np.nan, np.nan, np.nan, np.nan, np.inf, np.inf, 1]
    )
    cells = np.array(["never", " current", "often", None, "", 3], dtype=object)
    np.testing.assert_array_equal(raw_values(cells, smoking), [0, 2, -1, np.nan, np.nan, -1])
    coded = decode(Category, {"levels": [1, 2, "9"], "missing_codes": [9]}, name="x")
    np.testing.assert_array_equal(raw_values(np.array([1, 2, 9, 3, 2.0]), coded), [0, 1, np.nan, -1, 1])
    np.testing.assert_array_equal(raw_values(np.array(["1", "2.0", "x"]), coded), [0, 1, -1])
    truth = decode(Category, {"levels": ["false", "true"]}, name="x")
    np.testing.assert_array_equal(raw_values(np.array([True, False, None], dtype=object), truth), [1, 0, np.nan])


def test_a_code_matches_what_four_bytes_store_in_its_place() -> None:
    codes = [-99.9, 0.1, 16777217, 1e-50, "1e300", "-7.7"]
    known = decode(Number, {"unit": "m", "range": [0, 1], "missing_codes": codes}, name="x")
    found = raw_values(np.array([-99.9, 0.1, -7.7, 0.25], dtype=np.float32), known)
    np.testing.assert_array_equal(found, [np.nan, np.nan, np.nan, 0.25])
    plain = np.array([16777216.0, 0.0, -99.875, np.nextafter(np.float32(-99.9), 0, dtype=np.float32)])
    np.testing.assert_array_equal(raw_values(plain, known), plain)
    coded = decode(Category, {"levels": ["0.1", "2"]}, name="x")
    np.testing.assert_array_equal(raw_values(np.array([0.1, 2, 0.3], dtype=np.float32), coded), [0, 1, -1])


@pytest.mark.parametrize("levels", [["True", "False"], ["true", "false"], ["TRUE", "FALSE"], [1, 0], ["1", "0", "2"]])
def test_booleans_find_their_level_however_they_are_written(levels: list[Any]) -> None:
    truth = decode(Category, {"levels": levels}, name="x")
    for yes, no in ((True, False), ("True", "False"), ("TRUE", "FALSE"), ("true", "false")):
        for cells in (np.array([yes, no]), np.array([yes, no, None], dtype=object)[:2]):
            np.testing.assert_array_equal(raw_values(cells, truth), [0, 1])
    np.testing.assert_array_equal(raw_values(np.array([1.0, 0.0]), truth), [0, 1])


def test_levels_that_differ_in_case_alone_are_told_apart() -> None:
    odd = decode(Category, {"levels": ["TRUE", "true", "x"]}, name="x")
    cells = np.array(["TRUE", "true", "True", "X"])
    np.testing.assert_array_equal(raw_values(cells, odd), [0, 1, 0, -1])


def test_the_text_nan_in_a_category_is_missing_unless_it_is_a_level() -> None:
    plain = decode(Category, {"levels": ["x", "y"]}, name="x")
    cells = np.array(["NaN", "nan", " NAN ", "NULL", "x"], dtype=object)
    np.testing.assert_array_equal(raw_values(cells, plain), [np.nan, np.nan, np.nan, -1, 0])
    named = decode(Category, {"levels": ["x", "nan"]}, name="x")
    np.testing.assert_array_equal(raw_values(cells, named), [np.nan, 1, np.nan, -1, 0])


def test_an_underscore_makes_no_number_in_cells_and_codes() -> None:
    coded = decode(Category, {"levels": ["10", "2"]}, name="x")
    np.testing.assert_array_equal(raw_values(np.array(["1_0", "10"]), coded), [-1, 0])
    assert category_text("1_0", {}) not in {10.0, 1.0}
    number = Dictionary.parse(study()).features[0]
    np.testing.assert_array_equal(raw_values(np.array(["1_0", "10"]), number), [np.inf, 10])


@pytest.mark.parametrize(
    ("kind", "drafted"),
    [
        *((kind, "number") for kind in ("int64", "uint8", "halffloat", "decimal128(5, 2)", "UBIGINT", "FLOAT", "int4")),
        *((kind, "number") for kind in ("numeric", "dictionary<values=int64, indices=int8, ordered=0>", "null", None)),
        *((kind, "category") for kind in ("ENUM", "enum", "VARCHAR", "bpchar", "name", "large_string", "string_view")),
        ("dictionary<values=large_string, indices=int32, ordered=0>", "category"),
        *((kind, None) for kind in ("INTEGER[]", "list<item: int64>", "UUID", "BLOB", "binary", "struct<a: int8>")),
        *((kind, None) for kind in ("large_binary", "map<string, int8>", "date32[day]", "TIMESTAMP WITH TIME ZONE")),
        *((kind, None) for kind in ("jsonb", "int4[]", "_int4", "VARCHAR[]", "struct<a\nb: int8>")),
    ],
)
def test_a_draft_has_a_feature_for_types_that_can_be_read(kind: str | None, drafted: str | None) -> None:
    text = draft([("x", kind)])
    found = tomllib.loads(text).get("features", {})
    assert found.get("x", {}).get("kind") == drafted
    assert drafted is not None or f"({printable(str(kind))})".lower() in text.lower()


def test_shares_above_one_and_concepts_of_several_features_are_remarked() -> None:
    def said(**changes: Any) -> list[str]:
        return remarks(Dictionary.parse(study(rs1={"other_allele": "G", "chromosome": 1, "position": 7}, **changes)))

    assert not said()
    rounded = {"kind": "category", "levels": ["a", "b", "c"], "shares": [0.34, 0.34, 0.33]}
    assert not said(x=rounded)
    (shares,) = said(x=rounded | {"shares": [0.7, 0.4, 0.3]})
    assert re.search(facts("'x'", "1.4", "shares"), shares)
    (concepts,) = said(x=NUMBER | {"concept": 7}, y=NUMBER | {"concept": "7"}, age={"concept": 8})
    assert re.search(facts("'x'", "'y'", "'7'"), concepts)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("Größe [cm]", "cm"),
        ("age (years)", "years"),
        ("CRP [mg/l] ", "mg/l"),
        ("CRP", "?"),
        ("a [b] c", "?"),
        ("[]", "?"),
        ("('x', 'm')", "?"),
    ],
)
def test_a_unit_at_the_end_of_a_name_is_drafted(name: str, unit: str) -> None:
    (feature,) = tomllib.loads(draft([(name, None)]))["features"].values()
    assert feature["unit"] == unit


def test_a_draft_of_variants_has_genotypes_and_the_counted_allele() -> None:
    made = Dictionary.parse(tomllib.loads(draft([("rs1", "copies of A, not G"), ("rs2", "copies of AC, not A")])))
    assert [(each.kind, each.allele) for each in made.features if isinstance(each, Genotype)] == [
        ("genotype", "A"),
        ("genotype", "AC"),
    ]


def test_a_draft_has_names_and_types_and_is_refused_until_it_is_filled_in() -> None:
    names = [("age", "double"), ('a "b" é.', None), ("sex", "string"), ("born", "date32[day]"), ("ok", "bool")]
    raw = tomllib.loads(draft(names))
    assert list(raw["features"]) == ["age", 'a "b" é.', "sex", "ok"]
    unfilled = [str(fault) for fault in faults(raw) if "not filled in" in str(fault)]
    assert [fault.split(" is not")[0] for fault in unfilled] == [
        *("The feature 'age': unit", "The feature 'age': range"),
        *("The feature 'a \"b\" é.': unit", "The feature 'a \"b\" é.': range"),
        "The feature 'sex': levels",
    ]
    assert not any(letter.isdigit() for letter in draft(names).split("[features", 1)[1].replace("date32", ""))
