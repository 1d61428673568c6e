"""A method's options on the command line: ``--option NAME=VALUE``, and flags of their own for some.

The catalogue says which options a method has and of what kind each is, so values are parsed accordingly.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dpspca.client.jobs import DEFAULT_METHOD
from dpspca.common.algorithms import AUTO, CATALOGUE, Method, Option, OptionKind
from dpspca.common.checks import check, check_known, unknown
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Scalar

OPTIONS_WITH_FLAGS: Final = ("sparsity", "rounds")
"""Options that have a flag of their own."""

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_SWITCH: Final = {"true": True, "false": False}


def names(incomplete: str = "") -> list[str]:
    """Return the names of methods that begin so, for the shell's completion."""
    return [name for name in CATALOGUE if name.startswith(incomplete)]


def find_method(method: str | None) -> Method:
    """Return the method of this name, or the default method. An error names the flag --method."""
    name = method or DEFAULT_METHOD
    check_known("--method", name, CATALOGUE)
    return CATALOGUE[name]


def parse(method: str | None, given: Sequence[str], short: Mapping[str, int | str | None]) -> dict[str, Scalar]:
    """Parse a method's options from --option and from their own flags. Options that were not given are left out."""
    entry, name = find_method(method), method or DEFAULT_METHOD
    values: dict[str, Scalar] = {}
    for flag, value in short.items():
        if value is not None:
            option = _find_option(entry, name, flag, None)
            values[flag] = _parse_value(option, value, f"--{flag}") if isinstance(value, str) else value
    for each in given:
        key, equals, text = each.partition("=")
        check(
            bool(equals) and bool(key),
            f"--option is {each!r:.80}, which is not NAME=VALUE.",
            "Write --option NAME=VALUE.",
        )
        option = _find_option(entry, name, key, "--option")
        check(key not in values, f"The option {key} is given twice.", "Give every option once.")
        values[key] = _parse_value(option, text, f"--option {key}")
    return values


def missing(method: str | None, values: Mapping[str, Scalar]) -> list[str]:
    """Return the flags of options that the method requires and that were not given."""
    needed = [each.name for each in find_method(method).options if each.required and each.name not in values]
    return [f"--{name}" if name in OPTIONS_WITH_FLAGS else f"--option {name}=..." for name in needed]


def _find_option(entry: Method, method: str, name: str, flag: str | None) -> Option:
    """Return an option of the method, or refuse its name. ``flag`` is None if the option has a flag of its own."""
    option, others = entry.option(name), [each.name for each in entry.options]
    if option is None and flag is None:
        raise InvalidParameterError(
            f"--{name} is given, but {method} has no such option.",
            f"Leave --{name} out. Available: {', '.join(others) or 'none'}.",
        )
    if option is None:
        raise unknown(str(flag), name, others, where=f" of the method {method}")
    return option


def _parse_value(option: Option, text: str, flag: str) -> Scalar:
    """Parse the value of an option by its kind. An error names the flag."""
    value = _PARSERS[option.kind](text)
    check(value is not None, f"{flag} is {text!r:.80}, not {option.kind}.", f"Give {option.kind}.")
    if option.choices:
        check_known(flag, value, option.choices)
    return value


def parse_whole_number(text: str) -> int | None:
    """Return a whole number, or None if the text is none."""
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else None


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


_PARSERS: Final[Mapping[OptionKind, Callable[[str], Scalar]]] = {
    OptionKind.WHOLE: parse_whole_number,
    OptionKind.NUMBER: _parse_number,
    OptionKind.SWITCH: _SWITCH.get,
    OptionKind.TEXT: str,
    OptionKind.WHOLE_OR_AUTO: lambda text: text if text == AUTO else parse_whole_number(text),
}
