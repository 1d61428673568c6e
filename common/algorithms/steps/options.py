"""The options that only one method has, read from its ``Options`` dataclass.

The method reads a spec by the fields of that dataclass, and the command line, the estimator and the documentation list
the same fields. A field with a default is optional. A field whose type is an enumeration accepts the enumeration's
values. The metadata (``described``) is the help text.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from dpspca.common.job import Scalar

_DESCRIPTION: Final = "description"


class OptionKind(StrEnum):
    """Types of the values of options."""

    WHOLE = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"
    TEXT = "text"
    WHOLE_OR_AUTO = "a whole number or auto"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. If its default is None and it is not ``required``, the method chooses the value (see ``help``)."""

    name: str
    kind: OptionKind
    help: str = ""
    default: Scalar = None
    required: bool = False
    choices: tuple[str, ...] = ()


def described(what: str) -> Mapping[str, str]:
    """Return the metadata of a field: one line that says what the option is for."""
    return {_DESCRIPTION: what}


def declared(of: type) -> tuple[Option, ...]:
    """Return the fields of an ``Options`` dataclass as options."""
    kinds = get_type_hints(of)
    return tuple(_option(each, kinds[each.name]) for each in fields(of))


def _option(field: Field[Any], hint: Any) -> Option:  # noqa: ANN401  # whatever a type hint is
    kinds = [each for each in get_args(hint) if each is not NoneType] or [hint]
    choices = tuple(member.value for member in kinds[0]) if issubclass(kinds[0], StrEnum) else ()
    return Option(
        field.name,
        _kind(kinds[0]) if len(kinds) == 1 else OptionKind.WHOLE_OR_AUTO,
        field.metadata.get(_DESCRIPTION, ""),
        None if field.default is MISSING else _plain(field.default),
        field.default is MISSING,
        choices,
    )


def _kind(of: type) -> OptionKind:
    """Return the kind of a type. ``bool`` comes first because it is a subclass of ``int``."""
    kinds = {bool: OptionKind.SWITCH, int: OptionKind.WHOLE, float: OptionKind.NUMBER, str: OptionKind.TEXT}
    return next(kind for known, kind in kinds.items() if issubclass(of, known))


def _plain(value: Any) -> Scalar:  # noqa: ANN401  # a field's default
    return value.value if isinstance(value, StrEnum) else value
