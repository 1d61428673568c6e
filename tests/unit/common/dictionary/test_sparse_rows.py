"""Lists of concepts become features, and sparse rows are prepared with the bits of dense ones, and stay sparse."""

from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import names_facts
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dpspca.common.dictionary import (
    Dictionary,
    Number,
    Preparation,
    filled_columns,
    parse_concepts,
    prepare_sparse,
    sparse_rows,
)
from dpspca.common.errors import InvalidParameterError
from dpspca.common.storage import dictionary_faults, read_dictionary

CONCEPTS = """concept_id,concept_name,unit,low,high,centre,missing
201826,Type 2 diabetes mellitus,,,,,
3004410,"Hemoglobin A1c, blood",%,3,15,5.7,
9202,Outpatient visits,visits,0,20,0,
"""
STUDY: dict[str, Any] = {
    "age": {"kind": "number", "unit": "years", "range": [0, 110], "missing": 40, "missing_codes": [-9]},
    "sex": {"kind": "category", "levels": ["1", "2"], "shares": [0.4, 0.6]},
    "inches": {"kind": "number", "unit": "cm", "range": [100, 220]},
    "visit": {"kind": "number", "unit": "", "range": [0, 1], "centre": 0},
    "drug": {"kind": "number", "unit": "", "range": [0, 1], "centre": 0},
    "again": {"kind": "number", "unit": "", "range": [0, 10], "scale": 2},
    "rs1": {"kind": "genotype", "frequency": 0.25},
}
COLUMNS = {"inches": {"column": "height", "factor": 2.54}, "again": "drug", "visit": "9202"}
NAMES = ("drug", "sex", "nothing", "height", "9202", "rs1", "age")


def preparation() -> Preparation:
    return Preparation.parse(Dictionary.parse({"format": "dpspca-dictionary-1", "features": STUDY}), COLUMNS, None)


CELLS = st.sampled_from([None, None, None, 0.0, 1.0, 2.0, -9.0, 60.0, nan, np.inf, 1e300, 0.3])


@given(arrays(object, (5, len(NAMES)), elements=CELLS), st.sampled_from([0.0, nan]))
def test_sparse_rows_are_prepared_with_the_bits_of_dense_ones(cells: Any, absent: float) -> None:
    stored = np.array([[each is not None for each in row] for row in cells])
    numbers = np.array([[absent if each is None else each for each in row] for row in cells], dtype=np.float64)
    sparse = scipy.sparse.csr_array((numbers[stored], np.nonzero(stored)), shape=numbers.shape)
    made = prepare_sparse(preparation(), sparse, NAMES, absent)
    assert isinstance(made, scipy.sparse.csr_array)
    assert made.has_canonical_format
    np.testing.assert_array_equal(made.toarray(), preparation().prepare(numbers, NAMES))


def test_a_stored_genotype_that_is_no_number_of_copies_is_missing() -> None:
    sparse = scipy.sparse.csr_array((np.array([-9.0, 2.0]), (np.array([0, 1]), np.array([5, 5]))), shape=(3, 7))
    made = prepare_sparse(preparation(), sparse, NAMES, 0.0).toarray()[:, preparation().columns_prepared.index("rs1")]
    np.testing.assert_allclose(made, np.array([0.0, 1.5, -0.5]) / np.sqrt(0.375))


def test_numbers_are_prepared_some_at_a_time_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    sparse = scipy.sparse.random_array((50, len(NAMES)), density=0.4, rng=rng, format="csr")
    whole = prepare_sparse(preparation(), sparse, NAMES, nan)
    monkeypatch.setattr(sparse_rows, "_TOGETHER", 7)
    parts = prepare_sparse(preparation(), sparse, NAMES, nan)
    assert all((getattr(whole, each) == getattr(parts, each)).all() for each in ("data", "indices", "indptr"))


def test_what_is_not_stored_stays_so_where_it_becomes_zero() -> None:
    """Of triplets it is a missing value, which becomes zero but for the age, whose dictionary says 40."""
    assert filled_columns(preparation(), nan) == ["age"]
    assert filled_columns(preparation(), 0.0) == ["age", "inches", "again", "rs1"]
    empty = scipy.sparse.csr_array((3, len(NAMES)))
    assert prepare_sparse(preparation(), empty, NAMES, nan).nnz == 3
    assert prepare_sparse(preparation(), empty, NAMES, 0.0).nnz == 12


# --- Concepts ---------------------------------------------------------------------------------------------------------


def test_a_list_of_concepts_gives_features(tmp_path: Path) -> None:
    (tmp_path / "concepts.csv").write_text(CONCEPTS, encoding="utf-8")
    text = 'format = "dpspca-dictionary-1"\n[concepts]\nfile = "concepts.csv"\n'
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    read = read_dictionary(tmp_path / "study.toml")
    has, measured, counted = read.features
    assert read.names == ("Type 2 diabetes mellitus", "Hemoglobin A1c, blood", "Outpatient visits")
    assert isinstance(has, Number)
    assert isinstance(measured, Number)
    assert isinstance(counted, Number)
    assert (has.concept, has.range, has.centre, has.missing) == ("201826", (0, 1), 0, 0)
    assert (measured.unit, measured.range, measured.centre, measured.missing) == ("%", (3, 15), 5.7, 5.7)
    assert (counted.range, counted.centre) == ((0, 20), 0)
    assert Dictionary.from_json(read.to_json()).digest() == read.digest()
    (tmp_path / "study.toml").write_text(text + '[features."Outpatient visits"]\nkind = "genotype"\n', encoding="utf-8")
    (fault,) = dictionary_faults(tmp_path / "study.toml")
    assert names_facts(str(fault), "'Outpatient visits'", "concepts")


def test_concepts_as_vocabularies_and_feature_extraction_write_them() -> None:
    head = "concept_id\tconcept_name\tdomain_id\tvocabulary_id\tinvalid_reason\n"
    assert parse_concepts(head + "9202\tOutpatient Visit\tVisit\tVisit\t\n")["Outpatient Visit"]["concept"] == "9202"
    assert parse_concepts("covariate_id,covariate_name,analysis_id\n8507001,gender: MALE,1\n")["gender: MALE"]
    of_concepts = "covariateId,covariateName,analysisId,conceptId,conceptName,collisions\n"
    two = parse_concepts(of_concepts + "8507001,gender: MALE,1,8507,M,0\n8507002,age group,2,8507,M,0\n")
    assert [each["concept"] for each in two.values()] == ["8507001", "8507002"]
    assert parse_concepts("concept_id;concept_name;low;high\n1;a, b;0;2\n")["a, b"]["range"] == [0.0, 2.0]
    long = "condition era group " + 200 * "x"
    usual = parse_concepts(
        f"covariate_id,covariate_name\n8507001.0,gender = MALE\n250.0,race\u00a0=  White\n1,{long}\n"
    )
    assert [*usual] == ["gender = MALE", "race = White", long]
    assert [each["concept"] for each in usual.values()] == ["8507001", "250.0", "1"]


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("", "empty"),
        ("concept_id\n1\n", "names the columns"),
        (CONCEPTS.replace("high", "hihg"), "Did you mean 'high'?"),
        (CONCEPTS.replace("9202", "201826"), "Line 4: the concept '201826' occurs twice; first in line 2"),
        (CONCEPTS.replace("Outpatient visits", "Type 2 diabetes mellitus"), "Line 4: the name"),
        (CONCEPTS.replace(",0,20,0", ",0,,0"), "Line 4 has one end of a range"),
        (CONCEPTS.replace(",0,20,0", ",0,many,0"), "Line 4: high is 'many'"),
        (CONCEPTS + "1,2\n", "Line 5 has 2 cells under 7 names"),
        (CONCEPTS.replace("9202", ""), "Line 4 has no concept"),
        (CONCEPTS.replace("9202", "2.0182621e+08"), "Line 4: the concept is '2.0182621e+08'"),
        (CONCEPTS.replace("Outpatient visits", "a=b"), "Line 4: the name is 'a=b'"),
        (CONCEPTS.splitlines()[0], "no concept"),
    ],
)
def test_a_fault_of_a_list_of_concepts_is_named_with_its_line(text: str, fact: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        parse_concepts(text)
    assert fact in str(caught.value)


def test_a_concept_changes_the_digest_and_its_absence_does_not() -> None:
    """Dictionaries from before concepts keep their digests."""
    plain = {"kind": "number", "unit": "", "range": [0, 1]}
    one, two = (
        Dictionary.parse({"format": "dpspca-dictionary-1", "features": {"a": each}})
        for each in (plain, plain | {"concept": 7})
    )
    assert "concept" not in one.to_json()
    assert one.digest() != two.digest()
    assert two.features[0].concept == "7"  # type: ignore[union-attr]


def test_triplets_find_features_by_concept_unless_a_column_is_named() -> None:
    features = {
        name: {"kind": "number", "unit": "", "range": [0, 1], "concept": place} for place, name in enumerate("abc")
    }
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": features})
    made = Preparation.parse(known, {"b": "b", "c": {"factor": 2}}, None)
    assert made.columns == ("a", "b", "c")
    assert made.of_triplets.columns == ("0", "b", "2")
    assert made.of_triplets.held.columns == ("a", "b", "c")
