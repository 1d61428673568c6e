"""Single values of a dictionary's file, checked. An error names the feature, the key, the value and what is allowed."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, TypeAlias

from dpspca.common.checks import check, is_real
from dpspca.common.decoding import By, Rule, Source
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import shortened
from dpspca.common.text import composed

PLACEHOLDER: Final = "?"
"""A placeholder that ``dpspca dictionary init`` writes where a person must fill in something."""
LEVEL_MARK: Final = "="
"""Between a category's name and a level, in the name of a column."""
_MARK: Final = re.compile(r"(?<=\S)=")
"""The first of these in the name of a column is the mark. Neither names nor levels end or begin with spaces, so "="
with a space before it is a part of a name, as in "gender = MALE". No name of a feature has the mark itself."""

_LARGEST: Final = 2.0**64
_LONGEST_NAME: Final = 255
"""As long as the name of a concept in OMOP may be."""


def unfilled(where: str, value: object) -> list[DpspcaError]:
    """Return a fault if a value has a placeholder anywhere in it."""
    remedy = f'Replace "{PLACEHOLDER}" by what is publicly known. Do not take it from the rows.'
    return [InvalidParameterError(f"{where} is not filled in.", remedy)] if _has_placeholder(value) else []


def _has_placeholder(value: object) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(_has_placeholder, parts)) or (isinstance(value, str) and value.strip() == PLACEHOLDER)


def plain_name(what: str, name: object) -> str:
    """Return a name in Unicode's composed form. Any script may be used, spaces and dots too."""
    if not isinstance(name, str):
        raise InvalidParameterError(f"{what} is {shortened(name)}, not text.", "Give a name in quotes.")
    plain = composed(name)
    is_good = plain.strip() == plain and plain.isprintable() and 0 < len(plain) <= _LONGEST_NAME
    check(
        is_good and not has_level(plain),
        f"{what} is {shortened(name)}.",
        f"Use 1 to {_LONGEST_NAME} printable characters, no spaces at the ends, and one before {LEVEL_MARK!r}.",
    )
    return plain


def has_level(column: str) -> bool:
    """Tell whether the name of a column of prepared rows names a level of a category."""
    return _MARK.search(column) is not None


def feature_of(column: str) -> str:
    """Return the feature to which a column of prepared rows belongs."""
    return _MARK.split(column, maxsplit=1)[0]


Amount: TypeAlias = Annotated[
    float,
    By(lambda value, _: value + 0.0, float),  # turns -0.0 into 0.0
    Rule("Give a finite number between -2^64 and 2^64, without quotes.", lambda value: abs(value) <= _LARGEST),
]
Code: TypeAlias = Annotated[
    str | float,
    By(lambda code, _: code.strip() if isinstance(code, str) else code + 0.0, str | float),
    Rule('Give numbers and texts, as in [-9, "NA"].', lambda code: isinstance(code, str) or abs(code) <= _LARGEST),
]
Codes: TypeAlias = Annotated[tuple[Code, ...], By(lambda given, _: _each_once(given), tuple[Code, ...])]
"""Values that stand for a missing one, each once, numbers first."""


def _each_once(codes: Iterable[str | float]) -> tuple[str | float, ...]:
    return tuple(sorted(set(codes), key=lambda each: (isinstance(each, str), each)))


def level_name(value: Any, _source: Source) -> str:  # noqa: ANN401  # whatever the file holds
    """Read the name of a level. A whole number counts as its digits, as in [1, 2]."""
    name = composed(level_text(value))
    is_good = name.strip() == name and bool(name) and name.isprintable()
    check(is_good, f"It is {shortened(value)}.", "Give printable text that is not empty, without spaces at its ends.")
    return name


Level: TypeAlias = Annotated[str, By(level_name)]


def level_text(value: Any) -> str:  # noqa: ANN401  # whatever the file holds
    """Return a level as text: of a whole number its digits."""
    if isinstance(value, bool):
        return str(value).lower()
    if is_real(value):
        return str(int(value)) if float(value).is_integer() else repr(float(value))
    return value if isinstance(value, str) else ""
