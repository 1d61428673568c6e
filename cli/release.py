"""How an operator ends the quarantine of a ledger: by saying what counts as spent."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Annotated, Final

import typer

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError
from dpspca.common.plan import events
from dpspca.common.privacy.accountant import Filter, cost_units, slack_units
from dpspca.common.privacy.costs import SLACK_UNIT, mu_of
from dpspca.common.privacy.directions import TAIL
from dpspca.common.privacy.noise import DRAW_SLACK
from dpspca.common.spec import Budget, check
from dpspca.common.statement import rounded_up
from dpspca.common.transport.signing import JOB_SKEW
from dpspca.provider.accounts import Account
from dpspca.provider.caps import filter_of
from dpspca.provider.entries import Limits, QuarantinedError
from dpspca.provider.policy import Policy
from dpspca.provider.policy_file import read_policy
from dpspca.provider.sqlite_ledger import SqliteLedger

from . import questions
from .daemons import ledger_paths
from .flags import AsJson, OwnSettings
from .looking import Looked, amounts, imagined, look, moment, probe
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
            metavar="DATA_SET=JOB",
            help="Count as spent of a data set what a job costs: JOB is its file, JSON or TOML, or EPSILON,DELTA for "
            "the most that Gaussian noise costs within that budget. Once for each job that may be missing; or "
            "DATA_SET=nothing. Of a data set that is not named all counts as spent.",
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
    was lost. Say less only as far as you know what is missing. Before anything counts, what would is shown; that the
    ledger was found in quarantine, and opened, is written first.
    """
    looked = look(config)
    allowed = read_policy(looked.settings.policy)
    counted = _counted(count or [], allowed)
    lifetimes = {each.data_set: filter_of(each.lifetime) for each in allowed.data_sets}
    known = {*lifetimes, *looked.settings.names, *looked.books.data_sets}
    unknown = sorted(set(counted) - known)
    check(
        not unknown,
        f"--count names {', '.join(map(repr, unknown))}, which nothing here is called.",
        f"There are: {', '.join(sorted(known))}.",
    )
    if looked.doubt is None:
        _planned(looked, lifetimes, reason, counted)  # what there is to refuse is refused before anything is written
    with SqliteLedger(*ledger_paths(looked.settings, config)) as writer:
        found = look(config)
        planned = _planned(found, lifetimes, reason, counted)
        agree(_words(found, planned), "Release it?", yes=yes)
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


def _counted(given: Sequence[str], allowed: Policy) -> dict[str, tuple[int, int]]:
    """Read what an operator counts as spent; what is said of a data set several times adds up."""
    total: dict[str, tuple[int, int]] = {}
    texts: dict[str, list[str]] = {}
    for each in given:
        name, _, text = each.partition("=")
        units, slack = count_of(each, name, text, allowed)
        before = total.get(name, (0, 0))
        total[name] = before[0] + units, before[1] + slack
        texts.setdefault(name, []).append(text)
    both = [name for name, said in texts.items() if NOTHING in said and len(said) > 1]
    check(not both, f"--count says nothing of {', '.join(both)}, and something as well.", "Leave one of the two out.")
    return total


def count_of(given: str, name: str, text: str, allowed: Policy) -> tuple[int, int]:
    """Give what a job costs, or the most that one of a budget can have cost, in units and slack units."""
    if text == NOTHING:
        return 0, 0
    if Path(text).is_file():
        return _price_of(name, Path(text))
    try:
        epsilon, delta = map(float, text.split(","))
    except ValueError:
        raise InvalidParameterError(
            f"--count is {given!r:.80}, and there is no such file.",
            "Write DATA_SET=EPSILON,DELTA, as in cohort=1,1e-6, or DATA_SET=FILE, a job's, or DATA_SET=nothing.",
        ) from None
    units = filter_of(Budget(epsilon, delta)).budget_units
    _require_gaussian(given, name, allowed)
    # Whatever the budget: of all that noise as implemented may be off, and the chance that a sketch misfires.
    return units, ceil((MOST_DRAWS * Fraction(DRAW_SLACK) + Fraction(TAIL)) / SLACK_UNIT)


def _price_of(name: str, file: Path) -> tuple[int, int]:
    """Give what the job in a file costs, as its provider charged it."""
    order = questions.from_file(file, questions.Flags())
    other = f"{file} is a job over {order.data_set}, and not over {name}."
    check(order.data_set in {None, name}, other, "Name the data set that the job is over.")
    listed = events(catalogue.plan(order.spec))
    return cost_units(listed), slack_units(listed)


def _require_gaussian(given: str, name: str, allowed: Policy) -> None:
    """Refuse to count by epsilon and delta where a job may have cost more than they are worth with Gaussian noise.

    A pure mechanism is charged with the mu that it is no worse than, and one that may fail with its own delta too: a
    pure job of epsilon 1 has cost 1.23, where (1, 1e-6) is worth 0.24.
    """
    listed = [each for rules in allowed.data_sets if rules.data_set == name for each in rules.algorithms]
    others = [each for each in listed if not catalogue.find(each).gaussian]
    check(
        not others,
        f"--count is {given!r:.80}, and the policy allows {', '.join(others)} on it: where the noise of a job is not "
        "Gaussian, it may have cost more than its epsilon and delta say.",
        f"Give the job's file, as in --count {name}=job.toml, once for each that may be missing; or leave --count out, "
        "and all counts as spent.",
    )


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


def agree(lines: Iterator[str], question: str, *, yes: bool) -> None:
    """Show what would be recorded, and go on only if whoever runs the command agrees."""
    for line in lines:
        typer.echo(printable(line), err=True)
    if not yes:
        typer.echo(f"{question} [y/N] ", err=True, nl=False)
    agreed = yes or sys.stdin.readline().strip().lower() in {"y", "yes"}
    check(agreed, "Nothing was recorded: nobody agreed.", "Answer with y, or give --yes.")


def _tell_released(
    looked: Looked, reason: str, counted: Mapping[str, Sequence[int]], known: set[str], *, as_json: bool
) -> None:
    refused = sorted(name for name in known if not _accounted(looked, name))
    head = asdict(looked.books.head)
    after = moment(looked.books.signed_after)
    facts = {"head": head, "reason": reason, "counted": amounts(counted), "refused": refused, "signed_after": after}
    lines = [f"Released, as entry {head['entries']}. Start the provider; `dpspca budget` says what is left."]
    lines.append(
        f"Jobs signed after {after} are answered. Clocks may be {JOB_SKEW // 60} minutes apart, and what was signed "
        "before that may be among what is lost."
    )
    if refused:
        lines.append(f"Jobs stay refused on: {', '.join(refused)}. Name it with --count when its policy is written.")
    tell(facts, *map(printable, lines), as_json=as_json)
