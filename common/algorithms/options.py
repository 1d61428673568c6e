"""The options of a method beyond the job's own keys, as its ``Options`` dataclass declares them.

The dataclass is the one place: the method reads a spec by its fields, and the command line, the estimator and the
documentation list the same fields. A field with a default may be left out. A field whose type is an enumeration takes
its values. The metadata (``described``) says what a field is for.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from dpspca.common.spec import Scalar

_DESCRIPTION: Final = "description"


class Kind(StrEnum):
    """What an option's value is."""

    WHOLE = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"
    TEXT = "text"
    WHOLE_OR_AUTO = "a whole number or auto"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Without a default (None) that is not ``required``, the algorithm decides, as ``help`` says."""

    name: str
    kind: Kind
    help: str = ""
    default: Scalar = None
    required: bool = False
    choices: tuple[str, ...] = ()


def described(what: str) -> Mapping[str, str]:
    """Make a field's metadata of one line that says what the option is for."""
    return {_DESCRIPTION: what}


def declared(of: type) -> tuple[Option, ...]:
    """List the options that the fields of an ``Options`` dataclass are."""
    kinds = get_type_hints(of)
    return tuple(_option(each, kinds[each.name]) for each in fields(of))


def _option(field: Field[Any], hint: Any) -> Option:  # noqa: ANN401  # whatever a type hint is
    kinds = [each for each in get_args(hint) if each is not NoneType] or [hint]
    choices = tuple(member.value for member in kinds[0]) if issubclass(kinds[0], StrEnum) else ()
    return Option(
        field.name,
        _kind(kinds[0]) if len(kinds) == 1 else Kind.WHOLE_OR_AUTO,
        field.metadata.get(_DESCRIPTION, ""),
        None if field.default is MISSING else _plain(field.default),
        field.default is MISSING,
        choices,
    )


def _kind(of: type) -> Kind:
    """Find the kind; true and false are whole numbers too, and come first."""
    kinds = {bool: Kind.SWITCH, int: Kind.WHOLE, float: Kind.NUMBER, str: Kind.TEXT}
    return next(kind for known, kind in kinds.items() if issubclass(of, known))


def _plain(value: Any) -> Scalar:  # noqa: ANN401  # a field's default
    return value.value if isinstance(value, StrEnum) else value
