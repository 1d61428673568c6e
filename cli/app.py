"""The commands and their flags. Each command puts parts together and prints; what it does is done elsewhere."""

from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca import __version__
from dpspca.client import report
from dpspca.client.files import load_model
from dpspca.common.errors import DpspcaError
from dpspca.common.spec import Centering, check

from . import demo, network, output, questions
from .reading import reading

FAILURE: Final = 2
EXIT_CODES: Final = (
    "Exit codes: 0 done; 2 a flag, job, file or package is wrong or missing, two sentences on standard error say what "
    "and what to do; 130 interrupted; 1 a fault of the program itself, or nobody reads on to the end of what it prints."
)

app = typer.Typer(
    name="dpspca",
    help="Differentially private sparse principal component analysis for data that may not leave home.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def run() -> None:
    """Run the command; our own errors are for people, so they are told in words and without a traceback."""
    try:
        app()
    except DpspcaError as problem:
        typer.echo(str(problem), err=True)
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


@app.command("demo", epilog=EXIT_CODES)
def _demo(  # noqa: PLR0913  # a command's flags are its parameters
    *,
    out: Annotated[Path, typer.Option(help="Folder for the plots, the model and the numbers.")] = Path("out/demo"),
    providers: Annotated[int, typer.Option(help="How many providers hold the rows.")] = 4,
    rows: Annotated[int, typer.Option(help="How many rows they hold together.")] = 80_000,
    dimension: Annotated[int, typer.Option(help="How many features a row has.")] = 400,
    components: Annotated[int, typer.Option(help="How many components to look for; as many stand out.")] = 3,
    sparsity: Annotated[int, typer.Option(help="How many features may take part, all components together.")] = 20,
    epsilon: Annotated[float, typer.Option(help="Privacy budget: smaller is more private.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Privacy budget: keep it far below one over the rows.")] = 1e-6,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Make rows and noise repeatable, and so unfit for release. Left out: both are fresh."),
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress; print the paths of the files only.")] = False,
) -> None:
    """Simulate a federation in this process, on made-up rows whose answer is known."""
    settings = demo.Settings(
        providers=providers,
        rows=rows,
        dimension=dimension,
        components=components,
        sparsity=sparsity,
        epsilon=epsilon,
        delta=delta,
        seed=seed,
    )
    folder = output.Folder(out, demo.FILES)
    if not (quiet or as_json):
        output.say(settings.introduction + "\n")
    outcome = demo.run(settings, output.display(quiet=quiet))
    numbers = demo.write(outcome, folder)
    if as_json:
        typer.echo(output.to_json(numbers))
    elif not quiet:
        output.print_components(numbers["model"])
        output.say(f"\n{demo.verdict(numbers)}\n\n{outcome.model.statement.text}\n\nWritten:")
    if not as_json:
        typer.echo("\n".join(numbers["files"].values()))


@app.command("plan", epilog=EXIT_CODES)
def _plan(  # noqa: PLR0913  # a command's flags are its parameters
    job: Annotated[
        Path | None,
        typer.Argument(help="A job as JSON, or a plan with one. Left out: the flags describe it.", show_default=False),
    ] = None,
    *,
    dimension: Annotated[int | None, typer.Option(help="How many features a row has.")] = None,
    components: Annotated[int | None, typer.Option(help="How many components to look for.")] = None,
    sparsity: Annotated[int | None, typer.Option(help="How many features may take part.")] = None,
    norm_bound: Annotated[float | None, typer.Option(help="Bound on a row's length, known beforehand.")] = None,
    unit: Annotated[questions.RowUnit | None, typer.Option(help="Which data sets count as neighbours.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds; left out, the budget decides.")] = None,
    center: Annotated[Centering | None, typer.Option(help="Which mean is taken off the rows; left out, none.")] = None,
    mean_bound: Annotated[float | None, typer.Option(help="Bound on a row's length, for a private mean.")] = None,
    public_mean: Annotated[Path | None, typer.Option(help="A public mean: a JSON array of a number a column.")] = None,
    write_job: Annotated[Path | None, typer.Option(help="Write the job to this file, to plan or run it later.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print which questions a job would ask, with the noise and the price of each. Nothing is asked."""
    flags = questions.Flags(
        dimension=dimension,
        components=components,
        sparsity=sparsity,
        norm_bound=norm_bound,
        unit=unit,
        epsilon=epsilon,
        delta=delta,
        rounds=rounds,
        center=center,
        mean_bound=mean_bound,
        public_mean=public_mean,
    )
    spec = questions.from_file(job, flags) if job else questions.from_flags(flags)
    facts = questions.facts(spec)
    if write_job:
        output.write_text(write_job, spec.to_json() + "\n")
    if as_json:
        typer.echo(output.to_json(facts))
    else:
        output.print_plan(facts)


@app.command("show", epilog=EXIT_CODES)
def _show(
    model: Annotated[Path, typer.Argument(help="A stored model.", show_default=False)],
    *,
    top: Annotated[int, typer.Option(help="How many features of each component to name.")] = report.TOP,
    as_json: AsJson = False,
) -> None:
    """Print what a stored model says, and what was promised about it."""
    check(top > 0, f"--top is {top}, which leaves no feature to name.", "Give 1 or more.")
    with reading(model, "a model"):
        stored = load_model(model)
        text = output.to_json(report.to_dict(stored, top=top)) if as_json else report.summary(stored, top=top)
    if as_json:
        typer.echo(text)
    else:
        output.say(text)


for part in (network.ca, network.identity, network.coordinator, network.provider):
    app.add_typer(part)
app.command("run", epilog=EXIT_CODES)(network.run)
