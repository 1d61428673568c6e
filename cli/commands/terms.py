"""The `dpspca terms` command: what providers let you ask, before you write a job."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.cli.arguments import CHECK_CODES, AnalystSettingsFile, AsJson, Chosen, Providers, job_files, job_flags
from dpspca.cli.render import connected, fit_facts, print_fit, print_terms, terms_facts, to_json
from dpspca.client.connection import require_data_set
from dpspca.client.federation import AsyncFederation
from dpspca.client.terms import Fit, fit
from dpspca.common.checks import check
from dpspca.common.choices import choices
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import JobSpec, Schema, Terms
from dpspca.common.privacy import Price

REFUSED: Final = 1
TERMS_CODES: Final = CHECK_CODES.replace("a check failed, as the output says", "the job does not fit the terms")


@dataclass(frozen=True, slots=True)
class Held:
    """A job compared with the terms of a data set's providers."""

    data_set: str
    terms: list[Terms]
    made: Fit

    @property
    def left(self) -> Price | None:
        """The least that a provider of the job has left for the analyst, if any shows terms."""
        asked = [each.left for each in self.terms if each.party.name in self.made.providers]
        return reduce(Price.at_most, asked) if asked else None

    @property
    def facts(self) -> dict[str, Any]:
        """Return the terms and the result as plain values."""
        return {"terms": [*map(terms_facts, self.terms)], "fit": fit_facts(self.made, self.terms)}


def terms(
    data_set: Annotated[
        str | None, typer.Argument(metavar="DATA_SET", help="The data set. If left out: all.", show_default=False)
    ] = None,
    *,
    config: AnalystSettingsFile,
    provider: Providers = None,
    job: Annotated[
        Path | None,
        typer.Option(
            help="Also check whether this job (JSON or TOML) fits the terms. Exits with 1 if it does not fit."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what providers let you ask of their data sets, at what price, and what is left for you.

    A provider shows its terms only to analysts whom its policy names. It signs them, so that the coordinator cannot
    forge them.
    """
    job_file = job_files.from_file(job, job_flags.Flags()) if job else None
    chosen = Chosen.of(job_file, data_set, provider)
    if job_file:
        bound = job_file.public_bound
        held = hold_to_terms(
            config, lambda _, count, sparse: job_file.for_providers(count, sparse=sparse), chosen, bound
        )
        found, made = held.terms, held.made
    else:
        found, made = connected(config, partial(_terms, chosen=chosen)), None
    _print(found, made, as_json=as_json)
    if made and (made.changes or not made.fits):
        raise typer.Exit(REFUSED)


async def _terms(federation: AsyncFederation, chosen: Chosen) -> list[Terms]:
    """Return the terms that providers show. Refuse a data set or a provider of which none are shown."""
    found = await federation.terms(chosen.data_set, chosen.providers)
    shown_by = {each.party.name for each in found}
    if silent := [name for name in chosen.providers or () if name not in shown_by]:
        others = f"Others do: {', '.join(sorted(shown_by))}. " if shown_by else ""
        raise InvalidParameterError(
            f"No terms are shown to you by {', '.join(silent)}.", f"{others}`dpspca datasets` lists who is connected."
        )
    if chosen.data_set is not None and not found:
        every = sorted({each.data_set for each in await federation.terms()})
        shown = choices(chosen.data_set, every) if every else "None are shown to you at the moment."
        raise InvalidParameterError(
            f"No provider that is connected shows you terms of the data set {chosen.data_set!r:.80}.", shown
        )
    return found


def hold_to_terms(
    config: Path, spec_of: Callable[[Schema, int, bool], JobSpec], chosen: Chosen, public_bound: float | None = None
) -> Held:
    """Ask for the terms of a job's data set, and change the job until it fits them.

    ``spec_of`` takes the columns, the number of providers, and whether some offer sparse rows. ``public_bound`` follows
    from the job's dictionary.
    """

    async def work(federation: AsyncFederation) -> Held:
        data_set = chosen.data_set or await federation.only_data_set()
        found = await federation.terms(data_set, chosen.providers)
        stating = {each.party.name for each in found}
        every = await federation.data_sets()
        require_data_set(data_set, {each.data_set for each in every})
        offered = [
            each for each in every if each.data_set == data_set and each.provider in (stating or {each.provider})
        ]
        check(bool(offered), f"No connected provider offers the data set {data_set!r}.", "Try `dpspca datasets`.")
        schema, count = offered[0].schema, len(chosen.providers or offered)
        asked = [each for each in offered if each.provider in (chosen.providers or [each.provider])]
        spec = spec_of(schema, count, any(each.is_sparse for each in asked))
        return Held(data_set, found, fit(spec, chosen.providers, found, schema, public_bound))

    return connected(config, work)


def _print(found: list[Terms], made: Fit | None, *, as_json: bool) -> None:
    if as_json:
        typer.echo(to_json({"terms": [*map(terms_facts, found)], "job": fit_facts(made, found) if made else None}))
        return
    print_terms(found)
    if made:
        print_fit(made, found)
