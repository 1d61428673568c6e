"""A number of privacy is a promise about neighbours: the texts must exist, and differ."""

import pytest

from dpspca.common.privacy.units import PrivacyUnit


def test_stored_names_never_change() -> None:
    rows, persons = ["row-replace-one", "row-add-remove"], ["person-replace-one", "person-add-remove"]
    assert [unit.value for unit in PrivacyUnit] == [*rows, *persons, "entry", "spectral"]


def test_a_stored_name_gives_its_unit_back() -> None:
    assert all(PrivacyUnit(str(unit)) is unit for unit in PrivacyUnit)


@pytest.mark.parametrize("unit", PrivacyUnit)
def test_every_unit_says_which_data_sets_are_neighbours(unit: PrivacyUnit) -> None:
    text = unit.neighbours
    assert text.startswith("Two data sets are neighbours if")
    assert text.endswith(".")


def test_no_two_units_say_the_same() -> None:
    assert len({unit.neighbours for unit in PrivacyUnit}) == len(PrivacyUnit)
    assert len({unit.guess("7") for unit in PrivacyUnit}) == len(PrivacyUnit)


@pytest.mark.parametrize("unit", PrivacyUnit)
def test_a_guess_about_a_matrix_names_the_bound_that_is_protected(unit: PrivacyUnit) -> None:
    assert ("the least norm bound" in unit.guess("the least norm bound")) != unit.is_row


def test_units_of_rows_and_persons_protect_rows_and_others_do_not() -> None:
    assert [unit.is_row for unit in PrivacyUnit] == [True, True, True, True, False, False]
    assert [unit.is_person for unit in PrivacyUnit] == [False, False, True, True, False, False]
    assert [unit.is_replace_one for unit in PrivacyUnit] == [True, False, True, False, False, False]
    assert [unit.is_add_remove for unit in PrivacyUnit] == [False, True, False, True, False, False]
