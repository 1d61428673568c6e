"""From text to plain values. Everything that two readers could understand differently is refused."""

import json
import tomllib
from collections import Counter
from typing import Any, Final, NoReturn

from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import shortened

_LONGEST_INTEGER: Final = 4_000
"""Digits of an integer. Longer ones take long to read, and are never meant."""


_LONGEST_TOML: Final = 2**23


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Read TOML. Reading takes a microsecond for each character, so that text without end is refused."""
    if len(text) > _LONGEST_TOML:
        raise InvalidParameterError(f"{name} has {len(text)} characters.", f"Use at most {_LONGEST_TOML}.")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _too_deep(name) from None
    except tomllib.TOMLDecodeError as problem:
        raise InvalidParameterError(f"{name} is not valid TOML: {problem}.", "Correct that place.") from None
    except ValueError:  # an integer of more than 4300 digits, or a date that no calendar has
        raise InvalidParameterError(f"{name} has an invalid number or date.", "Correct it.") from None


def parse_json(text: str | bytes, name: str) -> Any:  # noqa: ANN401  # whatever JSON holds
    """Read JSON in which no key is given twice and every number is finite."""
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_refuse_constant, parse_int=_whole)
    except DpspcaError as problem:
        raise InvalidParameterError(f"{name}: {problem.what}", problem.remedy) from None
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError as problem:
        raise InvalidParameterError(f"{name} is not valid JSON: {problem}.", "Correct that place.") from None


def parse_form(content: str | bytes, form: str) -> dict[str, Any]:
    """Read a JSON object that states its form under "format", and return the rest of it."""
    raw = parse_json(content, "The content")
    if not isinstance(raw, dict) or raw.pop("format", None) != form:
        raise InvalidParameterError(f"The content is not of the form {form}.", "Use the version that wrote it.")
    return raw


def _too_deep(name: str) -> InvalidParameterError:
    return InvalidParameterError(f"{name} is nested too deeply.", "Write it as `dpspca config sample` shows.")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key given twice: two readers might take different ones."""
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidParameterError(f"The key {shortened(twice)} is given twice.", "Give every key once.")
    return table


def _refuse_constant(name: str) -> NoReturn:
    """Refuse what Python reads as a number and JSON does not know."""
    raise InvalidParameterError(f"{name} is not a JSON number.", "Give a finite number.")


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_INTEGER:
        raise InvalidParameterError(f"An integer has {len(digits)} digits.", f"Use at most {_LONGEST_INTEGER}.")
    return int(digits)
