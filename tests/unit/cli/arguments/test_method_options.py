"""A method's options are parsed by their kind, and errors about them name the flags."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from facts import facts

from dpspca.cli.arguments import method_options
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.algorithms.steps.options import Option, OptionKind
from dpspca.common.errors import InvalidParameterError

MADE_UP = replace(
    CATALOGUE["dps-pca"],
    options=(
        Option("sparsity", OptionKind.WHOLE, required=True),
        Option("count", OptionKind.WHOLE),
        Option("wide", OptionKind.NUMBER, required=True),
        Option("loud", OptionKind.SWITCH, default=False),
        Option("word", OptionKind.TEXT),
        Option("shade", OptionKind.TEXT, default="dark", choices=("light", "dark")),
    ),
)


@pytest.fixture(autouse=True)
def _catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_options, "CATALOGUE", MappingProxyType({**CATALOGUE, "made-up": MADE_UP}))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("count=3", 3),
        ("count=-3", -3),
        ("wide=3", 3.0),
        ("wide=1e-3", 0.001),
        ("loud=true", True),
        ("loud=false", False),
        ("word=3", "3"),
        ("word=a=b", "a=b"),
        ("word=", ""),
        ("shade=light", "light"),
    ],
)
def test_a_value_is_parsed_by_the_kind_of_its_option(given: str, read: Any) -> None:
    (value,) = method_options.parse("made-up", [given], {}).values()
    assert value == read
    assert type(value) is type(read)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("count", "--option is 'count', which is not NAME=VALUE"),
        ("=3", "--option is '=3', which is not NAME=VALUE"),
        ("other=3", "Unknown --option 'other' of the method made-up. Available: sparsity, count, wide"),
        ("count=2.5", "--option count is '2.5', not a whole number"),
        ("count=1_000", "not a whole number"),
        ("count=" + "9" * 5000, "not a whole number"),
        ("wide=far", "--option wide is 'far', not a number"),
        ("wide=nan", "not a number"),
        ("wide=1e999", "not a number"),
        ("loud=yes", "--option loud is 'yes', not true or false"),
        ("shade=red", "Unknown --option shade 'red'. Available: light, dark."),
    ],
)
def test_a_wrong_value_is_refused_and_the_error_names_the_flag(given: str, message: str) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        method_options.parse("made-up", [given], {})
    assert message in str(refused.value)


def test_an_option_given_twice_by_either_flag_is_refused() -> None:
    assert method_options.parse("made-up", ["wide=1"], {"sparsity": 3, "rounds": None}) == {
        "sparsity": 3,
        "wide": 1.0,
    }
    for name, given, short in (("wide", ["wide=1", "wide=2"], {}), ("sparsity", ["sparsity=3"], {"sparsity": 3})):
        with pytest.raises(InvalidParameterError, match=facts(name)):
            method_options.parse("made-up", given, short)


def test_a_short_flag_that_the_method_lacks_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts("--sparsity", "range-projection", "oversampling, cut")):
        method_options.parse("range-projection", [], {"sparsity": 3})


def test_a_number_or_auto_is_read_from_either_flag() -> None:
    for given, short in (([], {"sparsity": "auto"}), (["sparsity=auto"], {})):
        assert method_options.parse("auto", given, short) == {"sparsity": "auto"}
    assert method_options.parse("auto", [], {"sparsity": "7"}) == {"sparsity": 7}
    with pytest.raises(InvalidParameterError, match=facts("--sparsity", "'few'", "auto")):
        method_options.parse("auto", [], {"sparsity": "few"})
    with pytest.raises(InvalidParameterError, match=facts("--rounds", "'auto'")):
        method_options.parse("dps-pca", [], {"rounds": "auto"})


def test_missing_options_are_named_by_their_flags() -> None:
    assert method_options.missing("made-up", {}) == ["--sparsity", "--option wide=..."]
    assert method_options.missing("made-up", {"sparsity": 3, "wide": 1.0}) == []
    assert method_options.missing("analyze-gauss", {}) == []


def test_an_unknown_method_is_refused_and_the_error_lists_the_known() -> None:
    with pytest.raises(InvalidParameterError, match=facts("--method", "'magic'", "dps-pca, analyze-gauss")):
        method_options.find_method("magic")


def test_the_shell_completes_method_names() -> None:
    assert method_options.names() == [*CATALOGUE, "made-up"]
    assert method_options.names("dps") == ["dps-pca"]
