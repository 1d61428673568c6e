"""The `dpspca ledger release` command: an operator ends a quarantine by deciding what counts as spent."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca.cli.arguments import AsJson, DaemonSettings, job_files, job_flags
from dpspca.cli.render import print_output
from dpspca.client.steward import answers_again, largest_gaussian_price, prices_to_record
from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Budget
from dpspca.common.privacy import Price, format_up
from dpspca.common.text import printable
from dpspca.common.trust import JOB_SKEW
from dpspca.provider.ledger import (
    Account,
    LedgerView,
    SqliteLedger,
    format_time,
    ledger_paths,
    price_facts,
    read_ledger,
)
from dpspca.provider.policy import Policy, filter_of, read_policy

NOTHING: Final = "nothing"


def release(
    config: DaemonSettings,
    *,
    reason: Annotated[str, typer.Option(help="Why the ledger may be used again. It stays in the ledger for good.")],
    count: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA_SET=JOB",
            help="What counts as spent of a data set. JOB is a job's file (JSON or TOML), which counts as the price "
            "of that job; or EPSILON,DELTA, the most that a job with Gaussian noise costs within that budget; or "
            "'nothing'. Repeat the option for each job that may be missing. Of a data set that is not named, "
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
    counted = _parse_counts(count or [], policy)
    lifetimes = {each.data_set: filter_of(each.lifetime) for each in policy.data_sets}
    known = {*lifetimes, *view.settings.names, *view.books.data_sets}
    unknown = sorted(set(counted) - known)
    check(
        not unknown,
        f"Unknown data set in --count: {', '.join(map(repr, unknown))}.",
        f"Available: {', '.join(sorted(known))}.",
    )
    if view.quarantine_reason is None:
        prices_to_record(view, lifetimes, reason, counted)  # refuses before anything is written
    with SqliteLedger(*ledger_paths(view.settings, config)) as writer:
        found = read_ledger(config)
        prices = prices_to_record(found, lifetimes, reason, counted)
        require_confirmation(_confirmation_lines(found, prices), "Release the ledger?", yes=yes)
        writer.release(reason, {}, prices)
    _print_release(read_ledger(config), reason, prices, known, as_json=as_json)


def _parse_counts(given: Sequence[str], policy: Policy) -> dict[str, Price]:
    """Parse the values of --count. Several values for one data set add up."""
    total: dict[str, Price] = {}
    texts: dict[str, list[str]] = {}
    for each in given:
        name, _, text = each.partition("=")
        total[name] = total.get(name, Price()) + parse_count(each, name, text, policy)
        texts.setdefault(name, []).append(text)
    both = [name for name, given_texts in texts.items() if NOTHING in given_texts and len(given_texts) > 1]
    check(not both, f"--count gives 'nothing' and also a job for {', '.join(both)}.", "Remove one of the two.")
    return total


def parse_count(given: str, name: str, text: str, policy: Policy) -> Price:
    """Return what a job costs, or the most that a job within a budget can have cost, in units and slack units."""
    if text == NOTHING:
        return Price()
    if Path(text).is_file():
        return _price_of(name, Path(text))
    try:
        epsilon, delta = map(float, text.split(","))
    except ValueError:
        raise InvalidParameterError(
            f"--count is {given!r:.80}, which is neither a budget nor a file that exists.",
            "Write DATA_SET=EPSILON,DELTA (such as cohort=1,1e-6), DATA_SET=FILE with a job's file, or "
            "DATA_SET=nothing.",
        ) from None
    most = largest_gaussian_price(Budget(epsilon, delta))
    _require_gaussian(given, name, policy)
    return most


def _price_of(name: str, file: Path) -> Price:
    """Return what the job in a file costs, as its provider charged it."""
    job_file = job_files.from_file(file, job_flags.Flags())
    other = f"{file} is a job on the data set {job_file.data_set!r:.80}, but --count names {name!r:.80}."
    check(job_file.data_set in {None, name}, other, f"Write {job_file.data_set}={file}, or name another job's file.")
    return job_file.plan.price


def _require_gaussian(given: str, name: str, policy: Policy) -> None:
    """Refuse to count by epsilon and delta if a job may have cost more than they are worth with Gaussian noise.

    A pure mechanism is charged the mu that it is no worse than, and a mechanism that may fail is also charged its own
    delta. A pure job of epsilon 1 has cost 1.23, whereas (1, 1e-6) is worth 0.24.
    """
    listed = [each for rules in policy.data_sets if rules.data_set == name for each in rules.methods]
    others = [each for each in listed if not catalogue.find(each).gaussian]
    check(
        not others,
        f"--count is {given!r:.80}, but the policy allows {', '.join(others)} on this data set. A job whose noise is "
        "not Gaussian may have cost more than its epsilon and delta say.",
        f"Give the job's file, as in --count {name}=job.toml, once for each job that may be missing. Or leave --count "
        "out, so that everything counts as spent.",
    )


def _confirmation_lines(view: LedgerView, counted: Mapping[str, Price]) -> Iterator[str]:
    yield f"The ledger {view.path}: {view.quarantine_reason or 'its quarantine was already ended.'}"
    yield "Answers that it does not record may have left. This will count as spent, in addition to its entries:"
    for name, price in counted.items():
        shown = view.books.data_sets.get(name, Account()).taken.mu
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


def _print_release(
    view: LedgerView, reason: str, counted: Mapping[str, Price], known: set[str], *, as_json: bool
) -> None:
    refused = sorted(name for name in known if not answers_again(view, name))
    head = asdict(view.books.head)
    after = format_time(view.books.signed_after)
    facts = {
        "head": head,
        "reason": reason,
        "counted": {name: price_facts(price) for name, price in counted.items()},
        "refused": refused,
        "signed_after": after,
    }
    lines = [f"Released as entry {head['entries']}. Start the provider. `dpspca budget` shows what is left."]
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
