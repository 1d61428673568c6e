"""Which person each row belongs to, and which privacy units that allows. Pure."""

from dataclasses import replace
from typing import Any

import numpy as np

from dpspca.common.errors import InvalidDataError, InvalidTypeError, RefusedError
from dpspca.common.privacy import PrivacyUnit

from .preparation import CheckedRows


def with_persons(rows: CheckedRows, whose: Any) -> CheckedRows:  # noqa: ANN401  # whatever was given
    """Add the person of each row: one name or number for each row. Only the labels' order is kept, not the labels.

    Labels are compared as Python objects, because numpy drops zero bytes at their ends, and two persons that were
    mistaken for one would take each other's places.
    """
    try:
        labels = _as_list(whose)
        named = [each for each in labels if not (each is None or each == "" or each != each)]  # noqa: PLR0124  # NaN is not itself
        places = {label: place for place, label in enumerate(sorted(set(named)))}
    except TypeError:
        raise InvalidTypeError(
            "The persons of the rows are of different types.", "Give text for every row, or a number for every row."
        ) from None
    missing = len(named) < len(labels)
    if missing or len(labels) != rows.count:
        raise InvalidDataError(
            f"There are {len(labels)} persons for {rows.count} rows{', or one of them is missing' if missing else ''}.",
            "Give one name or number for each row: that of its person.",
        )
    return replace(rows, persons=np.fromiter(map(places.__getitem__, labels), dtype=np.intp, count=rows.count))


def _as_list(whose: Any) -> list[Any]:  # noqa: ANN401  # whatever was given
    """Return labels as Python objects. For this, numpy and pandas have ``tolist``, and Arrow has ``to_pylist``."""
    convert = getattr(whose, "to_pylist", None) or getattr(whose, "tolist", None)
    return list(whose) if convert is None else convert()


def require_unit(unit: PrivacyUnit, *, persons: bool, cut: bool = False) -> None:
    """Refuse a unit whose statement would be false for a data set, because of what its settings say about persons.

    A person can be protected only if the person of each row is known. If it is known, only the first few rows of each
    person are used, and then the statement of a unit of rows would be false (see ``CheckedRows.bounded``). The decision
    follows from the provider's settings and the job, and not from a row.
    """
    if unit.is_person and not persons:
        raise RefusedError(
            f"This data set does not name the person of each row, but the unit {unit} protects persons.",
            "Choose a unit of rows, or ask the steward to name a column of persons (person under [reading]) or a "
            "persons file under [persons]. If no person has two rows, the file can simply number the rows.",
        )
    if persons and not unit.is_person:
        raise RefusedError(
            f"This data set names the person of each row, but the unit {unit} does not protect persons.",
            f"Choose {PrivacyUnit.PERSON_ADD_REMOVE} or {PrivacyUnit.PERSON_REPLACE_ONE}.",
        )
    if cut and not unit.is_row:
        raise RefusedError(
            f"This data set changes entries of rows (row_entries, missing or missing_codes), but the unit {unit} is "
            "for a whole matrix.",
            "Choose a unit of rows, or ask the steward to remove these keys.",
        )
