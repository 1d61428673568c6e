"""Checks of the values of all flags and arguments, with messages of this project.

An empty value is refused because an empty name would look like one that was left out. A value that is none of a few
is refused with the choices, and with the one that was probably meant.
"""

from enum import Enum
from typing import Any, Final

import typer.main

from dpspca.common.checks import check_known
from dpspca.common.errors import InvalidParameterError

_REMEDY: Final = "Give a value, or leave it out."


def command_with_checks(app: typer.Typer) -> Any:  # noqa: ANN401  # a click command; typer may bring its own copy of click
    """Return the program's command, which refuses empty or blank texts, and unknown names among few, as values."""
    command = typer.main.get_command(app)
    _add_checks(command)
    return command


def _add_checks(command: Any) -> None:  # noqa: ANN401
    for parameter in command.params:
        _add_check(parameter)
    for part in getattr(command, "commands", {}).values():
        _add_checks(part)


def _add_check(parameter: Any) -> None:  # noqa: ANN401
    process, known = parameter.process_value, _choices_of(parameter)

    def checked(ctx: Any, value: Any) -> Any:  # noqa: ANN401
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str) and not each.strip():
                raise InvalidParameterError(f"{_displayed_name(parameter)} is {each!r}, which is empty.", _REMEDY)
        if known and isinstance(value, str) and not isinstance(value, Enum):
            shown = _displayed_name(parameter)
            check_known(shown if shown.startswith("--") else shown.lower(), value, known)
        return process(ctx, value)

    parameter.process_value = checked


def _choices_of(parameter: Any) -> list[str]:  # noqa: ANN401
    """Return the names that a parameter may have, if these are few. Versions of typer keep them in different places."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(each.value) for each in kind]
    own = getattr(getattr(parameter, "type", None), "choices", None) or ()
    return [str(each.value) if isinstance(each, Enum) else str(each) for each in own]


def _displayed_name(parameter: Any) -> str:  # noqa: ANN401
    """Return a flag as it is typed, and an argument by its name in the help."""
    flags = [each for each in parameter.opts if each.startswith("--")]
    return flags[0] if flags else str(parameter.metavar or parameter.name).upper()
