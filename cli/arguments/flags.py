"""Flags that several commands share, and the texts about exit codes."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from . import job_flags
from .public_facts import PublicFacts

EXIT_CODES: Final = (
    "Exit codes: 0 done; 1 an internal error, or the reader of the output stopped reading; 2 a flag, job, file or "
    "package is wrong or missing, the federation refused, or the job that was waited for failed or was cancelled "
    "(standard error says what is wrong and what to do); 130 interrupted."
)
CHECK_CODES: Final = (
    "Exit codes: 0 all is well; 1 a check failed, as the output says; 2 a flag is wrong, or nothing could be checked; "
    "130 interrupted."
)
DAEMON_CODES: Final = (
    "Exit codes: 0 stopped by SIGTERM or SIGINT; 1 an internal error; 2 a flag, file, certificate or address is wrong "
    "(reported before anything is served), or the journal failed."
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
AnySettings = Annotated[
    Path,
    typer.Option("--config", help="Settings file (TOML) of a coordinator, provider or analyst.", show_default=False),
]
AnalystSettingsFile = Annotated[
    Path, typer.Option("--config", help="Settings file (TOML) of the analyst.", show_default=False)
]
DaemonSettingsFile = Annotated[
    Path, typer.Option("--config", help="Settings file (TOML) of the daemon.", show_default=False)
]
Plots = Annotated[
    Path | None,
    typer.Option("--plots", help="Folder for plots of the explained variance and the loadings. If left out: no plots."),
]
ModelFile = Annotated[Path, typer.Option("--out", help="File to write the model to.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output file if it exists.")]

RetrySeconds = Annotated[
    float,
    typer.Option(
        "--retry-seconds",
        metavar="SECONDS",
        min=0,
        help="How long to retry if the coordinator cannot be reached. 0: do not retry.",
    ),
]

Command = Callable[..., None]


def with_job_flags(command: Command) -> Command:
    """Replace a command's parameter ``flags``, which describes a job, by one option for each of its fields."""
    return _with_options(command, "flags", job_flags.Flags)


def with_public_facts(command: Command) -> Command:
    """Replace a command's parameter ``known``, public facts about rows, by one option for each of its fields."""
    return _with_options(command, "known", PublicFacts)


def _with_options(command: Command, name: str, kind: type[Any]) -> Command:
    """Replace a parameter that is a data class by one option for each of its fields."""
    signature = inspect.signature(command)
    own = [each for each in signature.parameters.values() if each.name != name]
    given = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.type)
        for each in fields(kind)
    ]

    @wraps(command)
    def with_options(**values: Any) -> None:  # noqa: ANN401  # whatever the options hold
        gathered = kind(**{each.name: values.pop(each.name) for each in given})
        command(**values, **{name: gathered})

    with_options.__signature__ = signature.replace(parameters=[*own, *given])  # type: ignore[attr-defined]
    return with_options
