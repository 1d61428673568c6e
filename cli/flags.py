"""Flags that commands share, and what all of them promise about their exit codes."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.common.errors import InvalidParameterError
from dpspca.common.transport.config import (
    AnalystConfig,
    AnyConfig,
    CoordinatorConfig,
    ProviderConfig,
    faults,
    kind_of,
    read_toml,
)

from . import questions

EXIT_CODES: Final = (
    "Exit codes: 0 done; 2 a flag, job, file or package is wrong or missing, the federation says no, or the job that "
    "was waited for failed or was cancelled: standard error says what and what to do; 130 interrupted; 1 a fault of "
    "the program itself, or nobody reads on to the end of what it prints."
)
CHECK_CODES: Final = "Exit codes: 0 all is well; 1 something is not, and is told; 2 a flag is wrong; 130 interrupted."
DAEMON_CODES: Final = (
    "Exit codes: 0 stopped by SIGTERM or SIGINT; 2 a flag, file, certificate or address is wrong, told before anything "
    "is served, or the journal failed; 1 a fault of the program itself."
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
AnySettings = Annotated[
    Path, typer.Option("--config", help="Settings of the coordinator, a provider or an analyst.", show_default=False)
]
AnalystSettings = Annotated[Path, typer.Option("--config", help="An analyst's settings, in TOML.", show_default=False)]
OwnSettings = Annotated[Path, typer.Option("--config", help="This program's settings, in TOML.", show_default=False)]
Plots = Annotated[
    Path | None, typer.Option("--plots", help="Draw how much each component explains, and of what, into this folder.")
]
ModelFile = Annotated[Path, typer.Option("--out", help="Where to write the model.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]

Patience = Annotated[
    float,
    typer.Option(
        "--patience", metavar="SECONDS", min=0, help="How long to try a coordinator that went away; 0 is not at all."
    ),
]

Command = Callable[..., None]


PARENT: Final = "DPSPCA_PARENT"
"""In the environment of a daemon: the process that it was started for, and ends with."""


def now() -> datetime:
    """Tell the time, for those that must be told it."""
    return datetime.now(UTC)


def require_own(kind: type[AnyConfig], path: Path) -> None:
    """Refuse settings that are, to the last key, another program's."""
    raw = read_toml(path)
    other = kind_of(raw)
    if other is not kind and not any(faults(other, path, raw)):
        raise InvalidParameterError(
            f"{path} holds the settings of {program_of(other)}, not of {program_of(kind)}.",
            "Name the right file with --config.",
        )


def program_of(kind: type[AnyConfig]) -> str:
    """Name the program that a kind of settings is for."""
    return {CoordinatorConfig: "the coordinator", ProviderConfig: "a provider", AnalystConfig: "an analyst"}[kind]


def spread(command: Command) -> Command:
    """Give a command whose parameter ``flags`` describes a job each of these flags as an option of its own."""
    signature = inspect.signature(command)
    own = [each for name, each in signature.parameters.items() if name != "flags"]
    given = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(questions.Flags)
    ]

    @wraps(command)
    def spread_out(**values: Any) -> None:  # noqa: ANN401  # whatever the options hold
        flags = questions.Flags(**{each.name: values.pop(each.name) for each in given})
        command(**values, flags=flags)

    spread_out.__signature__ = signature.replace(parameters=[*own, *given])  # type: ignore[attr-defined]
    return spread_out
