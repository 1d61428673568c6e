"""Commands of an analyst: run a job, look after jobs that were submitted, and see which data sets are on offer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from dpspca.client import findings
from dpspca.client.calls import PATIENCE
from dpspca.client.federation import AsyncFederation, AsyncJob, FederationError, require_done
from dpspca.client.jobs import JobStatus, Offer
from dpspca.common.algorithms import catalogue
from dpspca.common.transport.config import AnalystConfig
from dpspca.common.transport.names import check_name

from . import presence, progress, questions
from .flags import EXIT_CODES, AnalystSettings, AsJson, Force, ModelFile, Patience, Plots, require_own, spread
from .output import print_table, printable, tell, to_json

jobs = typer.Typer(name="jobs", no_args_is_help=True, help="Jobs that were submitted: list, follow, end, fetch.")

Name = Annotated[str, typer.Argument(metavar="JOB", help="Its name, or the beginning of it.", show_default=False)]
Reply = TypeVar("Reply")

SHORT: Final = 12
"""Letters of a job's name that tell it from others well enough."""
MOST_NAMED: Final = 8
"""Columns of a data set that are named to people; programs are told all."""


@spread
def run(  # noqa: PLR0913  # a command's flags are its parameters
    job: Annotated[
        Path | None,
        typer.Argument(help="The job as JSON or TOML. Left out: the flags describe it.", show_default=False),
    ] = None,
    *,
    config: AnalystSettings,
    flags: questions.Flags,
    data_set: Annotated[
        str | None,
        typer.Option(
            help="The name under which providers offer their rows; it counts before what the job's file says. Need not "
            "be named where one is on offer and no other."
        ),
    ] = None,
    provider: Annotated[
        list[str] | None,
        typer.Option(
            help="A provider to ask; once for each. They count before those in the job's file. Neither given: all that "
            "offer the data set."
        ),
    ] = None,
    out: ModelFile = Path("model.dpspca"),
    force: Force = False,
    plots: Plots = None,
    detach: Annotated[bool, typer.Option("--detach", help="Print the job's name and do not wait for it.")] = False,
    patience: Patience = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Sign a job, have it run by the federation, and write its model."""
    order = questions.from_file(job, flags) if job else None
    if order is None:
        questions.check_given(flags, columns_known=True)
    where = check_name("--data-set", data_set) if data_set is not None else order.data_set if order else None
    who = tuple(check_name("--provider", each) for each in provider or ()) or (order.providers if order else None)
    shelf = None if detach else progress.Shelf(out, plots, replace=force)

    async def work(federation: AsyncFederation) -> dict[str, Any]:
        submitted = await _submit(federation, order, flags, where or await federation.only_data_set(), who)
        if shelf is None:
            return {"job": submitted.name}
        return await _to_model(federation, submitted, shelf, config, quiet=as_json)

    facts = _connected(config, work, patience)
    if detach or as_json:
        tell(facts, facts["job"], as_json=as_json)
    else:
        progress.print_result(facts)


def datasets(config: AnalystSettings, *, as_json: AsJson = False) -> None:
    """List the data sets that the providers connected now offer."""
    found: dict[tuple[str, Any], list[str]] = {}
    for offer in sorted(_connected(config, AsyncFederation.data_sets), key=_place):
        found.setdefault((offer.data_set, offer.schema), []).append(offer.provider)
    facts = [
        {"data_set": name, "dimension": schema.dimension, "columns": schema.names, "providers": providers}
        for (name, schema), providers in found.items()
    ]
    if as_json:
        typer.echo(to_json({"data_sets": facts}))
        return
    if not facts:
        typer.echo("No data set is on offer: no provider is connected now, or those that are offer none.")
        return
    print_table(
        ("data set", "width", "providers", "columns"),
        (
            (each["data_set"], str(each["dimension"]), ", ".join(each["providers"]), _some(each["columns"] or ()))
            for each in facts
        ),
    )


@jobs.command("list", epilog=EXIT_CODES)
def _list(config: AnalystSettings, *, as_json: AsJson = False) -> None:
    """List your jobs, oldest first."""
    found = _connected(config, AsyncFederation.jobs)
    if as_json:
        typer.echo(to_json({"jobs": [each.to_dict() for each in found]}))
        return
    if not found:
        typer.echo("The coordinator remembers no job of yours.")
        return
    print_table(
        ("job", "data set", "state", "answered", "submitted"),
        (
            (
                each.name[:SHORT],
                each.data_set,
                each.state,
                f"{each.answered} of {each.questions}",
                _time(each.submitted),
            )
            for each in found
        ),
    )


@jobs.command("show", epilog=EXIT_CODES)
def _show(job: Name, config: AnalystSettings, *, as_json: AsJson = False) -> None:
    """Say how a job stands, who takes part, and what each provider has spent at most."""

    async def work(federation: AsyncFederation) -> tuple[AsyncJob, JobStatus]:
        taken = await federation.job(job)
        return taken, await taken.status()

    _tell_status(*_connected(config, work), as_json=as_json)


@jobs.command("watch", epilog=EXIT_CODES)
def _watch(job: Name, config: AnalystSettings, *, patience: Patience = PATIENCE, as_json: AsJson = False) -> None:
    """Follow a job to its end, and say how it ended; exit with 2, as `dpspca run` does, unless it is done."""

    async def work(federation: AsyncFederation) -> tuple[AsyncJob, JobStatus]:
        taken = await federation.job(job)
        return taken, await _follow(federation, taken, config, quiet=as_json)

    watched, last = _connected(config, work, patience)
    _tell_status(watched, last, as_json=as_json, why=False)  # that it failed, and why, the next line says
    require_done(last)


@jobs.command("cancel", epilog=EXIT_CODES)
def _cancel(job: Name, config: AnalystSettings, *, as_json: AsJson = False) -> None:
    """End a job; one that is over stays as it is. What was answered stays spent."""

    async def work(federation: AsyncFederation) -> tuple[AsyncJob, JobStatus]:
        taken = await federation.job(job)
        return taken, await taken.cancel()

    _tell_status(*_connected(config, work), as_json=as_json)


@jobs.command("result", epilog=EXIT_CODES)
def _result(  # noqa: PLR0913  # a command's flags are its parameters
    job: Name,
    config: AnalystSettings,
    *,
    out: ModelFile = Path("model.dpspca"),
    force: Force = False,
    plots: Plots = None,
    patience: Patience = PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Wait for a job's end and write its model."""
    shelf = progress.Shelf(out, plots, replace=force)

    async def work(federation: AsyncFederation) -> dict[str, Any]:
        return await _to_model(federation, await federation.job(job), shelf, config, quiet=as_json)

    facts = _connected(config, work, patience)
    if as_json:
        typer.echo(to_json(facts))
    else:
        progress.print_result(facts)


def _connected(config: Path, work: Callable[[AsyncFederation], Awaitable[Reply]], patience: float = PATIENCE) -> Reply:
    """Connect as the settings say, do the work, and hang up."""
    require_own(AnalystConfig, config)

    async def whole() -> Reply:
        async with AsyncFederation.connect(config, patience=patience, tell=presence.say) as federation:
            return await work(federation)

    return asyncio.run(whole())


async def _submit(
    federation: AsyncFederation,
    order: questions.Order | None,
    flags: questions.Flags,
    data_set: str,
    providers: tuple[str, ...] | None,
) -> AsyncJob:
    """Submit the job of a file or of flags; the columns, where nobody says how many, are those on offer."""
    if order:
        spec = order.spec
    else:
        known = flags.dimension is not None
        spec = questions.from_flags(flags, None if known else (await federation.describe(data_set, providers))[0])
        catalogue.plan(spec)  # an algorithm reads its options only now
    for remark in findings.of_job(spec):
        typer.echo(remark, err=True)
    if providers:
        await presence.warn(federation, data_set, providers, spec.answer_seconds)
    submitted = await federation.submit(spec, data_set, providers)
    typer.echo(f"job {submitted.name}", err=True)
    return submitted


async def _to_model(
    federation: AsyncFederation, job: AsyncJob, shelf: progress.Shelf, config: Path, *, quiet: bool
) -> dict[str, Any]:
    last = await _follow(federation, job, config, quiet=quiet)
    return shelf.put(job.spec, last, await job.model())


async def _follow(federation: AsyncFederation, job: AsyncJob, config: Path, *, quiet: bool) -> JobStatus:
    """Show a job's states and give the last. Whoever stops looking is told that the job goes on."""
    telling: asyncio.Task[None] | None = None
    try:
        last = await job.status()
        with progress.following(job.spec, quiet=quiet) as show:
            if not quiet:
                telling = asyncio.create_task(presence.tell(federation, lambda: last))
            async for last in job.watch():
                show(last)
    except (asyncio.CancelledError, FederationError) as problem:
        goes = "may go" if isinstance(problem, FederationError) else "goes"
        name = f"{job.name[:SHORT]} --config {config}"
        follow, end = f"`dpspca jobs watch {name}` follows it", f"`dpspca jobs cancel {name}` ends it"
        typer.echo(f"The job {goes} on without you: {follow}, {end}.", err=True)
        raise
    finally:
        if telling:
            telling.cancel()
    return last


def _tell_status(job: AsyncJob, status: JobStatus, *, as_json: bool, why: bool = True) -> None:
    took_part = progress.participants(job.spec, status)
    facts = status.to_dict() | {"participants": took_part}
    step = f", last {status.step}" if status.step else ""
    lines = [
        f"job {status.name}",
        f"{status.state}: {status.answered} of {status.questions} questions answered{step}",
        f"data set {status.data_set}, submitted {_time(status.submitted)}",
        *([status.reason] if status.reason and why else []),
    ]
    tell(facts, *map(printable, lines), as_json=as_json)
    if not as_json:
        progress.print_participants(took_part)


def _place(offer: Offer) -> tuple[str, str]:
    return offer.data_set, offer.provider


def _some(names: Sequence[str]) -> str:
    """Name the first of many."""
    more = [f"and {len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([*names[:MOST_NAMED], *more])


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
