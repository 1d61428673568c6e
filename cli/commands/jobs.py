"""Commands for analysts: run a job, manage submitted jobs, and list the data sets on offer."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import (
    EXIT_CODES,
    AnalystSettingsFile,
    AsJson,
    Chosen,
    DataSet,
    Force,
    ModelFile,
    Plots,
    Providers,
    RetrySeconds,
    job_files,
    job_flags,
    with_job_flags,
)
from dpspca.cli.render import (
    absent_providers,
    approval_hint,
    connected,
    print_output,
    print_table,
    print_terms,
    progress,
    require_new,
    terms_facts,
    to_json,
    write_file,
)
from dpspca.client import findings
from dpspca.client.connection import RETRY_SECONDS, FederationError, JobStatus, Offer, require_done
from dpspca.client.described_jobs import load_dictionary
from dpspca.client.evidence import verify
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.client.jobs import JobFile
from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check
from dpspca.common.job import Terms
from dpspca.common.text import printable
from dpspca.common.trust import MAX_JOB_LIFE

jobs = typer.Typer(
    name="jobs", no_args_is_help=True, help="List, watch or cancel your submitted jobs, or fetch a result."
)

Name = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's name, or enough of its first characters.", show_default=False)
]

_Job = Annotated[
    Path | None,
    typer.Argument(help="The job, as JSON or TOML. If left out: the flags describe it.", show_default=False),
]
_Evidence = Annotated[
    Path | None,
    typer.Option(
        help="Also write the job's evidence to this file at the end. `dpspca evidence` can write it later.",
        show_default=False,
    ),
]
_Detach = Annotated[bool, typer.Option("--detach", help="Print the job's name and exit without waiting for it.")]
_ValidHours = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=MAX_JOB_LIFE // 3600,
        help="Least number of hours for which the signed job is valid. Raise it if a person has to approve the job. "
        "If left out: 12 hours, or as long as its answers may take.",
        show_default=False,
    ),
]

NAME_CHARACTERS: Final = 12
"""How many characters of a job's name are shown to people."""
MAX_COLUMN_NAMES: Final = 8
"""How many columns of a data set are named to people. JSON output names all."""


@with_job_flags
def run(  # noqa: PLR0913  # a command's flags are its parameters
    job: _Job = None,
    *,
    config: AnalystSettingsFile,
    flags: job_flags.Flags,
    data_set: DataSet = None,
    provider: Providers = None,
    out: ModelFile = Path("model.dpspca"),
    force: Force = False,
    plots: Plots = None,
    evidence: _Evidence = None,
    detach: _Detach = False,
    retry_seconds: RetrySeconds = RETRY_SECONDS,
    valid_hours: _ValidHours = None,
    as_json: AsJson = False,
) -> None:
    """Sign a job, run it in the federation, and write its model."""
    job_file = job_files.from_file(job, flags) if job else None
    if job_file is None:
        job_flags.check_given(flags, columns_known=True)
    job_files.require_centering(job_file, flags)
    chosen = Chosen.of(job_file, data_set, provider)
    if evidence:
        check(not detach, "--evidence and --detach do not go together.", "Collect it later with `dpspca evidence`.")
        require_new(evidence, replace=force)
    result_files = None if detach else progress.ResultFiles(out, plots, replace=force)

    async def work(federation: AsyncFederation) -> dict[str, Any]:
        life = None if valid_hours is None else timedelta(hours=valid_hours)
        submitted = await _submit(federation, job_file, flags, chosen, life)
        if result_files is None:
            return {"job": submitted.name}
        facts = await _write_model(federation, submitted, result_files, config, quiet=as_json)
        if evidence:
            collected = await federation.evidence(submitted.name, model=out.read_bytes())
            write_file(evidence, collected)
            facts["notes"] += [each.what for each in verify(collected).missing]
            facts["files"]["evidence"] = str(evidence)
        return facts

    facts = connected(config, work, retry_seconds)
    if detach or as_json:
        print_output(facts, facts["job"], as_json=as_json)
    else:
        progress.print_result(facts)


def datasets(
    config: AnalystSettingsFile,
    *,
    terms: Annotated[
        bool, typer.Option("--terms", help="Also show what providers allow you to ask, as `dpspca terms` does.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets on offer from the providers that are connected now."""

    async def work(federation: AsyncFederation) -> tuple[list[Offer], list[Terms]]:
        return await federation.data_sets(), await federation.terms() if terms else []

    offers, stated = connected(config, work)
    facts = _data_set_facts(offers)
    if as_json:
        typer.echo(to_json({"data_sets": facts} | ({"terms": [*map(terms_facts, stated)]} if terms else {})))
        return
    if not facts:
        typer.echo("No data set is on offer: no provider is connected, or the connected providers offer none.")
        return
    _print_data_sets(facts)
    if terms:
        print_terms(stated)


def _data_set_facts(offers: Sequence[Offer]) -> list[dict[str, Any]]:
    """Return each data set once, with all providers that offer it in the same form."""
    found: dict[tuple[str, Any, Any], list[str]] = {}
    for offer in sorted(offers, key=_sort_key):
        found.setdefault((offer.data_set, offer.schema, offer.dictionary), []).append(offer.provider)
    return [
        {
            "data_set": name,
            "dimension": schema.dimension,
            "columns": schema.names,
            "dictionary": None if pinned is None else asdict(pinned),
            "providers": providers,
        }
        for (name, schema, pinned), providers in found.items()
    ]


def _print_data_sets(facts: Sequence[Mapping[str, Any]]) -> None:
    print_table(
        ("data set", "columns", "providers", "column names", "dictionary"),
        (
            (
                each["data_set"],
                str(each["dimension"]),
                ", ".join(each["providers"]),
                _first_few(each["columns"] or ()),
                _dictionary(each["dictionary"]),
            )
            for each in facts
        ),
    )


def _dictionary(pinned: Mapping[str, str] | None) -> str:
    """Write the title and the digest of a dictionary, which signed terms and `dpspca dictionary check` show too."""
    return "" if pinned is None else f"{pinned['title']} {pinned['digest']}".strip()


@jobs.command("list", epilog=EXIT_CODES)
def _list(config: AnalystSettingsFile, *, as_json: AsJson = False) -> None:
    """List your jobs, oldest first."""
    found = connected(config, AsyncFederation.jobs)
    if as_json:
        typer.echo(to_json({"jobs": [each.to_dict() for each in found]}))
        return
    if not found:
        typer.echo("The coordinator knows no job of yours.")
        return
    print_table(
        ("job", "data set", "state", "answered", "submitted"),
        (
            (
                each.job[:NAME_CHARACTERS],
                each.data_set,
                each.state,
                f"{each.answered} of {each.queries}",
                _time(each.submitted),
            )
            for each in found
        ),
    )


@jobs.command("show", epilog=EXIT_CODES)
def _show(job: Name, config: AnalystSettingsFile, *, as_json: AsJson = False) -> None:
    """Show the state of a job, the providers that take part, and the most that each has spent."""

    async def work(federation: AsyncFederation) -> tuple[AsyncJob, JobStatus]:
        taken = await federation.job(job)
        return taken, await taken.status()

    _print_status(*connected(config, work), as_json=as_json)


@jobs.command("watch", epilog=EXIT_CODES)
def _watch(
    job: Name, config: AnalystSettingsFile, *, retry_seconds: RetrySeconds = RETRY_SECONDS, as_json: AsJson = False
) -> None:
    """Follow a job to its end and show how it ended. Like `dpspca run`, exit with 2 unless it is done."""

    async def work(federation: AsyncFederation) -> tuple[AsyncJob, JobStatus]:
        taken = await federation.job(job)
        return taken, await _follow(federation, taken, config, quiet=as_json)

    watched, last = connected(config, work, retry_seconds)
    _print_status(watched, last, as_json=as_json, why=False)  # the next line reports a failure and its reason
    require_done(last)


@jobs.command("cancel", epilog=EXIT_CODES)
def _cancel(job: Name, config: AnalystSettingsFile, *, as_json: AsJson = False) -> None:
    """Cancel a job. What was asked stays spent. A job that has already ended is not changed."""

    async def work(federation: AsyncFederation) -> tuple[AsyncJob, JobStatus]:
        taken = await federation.job(job)
        return taken, await taken.cancel()

    _print_status(*connected(config, work), as_json=as_json)


@jobs.command("result", epilog=EXIT_CODES)
def _result(  # noqa: PLR0913  # a command's flags are its parameters
    job: Name,
    config: AnalystSettingsFile,
    *,
    out: ModelFile = Path("model.dpspca"),
    force: Force = False,
    plots: Plots = None,
    dictionary: Annotated[
        Path | None,
        typer.Option(help="The job's dictionary, if it has one: the model can then prepare raw rows."),
    ] = None,
    retry_seconds: RetrySeconds = RETRY_SECONDS,
    as_json: AsJson = False,
) -> None:
    """Wait until a job ends and write its model."""
    result_files = progress.ResultFiles(out, plots, replace=force)
    known = None if dictionary is None else load_dictionary(dictionary)

    async def work(federation: AsyncFederation) -> dict[str, Any]:
        submitted = await federation.job(job, dictionary=known)
        return await _write_model(federation, submitted, result_files, config, quiet=as_json)

    facts = connected(config, work, retry_seconds)
    if as_json:
        typer.echo(to_json(facts))
    else:
        progress.print_result(facts)


async def _submit(
    federation: AsyncFederation,
    job_file: JobFile | None,
    flags: job_flags.Flags,
    chosen: Chosen,
    life: timedelta | None,
) -> AsyncJob:
    """Submit the job of a file or of flags. If the flags do not say how many columns, take those on offer."""
    data_set, providers = chosen.data_set or await federation.only_data_set(), chosen.providers
    dictionary = job_file.dictionary if job_file else job_flags.dictionary_of(flags)
    offers = await federation.offers_of(data_set)
    count = len(providers or offers) or None
    sparse = any(each.is_sparse for each in offers if each.provider in (providers or [each.provider]))
    if job_file:
        spec = job_file.for_providers(count, sparse=sparse)
    else:
        known = flags.dimension is not None or dictionary is not None
        schema = None if known else (await federation.describe(data_set, providers))[0]
        spec = job_flags.from_flags(flags, schema, providers=count, sparse=sparse)
    plan = job_file.planned(spec) if job_file else catalogue.plan(spec)
    for remark in findings.of_job(plan):
        typer.echo(remark, err=True)
    if providers:
        await absent_providers.warn_before_job(federation, data_set, providers, spec.answer_seconds)
    if life is None:
        await approval_hint.hint_at_validity(federation, plan, data_set, providers or None)
    submitted = await federation.submit(plan, data_set, providers, dictionary=dictionary, life=life)
    typer.echo(f"job {submitted.name}", err=True)
    return submitted


async def _write_model(
    federation: AsyncFederation, job: AsyncJob, result_files: progress.ResultFiles, config: Path, *, quiet: bool
) -> dict[str, Any]:
    last = await _follow(federation, job, config, quiet=quiet)
    return result_files.write(job.plan, last, await job.model())


async def _follow(federation: AsyncFederation, job: AsyncJob, config: Path, *, quiet: bool) -> JobStatus:
    """Show a job's states and return the last. If watching stops early, say how to watch or cancel the job."""
    reporting: asyncio.Task[None] | None = None
    try:
        last = await job.status()
        with progress.show_job_progress(job.plan, quiet=quiet) as show:
            if not quiet:
                seconds = job.spec.answer_seconds
                reporting = asyncio.create_task(
                    absent_providers.report_while_waiting(federation, lambda: last, seconds)
                )
            async for last in job.watch():
                show(last)
    except (asyncio.CancelledError, FederationError) as problem:
        state = "may still be running" if isinstance(problem, FederationError) else "is still running"
        name = f"{job.name[:NAME_CHARACTERS]} --config {config}"
        typer.echo(
            f"The job {state}. Follow it with `dpspca jobs watch {name}`, or end it with `dpspca jobs cancel {name}`.",
            err=True,
        )
        raise
    finally:
        if reporting:
            reporting.cancel()
    return last


def _print_status(job: AsyncJob, status: JobStatus, *, as_json: bool, why: bool = True) -> None:
    facts = progress.job_facts(job.plan, status)
    step = f", last {status.step}" if status.step else ""
    lines = [
        f"job {status.job}",
        f"{status.state}: {status.answered} of {status.queries} queries answered{step}",
        f"data set {status.data_set}, submitted {_time(status.submitted)}",
        progress.spent_line(facts),
        *(progress.awaiting_line(each) for each in status.participants if each.awaiting_approval_since),
        *([status.reason] if status.reason and why else []),
    ]
    print_output(facts, *map(printable, lines), as_json=as_json)
    if not as_json:
        progress.print_participants(facts["participants"])


def _sort_key(offer: Offer) -> tuple[str, str]:
    return offer.data_set, offer.provider


def _first_few(names: Sequence[str]) -> str:
    """List the first few names, and how many more there are."""
    more = [f"and {len(names) - MAX_COLUMN_NAMES} more"] if len(names) > MAX_COLUMN_NAMES else []
    return ", ".join([*names[:MAX_COLUMN_NAMES], *more])


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
