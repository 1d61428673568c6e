"""What the catalogue says of a method is what the method does: its options, its units and its accounting."""

import inspect
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import pytest
from examples import EXAMPLES
from facts import facts

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.catalogue import CATALOGUE, Method
from dpspca.common.algorithms.steps import released_matrix
from dpspca.common.algorithms.steps.options import Option, OptionKind, declared, described
from dpspca.common.algorithms.steps.row_steps import Auto
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.job import Accounting, JobSpec
from dpspca.common.plan import PlannedQueries, pricing
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.units import PrivacyUnit

NAMES = sorted(CATALOGUE)
OPTIONS = [pytest.param(name, each, id=f"{name} {each.name}") for name in NAMES for each in CATALOGUE[name].options]
OF_ANOTHER_KIND: Final = {
    OptionKind.WHOLE: (2.5, "text", True),
    OptionKind.NUMBER: ("text", True),
    OptionKind.SWITCH: ("text",),
    OptionKind.TEXT: (True, 2.5),
    OptionKind.WHOLE_OR_AUTO: (2.5, "text", True),
}


def examples(name: str) -> list[JobSpec]:
    return list(EXAMPLES[name].jobs.values())


def with_option(spec: JobSpec, option: str, value: Any) -> JobSpec:
    return replace(spec, options=dict(spec.options) | {option: value})


def without_option(spec: JobSpec, option: str) -> JobSpec:
    return replace(spec, options={name: value for name, value in spec.options.items() if name != option})


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True)
class Made:
    """Options made up for a test."""

    needed: int
    wide: float = 0.5
    shade: Shade = Shade.DARK
    loud: bool = False
    decided: int | None = None
    either: int | Auto | None = None


def test_options_are_read_off_the_fields_of_a_dataclass() -> None:
    assert declared(Made) == (
        Option("needed", OptionKind.WHOLE, required=True),
        Option("wide", OptionKind.NUMBER, default=0.5),
        Option("shade", OptionKind.TEXT, default="dark", choices=("light", "dark")),
        Option("loud", OptionKind.SWITCH, default=False),
        Option("decided", OptionKind.WHOLE),
        Option("either", OptionKind.WHOLE_OR_AUTO),
    )
    assert "for the test" in described("for the test").values()


@pytest.mark.parametrize("name", NAMES)
def test_the_catalogue_lists_the_options_that_the_algorithm_s_module_reads(name: str) -> None:
    entry = CATALOGUE[name]
    module = vars(inspect.getmodule(entry.steps_of))
    if "ask_matrix" in module:  # the options of all methods that release a matrix
        module = vars(released_matrix)
    read = next(
        (each for title, each in module.items() if title.endswith("Options") and title != "MethodOptions"), None
    )
    assert entry.options == (declared(read) if read else ())


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_refused_and_the_known_ones_are_listed(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts("nonsense")) as refused:
        catalogue.plan(with_option(examples(name)[0], "nonsense", 1))
    for each in CATALOGUE[name].options:
        assert each.name in refused.value.remedy


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_every_option_has_help_and_a_default_equal_to_leaving_it_out(name: str, option: Option) -> None:
    assert option.help.endswith(".")
    spec = without_option(examples(name)[0], option.name)
    if option.required:
        with pytest.raises(InvalidParameterError, match=facts(option.name)):
            catalogue.plan(spec)
    else:
        assert catalogue.plan(with_option(spec, option.name, option.default)).steps == catalogue.plan(spec).steps


@pytest.mark.parametrize(("name", "option"), OPTIONS)
def test_an_option_of_another_kind_is_refused(name: str, option: Option) -> None:
    for wrong in OF_ANOTHER_KIND[option.kind]:
        with pytest.raises(DpspcaError):
            catalogue.plan(with_option(examples(name)[0], option.name, wrong))


@pytest.mark.parametrize(("name", "option"), [each for each in OPTIONS if each.values[1].choices])  # type: ignore[union-attr]
def test_an_option_takes_each_of_its_choices_and_no_other(name: str, option: Option) -> None:
    for value in option.choices:
        assert catalogue.plan(with_option(examples(name)[0], option.name, value))
    with pytest.raises(InvalidParameterError, match=facts(", ".join(option.choices))):
        catalogue.plan(with_option(examples(name)[0], option.name, "no such choice"))


@pytest.mark.parametrize("unit", PrivacyUnit)
@pytest.mark.parametrize("name", NAMES)
def test_a_method_plans_exactly_for_the_units_in_the_catalogue(name: str, unit: PrivacyUnit) -> None:
    if unit in CATALOGUE[name].units:
        assert any(spec.unit is unit for spec in examples(name)), f"give an example of {name} for {unit}"
        return
    assert not any(spec.unit is unit for spec in examples(name))
    with pytest.raises(DpspcaError):
        catalogue.plan(replace(examples(name)[0], unit=unit))


@pytest.mark.parametrize("accounting", Accounting)
@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_has_just_the_accounting_that_the_catalogue_lists(name: str, accounting: Accounting) -> None:
    if accounting in CATALOGUE[name].accounting:
        planned = [catalogue.plan(spec) for spec in examples(name) if spec.accounting is accounting]
        assert planned, f"give an example of {name} with {accounting} accounting"
        return
    with pytest.raises(InvalidParameterError, match=facts(accounting.value)):
        catalogue.plan(replace(examples(name)[0], accounting=accounting))


@pytest.mark.parametrize("name", NAMES)
def test_published_noise_exists_exactly_for_the_units_in_the_catalogue(name: str) -> None:
    if Accounting.PUBLISHED not in CATALOGUE[name].accounting:
        return
    for unit in CATALOGUE[name].units:
        published = [spec for spec in examples(name) if (spec.accounting, spec.unit) == (Accounting.PUBLISHED, unit)]
        if unit in CATALOGUE[name].published:
            continue
        assert not published
        exact = next(spec for spec in examples(name) if spec.unit is unit)
        with pytest.raises(InvalidParameterError, match=facts("published", name, unit.value)):
            catalogue.plan(replace(exact, accounting=Accounting.PUBLISHED))


@pytest.mark.parametrize("name", NAMES)
def test_an_algorithm_is_called_gaussian_if_no_job_of_it_has_other_noise(name: str) -> None:
    losses = [compose(catalogue.plan(spec).events) for spec in examples(name)]
    assert CATALOGUE[name].gaussian == all(loss.is_gaussian for loss in losses)


@pytest.mark.parametrize("name", NAMES)
def test_the_queries_that_are_counted_beforehand_are_those_that_are_planned(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def count(planned_queries: PlannedQueries) -> int:
        counted.append(count_queries(planned_queries))
        return counted[-1]

    count_queries = pricing.count_queries
    monkeypatch.setattr(pricing, "count_queries", count)
    steps = [CATALOGUE[name].steps_of(spec) for spec in examples(name)]
    assert counted == [len(each) for each in steps]
    assert all(len({step.name for step in each}) == len(each) for each in steps)


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_every_algorithm_says_in_a_phrase_what_it_is(entry: Method) -> None:
    assert entry.summary
    assert not entry.summary.endswith(".")
