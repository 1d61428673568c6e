"""Values as they come back from a file: held against the types that their class declares, before anybody uses them.

A file may be damaged or have been written by others. JSON gives whatever was written; a dataclass believes it. Here a
field of another type, an integer beyond what a message can carry, or text that cannot be written is refused.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

Made = TypeVar("Made")

LARGEST: Final = 10**400
"""Of an integer: more than any amount in a ledger."""

Fits: TypeAlias = Callable[[Any], bool]


def made(kind: Callable[..., Made], values: Mapping[str, Any], **others: Any) -> Made:  # noqa: ANN401  # whatever is stored
    """Make a dataclass of stored values, and of others that were looked at already; ``TypeError`` if one is wrong."""
    fits = _fits_of(kind)
    for name, value in values.items():
        if not fits.get(name, _unknown)(value):
            raise TypeError(name)
    return kind(**values, **others)


@cache
def _fits_of(kind: Any) -> dict[str, Fits]:  # noqa: ANN401  # a class
    """Find once what each field of a class takes: a ledger has many entries of few kinds."""
    return {name: _fits(hint) for name, hint in get_type_hints(kind).items()}


def _fits(hint: Any) -> Fits:  # noqa: ANN401  # a type as it is written down
    origin, parts = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return _one_of([_fits(part) for part in parts])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_fits(parts[0]), _fits(parts[1]))
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(_fits(parts[0]))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _member(hint)
    return _PLAIN.get(hint, _unknown)


def _unknown(_: object) -> bool:
    return False


def _one_of(some: Sequence[Fits]) -> Fits:
    return lambda value: any(fits(value) for fits in some)


def _mapping(key: Fits, entry: Fits) -> Fits:
    return lambda value: isinstance(value, dict) and all(key(k) and entry(v) for k, v in value.items())


def _sequence(entry: Fits) -> Fits:
    return lambda value: isinstance(value, list) and all(map(entry, value))


def _member(kind: type[StrEnum]) -> Fits:
    return lambda value: isinstance(value, str) and value in set(kind)


def _is_text(value: object) -> bool:
    """Tell whether this can be written as UTF-8."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value))


def is_whole(value: object) -> bool:
    """Tell whether this is a whole number that is kept as it is."""
    return type(value) is int and -LARGEST < value < LARGEST


_PLAIN: Final[Mapping[Any, Fits]] = {
    bool: lambda value: type(value) is bool,
    int: is_whole,
    float: lambda value: type(value) in {int, float} and math.isfinite(value),
    str: _is_text,
    type(None): lambda value: value is None,
}
