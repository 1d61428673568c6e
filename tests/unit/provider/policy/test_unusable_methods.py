"""A method that no job can use under a policy's other rules is named, with a reason."""

from collections.abc import Sequence

import pytest

from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.job import Accounting, Centering
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.provider.policy.unusable_methods import unusable

EXACT, NONE = (Accounting.EXACT,), (Centering.NONE,)
REPLACE, REMOVE = PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE


@pytest.mark.parametrize("unit", PrivacyUnit)
def test_a_method_is_usable_for_its_own_units_alone(unit: PrivacyUnit) -> None:
    others = [name for name, entry in CATALOGUE.items() if unit not in entry.units]
    assert list(unusable(CATALOGUE, unit, EXACT, NONE, 1)) == others


@pytest.mark.parametrize("unit", PrivacyUnit)
def test_published_accounting_alone_suits_only_methods_that_have_it(unit: PrivacyUnit) -> None:
    """The budget that is tried is one at which no formula breaks its promise."""
    having = [
        name
        for name, entry in CATALOGUE.items()
        if unit in entry.units and Accounting.PUBLISHED in entry.accounting and unit in entry.published
    ]
    refused = unusable(CATALOGUE, unit, (Accounting.PUBLISHED,), NONE, 1)
    assert [name for name in CATALOGUE if name not in refused] == having
    either = unusable(CATALOGUE, unit, (Accounting.PUBLISHED, Accounting.EXACT), NONE, 1)
    assert list(either) == list(unusable(CATALOGUE, unit, EXACT, NONE, 1))


@pytest.mark.parametrize(
    ("name", "unit", "centering", "persons_rows", "why"),
    [
        ("streaming-power", REPLACE, NONE, 2, "rows_per_person is 2"),
        ("ppca", REPLACE, NONE, 2**24, "allows only one row for each person"),
        ("range-projection", REPLACE, (Centering.PRIVATE,), 1, "cannot centre rows"),
        ("range-projection", REPLACE, (Centering.PUBLIC, Centering.NONE), 1, None),
        ("dps-pca", REMOVE, (Centering.PRIVATE,), 1, None),
        ("dps-pca", REPLACE, NONE, 2**24, None),
        ("noisy-power", PrivacyUnit.ENTRY, NONE, 1, None),
    ],
)
def test_what_an_algorithm_does_not_go_with_is_given_as_its_reason(
    name: str, unit: PrivacyUnit, centering: Sequence[Centering], persons_rows: int, why: str | None
) -> None:
    found = unusable([name], unit, EXACT, centering, persons_rows)
    assert (why in found[name]) if why else (found == {})
