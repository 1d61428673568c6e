"""A spec is checked when made, reads and writes one canonical form, and refuses what it does not know."""

import copy
import json
import pickle  # noqa: TID251  # to see that users can
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, InvalidParameterError, InvalidTypeError
from dpspca.common.job import PRIVATE_BOUND, Accounting, Budget, Centering, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

GOOD: dict[str, Any] = {
    "schema": Schema(8),
    "unit": PrivacyUnit.ROW_REPLACE_ONE,
    "budget": Budget(1.0, 1e-6),
    "norm_bound": 3.0,
    "components": 2,
    "options": {"sparsity": 4},
    "method": "dps-pca",
}


def spec(**changes: Any) -> JobSpec:
    return JobSpec(**GOOD | changes)


@pytest.mark.parametrize(
    "made",
    [
        spec(),
        spec(schema=Schema.of([f"gene {number}" for number in range(8)])),
        spec(unit="row-add-remove", accounting="published", centering="private", mean_bound=9.5),
        spec(centering="public", public_mean=tuple(range(8)), explained_variance=False, seed=2**64 - 1),
        spec(options={"sparsity": 4, "rounds": 3, "start": "published"}),
        spec(schema=Schema.of([f"gene {number}" for number in range(8)]), dictionary="0" * 64),
    ],
)
def test_the_canonical_form_reads_back_as_the_same_spec(made: JobSpec) -> None:
    again = JobSpec.from_json(made.to_json())
    assert again == made
    assert again.to_json() == made.to_json()
    assert again.digest() == made.digest()
    assert isinstance(again.unit, PrivacyUnit)
    assert isinstance(again.accounting, Accounting)
    assert isinstance(again.centering, Centering)


SIGNED = {"method": "algorithm", "minimum_providers": "minimum_parties"}
"""Keys of the signed form, which is that of 0.1.0, by the names that people read and write."""


def test_people_read_the_names_and_the_signed_form_has_the_keys_of_0_1_0() -> None:
    made = spec(minimum_providers=3)
    signed, written = json.loads(made.to_json()), json.loads(json.dumps(made.to_dict()))
    assert (signed["algorithm"], signed["minimum_parties"]) == ("dps-pca", 3)
    assert (written["method"], written["minimum_providers"]) == ("dps-pca", 3)
    assert {SIGNED.get(key, key): value for key, value in written.items()} == signed
    assert JobSpec.from_dict(written, "a job") == JobSpec.from_json(made.to_json()) == made


@pytest.mark.parametrize(("name", "signed"), SIGNED.items())
def test_each_form_of_a_job_refuses_the_keys_of_the_other(name: str, signed: str) -> None:
    written = spec().to_dict()
    with pytest.raises(InvalidParameterError, match=facts("job.toml", repr(signed), repr(name))):
        JobSpec.from_dict(written | {signed: written[name]}, "job.toml")
    with pytest.raises(InvalidParameterError, match=facts(repr(name), repr(signed))):
        JobSpec.from_json(json.dumps(json.loads(spec().to_json()) | {name: written[name]}))


def test_a_job_without_a_dictionary_keeps_the_digest_of_earlier_versions() -> None:
    assert "dictionary" not in json.loads(spec().to_json())


@pytest.mark.parametrize("wrong", ["study.toml", "0" * 63, "A" * 64, 5, ""])
def test_a_dictionary_is_named_by_its_digest(wrong: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts("dictionary", repr(wrong), "`dpspca dictionary check`")):
        spec(dictionary=wrong)


def test_a_matrix_has_no_dictionary() -> None:
    with pytest.raises(InvalidParameterError, match=facts("dictionary", "entry")):
        spec(dictionary="0" * 64, unit="entry")


def test_every_field_counts_in_the_digest() -> None:
    changed = [
        spec(schema=Schema(9)),
        spec(unit="row-add-remove"),
        spec(budget=Budget(1.0, 1e-7)),
        spec(norm_bound=3.0000001),
        spec(components=3),
        spec(accounting="published"),
        spec(explained_variance=False),
        spec(seed=1),
        spec(options={"sparsity": 5}),
        spec(dictionary="0" * 64),
    ]
    assert len({each.digest() for each in [spec(), *changed]}) == len(changed) + 1


@pytest.mark.parametrize(
    ("change", "kind", "reason"),
    [
        ({"norm_bound": None}, InvalidParameterError, "norm_bound"),
        ({"norm_bound": 0.0}, InvalidParameterError, ("norm_bound", "2^-100", "2^100")),
        ({"norm_bound": -1.0}, InvalidParameterError, ("norm_bound", "2^-100", "2^100")),
        ({"norm_bound": float("nan")}, InvalidParameterError, ("norm_bound", "2^-100", "2^100")),
        ({"norm_bound": float("inf")}, InvalidParameterError, ("norm_bound", "2^-100", "2^100")),
        ({"norm_bound": "3"}, InvalidParameterError, ("norm_bound", "2^-100", "2^100")),
        ({"norm_bound": True}, InvalidParameterError, ("norm_bound", "2^-100", "2^100")),
        ({"components": 0}, InvalidParameterError, ("components", 1, 8)),
        ({"components": 9}, InvalidParameterError, ("components", 1, 8)),
        ({"components": 2.0}, InvalidTypeError, ("components", 2.0)),
        ({"components": True}, InvalidTypeError, ("components", True)),
        ({"unit": "person"}, InvalidParameterError, "row-replace-one"),
        ({"accounting": "none"}, InvalidParameterError, "exact"),
        ({"centering": "median"}, InvalidParameterError, "private"),
        ({"centering": "private"}, InvalidParameterError, "mean_bound"),
        ({"centering": "private", "mean_bound": -2}, InvalidParameterError, "mean_bound"),
        ({"centering": "public"}, InvalidParameterError, "public_mean"),
        ({"centering": "public", "public_mean": (1.0,)}, InvalidParameterError, "public_mean"),
        ({"centering": "public", "public_mean": (float("nan"),) * 8}, InvalidParameterError, "public_mean"),
        ({"explained_variance": "no"}, InvalidTypeError, "explained_variance"),
        ({"seed": -1}, InvalidParameterError, "seed"),
        ({"seed": 2**64}, InvalidParameterError, "seed"),
        ({"seed": None}, InvalidTypeError, "seed"),
    ],
)
def test_a_bad_value_is_refused_with_what_and_what_to_do(
    change: dict[str, Any], kind: type[DpspcaError], reason: Any
) -> None:
    with pytest.raises(kind, match=facts(reason)) as caught:
        spec(**change)
    assert caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "1", None, True, 65.0])
def test_an_impossible_epsilon_is_refused(epsilon: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts("epsilon")):
        Budget(epsilon, 1e-6)


def test_numpy_s_numbers_are_numbers() -> None:
    made = spec(norm_bound=np.float32(3), components=np.int64(2), budget=Budget(np.float64(1), 1e-6), seed=np.uint8(0))
    assert made.digest() == spec().digest()
    assert Schema.of(np.int64(8)) == Schema(8)


def test_a_spec_can_be_hashed_copied_and_pickled() -> None:
    made = spec()
    assert {made: 1}[spec()] == 1
    assert copy.deepcopy(made) == made
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301  # our own bytes
    assert asdict(made)["options"] == {"sparsity": 4}


@pytest.mark.parametrize(
    "change", [{"mean_bound": 3.0}, {"public_mean": (1.0,) * 8}, {"centering": "public", "public_mean": 0}]
)
def test_a_mean_that_is_not_asked_for_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=r"public_mean|mean_bound"):
        spec(**change)


def test_a_public_mean_may_be_an_array() -> None:
    assert spec(centering="public", public_mean=np.arange(8)).public_mean == tuple(map(float, range(8)))


@pytest.mark.parametrize("change", [{"schema": 8}, {"budget": (1, 1e-6)}, {"options": 3}, {"method": 3}])
def test_a_value_of_another_kind_altogether_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidTypeError):
        spec(**change)


def test_equal_numbers_make_one_job_however_they_are_written() -> None:
    assert spec(budget=Budget(1, 1e-6), norm_bound=3).digest() == spec().digest()


@pytest.mark.parametrize("delta", [0, 1, 1e-300, -0.1, 1.5, float("nan"), None])
def test_an_impossible_delta_is_refused(delta: Any) -> None:
    with pytest.raises(InvalidParameterError, match=facts("delta")):
        Budget(1.0, delta)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "sparsity"),
        ({"sparsity": 1}, ("sparsity", 1, 2, 8)),
        ({"sparsity": 4, "round": 3}, ("round", "sparsity, rounds")),
        ({"sparsity": 4, "rounds": 0}, "rounds"),
        ({"sparsity": 4, "start": "warm"}, "dense"),
    ],
)
def test_bad_options_are_refused_by_the_algorithm(options: dict[str, Any], reason: Any) -> None:
    with pytest.raises(DpspcaError, match=facts(reason)):
        catalogue.plan(spec(options=options))


def test_an_unknown_algorithm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidParameterError, match=facts("'pca'", "dps-pca")):
        catalogue.plan(spec(method="pca"))


@pytest.mark.parametrize("names", [("a",), ("a",) * 8])
def test_names_must_be_one_a_column_and_distinct(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParameterError):
        Schema(8, names)


def form(**changes: Any) -> str:
    return json.dumps(json.loads(spec().to_json()) | changes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", ("JSON", "line 1 column 2")),
        ("[]", ("[]", "schema")),
        (form(colour="red"), "colour"),
        (form(budget={"epsilon": 1.0, "delta": 1e-6, "gamma": 1}), "gamma"),
        (form(budget=None), "budget"),
        (form(schema={"dimension": "8"}), ("schema.dimension", "'8'")),
        (form(unit=None), "unit"),
        (form()[:-1] + ', "seed": 7}', "'seed'"),
        ('{"schema": {"dimension": 8}, "budget": {"epsilon": 1, "delta": 0.1}}', "components, norm_bound, unit"),
        ("[" * 200_000, "`dpspca config sample`"),
        (form(method={}), "method"),
        (form(norm_bound=10**400), "norm_bound"),
    ],
)
def test_a_form_that_is_not_a_spec_is_refused(text: str, reason: Any) -> None:
    with pytest.raises(DpspcaError, match=facts(reason)):
        JobSpec.from_json(text)


def test_options_cannot_be_changed_after_the_fact() -> None:
    options: dict[str, Any] = {"sparsity": 4}
    made = spec(options=options)
    options["sparsity"] = 8
    assert made.options["sparsity"] == 4
    with pytest.raises(TypeError):
        made.options["sparsity"] = 8  # type: ignore[index]


NESTED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    key=st.sampled_from([*json.loads(spec().to_json()), "schema.names", "schema.dimension", "options.x"]), value=NESTED
)
def test_t36_any_content_of_a_job_is_read_or_refused_with_a_reason(key: str, value: object) -> None:
    """A provider reads what strangers sign: nothing in it may set off a fault that nobody foresaw."""
    raw = json.loads(spec().to_json())
    room, _, inner = key.partition(".")
    if inner:
        raw[room][inner] = value
    else:
        raw[room] = value
    try:
        read = JobSpec.from_json(json.dumps(raw))
        catalogue.plan(read)
    except DpspcaError:
        return
    assert JobSpec.from_json(read.to_json()) == read


def test_a_bound_that_the_method_finds_may_be_asked_for_in_words() -> None:
    asked = {"method": "auto", "options": {}, "centering": "private"}
    words = spec(norm_bound="private", mean_bound="private", **asked)
    assert words == spec(norm_bound=PRIVATE_BOUND, mean_bound=PRIVATE_BOUND, **asked)
    assert JobSpec.from_json(words.to_json()) == words
    with pytest.raises(InvalidParameterError, match=facts("norm_bound", "'privat'")):
        spec(norm_bound="privat")
