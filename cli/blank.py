"""Refuses flags and arguments that are given and empty: an empty name would pass for one that was left out."""

from typing import Any, Final

import typer.main

from dpspca.common.errors import InvalidParameterError

_REMEDY: Final = "Give a value, or leave it out."


def careful(app: typer.Typer) -> Any:  # noqa: ANN401  # a command of click, of which typer may bring its own copy
    """Make the program's command, which refuses empty and blank text wherever a value is given."""
    command = typer.main.get_command(app)
    _watch(command)
    return command


def _watch(command: Any) -> None:  # noqa: ANN401
    for parameter in command.params:
        _watch_parameter(parameter)
    for part in getattr(command, "commands", {}).values():
        _watch(part)


def _watch_parameter(parameter: Any) -> None:  # noqa: ANN401
    process = parameter.process_value

    def checked(ctx: Any, value: Any) -> Any:  # noqa: ANN401
        for each in value if isinstance(value, list | tuple) else (value,):
            if isinstance(each, str) and not each.strip():
                raise InvalidParameterError(f"{_called(parameter)} is {each!r}, which is empty.", _REMEDY)
        return process(ctx, value)

    parameter.process_value = checked


def _called(parameter: Any) -> str:  # noqa: ANN401
    """Call a flag as it is written, and an argument as the help does."""
    flags = [each for each in parameter.opts if each.startswith("--")]
    return flags[0] if flags else str(parameter.metavar or parameter.name).upper()
