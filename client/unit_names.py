"""The names of privacy units for analysts: as in a job, and shorter ones for rows."""

from typing import Final, Literal, TypeAlias, get_args

from dpspca.common.choices import choices
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened
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
            "unit is None." if unit is None else f"Unknown unit {shortened(unit)}.",
            f"{choices(unit, get_args(UnitName))} replace-one protects the content of one row (the number of rows is "
            "public), add-remove also its presence, and those that begin with person a person with all their rows. "
            "entry and spectral protect less than a row, and few methods support them.",
        )
    return UNITS[unit]
