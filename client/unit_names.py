"""The names of privacy units for analysts: as in a job, and shorter ones for rows."""

from typing import Final, Literal, TypeAlias

from dpspca.common.errors import InvalidParameterError
from dpspca.common.privacy import PrivacyUnit

UnitName: TypeAlias = Literal[
    "replace-one", "add-remove", "person-replace-one", "person-add-remove", "entry", "spectral"
]

UNITS: Final = {
    "replace-one": PrivacyUnit.ROW_REPLACE_ONE,
    "add-remove": PrivacyUnit.ROW_ADD_REMOVE,
    **{unit.value: unit for unit in PrivacyUnit},
}
"""The names that ``unit`` may have: those of ``UnitName``, and the values of ``PrivacyUnit`` as in a job spec."""


def unit_named(unit: str | None) -> PrivacyUnit:
    """Return the privacy unit of this name."""
    if not isinstance(unit, str) or unit not in UNITS:
        raise InvalidParameterError(
            f"unit is {unit!r}, which is not a privacy unit.",
            "Choose 'replace-one' (one row replaced by another; the number of rows is public) or 'add-remove' (one row "
            "added or removed). 'person-replace-one' and 'person-add-remove' protect a person with all their rows. "
            "'entry' and 'spectral' protect less than a row, and few methods support them.",
        )
    return UNITS[unit]
