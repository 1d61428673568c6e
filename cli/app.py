"""The `dpspca` command with all its subcommands. A command connects parts and prints; other packages do the work."""

from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca import __version__
from dpspca.client import expected_error, prices
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError
from dpspca.common.text import printable

from .arguments import CHECK_CODES, EXIT_CODES, AsJson, empty_values, job_flags, with_job_flags
from .commands import (
    audit,
    authority,
    budget,
    daemons,
    data,
    demo,
    doctor,
    jobs,
    ledger,
    methods,
    models,
    outbox,
    policy,
)
from .render import output

FAILURE: Final = 2

app = typer.Typer(
    name="dpspca",
    help="Differentially private sparse principal component analysis for data that may not leave home.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def run() -> None:
    """Run the command. Print an expected error as one line without a traceback, and exit with 2."""
    try:
        empty_values.command_with_checks(app)()
    except DpspcaError as problem:
        typer.echo(printable(str(problem)), err=True)
        raise SystemExit(FAILURE) from None


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


@app.command("plan", epilog=EXIT_CODES)
@with_job_flags
def _plan(
    job: Annotated[
        Path | None,
        typer.Argument(
            help="The job, as JSON or TOML, or the output of `dpspca plan --json`. If left out: the flags describe it.",
            show_default=False,
        ),
    ] = None,
    *,
    flags: job_flags.Flags,
    write_job: Annotated[
        Path | None, typer.Option(help="Write the job to this JSON file, to plan or run it later.")
    ] = None,
    assume: Annotated[list[str] | None, typer.Option(help=expected_error.HELP, show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Print the queries of a job, with the noise and the price of each. Nothing is sent and nothing is spent."""
    spec = job_flags.from_file(job, flags).spec if job else job_flags.from_flags(flags)
    theory = expected_error.facts(spec, assume) if assume else None
    facts = prices.facts(catalogue.plan(spec)) | ({"theory": theory} if theory else {})
    if write_job:
        output.write_file(write_job, spec.to_json() + "\n")
    if as_json:
        typer.echo(output.to_json(facts))
    else:
        output.print_plan(facts)
        for sentence in expected_error.words(theory) if theory else ():
            typer.echo(sentence)


app.command("methods", epilog=EXIT_CODES)(methods.methods)

for part in (
    jobs.jobs,
    models.model,
    authority.ca,
    authority.identity,
    daemons.coordinator,
    daemons.provider,
    data.data,
    doctor.config,
    policy.policy,
    ledger.ledger,
):
    app.add_typer(part)
for name, command in (("run", jobs.run), ("datasets", jobs.datasets), ("outbox", outbox.outbox)):
    app.command(name, epilog=EXIT_CODES)(command)
for name, command in (("doctor", doctor.doctor), ("health", doctor.health), ("audit", audit.audit)):
    app.command(name, epilog=CHECK_CODES)(command)
app.command("budget", epilog=budget.BUDGET_CODES)(budget.budget)
