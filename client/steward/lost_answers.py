"""The price that counts as spent if a ledger may have lost answers: at least what they can have cost."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Final

from dpspca.client.jobs import JobFile
from dpspca.common.algorithms import catalogue
from dpspca.common.checks import check
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Budget
from dpspca.common.privacy import DRAW_SLACK, SLACK_UNIT, STRETCH_TAIL, Filter, Price
from dpspca.provider.ledger import LedgerReader, Limits, QuarantinedError, admission_error, hypothetical_opening
from dpspca.provider.policy import Policy, filter_of

NOTHING: Final = "nothing"
"""How an operator says that no job on a data set can be missing."""
MAX_DRAWS: Final = 2**60
"""More noisy numbers than anybody can have been sent: eight exbibytes. Each may be ``DRAW_SLACK`` from its ideal."""


def largest_gaussian_price(budget: Budget) -> Price:
    """Return the most that a job with Gaussian noise within a budget can have cost."""
    # For any budget: how far the implemented noise of this many numbers may be off, and a sketch's tail.
    slack = ceil((MAX_DRAWS * Fraction(DRAW_SLACK) + Fraction(STRETCH_TAIL)) / SLACK_UNIT)
    return Price(filter_of(budget).whole.units, slack)


def prices_in(given: Sequence[str], policy: Policy) -> dict[str, Price]:
    """Read the prices that operators count as spent, each as DATA_SET=JOB. Several values for one data set add up."""
    total: dict[str, Price] = {}
    texts: dict[str, list[str]] = {}
    for each in given:
        name, _, text = each.partition("=")
        total[name] = total.get(name, Price()) + price_in(each, name, text, policy)
        texts.setdefault(name, []).append(text)
    both = [name for name, given_texts in texts.items() if NOTHING in given_texts and len(given_texts) > 1]
    check(not both, f"--count gives 'nothing' and also a job for {', '.join(both)}.", "Remove one of the two.")
    return total


def price_in(given: str, name: str, text: str, policy: Policy) -> Price:
    """Return the price of a job, or the most that a job within a budget can have cost, in units and slack units."""
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
    """Return the price of the job in a file, as its provider charged it."""
    job_file = JobFile.read(file)
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


def prices_to_record(
    view: LedgerReader, lifetimes: Mapping[str, Filter], reason: str, counted: Mapping[str, Price]
) -> dict[str, Price]:
    """Return what ending the quarantine would count as spent of each data set for which no price is recorded yet."""
    whole = {
        name: budget for name, budget in lifetimes.items() if view.quarantine_reason or not answers_again(view, name)
    }
    fact = view.state.to_end_quarantine(reason, whole, counted)
    check(
        bool(view.quarantine_reason or fact.counted),
        "What counts as spent is already recorded for every data set.",
        "To count more for one of them, name it with --count.",
    )
    return fact.prices


def answers_again(view: LedgerReader, name: str) -> bool:
    """Whether jobs on a data set are answered again after a quarantine."""
    some = Limits(Filter.for_budget(1.0, 1e-6))
    return not isinstance(admission_error(view.state, hypothetical_opening(name), some), QuarantinedError)
