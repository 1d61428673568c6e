"""How many rows of a person a job uses, in words."""

from dpspca.common.privacy import PrivacyUnit


def rows_used(unit: PrivacyUnit, rows_per_person: int) -> str:
    """Say that a job does not use all rows of a person, if its privacy unit is a person. Otherwise return nothing."""
    if not unit.is_person:
        return ""
    used = "one row" if rows_per_person == 1 else f"{rows_per_person} rows"
    return (
        f"Each provider uses at most {used} of each person (rows_per_person = {rows_per_person}) and ignores all other "
        "rows of that person."
    )
