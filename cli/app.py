"""The commands and their flags. Each command puts parts together and prints; what it does is done elsewhere."""

from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca import __version__
from dpspca.common.errors import DpspcaError

from . import (
    algorithms,
    audit,
    authority,
    blank,
    budget,
    daemons,
    demo,
    doctor,
    expected,
    jobs,
    ledger,
    models,
    outbox,
    output,
    policy,
    priced,
    questions,
)
from .flags import CHECK_CODES, EXIT_CODES, AsJson, spread

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
    """Run the command; our own errors are for people, so they are told in a line of words and without a traceback."""
    try:
        blank.careful(app)()
    except DpspcaError as problem:
        typer.echo(output.printable(str(problem)), err=True)
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
@spread
def _plan(
    job: Annotated[
        Path | None,
        typer.Argument(
            help="A job as JSON or TOML, or a plan with one. Left out: the flags describe it.", show_default=False
        ),
    ] = None,
    *,
    flags: questions.Flags,
    write_job: Annotated[Path | None, typer.Option(help="Write the job to this file, to plan or run it later.")] = None,
    assume: Annotated[list[str] | None, typer.Option(help=expected.HELP, show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Print which questions a job would ask, with the noise and the price of each. Nothing is asked."""
    spec = questions.from_file(job, flags).spec if job else questions.from_flags(flags)
    theory = expected.facts(spec, assume) if assume else None
    facts = priced.facts(spec) | ({"theory": theory} if theory else {})
    if write_job:
        output.write_file(write_job, spec.to_json() + "\n")
    if as_json:
        typer.echo(output.to_json(facts))
    else:
        output.print_plan(facts)
        for sentence in expected.words(theory) if theory else ():
            typer.echo(sentence)


app.command("algorithms", epilog=EXIT_CODES)(algorithms.algorithms)

for part in (
    jobs.jobs,
    models.model,
    authority.ca,
    authority.identity,
    daemons.coordinator,
    daemons.provider,
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
