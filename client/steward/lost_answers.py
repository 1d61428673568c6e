"""What counts as spent when a ledger may have forgotten answers: at least what they can have cost."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Final

from dpspca.common.checks import check
from dpspca.common.job import Budget
from dpspca.common.privacy import DRAW_SLACK, SLACK_UNIT, STRETCH_TAIL, Filter, Price
from dpspca.provider.ledger import LedgerView, Limits, QuarantinedError, admission_error, hypothetical_opening
from dpspca.provider.policy import filter_of

MAX_DRAWS: Final = 2**60
"""More noisy numbers than anybody can have been sent: eight exbibytes. Each may be ``DRAW_SLACK`` from its ideal."""


def largest_gaussian_price(budget: Budget) -> Price:
    """Return the most that a job with Gaussian noise within a budget can have cost."""
    # For any budget: how far the implemented noise of so many numbers may be off, and a sketch's tail.
    slack = ceil((MAX_DRAWS * Fraction(DRAW_SLACK) + Fraction(STRETCH_TAIL)) / SLACK_UNIT)
    return Price(filter_of(budget).whole.units, slack)


def prices_to_record(
    view: LedgerView, lifetimes: Mapping[str, Filter], reason: str, counted: Mapping[str, Price]
) -> dict[str, Price]:
    """Return what a release would count as spent of each data set for which this is not recorded yet."""
    whole = {
        name: budget for name, budget in lifetimes.items() if view.quarantine_reason or not answers_again(view, name)
    }
    fact = view.books.to_release(reason, whole, counted)
    check(
        bool(view.quarantine_reason or fact.counted),
        "What counts as spent is already recorded for every data set.",
        "To count more for one of them, name it with --count.",
    )
    return {name: Price(*pair) for name, pair in fact.counted.items()}


def answers_again(view: LedgerView, name: str) -> bool:
    """Whether jobs on a data set are answered again after a quarantine."""
    some = Limits(Filter.for_budget(1.0, 1e-6))
    return not isinstance(admission_error(view.books, hypothetical_opening(name), some), QuarantinedError)
