"""A model projects, reads back from its own bytes, and states what it cost."""

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from facts import facts, names_facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import CorruptModelError, InvalidDataError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy import format_up
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import LARGE_DELTA, Model, PrivacyStatement, fix_signs
from dpspca.common.results.statement import FURTHER_JOBS

SPEC = JobSpec(
    schema=Schema(6),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=3.0,
    components=2,
    options={"sparsity": 4},
    method="dps-pca",
)
STATEMENT = PrivacyStatement.of(catalogue.plan(SPEC), parties=3, fresh_noise=True, federated=True)
BASIS, _ = thin_qr(np.random.default_rng(0).standard_normal((6, 2)))
MODEL = Model(
    components=BASIS.T,
    statement=STATEMENT,
    mean=np.arange(6.0),
    explained_variance=np.array([3.0, 1.0]),
    explained_variance_ratio=np.array([0.6, 0.2]),
    explained_variance_std=0.1,
    feature_names=tuple("abcdef"),
)


def same(first: Model, second: Model) -> bool:
    def equal(a: object, b: object) -> bool:
        return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b  # type: ignore[arg-type]

    return all(equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(Model))


@pytest.mark.parametrize(
    "model", [MODEL, Model(BASIS.T, STATEMENT), replace(MODEL, feature_names=None), replace(MODEL, mean=None)]
)
def test_a_model_reads_back_from_its_bytes(model: Model) -> None:
    assert same(Model.from_bytes(model.to_bytes()), model)


@given(st.binary(max_size=200))
def test_t36_arbitrary_bytes_are_refused_and_never_executed(stored: bytes) -> None:
    with pytest.raises(CorruptModelError):
        Model.from_bytes(stored)


def test_another_file_of_this_package_is_refused_in_one_sentence() -> None:
    with pytest.raises(CorruptModelError, match=facts("dpspca-evidence-1")) as caught:
        Model.from_bytes(json.dumps({"format": "dpspca-evidence-1", "job": "", "statement": "x" * 200}).encode())
    assert len(str(caught.value)) < 200, "it lists none of the keys that a model has"


def damaged() -> list[bytes]:
    line, body = MODEL.to_bytes().split(b"\n", 1)
    header = json.loads(line)
    changes = [
        {"format": "dpspca-model-3"},
        {"shapes": header["shapes"] | {"mean": [7]}},
        {"shapes": header["shapes"] | {"mean": [-6]}},
        {"shapes": header["shapes"] | {"stranger": [0]}},
        {"shapes": header["shapes"] | {"components": [12]}},
        {"shapes": header["shapes"] | {"components": [3, 4]}},
        {"shapes": header["shapes"] | {"components": [4, 3]}},
        {"shapes": header["shapes"] | {"mean": [2, 3]}},
        {"feature_names": ["a"]},
        {"feature_names": [1, 2, 3, 4, 5, 6]},
        {"explained_variance_std": "x"},
        {"statement": header["statement"] | {"epsilon": "a"}},
        {"statement": header["statement"] | {"parties": None}},
        {"shapes": {"mean": [6]}},
        {"statement": {}},
        {"statement": None},
        {"feature_names": 3},
        {"shapes": {}},
        {"shapes": [1]},
    ]
    altered = [json.dumps(header | change).encode() + b"\n" + body for change in changes]
    return [
        b"[" * 200_000,
        *altered,
        line + b"\n" + body[:-1],
        line + b"\n" + body + b"\0",
        line,
        b"",
        np.full(1, np.nan).tobytes(),
    ]


@pytest.mark.parametrize("stored", damaged())
def test_a_damaged_model_is_refused(stored: bytes) -> None:
    with pytest.raises(CorruptModelError) as caught:
        Model.from_bytes(stored)
    assert caught.value.remedy


def test_numbers_that_are_not_finite_are_refused() -> None:
    stored = replace(MODEL, mean=np.full(6, np.inf)).to_bytes()
    with pytest.raises(CorruptModelError, match=facts("NaN")):
        Model.from_bytes(stored)


def test_transform_takes_the_mean_off_and_inverse_transform_puts_it_back() -> None:
    rows = np.random.default_rng(1).standard_normal((5, 6))
    scores = MODEL.transform(rows)
    assert scores == pytest.approx((rows - MODEL.mean) @ BASIS)
    back = MODEL.inverse_transform(scores)
    assert MODEL.transform(back) == pytest.approx(scores)
    assert MODEL.transform(scipy.sparse.csr_array(rows)) == pytest.approx(scores)
    assert Model(BASIS.T, STATEMENT).inverse_transform(rows @ BASIS) == pytest.approx(rows @ BASIS @ BASIS.T)


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([[1.0, "a"]], (2, "<U32")),
        (np.ones(6), (1, "float64")),
        (np.full((2, 6), np.nan), ("NaN", "row 1", "column 1")),
        (np.ones((2, 6)) * 1j, (2, "complex128")),
        (np.ma.masked_greater([[1.0, 2.0, 3.0, 4.0, 5.0, 999.0]], 100.0), "numpy.ma"),
    ],
)
def test_rows_that_are_not_a_table_of_numbers_are_refused(rows: object, named: object) -> None:
    for projection in (MODEL.transform, MODEL.inverse_transform):
        with pytest.raises(InvalidDataError, match=facts(named)):
            projection(rows)  # type: ignore[arg-type]


def test_lists_are_tables_and_a_model_is_described_in_a_line() -> None:
    assert MODEL.transform(np.ones((2, 6)).tolist()).shape == (2, 2)
    assert re.findall(r"\w*\d\w*|Model|\n", repr(MODEL)) == ["Model", "2", "6", "6"]
    with pytest.raises(ValueError, match=facts("read-only")):
        MODEL.components[0, 0] = 1.0


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(InvalidDataError, match=facts(5, 6)):
        MODEL.transform(np.ones((2, 5)))
    with pytest.raises(InvalidDataError, match=facts(3, 2)):
        MODEL.inverse_transform(np.ones((2, 3)))


def test_signs_are_fixed_by_the_largest_entry_and_the_first_among_equals() -> None:
    rows = np.array([[0.1, -0.9, 0.3], [0.5, -0.5, 0.5], [-0.5, 0.5, 0.5], [0.0, 0.0, 0.0]])
    assert fix_signs(rows).tolist() == [[-0.1, 0.9, -0.3], [0.5, -0.5, 0.5], [0.5, -0.5, -0.5], [0.0, 0.0, 0.0]]


def test_the_support_lists_features_of_any_component() -> None:
    components = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert Model(components, STATEMENT).support.tolist() == [0, 3]


def test_the_statement_says_who_is_protected_how_much_and_by_which_bounds() -> None:
    text = STATEMENT.text
    neighbours = PrivacyUnit.ROW_REPLACE_ONE.neighbours
    for part in ("(1, 1e-06)-differentially private", neighbours, "length 3", "mu = 0.2367"):
        assert part in text
    assert "3 provider" in text
    assert "NOT FOR RELEASE" not in text


def test_the_statement_warns_of_a_repeatable_run_before_all_else() -> None:
    assert replace(STATEMENT, fresh_noise=False).text.startswith("NOT FOR RELEASE")


def test_the_statement_says_who_had_to_be_trusted() -> None:
    assert "coordinator" in STATEMENT.text
    assert "one process" in replace(STATEMENT, federated=False).text


def test_every_number_of_the_statement_can_be_had_as_json() -> None:
    plain = json.loads(json.dumps(STATEMENT.to_dict()))
    assert plain["epsilon"] == 1.0
    assert plain["unit"] == "row-replace-one"
    assert plain["text"] == STATEMENT.text


def test_the_published_formula_is_priced_exactly_beside_its_claim() -> None:
    published = replace(SPEC, accounting="published", explained_variance=False)
    statement = PrivacyStatement.of(catalogue.plan(published), parties=1)
    assert statement.exact_epsilon < statement.epsilon / 3
    assert "published formula" in statement.text


@given(st.floats(1e-300, 1e6))
def test_a_printed_number_of_privacy_is_never_less_than_it_is(value: float) -> None:
    assert value <= float(format_up(value)) <= value * 1.00002


def test_a_large_delta_is_called_large() -> None:
    """Whatever delta is, the rest of the text is the same, but for what it says more of a large one."""
    large, limit, small = (
        replace(STATEMENT, delta=delta).text.replace(format_up(delta), "") for delta in (0.3, LARGE_DELTA, 1e-6)
    )
    assert limit == small
    assert len(large) > len(limit)


def test_the_statement_says_what_it_does_not_cover() -> None:
    assert FURTHER_JOBS in STATEMENT.text
    assert names_facts(STATEMENT.text, "provider's number")
    assert not names_facts(replace(STATEMENT, parties=1).text, "provider's number")
    assert names_facts(replace(STATEMENT, centering=Centering.PUBLIC).text, "these rows")
    assert not names_facts(replace(STATEMENT, centering=Centering.NONE).text, "these rows")
    assert names_facts(replace(STATEMENT, centering=Centering.PRIVATE, mean_bound=9.5).text, 9.5)


def test_unsaid_a_result_is_not_for_release() -> None:
    assert not PrivacyStatement.of(catalogue.plan(SPEC), parties=1).releasable


NAMES = tuple("abcdef")
TABLE = np.random.default_rng(3).standard_normal((5, 6))


@given(st.permutations(range(6)))
def test_columns_are_matched_to_features_by_name_in_any_order(order: list[int]) -> None:
    frame = pd.DataFrame(TABLE[:, order], columns=[NAMES[place] for place in order])
    assert np.array_equal(MODEL.transform(frame), MODEL.transform(TABLE))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("abcde", "missing: 'f'"),
        ("abcdefg", "unknown: 'g'"),
        ("abcdeg", ("missing: 'f'", "unknown: 'g'")),
        ("abcdeff", "repeated: 'f'"),
        ("gggggg", ("missing: 'a', 'b', 'c', 'd', 'e' and 1 more", "unknown: 'g'", "repeated: 'g'")),
    ],
)
def test_columns_that_are_not_the_features_are_refused_by_name(names: str, said: object) -> None:
    with pytest.raises(InvalidDataError, match=facts(said)):
        MODEL.order_of(names)
    with pytest.raises(InvalidDataError, match=facts(said)):
        MODEL.transform(pd.DataFrame(np.zeros((2, len(names))), columns=list(names)))


@pytest.mark.parametrize("form", [pa.table, lambda columns: pa.table(columns).to_batches()[0], pl.DataFrame])
def test_columns_of_arrow_and_polars_are_matched_by_name(form: Callable[[Any], Any]) -> None:
    backwards = {name: TABLE[:, NAMES.index(name)] for name in reversed(NAMES)}
    assert np.array_equal(MODEL.transform(form(backwards)), MODEL.transform(TABLE))
    assert np.array_equal(MODEL.transform(form(backwards), by_position=True), MODEL.transform(TABLE[:, ::-1]))
    with pytest.raises(InvalidDataError, match=facts("missing: 'f'", "unknown: 'x'")):
        MODEL.transform(form({name.replace("f", "x"): TABLE[:, 0] for name in NAMES}))
    with pytest.raises(InvalidDataError, match=facts("NaN", "row 2", "column 6", "'a'")):
        MODEL.transform(form({**backwards, "a": [0.0, np.nan, 1, 2, 3]}))


def test_columns_with_names_are_refused_where_the_model_has_none() -> None:
    nameless = replace(MODEL, feature_names=None)
    frame = pd.DataFrame(TABLE, columns=list("fedcba"))
    with pytest.raises(InvalidDataError, match=facts("'f', 'e'", "by_position=True", "--by-position")):
        nameless.transform(frame)
    by_position = nameless.transform(TABLE)
    assert np.array_equal(nameless.transform(frame, by_position=True), by_position)
    assert np.array_equal(MODEL.transform(frame, by_position=True), by_position)
