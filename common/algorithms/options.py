"""What an algorithm can be told beyond a job's own keys, as its ``Options`` dataclass has it, for all to show.

The dataclass is the one place: the algorithm reads a spec by its fields, and the command line, the estimator and the
documentation learn from the same fields what there is. A field that has a default may be left out; one whose type is
an enumeration takes that enumeration's values. What the field is for stands in its metadata (``told``).
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from types import NoneType
from typing import Any, Final, get_args, get_type_hints

from dpspca.common.spec import Scalar

_TOLD: Final = "told"


class Kind(StrEnum):
    """What an option's value is."""

    WHOLE = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. Without a default (None) that is not ``required``, the algorithm decides, as ``help`` says."""

    name: str
    kind: Kind
    help: str = ""
    default: Scalar = None
    required: bool = False
    choices: tuple[str, ...] = ()


def told(what: str) -> Mapping[str, str]:
    """Make a field's metadata of one line that says what the option is for."""
    return {_TOLD: what}


def declared(of: type) -> tuple[Option, ...]:
    """List the options that the fields of an ``Options`` dataclass are."""
    kinds = get_type_hints(of)
    return tuple(_option(each, kinds[each.name]) for each in fields(of))


def _option(field: Field[Any], hint: Any) -> Option:  # noqa: ANN401  # whatever a type hint is
    (kind,) = [each for each in get_args(hint) if each is not NoneType] or [hint]
    choices = tuple(member.value for member in kind) if issubclass(kind, StrEnum) else ()
    return Option(
        field.name,
        _kind(kind),
        field.metadata.get(_TOLD, ""),
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
