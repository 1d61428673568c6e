"""Which person each row belongs to, and which privacy units that allows. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dpspca.common.errors import InvalidDataError, InvalidTypeError, RefusedError
from dpspca.common.frames import NAMELESS
from dpspca.common.privacy import PrivacyUnit

from .preparation import CheckedRows

_ONE_EACH: Final = "Give one name or number for each row: that of its person."
_EXACT: Final = 2.0**53
"""Below this, floating-point numbers of 8 bytes hold every whole number."""
_SHORT: Final = frozenset({"float16", "float32", "halffloat", "float"})
_SHORT_NUMBERS: Final = (np.float16, np.float32)
"""Types whose whole numbers are not exact much earlier, as numpy, pandas and Arrow call them."""


def with_persons(rows: CheckedRows, whose: Any) -> CheckedRows:  # noqa: ANN401  # whatever was given
    """Add the person of each row: one name or number for each row. Only the labels' order is kept, not the labels.

    Labels are compared as Python objects, because numpy drops zero bytes at their ends, and two persons that were
    mistaken for one would take each other's places.
    """
    labels = _as_list(whose)
    if len(labels) != rows.count:
        raise InvalidDataError(f"There are {len(labels)} persons for {rows.count} rows.", _ONE_EACH)
    nameless = next((row for row, each in enumerate(labels, 1) if _is_missing(each)), None)
    if nameless is not None:
        raise InvalidDataError(f"The person of row {nameless} is missing.", _ONE_EACH)
    kind = getattr(whose, "dtype", getattr(whose, "type", ""))
    _require_exact(labels, str(getattr(getattr(kind, "categories", None), "dtype", kind)))
    try:
        places = {label: place for place, label in enumerate(sorted(set(labels)))}
    except TypeError:
        raise InvalidTypeError(
            "The persons of the rows are of different types.", "Give text for every row, or a number for every row."
        ) from None
    return replace(rows, persons=np.fromiter(map(places.__getitem__, labels), dtype=np.intp, count=rows.count))


def _as_list(whose: Any) -> list[Any]:  # noqa: ANN401  # whatever was given
    """Return labels as Python objects. For this, numpy and pandas have ``tolist``, and Arrow has ``to_pylist``."""
    shape = getattr(whose, "shape", ())
    if len(shape) > 1 or isinstance(whose, Mapping | AbstractSet | str):
        what = f"a {type(whose).__name__}" + (f" of the shape {tuple(shape)}" if shape else "")
        raise InvalidTypeError(f"The persons of the rows are {what}.", f"{_ONE_EACH} In the order of the rows.")
    convert = getattr(whose, "to_pylist", None) or getattr(whose, "tolist", None)
    labels = convert() if convert is not None else list(whose) if isinstance(whose, Iterable) else whose
    if not isinstance(labels, list) or any(getattr(each, "shape", ()) for each in labels):
        raise InvalidTypeError(f"The persons of the rows are a {type(whose).__name__}.", _ONE_EACH)
    return labels


def _is_missing(label: Any) -> bool:  # noqa: ANN401  # whatever was given
    """Tell whether a label names nobody. Pandas has a value of its own for that, which equals nothing."""
    return label is None or type(label).__name__ in NAMELESS or label == "" or label != label  # noqa: PLR0124  # NaN


def _require_exact(labels: Sequence[Any], kind: str) -> None:
    """Refuse floating-point numbers that may be the same for two persons, as providers do in files."""
    is_short = kind.lower().partition("[")[0] in _SHORT or any(isinstance(each, _SHORT_NUMBERS) for each in labels)
    if is_short or any(isinstance(each, float) and abs(each) >= _EXACT for each in labels):
        raise InvalidTypeError(
            "The persons of the rows are numbers that may have been rounded, so two persons may have one number.",
            "Give whole numbers or text. Do not convert floating-point numbers: read the column anew, as text.",
        )


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
