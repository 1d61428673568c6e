"""The privacy unit of a name, with an error that helps to choose one."""

from dpspca.common.choices import choices
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened
from dpspca.common.privacy import PrivacyUnit


def unit_named(unit: str | None) -> PrivacyUnit:
    """Return the privacy unit of this name."""
    if not isinstance(unit, str) or unit not in list(PrivacyUnit):
        row, presence = PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE
        raise InvalidParameterError(
            "unit is None." if unit is None else f"Unknown unit {shortened(unit)}.",
            f"{choices(unit, [*PrivacyUnit])} {row} protects the content of one row (the number of rows is public), "
            f"{presence} also its presence, and those that begin with person a person with all their rows. entry and "
            "spectral protect less than a row, and few methods support them.",
        )
    return PrivacyUnit(unit)
