"""The `dpspca plan` command: what a job asks and costs and, from public facts about rows, how accurate it may be."""

import json
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import typer

from dpspca.cli.arguments import (
    AsJson,
    Chosen,
    DataSet,
    Force,
    Providers,
    PublicFacts,
    job_files,
    job_flags,
    with_job_flags,
    with_public_facts,
)
from dpspca.cli.render import output, print_fit, print_table, print_text, require_new, to_json, write_file
from dpspca.client import plan_facts
from dpspca.client.forecast import (
    Curves,
    Hints,
    Within,
    answer,
    as_it_is,
    curves,
    draw,
    expected_error,
    of_hints,
    words,
)
from dpspca.client.jobs import JobFile, job_dictionaries
from dpspca.client.terms import admitted
from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check
from dpspca.common.errors import RefusedError
from dpspca.common.job import JobSpec, Schema
from dpspca.common.plan import Plan
from dpspca.common.privacy import Price

from .terms import Held, hold_to_terms

_Job = Annotated[
    Path | None,
    typer.Argument(
        help="The job, as JSON or TOML, or the output of `dpspca plan --json`. If left out: the flags describe it.",
        show_default=False,
    ),
]
_Config = Annotated[
    Path | None,
    typer.Option(
        help="Settings file (TOML) of the analyst. If given: ask the providers for their terms, and say what to "
        "change in the job so that it fits them.",
        show_default=False,
    ),
]
_Write = Annotated[
    Path | None,
    typer.Option(
        help="Write the job to this JSON file, to plan, check or run it later. With --config: the job that fits.",
        show_default=False,
    ),
]


@with_job_flags
@with_public_facts
def plan(  # noqa: PLR0913  # a command's flags are its parameters
    job: _Job = None,
    *,
    flags: job_flags.Flags,
    known: PublicFacts,
    config: _Config = None,
    data_set: DataSet = None,
    provider: Providers = None,
    write: _Write = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Print the queries of a job, with the noise and the price of each. Nothing is spent.

    With --rows, also print the expected error of every method that the job could use, from public facts alone. With
    --config, also compare the job with the terms of the providers. Without --config nothing is sent.
    """
    _check_files(write, known.plot, force=force)
    read = job_files.from_file(job, flags) if job else None
    if write:
        job_files.require_centering(read, flags)
    chosen = Chosen.of(read, data_set, provider)
    held = _held(config, read, flags, chosen) if config else None
    spec = held.made.spec if held else _spec(read, flags, known.providers or len(chosen.providers or ()) or None)
    hints = known.hints(len(chosen.providers or ()) or 1)
    planned = read.planned(spec) if read else catalogue.plan(spec)
    within, left = _within(held, read, flags), held.left if held else None
    facts = plan_facts.facts(planned) | (expected(planned, hints, known, within, left) if hints else {})
    facts |= held.facts if held else {}
    if write:
        file = read.dictionary_file if read else flags.dictionary
        place = job_dictionaries.from_folder(file, write.parent) if file else None
        write_file(write, _job_text(spec, chosen, held, place))
        facts |= {"file": str(write)}
    if hints and known.plot:
        shown = curves(planned, hints, within)
        _draw(shown, known.plot)
        facts |= {"curves": shown.to_dict()}
    if as_json:
        typer.echo(to_json(facts))
        return
    output.print_plan(facts)
    if hints:
        print_forecast(facts)
    if held:
        if held.made.changes:
            print_text("The table is about the job with the changes below.")
        print_fit(held.made, held.terms)
    if write:
        print_text(f"Written: {write}. To run it: `dpspca run {write} --config {config or 'SETTINGS'}`.")


def _check_files(write: Path | None, plot: Path | None, *, force: bool) -> None:
    """Refuse files that cannot be written, before anything is asked."""
    check(write is None or write.suffix == ".json", f"{write} does not end in .json.", "The job is written as JSON.")
    is_png = plot is None or plot.suffix.lower() == ".png"
    check(is_png, f"{plot} does not end in .png.", "The plot is written as PNG.")
    if write:
        require_new(write, replace=force)


def _spec(
    read: JobFile | None,
    flags: job_flags.Flags,
    providers: int | None,
    schema: Schema | None = None,
    *,
    sparse: bool = False,
) -> JobSpec:
    """Return the job of a file or of flags. If the flags do not say how many columns, take those on offer.

    ``providers`` is their number, if it is known, and ``sparse`` says that some of them offer sparse rows.
    """
    if read:
        return read.for_providers(providers, sparse=sparse)
    offered = None if flags.dimension is not None else schema
    return job_flags.from_flags(flags, offered, providers=providers, sparse=sparse)


def _held(config: Path, read: JobFile | None, flags: job_flags.Flags, chosen: Chosen) -> Held:
    """Check whether the job of a file or of flags fits the terms."""
    bound = read.public_bound if read else job_flags.public_bound(flags)

    def spec_of(schema: Schema, count: int, sparse: bool) -> JobSpec:  # noqa: FBT001  # as ``hold_to_terms`` calls it
        return _spec(read, flags, count, schema, sparse=sparse)

    return hold_to_terms(config, spec_of, chosen, bound)


def _job_text(spec: JobSpec, chosen: Chosen, held: Held | None, dictionary: str | None) -> str:
    """Write a job with its data set, its providers and where its dictionary is, as every command reads it.

    Refuse one that fits no terms.
    """
    if held and not held.made.fits:
        raise RefusedError(
            f"No job was written, because no change makes it fit. {' '.join(held.made.obstacles)}",
            "Run the command without --write to see all terms.",
        )
    data_set = held.data_set if held else chosen.data_set
    providers = held.made.providers if held and chosen.providers else chosen.providers
    named = ({"data_set": data_set} if data_set else {}) | ({"providers": [*providers]} if providers else {})
    named |= {job_dictionaries.FILE: dictionary} if dictionary else {}
    return json.dumps(named | spec.to_dict()) + "\n"


def expected(
    plan: Plan, hints: Hints, known: PublicFacts, within: Within = as_it_is, left: Price | None = None
) -> dict[str, Any]:
    """Return the forecast, the answers and, for dps-pca, the theorem's terms as plain values."""
    spec = plan.spec
    forecast = of_hints(plan, hints, within)
    lifetime = known.lifetime(spec.budget.delta)
    asked = answer(plan, hints, target_error=known.target_error, lifetime=lifetime, left=left)
    facts = {"forecast": forecast.to_dict(), "answers": asked.to_dict()}
    return facts | ({"theory": expected_error.facts(plan, forecast)} if spec.method == expected_error.METHOD else {})


def _within(held: Held | None, read: JobFile | None, flags: job_flags.Flags) -> Within:
    """Return what says whether providers would admit a candidate. Without terms, or if none fits, all are possible."""
    if held is None or not held.made.fits:
        return as_it_is
    bound = read.public_bound if read else job_flags.public_bound(flags)
    return partial(admitted, providers=held.made.providers, terms=held.terms, public_bound=bound)


def _draw(shown: Curves, path: Path) -> None:
    """Write the plot, or raise an error that names the file."""
    drawn = BytesIO()
    draw(shown, drawn)
    write_file(path, drawn.getvalue())


def print_forecast(facts: dict[str, Any]) -> None:
    """Print the forecast as a table, and the answers as sentences."""
    forecast = facts["forecast"]
    print_table(words.HEADINGS, map(words.cells, forecast["methods"]))
    for line in (*words.sentences(forecast), *words.of_answers(facts["answers"])):
        print_text(line)
    for sentence in expected_error.words(facts["theory"]) if "theory" in facts else ():
        print_text(sentence)
