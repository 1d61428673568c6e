"""Checks of single values, wherever they come from: callers, files or messages. An error names the value and the range.

Every check raises an error of this package (``errors.py``) and no other, whatever the value is.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from .choices import choices
from .errors import InvalidInputError, InvalidParameterError, InvalidTypeError
from .names import shortened

_REAL: Final = (int, float, np.integer, np.floating)


def check(
    holds: bool,  # noqa: FBT001  # reads as: check that it holds
    what: str,
    remedy: str,
    kind: type[InvalidParameterError] = InvalidParameterError,
) -> None:
    """Refuse a parameter unless the condition holds."""
    if not holds:
        raise kind(what, remedy)


def check_all(*conditions: tuple[bool, str, str]) -> None:
    """Refuse parameters unless every condition holds, and say of each that does not. Each is as of ``check``."""
    wrong = [InvalidParameterError(what, remedy) for holds, what, remedy in conditions if not holds]
    if wrong:
        raise InvalidInputError(wrong)


def is_real(value: object) -> bool:
    """Return whether this is a finite number. True and false are not numbers."""
    try:
        return isinstance(value, _REAL) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def check_whole(name: str, value: Any, *, least: int, most: int, most_is: str = "") -> int:  # noqa: ANN401  # any value
    """Return a whole number within the range as an int, or refuse the value. NumPy's integers are whole numbers.

    ``most_is`` says what the largest number is, as in "the number of columns".
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidTypeError(f"{name} is {shortened(value)}, not a whole number.", "Give an integer.")
    check(
        least <= int(value) <= most,
        f"{name} is {shortened(int(value))}; it must lie between {least} and {most}{most_is and f', {most_is}'}.",
        "Choose a value in that range.",
    )
    return int(value)


def check_bound(name: str, value: Any) -> float:  # noqa: ANN401  # any value
    """Return a positive, finite bound, or refuse one that is missing or out of range."""
    check(
        value is not None,
        f"{name} is not set.",
        "Set it from public knowledge about the columns, such as their units and ranges. Do not compute it from the "
        "rows: it would reveal something about them.",
    )
    check(
        is_real(value) and 2.0**-100 <= value <= 2.0**100,
        f"{name} is {shortened(value)}; it must be a positive finite number, between 2^-100 and 2^100.",
        "Give a length: longer rows are clipped to it.",
    )
    return float(value)


def choice(kind: Any, name: str, value: object) -> Any:  # noqa: ANN401  # any enumeration of strings
    """Return the member of an enumeration that has this value."""
    try:
        return kind(value)
    except ValueError:
        raise unknown(name, value, [member.value for member in kind]) from None


def unknown(what: str, name: object, known: Iterable[str], *, where: str = "") -> InvalidParameterError:
    """Return the error about a name that is none of the known. ``where`` follows the name, as in " of the job"."""
    return InvalidParameterError(f"Unknown {what} {shortened(name)}{where}.", choices(name, known))


def check_known(what: str, name: object, known: Iterable[str], *, where: str = "") -> None:
    """Refuse a name that is none of the known."""
    names = list(known)
    if name not in names:
        raise unknown(what, name, names, where=where)


def check_list(name: str, value: Sequence[str]) -> list[str]:
    """Return several names as a list. Refuse a single text, which would be the list of its letters."""
    if isinstance(value, str):
        raise InvalidTypeError(f"{name} is {value!r}.", f"Give a list of names: [{value!r}].")
    return list(value)
