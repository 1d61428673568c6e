"""Checks of single values."""

import pytest
from facts import facts

from dpspca.common.checks import check_list
from dpspca.common.errors import InvalidTypeError


def test_one_name_is_not_the_list_of_its_letters() -> None:
    assert check_list("providers", ("north", "south")) == ["north", "south"]
    with pytest.raises(InvalidTypeError, match=facts("providers", "['north']")):
        check_list("providers", "north")
