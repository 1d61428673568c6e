"""Refuse flags and arguments with an empty value, because an empty name would look like one that was left out."""

from typing import Any, Final

import typer.main

from dpspca.common.errors import InvalidParameterError

_REMEDY: Final = "Give a value, or leave it out."


def command_with_checks(app: typer.Typer) -> Any:  # noqa: ANN401  # a click command; typer may bring its own copy of click
    """Return the program's command, which refuses an empty or blank text as the value of any parameter."""
    command = typer.main.get_command(app)
    _add_checks(command)
    return command


def _add_checks(command: Any) -> None:  # noqa: ANN401
    for parameter in command.params:
        _add_check(parameter)
    for part in getattr(command, "commands", {}).values():
        _add_checks(part)


def _add_check(parameter: Any) -> None:  # noqa: ANN401
    process = parameter.process_value

    def checked(ctx: Any, value: Any) -> Any:  # noqa: ANN401
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str) and not each.strip():
                raise InvalidParameterError(f"{_displayed_name(parameter)} is {each!r}, which is empty.", _REMEDY)
        return process(ctx, value)

    parameter.process_value = checked


def _displayed_name(parameter: Any) -> str:  # noqa: ANN401
    """Return a flag as it is typed, and an argument by its name in the help."""
    flags = [each for each in parameter.opts if each.startswith("--")]
    return flags[0] if flags else str(parameter.metavar or parameter.name).upper()
