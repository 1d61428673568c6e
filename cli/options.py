"""What only an algorithm knows, as the command line says it: ``--option NAME=VALUE``, for some with a flag of its own.

Which options there are, and of what kind, the catalogue says; so a value is read as what the algorithm takes.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dpspca.common.algorithms.catalogue import CATALOGUE, Entry, choices
from dpspca.common.algorithms.options import Kind, Option
from dpspca.common.errors import InvalidParameterError
from dpspca.common.spec import JobSpec, Scalar, check

USUAL: Final = str(next(field.default for field in JobSpec.__dataclass_fields__.values() if field.name == "algorithm"))
"""The algorithm of a job that names none."""
SHORT: Final = ("sparsity", "rounds")
"""Options that have a flag of their own."""

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}")
_SWITCH: Final = {"true": True, "false": False}


def names(incomplete: str = "") -> list[str]:
    """Complete the name of an algorithm, for the shell."""
    return [name for name in CATALOGUE if name.startswith(incomplete)]


def chosen(algorithm: str | None) -> Entry:
    """Look an algorithm up, in the words of the flags."""
    name = algorithm or USUAL
    check(
        name in CATALOGUE,
        f"--algorithm is {name!r:.80}, and there is none of this name.",
        choices(name),
    )
    return CATALOGUE[name]


def read(algorithm: str | None, given: Sequence[str], short: Mapping[str, int | None]) -> dict[str, Scalar]:
    """Read an algorithm's options from the repeated flag and from the short ones; what was not given is left out."""
    entry, name = chosen(algorithm), algorithm or USUAL
    values: dict[str, Scalar] = {}
    for flag, value in short.items():
        if value is not None:
            _known(entry, name, flag, f"--{flag} is given")
            values[flag] = value
    for each in given:
        key, equals, text = each.partition("=")
        check(bool(equals) and bool(key), f"--option is {each!r:.80}, no name and value.", "Give --option NAME=VALUE.")
        option = _known(entry, name, key, f"--option names {key!r:.80}")
        check(key not in values, f"The option {key} is given twice.", "Give every option once.")
        values[key] = _value(option, text)
    return values


def missing(algorithm: str | None, values: Mapping[str, Scalar]) -> list[str]:
    """Name the flags of options that the algorithm needs and that were not given."""
    needed = [each.name for each in chosen(algorithm).options if each.required and each.name not in values]
    return [f"--{name}" if name in SHORT else f"--option {name}=..." for name in needed]


def _known(entry: Entry, algorithm: str, name: str, what: str) -> Option:
    option, others = entry.option(name), ", ".join(each.name for each in entry.options)
    if option is None:
        raise InvalidParameterError(
            f"{what}, and {algorithm} has no such option.",
            f"It has: {others}." if others else "It has none: leave it out.",
        )
    return option


def _value(option: Option, text: str) -> Scalar:
    """Read a value as what its option takes."""
    read_as = _READERS[option.kind](text)
    check(read_as is not None, f"--option {option.name} is {text!r:.80}, not {option.kind}.", "Give one.")
    check(
        not option.choices or read_as in option.choices,
        f"--option {option.name} is {text!r:.80}.",
        f"Choose one of: {', '.join(option.choices)}.",
    )
    return read_as


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_READERS: Final[Mapping[Kind, Callable[[str], Scalar]]] = {
    Kind.WHOLE: _whole,
    Kind.NUMBER: _number,
    Kind.SWITCH: _SWITCH.get,
    Kind.TEXT: str,
}
