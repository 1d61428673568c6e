"""Every unknown name is refused in one wording: the name, the one that was probably meant, and all that there are."""

from typing import Any

import pytest
from facts import facts

from dpspca.client.connection import require_data_set, require_providers
from dpspca.client.estimator.unit_names import unit_named
from dpspca.client.reports.plots import VEGA_LITE
from dpspca.common.algorithms import catalogue
from dpspca.common.choices import choices
from dpspca.common.errors import InvalidInputError, InvalidParameterError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

GOOD: dict[str, Any] = {
    "schema": Schema(6),
    "unit": PrivacyUnit.ROW_REPLACE_ONE,
    "budget": Budget(1.0, 1e-6),
    "norm_bound": 1.0,
    "components": 2,
}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("cohrt", "Did you mean 'cohort'? Available: labs, cohort."),
        ("COHORT", "Did you mean 'cohort'? Available: labs, cohort."),
        ("x", "Available: labs, cohort."),
        (None, "Available: labs, cohort."),
        ("c" * 10**6, "Available: labs, cohort."),
    ],
)
def test_a_near_miss_and_all_known_names_are_said(value: Any, said: str) -> None:
    assert choices(value, ["labs", "cohort"]) == said


def test_sets_are_sorted_odd_names_quoted_and_long_lists_cut() -> None:
    assert choices("x", {"b", "a"}) == "Available: a, b."
    assert choices("x", ["a b", "c\n"]) == "Available: 'a b', 'c\\n'."
    assert choices("x", []) == "Available: none."
    assert choices("x", [f"n{number}" for number in range(31)]).endswith("n29, ....")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"unit": "row-replace"}, ("unit", "'row-replace'", "'row-replace-one'", "row-add-remove")),
        ({"centering": "privat"}, ("centering", "'privat'", "'private'", "pairs")),
        ({"accounting": "exakt"}, ("accounting", "'exakt'", "'exact'", "published")),
        ({"weights": "equl"}, ("weights", "'equl'", "'equal'", "auto")),
        ({"scaling": "privat"}, ("scaling", "'privat'", "'private'", "none")),
    ],
)
def test_a_job_spec_offers_the_value_that_was_meant(change: dict[str, Any], named: tuple[str, ...]) -> None:
    with pytest.raises(InvalidParameterError, match=facts("Unknown", *named, "Available: ")):
        JobSpec(**GOOD | change)


def test_methods_their_options_and_units_are_named_alike() -> None:
    with pytest.raises(InvalidParameterError, match=facts("Unknown", "'anlyze-gauss'", "'analyze-gauss'", "ppca")):
        catalogue.find("anlyze-gauss")
    spec = JobSpec(**GOOD, method="dps-pca", options={"sparsity": 3, "lop": "plain"})
    with pytest.raises(InvalidParameterError, match=facts("Unknown", "'lop'", "'loop'", "dps-pca", "sparsity")):
        catalogue.plan(spec)
    with pytest.raises(InvalidParameterError, match=facts("'replace-one'", "'row-replace-one'", "row-add-remove")):
        unit_named("replace-one")
    assert len(VEGA_LITE) > 1


def test_a_misspelt_data_set_or_provider_is_named_with_the_one_meant() -> None:
    with pytest.raises(InvalidParameterError, match=facts("'cohrt'", "'cohort'", "cohort, labs")):
        require_data_set("cohrt", {"labs", "cohort"})
    with pytest.raises(InvalidParameterError, match=facts("'cohort'", "noth", "'north'", "north, south")):
        require_providers("cohort", ["noth", "south"], {"north", "south"})
    require_data_set("labs", {"labs"})
    require_providers("cohort", ["north"], {"north", "south"})


@pytest.mark.parametrize(
    ("budget", "named"),
    [
        (("1", 1e-6), ("epsilon", "'1'", "text", "quotes", 48)),
        ((1.0, "1e-6"), ("delta", "'1e-6'", "text", "quotes")),
        ((1.0, 2.0), ("delta", 2.0, 1e-200, 1, "1e-6")),
        ((0.0, 1e-6), ("epsilon", 0.0, 48)),
    ],
)
def test_a_wrong_budget_is_named_with_its_range(budget: tuple[Any, Any], named: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInputError, match=facts(*named)):
        Budget(*budget)


def test_too_many_components_are_named_with_the_number_of_columns() -> None:
    with pytest.raises(InvalidParameterError, match=facts("components", 9, 6, "columns")):
        JobSpec(**GOOD | {"components": 9})
