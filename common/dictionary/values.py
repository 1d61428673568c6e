"""Single values of a dictionary's file, checked. An error names the feature, the key, the value and what is allowed."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from dpspca.common.checks import check, is_real
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened

PLACEHOLDER: Final = "?"
"""What ``dpspca dictionary init`` writes where a person must fill in something."""
LEVEL_MARK: Final = "="
"""Between a category's name and a level, in the name of a column. No name of a feature has it."""

_LARGEST: Final = 2.0**64
_LEAST: Final = 2.0**-64
_LONGEST_NAME: Final = 200
_MOST_NAMED: Final = 20

Codes: TypeAlias = tuple[str | float, ...]
Reader: TypeAlias = Callable[[str, Any], Any]


def check_keys(where: str, table: object, known: Iterable[str], needed: Iterable[str] = ()) -> Mapping[str, Any]:
    """Return a table that has no key but the known ones, and all needed ones."""
    if not isinstance(table, Mapping):
        raise InvalidParameterError(f"{where} is {shortened(table)}, not a table.", "Write key = value under it.")
    allowed = frozenset(known)
    for key in table:
        if key not in allowed:
            near = get_close_matches(str(key), sorted(allowed), n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Use: {', '.join(sorted(allowed)[:_MOST_NAMED])}."
            raise InvalidParameterError(f"{where} has an unknown key {shortened(key)}.", hint)
    missing = sorted(set(needed) - set(table))
    check(not missing, f"{where} lacks {', '.join(missing)}.", "Add it.")
    return table


def require_filled(where: str, value: object) -> None:
    """Refuse a placeholder, anywhere in a value."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for each in parts:
        require_filled(where, each)
    check(
        not (isinstance(value, str) and value.strip() == PLACEHOLDER),
        f"{where} is not filled in.",
        f'Replace "{PLACEHOLDER}" by what is publicly known. Do not read it off the rows.',
    )


def plain_name(what: str, name: object) -> str:
    """Return a name in Unicode's composed form. Any script may be used, spaces and dots too."""
    if not isinstance(name, str):
        raise InvalidParameterError(f"{what} is {shortened(name)}, not text.", "Give a name in quotes.")
    plain = unicodedata.normalize("NFC", name)
    is_good = plain.strip() == plain and plain.isprintable() and 0 < len(plain) <= _LONGEST_NAME
    check(
        is_good and LEVEL_MARK not in plain,
        f"{what} is {shortened(name)}.",
        f"Use 1 to {_LONGEST_NAME} printable characters without {LEVEL_MARK!r}, and no spaces at the ends.",
    )
    return plain


def text(where: str, value: object) -> str:
    """Return text."""
    if not isinstance(value, str):
        raise InvalidParameterError(f"{where} is {shortened(value)}, not text.", "Write it in quotes.")
    return value


def number(where: str, value: Any) -> float:  # noqa: ANN401  # whatever the file holds
    """Return a finite number of usual size."""
    check(
        is_real(value) and abs(float(value)) <= _LARGEST,
        f"{where} is {shortened(value)}.",
        "Give a finite number between -2^64 and 2^64, without quotes.",
    )
    return float(value) + 0.0  # turns -0.0 into 0.0


def positive(where: str, value: object) -> float:
    """Return a number above zero."""
    found = number(where, value)
    check(found >= _LEAST, f"{where} is {shortened(value)}.", "Give a number of at least 2^-64.")
    return found


def number_range(where: str, value: object) -> tuple[float, float]:
    """Return the lower and the upper end of a range."""
    if not isinstance(value, list | tuple) or len(value) != 2:  # noqa: PLR2004  # two ends
        raise InvalidParameterError(f"{where} is {shortened(value)}.", "Give the two ends, as in [0, 120].")
    low, high = (number(where, each) for each in value)
    check(
        low < high,
        f"{where} is [{low:g}, {high:g}], whose first end is not below the second.",
        "Write the lower end first. A feature that can have one value only says nothing: leave it out.",
    )
    return low, high


def within(where: str, value: object, ends: tuple[float, float]) -> float:
    """Return a number of a range."""
    found = number(where, value)
    check(
        ends[0] <= found <= ends[1],
        f"{where} is {found:g}, which is outside the range [{ends[0]:g}, {ends[1]:g}].",
        "Correct it, or the range.",
    )
    return found


def codes(where: str, value: object) -> Codes:
    """Return values that stand for a missing one, each once, numbers first."""
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) or is_real(each) for each in value):
        raise InvalidParameterError(f"{where} is {shortened(value)}.", 'Give a list, as in [-9, "NA"].')
    plain = {each.strip() if isinstance(each, str) else number(where, each) for each in value}
    return tuple(sorted(plain, key=lambda each: (isinstance(each, str), each)))


def text_list(where: str, value: object) -> tuple[str, ...]:
    """Return a list of different texts. A whole number counts as its digits, as in [1, 2]."""
    what = f"{where} is {shortened(value)}."
    if not isinstance(value, list | tuple) or not value:
        raise InvalidParameterError(what, 'Give a list of texts, as in ["never", "former", "current"].')
    plain = tuple(unicodedata.normalize("NFC", level_text(each)) for each in value)
    check(
        all(each.strip() == each and each and each.isprintable() for each in plain),
        what,
        "Give printable texts that are not empty, without spaces at their ends.",
    )
    check(len(set(plain)) == len(plain), f"{where} lists a level twice.", "List each once.")
    return plain


def level_text(value: Any) -> str:  # noqa: ANN401  # whatever the file holds
    """Return a level as text: of a whole number its digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if is_real(value):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return value if isinstance(value, str) else ""
