"""The one layer that reads raw input says everything that is wrong, where it is, and what may be there instead."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

import pytest
from facts import facts

from dpspca.common.checks import check
from dpspca.common.decoding import (
    DERIVED,
    By,
    Filled,
    Rule,
    Source,
    between,
    decode,
    distinct,
    faults_of,
    keys_of,
    one_of,
    parse_json,
    parse_toml,
)
from dpspca.common.errors import InvalidInputError, InvalidParameterError


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Ends:
    low: float
    high: float

    def __post_init__(self) -> None:
        check(self.low <= self.high, f"low is {self.low}, above high.", "Exchange them.")


@dataclass(frozen=True)
class Form:
    name: Filled
    count: Annotated[int, between(1, 9)] = 1
    share: float = 0.0
    colour: Colour = Colour.RED
    mode: Annotated[str, one_of("fast", "slow")] = "fast"
    ends: Ends | None = None
    names: Annotated[tuple[str, ...], distinct("Give different names.")] = ("a",)
    pair: tuple[int, str] = (0, "")
    either: int | tuple[str, ...] = 0
    amounts: Mapping[str, float] = field(default_factory=dict)
    upper: Annotated[str, By(lambda text, _: text.upper(), Filled)] = ""
    made: Annotated[str, DERIVED] = ""


def wrong(raw: object, name: str = "form.toml") -> list[str]:
    return [str(fault) for fault in faults_of(lambda: decode(Form, raw, Source(name, sample="See the sample.")))]


def test_every_kind_of_value_is_read_as_it_is_declared() -> None:
    raw = {
        "name": "x",
        "count": 3,
        "share": 1,
        "colour": "blue",
        "mode": "slow",
        "ends": {"low": 1, "high": 2.5},
        "names": ["b", "a"],
        "pair": [4, "d"],
        "either": ["e"],
        "amounts": {"f": 2},
        "upper": "g",
    }
    read = decode(Form, raw)
    ends = Ends(1.0, 2.5)
    assert read == Form("x", 3, 1.0, Colour.BLUE, "slow", ends, ("b", "a"), (4, "d"), ("e",), {"f": 2.0}, "G")
    assert type(read.share) is float
    assert type(decode(Form, {"name": "x", "either": 5}).either) is int
    assert decode(Form, {"name": "x"}) == Form("x")


@pytest.mark.parametrize(
    ("raw", "facts"),
    [
        ({"count": 0}, ("form.toml: count is 0", "from 1 to 9")),
        ({"count": True}, ("count is True", "from 1 to 9")),
        ({"count": "3"}, ("count is '3'",)),
        ({"count": 10**401}, ("count is",)),
        ({"share": float("nan")}, ("share is nan",)),
        ({"share": 10**400 - 1}, ("share is",)),
        ({"share": "1"}, ("share is '1'",)),
        ({"colour": "bleu"}, ("colour is 'bleu'", "mean 'blue'", "red, blue")),
        ({"mode": "slwo"}, ("mode is 'slwo'", "mean 'slow'")),
        ({"ends": {"low": 3, "high": 2}}, ("form.toml: ends: low is 3.0",)),
        ({"ends": {"low": 3, "hihg": 2}}, ("ends has an unknown key 'hihg'", "mean 'high'", "ends lacks high")),
        ({"ends": 3}, ("ends is 3", "low, high")),
        ({"names": []}, ("names is []", "different names")),
        ({"names": ["a", "a"]}, ("names is ['a', 'a']",)),
        ({"names": ["a", 3]}, ("names[1] is 3",)),
        ({"pair": [1]}, ("pair is [1]", "2 values")),
        ({"pair": [1, 2]}, ("pair[1] is 2",)),
        ({"either": [3]}, ("either[0] is 3",)),
        ({"either": "x"}, ("either is 'x'",)),
        ({"amounts": {"a b": None}}, ("amounts.'a b' is None",)),
        ({"amounts": {"a": {"b": 1}}}, ("amounts.a is",)),
        ({"upper": " "}, ("upper is ' '",)),
        ({"made": "x"}, ("unknown key 'made'",)),
        ({"low": 1, "high": 2}, ("unknown keys 'low', 'high'. Write this under 'ends'.",)),
        (
            {"high": 2, "q": 1, "z": 3},
            ("key 'high'. Write this under 'ends'.", "keys 'q', 'z'. Available: name, count"),
        ),
        ({"name": "\ud800"}, ("name is '\\ud800'",)),
        ({"name": "x" * (2**20 + 1)}, ("name has 1048577 characters", "at most 1048576")),
    ],
)
def test_a_wrong_value_is_named_with_its_keys_and_what_may_be_there(
    raw: dict[str, Any], facts: tuple[str, ...]
) -> None:
    message = " ".join(wrong({"name": "x", **raw}))
    for fact in facts:
        assert fact in message
    assert len(message) < 700


def test_all_mistakes_are_reported_at_once_in_one_error() -> None:
    found = wrong({"count": 0, "cuont": 1, "ends": {"low": "x", "high": True}, "amounts": {"a": "b", "c": "d"}})
    places = ["count", "ends.low", "ends.high", "amounts.a", "amounts.c"]
    assert [each.partition(" is ")[0] for each in found if " is " in each] == [
        f"form.toml: {place}" for place in places
    ]
    (unknown,) = [each for each in found if "'cuont'" in each]
    assert "'count'" in unknown, "as the key that was meant"
    assert ", count," in unknown, "among all keys"
    assert [each for each in found if each.startswith("form.toml lacks name") and "See the sample." in each]
    assert len(found) == 7
    with pytest.raises(InvalidInputError) as caught:
        decode(Form, {"count": 0, "colour": 3})
    assert caught.value.code == "invalid-parameter"
    assert len(caught.value.faults) == 3
    assert str(caught.value) == " ".join(map(str, caught.value.faults))


def test_the_number_of_reported_mistakes_is_limited() -> None:
    assert len(wrong({"name": "x", "names": [0] * 100_000})) == 20
    (unknown, lacking) = wrong({str(number): 0 for number in range(1_000)})
    assert unknown.startswith("form.toml has unknown keys '0', '1', '2'")
    assert len(unknown) < 500
    assert "lacks name" in lacking


def test_an_error_of_a_function_names_where_the_value_is() -> None:
    def refuse(_value: object, _source: Source) -> str:
        raise InvalidParameterError("It is no good.", "Give another.")

    @dataclass
    class One:
        at: Annotated[str, By(refuse)]

    @dataclass
    class Many:
        each: dict[str, One]

    with pytest.raises(InvalidInputError) as caught:
        decode(Many, {"each": {"a": {"at": 1}, "b": {"at": 2}}}, Source("f"))
    assert [fault.what for fault in caught.value.faults] == [
        f"f: each.{name}.at: It is no good." for name in ("a", "b")
    ]


def test_a_field_known_from_elsewhere_is_not_a_key() -> None:
    read = decode(Form, {"count": 2}, name="x")
    assert (read.name, read.count) == ("x", 2)
    with pytest.raises(InvalidInputError, match=facts("'name'", "'names'")):
        decode(Form, {"name": "y"}, name="x")
    assert "made" not in keys_of(Form)


def test_whole_numbers_stay_whole_in_whatever_order_a_union_names_them() -> None:
    @dataclass
    class First:
        code: float | int | str

    @dataclass
    class Second:
        code: int | float | str

    for kind in (First, Second):
        assert [type(decode(kind, {"code": code}).code) for code in (1, 1.0, "1")] == [int, float, str]


def test_rules_may_say_what_to_write_for_a_whole_union() -> None:
    @dataclass
    class One:
        at: Annotated[int | str, Rule("Give a number or a name.")]

    with pytest.raises(InvalidInputError, match=facts("at", "[]")):
        decode(One, {"at": []})


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ('{"a": {"b": 1, "b": 1}}', "'b' is given twice"),
        ("NaN", "NaN"),
        ("[-Infinity]", "-Infinity"),
        (f"[{'9' * 5000}]", "5000 digits"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
        ("", "not valid JSON"),
    ],
)
def test_json_that_could_be_read_in_two_ways_is_refused(text: str | bytes, fact: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts("job.json")) as caught:
        parse_json(text, "job.json")
    assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("a = 1\na = 2", "not valid TOML"),
        (f"a = {'[' * 100_000}", "nested too deeply"),
        (f"a = {'9' * 5000}", "invalid number or date"),
        ("a =", "not valid TOML"),
        ("a" * 10**6, "not valid TOML"),
    ],
)
def test_text_that_is_not_toml_is_refused(text: str, fact: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts("s.toml")) as caught:
        parse_toml(text, "s.toml")
    assert fact in str(caught.value)


@pytest.mark.parametrize(("kind", "raw"), [(bool, 1), (bool, "true"), (int | None, "x"), (float, 10**399)])
def test_no_plain_value_is_taken_for_another(kind: Any, raw: object) -> None:
    with pytest.raises(InvalidInputError):
        decode(kind, raw)


def test_a_type_that_no_file_can_hold_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError):
        decode(bytes, "x")


def test_text_of_any_script_is_kept() -> None:
    assert decode(str, "größe") == "größe"


def test_nothing_may_stand_where_nothing_is_allowed() -> None:
    assert decode(int | None, None) is None  # type: ignore[arg-type]  # a union is no class
