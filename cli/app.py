"""The `dpspca` command with all its subcommands. A command connects parts and prints; other packages do the work."""

from functools import cache
from typing import Annotated, Any, Final

import typer

from dpspca import __version__
from dpspca.common.errors import DpspcaError, InvalidInputError
from dpspca.common.text import printable

from .arguments import CHECK_CODES, EXIT_CODES, empty_values
from .commands import (
    approval,
    audit,
    budget,
    daemons,
    data,
    demo,
    dictionaries,
    doctor,
    evidence,
    identity,
    jobs,
    ledger,
    methods,
    models,
    outbox,
    plan,
    policy,
    study,
    terms,
)
from .dashboard import dashboard

FAILURE: Final = 2

app = typer.Typer(
    name="dpspca",
    help="Differentially private sparse principal component analysis of data that must stay where they are.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Run the command. Print an expected error without a traceback, one line for each fault, and exit with 2."""
    try:
        whole_program()()
    except DpspcaError as problem:
        for fault in problem.faults if isinstance(problem, InvalidInputError) else [problem]:
            typer.echo(printable(str(fault)), err=True)
        raise SystemExit(FAILURE) from None


@cache
def whole_program() -> Any:  # noqa: ANN401  # a click command; typer may bring its own copy of click
    """Return the whole program as a click command. Building it again takes as long as a short command."""
    return empty_values.command_with_checks(app)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  # what a flag's callback is given
    if wanted:
        typer.echo(f"dpspca {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    version: Annotated[  # its callback does the work
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("demo", epilog=EXIT_CODES)(demo.demo)
app.command("join", epilog=EXIT_CODES)(identity.join)
app.command("dashboard", epilog=EXIT_CODES)(dashboard)
app.command("plan", epilog=EXIT_CODES)(plan.plan)
app.command("methods", epilog=EXIT_CODES)(methods.methods)
app.command("report", epilog=EXIT_CODES)(models.write_report)

for part in (
    jobs.jobs,
    models.model,
    evidence.evidence,
    study.study,
    identity.identity,
    daemons.coordinator,
    daemons.provider,
    data.data,
    dictionaries.dictionary,
    doctor.config,
    policy.policy,
    ledger.ledger,
    approval.approval,
):
    app.add_typer(part)
for name, command in (("run", jobs.run), ("datasets", jobs.datasets), ("outbox", outbox.outbox)):
    app.command(name, epilog=EXIT_CODES)(command)
for name, command in (("doctor", doctor.doctor), ("health", doctor.health), ("audit", audit.audit)):
    app.command(name, epilog=CHECK_CODES)(command)
app.command("terms", epilog=terms.TERMS_CODES)(terms.terms)
app.command("budget", epilog=budget.BUDGET_CODES)(budget.budget)
