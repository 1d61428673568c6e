"""The `dpspca ledger end-quarantine` command: an operator ends a quarantine by deciding what counts as spent."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from dpspca.cli.arguments import AsJson, DaemonSettingsFile
from dpspca.cli.render import print_output
from dpspca.client.steward import answers_again, prices_in, prices_to_record
from dpspca.common.checks import check, check_known
from dpspca.common.privacy import Price, format_up
from dpspca.common.text import printable
from dpspca.common.trust import JOB_SKEW
from dpspca.provider.ledger import (
    Account,
    LedgerReader,
    SqliteLedger,
    format_time,
    ledger_paths,
    price_facts,
    read_ledger,
)
from dpspca.provider.policy import filter_of, read_policy


def end_quarantine(
    config: DaemonSettingsFile,
    *,
    reason: Annotated[str, typer.Option(help="Why the ledger may be used again. It stays in the ledger for good.")],
    count: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA_SET=JOB",
            help="What counts as spent of a data set. JOB is a job's file (JSON or TOML), which counts as the price "
            "of that job; or EPSILON,DELTA, the most that a job with Gaussian noise costs within that budget; or "
            "'nothing'. Repeat the flag for each job that may be missing. Of a data set that is not named, "
            "everything counts as spent.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """End a ledger's quarantine: state what counts as spent in addition to the ledger's entries. Stop the daemon first.

    First look for a newer ledger: on the old disk, in a snapshot, in a later backup. Replace all files of this one by
    it. If its head file agrees with it, the quarantine is over and nothing is lost.

    Otherwise answers may have left that this ledger does not know. The promise to the people in the rows holds only if
    at least the price of those answers counts as spent. Without --count, all that is left of the policy's lifetime
    counts as spent, which is safe whatever was lost. Count less only if you know what is missing. The command shows
    what will count as spent, and asks you to confirm it. Before it asks, it records in the ledger that the ledger was
    opened and found in quarantine.
    """
    view = read_ledger(config)
    policy = read_policy(view.settings.policy)
    counted = prices_in(count or [], policy)
    lifetimes = {each.data_set: filter_of(each.lifetime) for each in policy.data_sets}
    known = {*lifetimes, *view.settings.names, *view.state.data_sets}
    for name in sorted(counted):
        check_known("data set", name, sorted(known), where=" in --count")
    if view.quarantine_reason is None:
        prices_to_record(view, lifetimes, reason, counted)  # refuses before anything is written
    with SqliteLedger(*ledger_paths(view.settings, config)) as writer:
        found = read_ledger(config)
        prices = prices_to_record(found, lifetimes, reason, counted)
        require_confirmation(_confirmation_lines(found, prices), "End the quarantine?", yes=yes)
        writer.end_quarantine(reason, {}, prices)
    _print_ended(read_ledger(config), reason, prices, known, as_json=as_json)


def _confirmation_lines(view: LedgerReader, counted: Mapping[str, Price]) -> Iterator[str]:
    yield f"The ledger {view.path}: {view.quarantine_reason or 'its quarantine was already ended.'}"
    yield "Answers that it does not record may have left. This will count as spent, in addition to its entries:"
    for name, price in counted.items():
        shown = view.state.data_sets.get(name, Account()).taken.mu
        more = "nothing" if price.is_free else f"mu {format_up(price.mu, 4)}"
        yield f"  {name}: {more}; the ledger shows mu {format_up(shown, 4)}."
    yield (
        "If less counts than was spent, the promise to the people in the rows is broken. The decision is "
        "written into the ledger and cannot be taken back. Jobs that were signed before it are refused."
    )


def require_confirmation(lines: Iterator[str], query: str, *, yes: bool) -> None:
    """Show what will be recorded, and raise an error unless the operator confirms it."""
    for line in lines:
        typer.echo(printable(line), err=True)
    if not yes:
        typer.echo(f"{query} [y/N] ", err=True, nl=False)
    agreed = yes or sys.stdin.readline().strip().lower() in {"y", "yes"}
    check(agreed, "Not confirmed, so nothing was done.", "Answer y, or give --yes.")


def _print_ended(
    view: LedgerReader, reason: str, counted: Mapping[str, Price], known: set[str], *, as_json: bool
) -> None:
    refused = sorted(name for name in known if not answers_again(view, name))
    head = asdict(view.state.head)
    after = format_time(view.state.signed_after)
    facts = {
        "head": head,
        "reason": reason,
        "counted": {name: price_facts(price) for name, price in counted.items()},
        "refused": refused,
        "signed_after": after,
    }
    lines = [
        f"The quarantine ended with entry {head['entries']}. Start the provider. `dpspca budget` shows what is left."
    ]
    lines.append(
        f"Only jobs signed after {after} are answered: earlier ones may be among those that were lost. This allows for "
        f"clocks that differ by {JOB_SKEW // 60} minutes."
    )
    if refused:
        lines.append(
            f"Jobs are still refused on: {', '.join(refused)}. When the policy has a table for such a data set, name "
            "it with --count."
        )
    print_output(facts, *map(printable, lines), as_json=as_json)
