"""Prints the terms of a data set, and how a job stands against them."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dpspca.client.terms import Fit, differences
from dpspca.common.job import Bounds, StatedCap, Terms
from dpspca.common.privacy import UNIT, format_down, root_down
from dpspca.common.text import printable

from .output import print_table, print_text

FEW_NAMES: Final = 8
"""Columns that are named to people. JSON names all."""
FLAGS: Final = {
    "schema": "--dimension",
    "budget": "--epsilon, --delta",
    "explained_variance": "--no-explained-variance",
}
"""Flags that are not named after their key."""
WORDS: Final = {
    "columns_digest": "names of the columns",
    "dictionary_digest": "the dictionary",
    "dimension": "number of columns",
    "refused": "whether jobs are admitted",
}
_NONE: Final = (
    "No provider shows you its terms. Either no connected provider has such a data set, or no policy names you. You "
    "cannot tell which, because providers give the same answer in both cases. Ask the steward."
)


def terms_facts(terms: Terms) -> dict[str, Any]:
    """Return terms as plain values, with what follows from them."""
    left = terms.left
    worth = {"mu": root_down(left.units * UNIT), "epsilon": terms.left_epsilon, "delta": terms.left_delta}
    own = worth | {"further_jobs": terms.further_jobs()}
    return terms.to_dict() | {"left": {"units": left.units, "slack_units": left.slack_units} | own}


def fit_facts(made: Fit, terms: Sequence[Terms]) -> dict[str, Any]:
    """Return how a job stands against terms as plain values."""
    asked = [each for each in terms if each.party.name in made.providers]
    return {
        "fits_as_it_is": made.fits and not made.changes,
        "can_be_made_to_fit": made.fits,
        "providers": [*made.providers],
        "changes": [each.to_dict() for each in made.changes],
        "obstacles": [*made.obstacles],
        "differences": [each.to_dict() for each in differences(asked)],
        "fitting_job": made.spec.to_dict() if made.fits else None,
    }


def print_terms(terms: Sequence[Terms]) -> None:
    """Print terms as one table for each data set. Providers with the same terms share a column."""
    if not terms:
        print_text(_NONE)
        return
    for data_set in sorted({each.data_set for each in terms}):
        own = [each for each in terms if each.data_set == data_set]
        columns = _columns(own)
        print_text(f"Data set {data_set}")
        stated = [dict(cells) for cells in columns]
        rules = dict.fromkeys(rule for cells in stated for rule in cells)  # some are only where they say something
        print_table(
            ("rule", *(", ".join(who) for who in columns.values())),
            ((rule, *(cells.get(rule, "") for cells in stated)) for rule in rules),
        )
    print_text(
        "Each provider signed these terms for you, and the signatures were verified. What is left changes with each of "
        "your jobs and, if analysts share a budget, with jobs of others."
    )


def print_fit(made: Fit, terms: Sequence[Terms]) -> None:
    """Say how the terms of providers differ, what to change in a job, and what still prevents it."""
    for line in fit_lines(made, terms):
        print_text(printable(line))


def fit_lines(made: Fit, terms: Sequence[Terms]) -> Iterator[str]:
    """Yield the same as lines."""
    who = ", ".join(made.providers) or "nobody"
    if made.fits and not made.changes:
        yield f"The job fits the terms of {who} as it is."
    elif made.changes:
        yield f"The job as given does not fit the terms of {who}. Change:"
    for change in made.changes:
        if change.key == "providers":
            yield f"  providers: leave out {', '.join(change.providers)}, which show you no terms now"
        else:
            flag = FLAGS.get(change.key, "--" + change.key.replace("_", "-"))
            for_whom = ", ".join(change.providers)
            yield f"  {change.key} ({flag}): {_short(change.was)} -> {_short(change.becomes)}, for {for_whom}"
    if made.obstacles:
        yield "Even then it does not fit:" if made.changes else "The job does not fit:"
        yield from (f"  {why}" for why in made.obstacles)
    for each in differences([each for each in terms if each.party.name in made.providers]):
        stated = "; ".join(f"{', '.join(who)}: {_short(value)}" for value, who in each.stated)
        yield f"The providers' terms differ in {WORDS.get(each.rule, each.rule)}. {stated}"


def _columns(terms: Sequence[Terms]) -> dict[tuple[tuple[str, str], ...], list[str]]:
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for each in terms:
        found.setdefault(tuple(_cells(each)), []).append(each.party.name)
    return found


def _cells(terms: Terms) -> Iterator[tuple[str, str]]:
    stated = terms.conditions
    yield "unit", str(stated.unit)
    of_persons = "; a job uses at most as many rows of each person as it says" if stated.unit.is_person else ""
    yield "rows_per_person", f"{stated.rows_per_person} or more{of_persons}"
    yield "methods", ", ".join(stated.methods)
    yield "accounting", ", ".join(stated.accounting)
    yield "centering", ", ".join(stated.centering)
    yield "explained_variance", "allowed" if stated.explained_variance else "not allowed"
    yield "columns here", str(terms.dimension)
    yield "digest of their names", (terms.columns_digest or "no names")[:12]
    yield "dictionary", "required" if stated.dictionary_required else "not required"
    if terms.dictionary_digest:
        yield "digest of the dictionary", terms.dictionary_digest
    yield (
        "columns of a job",
        _short(stated.columns) if not isinstance(stated.columns, int) else f"up to {stated.columns}",
    )
    yield "norm_bound", _range(stated.norm_bound)
    yield "mean_bound", _range(stated.mean_bound) if stated.mean_bound else "no private mean"
    yield "minimum_providers", f"{stated.minimum_providers} or more"
    if stated.unproven:
        yield "unproven", "methods whose price nobody can check are allowed"
    yield "who decides", _deciders(stated.approvals_needed)
    yield "one job", _cap(stated.per_job)
    yield "all your jobs", _cap(stated.per_analyst) if stated.per_analyst else "no separate limit for you"
    yield "left for you", _left(terms)
    yield "jobs of the largest size", str(terms.further_jobs())
    yield (
        "jobs at the same time, and a day",
        f"{stated.quotas.get('open_jobs', '?')}, and {stated.quotas.get('jobs_a_day', '?')}",
    )
    if terms.refused:
        yield "NO JOB IS ADMITTED", terms.refused


def _deciders(needed: int) -> str:
    """Say who approves a job."""
    if not needed:
        return "the provider's program, at once"
    return f"{'a person' if needed == 1 else f'{needed} persons'} there: the job waits for them"


def _range(of: Bounds) -> str:
    return f"{of.least:g} to {of.most:g}"


def _cap(of: StatedCap) -> str:
    aside = f", {of.approximate_delta:g} of it for approximate methods" if of.approximate_delta else ""
    return f"epsilon {of.epsilon:g}, delta {of.delta:g}{aside}"


def _left(of: Terms) -> str:
    """Write what is left, rounded down."""
    mu = format_down(root_down(of.left.units * UNIT), 4)
    return f"epsilon {format_down(of.left_epsilon, 4)} at delta {of.left_delta:g} (mu {mu})"


def _short(value: Any) -> str:  # noqa: ANN401  # a value of a job or of terms
    """Write a value in a few words."""
    if isinstance(value, dict) and "dimension" in value:
        return f"{value['dimension']} columns"
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    if isinstance(value, list | tuple):
        more = f" and {len(value) - FEW_NAMES} more" if len(value) > FEW_NAMES else ""
        return ", ".join(map(str, value[:FEW_NAMES])) + more
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
