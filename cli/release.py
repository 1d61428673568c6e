"""How an operator ends the quarantine of a ledger: by saying what counts as spent."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Annotated, Final

import typer

from dpspca.common.errors import InvalidParameterError
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import SLACK_UNIT, mu_of
from dpspca.common.privacy.noise import DRAW_SLACK
from dpspca.common.spec import Budget, check
from dpspca.common.statement import rounded_up
from dpspca.provider.accounts import Account
from dpspca.provider.entries import Limits, QuarantinedError
from dpspca.provider.policy import filter_of
from dpspca.provider.policy_file import read_policy
from dpspca.provider.sqlite_ledger import SqliteLedger

from .daemons import ledger_paths
from .flags import AsJson, OwnSettings
from .looking import Looked, amounts, imagined, look, probe
from .output import printable, tell

MOST_DRAWS: Final = 2**60
"""More numbers than anybody can have been sent, eight exbibytes; so much noise may be that far from its ideal."""
NOTHING: Final = "nothing"


def release(
    config: OwnSettings,
    *,
    reason: Annotated[str, typer.Option(help="Why, for whoever audits the ledger; it is kept for good.")],
    count: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA_SET=EPSILON,DELTA",
            help="Count as much of a data set as spent as one job of that budget may cost, or DATA_SET=nothing; once "
            "for each job that may be missing. Of a data set that is not named all counts as spent.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """End a quarantine, with the daemon stopped: say what counts as spent beyond what the ledger knows.

    Look for the newer ledger first: on the old disk, in a snapshot, in a later backup. Put in the place of this one,
    all its files, it ends the quarantine, and nothing is lost.

    Otherwise answers may have left that this ledger does not know of, and the promise to those whose rows these are
    holds only if as much counts as spent. Without --count that is all that the policy's lifetime leaves: right whatever
    was lost. Say less only as far as you know what is missing. Before anything is written, what would count is shown.
    """
    counted = _counted(count or [])
    looked = look(config)
    lifetimes = {each.data_set: filter_of(each.lifetime) for each in read_policy(looked.settings.policy).data_sets}
    known = {*lifetimes, *looked.settings.names, *looked.books.data_sets}
    unknown = sorted(set(counted) - known)
    check(not unknown, f"--count names {', '.join(unknown)}, which nothing here is called.", "Name a data set.")
    if looked.doubt is None:
        _planned(looked, lifetimes, reason, counted)  # what there is to refuse is refused before anything is written
    with SqliteLedger(*ledger_paths(looked.settings, config)) as writer:
        found = look(config)
        planned = _planned(found, lifetimes, reason, counted)
        _agree(_words(found, planned), yes=yes)
        writer.release(reason, {}, planned)
    _tell_released(look(config), reason, planned, known, as_json=as_json)


def _planned(
    looked: Looked, lifetimes: Mapping[str, Filter], reason: str, counted: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Say what a release would count as spent of each data set of which that was not said before."""
    whole = {name: budget for name, budget in lifetimes.items() if looked.doubt or not _accounted(looked, name)}
    fact = looked.books.to_release(reason, whole, counted)
    said = bool(looked.doubt or fact.counted)
    check(said, "Of every data set it is said already what counts as spent.", "Count more of one with --count.")
    return {name: (units, slack) for name, (units, slack) in fact.counted.items()}


def _counted(given: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Read what an operator counts as spent; what is said twice of a data set adds up."""
    total: dict[str, tuple[int, int]] = {}
    for each in given:
        name, _, text = each.partition("=")
        units, slack = _price(each, text)
        before = total.get(name, (0, 0))
        total[name] = before[0] + units, before[1] + slack
    return total


def _price(given: str, text: str) -> tuple[int, int]:
    """Give the most that a job of a budget can have cost, in units and slack units."""
    if text == NOTHING:
        return 0, 0
    try:
        epsilon, delta = map(float, text.split(","))
    except ValueError:
        raise InvalidParameterError(
            f"--count is {given!r:.80}.", "Write DATA_SET=EPSILON,DELTA, as in cohort=1,1e-6, or DATA_SET=nothing."
        ) from None
    budget = filter_of(Budget(epsilon, delta))
    drawn = MOST_DRAWS * Fraction(DRAW_SLACK) / SLACK_UNIT
    return budget.budget_units, min(budget.slack_budget_units, int(drawn))


def _accounted(looked: Looked, name: str) -> bool:
    """Tell whether jobs on a data set are answered again after a quarantine."""
    some = Limits(Filter.for_budget(1.0, 1e-6))
    return not isinstance(probe(looked.books, imagined(name), some), QuarantinedError)


def _words(looked: Looked, counted: Mapping[str, Sequence[int]]) -> Iterator[str]:
    yield f"The ledger {looked.path}: {looked.doubt or 'its quarantine was ended before.'}"
    yield "Answers that it does not know of may have left. What of each data set counts as spent beyond what it shows:"
    for name, (units, slack) in counted.items():
        before = looked.books.data_sets.get(name, Account())
        shown = mu_of(before.spent_units + before.reserved_units)
        more = f"mu {rounded_up(mu_of(units), 4)}" if units or slack else "nothing"
        yield f"  {name}: {more}; the ledger shows mu {rounded_up(shown, 4)}."
    yield (
        "Count less than was spent, and the promise to those whose rows these are is broken. The decision is written "
        "into the ledger and cannot be taken back. Jobs that were signed before it are refused."
    )


def _agree(lines: Iterator[str], *, yes: bool) -> None:
    for line in lines:
        typer.echo(printable(line), err=True)
    if not yes:
        typer.echo("Release it? [y/N] ", err=True, nl=False)
    agreed = yes or sys.stdin.readline().strip().lower() in {"y", "yes"}
    check(agreed, "Nothing was released: nobody agreed.", "Answer with y, or give --yes.")


def _tell_released(
    looked: Looked, reason: str, counted: Mapping[str, Sequence[int]], known: set[str], *, as_json: bool
) -> None:
    refused = sorted(name for name in known if not _accounted(looked, name))
    head = asdict(looked.books.head)
    facts = {"head": head, "reason": reason, "counted": amounts(counted), "refused": refused}
    lines = [f"Released, as entry {head['entries']}. Start the provider; `dpspca budget` says what is left."]
    if refused:
        lines.append(f"Jobs stay refused on: {', '.join(refused)}. Name it with --count when its policy is written.")
    tell(facts, *map(printable, lines), as_json=as_json)
