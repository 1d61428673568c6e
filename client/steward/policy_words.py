"""A policy in words, for stewards and ethics boards. Pure."""

import math
from collections.abc import Iterator
from typing import Final

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget
from dpspca.common.privacy import format_up
from dpspca.provider.approval import CENTERING
from dpspca.provider.ledger import Quotas
from dpspca.provider.policy import Rules, filter_of

from .policy_numbers import all_gaussian, best_guess_of_job, best_guess_within, jobs_that_fit

_OTHER_NOISE: Final = (
    " A job whose noise is not Gaussian is limited by this epsilon and delta. It takes more of the budgets below, "
    "because it costs more in mu."
)
_LARGE: Final = 100
"""Numbers from here on are written without decimals."""
_LISTED: Final = 50
"""Columns that are named in words."""


def explanation(rules: Rules) -> Iterator[str]:
    """Yield the explanation of a data set's rules, one paragraph a line."""
    yield f"Data set {rules.data_set}"
    if rules.unit.is_person:
        yield (
            f"  Rows per person: a job must allow for {rules.rows_per_person} or more rows of each person "
            "(rows_per_person). The provider uses at most as many as the job allows for. Its settings say which person "
            "each row belongs to (person under [reading], or a file under [persons])."
        )
    elif rules.rows_per_person > 1:
        yield (
            f"  Rows per person: one person may have {rules.rows_per_person} rows here. A job must protect all of them "
            f"together (rows_per_person = {rules.rows_per_person} or more), which makes its noise wider by that factor."
        )
    yield f"  Who may ask: {', '.join(rules.analysts)}, and nobody else."
    yield f"  What may be asked: {_queries(rules)}."
    for name, why in rules.unusable().items():
        yield (
            f"  WARNING: methods lists {name}, but no job here can use it. {why} Remove it from methods, or change "
            "the rule that excludes it."
        )
    yield f"  Columns: {_columns(rules)}."
    yield f"  {_bounds(rules)}"
    yield (
        f"  Other providers: a job must name {rules.minimum_providers} or more providers, including this one, and must "
        "not continue with fewer. Each provider's noise protects its data, whoever else takes part."
    )
    yield f"  When answers leave: {_answer_times(rules)}"
    yield f"  Who decides: {_approval(rules)}"
    yield f"  {_quotas(rules.quotas)}"
    yield f"  Who is protected: {rules.unit.neighbours}{_rows(rules)}"
    yield from _budget_lines(rules)


def _budget_lines(rules: Rules) -> Iterator[str]:
    gaussian = all_gaussian(rules)
    yield f"  One job costs at most {_amount(rules.per_job)}.{'' if gaussian else _OTHER_NOISE}"
    if rules.per_analyst:
        yield f"  All jobs of one analyst together cost at most {_amount(rules.per_analyst)}."
    yield (
        f"  All jobs of all analysts together, ever, cost at most {_amount(rules.lifetime)}. This budget is never "
        "refilled."
    )
    fitting = jobs_that_fit(rules, rules.largest_gaussian_job)
    each = f", {fitting['per_analyst']} for each analyst" if rules.per_analyst else ""
    size = f"of the largest size{'' if gaussian else ' with Gaussian noise'}"
    yield f"  That is enough for {fitting['lifetime']} jobs {size}{each}, or for more jobs that are smaller."
    job, all_jobs = best_guess_of_job(rules), best_guess_within(rules.lifetime)
    yield (
        "  What the numbers mean: suppose that somebody knows everything else and guesses "
        f"{rules.unit.guess('the least norm bound')}. Without any answer, the guess is right in 50.0% of cases. With "
        f"all answers to one job, it is right in at most {job:.1%}. With all answers to all jobs, ever, it is right in "
        f"at most {all_jobs:.1%}. In other words, {_one_unit(rules)} makes any conclusion from all these answers at "
        f"most {_factor(rules.lifetime)} times as likely, apart from an additional probability of "
        f"{format_up(rules.lifetime.delta)}."
    )
    yield (
        "  What the numbers do not cover: other data sets. If a person is in several data sets, here or at other "
        "providers, their budgets add up."
    )


def _amount(budget: Budget) -> str:
    mu = format_up(filter_of(budget).whole.mu, 4)
    return f"epsilon {format_up(budget.epsilon)} at delta {format_up(budget.delta)} (mu {mu})"


def _factor(budget: Budget) -> str:
    value = math.exp(budget.epsilon)
    return format_up(value, 3) if value < _LARGE else f"{math.ceil(value):,}"


def _queries(rules: Rules) -> str:
    rows = " or ".join(CENTERING[each] for each in rules.centering) if rules.unit.is_row else "a symmetric matrix"
    how = "; ".join(f"{name} ({catalogue.find(name).summary})" for name in rules.methods)
    also = ", and the variance that they explain" if rules.explained_variance else ""
    with_dictionary = ", prepared with the shared dictionary of the provider's settings" if rules.dictionary else ""
    of = f"principal components of {rows}{with_dictionary}{also}"
    return f"{of}. Methods: {how}. Accounting: {' or '.join(rules.accounting)}"


def _rows(rules: Rules) -> str:
    """Return how many rows a person has, if the privacy unit is a row."""
    if not rules.unit.is_row:
        return " A person with several entries is protected less, in proportion."
    if rules.unit.is_person:
        return ""
    rows = "one row" if rules.rows_per_person == 1 else f"at most {rules.rows_per_person} rows"
    return f" One person has {rows}: the policy says so, and no program can check it."


def _answer_times(rules: Rules) -> str:
    if rules.answer_interval == 0:
        return "as soon as they are ready. The time that an answer takes can then reveal something about the rows."
    given = rules.answer_interval
    interval = "follows from the size of the query" if given is None else f"is {given:g} seconds"
    several = rules.unit.is_person or rules.rows_per_person > 1
    one = "a row adds" if rules.unit.is_row else "a row of the matrix adds"
    rows, they_are = ("all rows of a person that count add", "they are") if several else (one, "the row is")
    return (
        f"a whole number of intervals after the query. The interval {interval}. Suppose {rows} a tenth of an interval "
        f"to the computing time. Somebody who sees when the answer arrives can then guess whether {they_are} there, "
        "and is right in at most 55 of 100 cases. A blind guess is right in 50."
    )


def _one_unit(rules: Rules) -> str:
    if rules.unit.is_person:
        return "one person"
    return "one row" if rules.unit.is_row else "such a change"


def _bounds(rules: Rules) -> str:
    if rules.unit.is_row:
        return (
            f"Norm bound: rows are clipped to a length that the job chooses, {rules.norm_bound}{_mean(rules)}. A job "
            "that scales columns chooses it in multiples of each column's root mean square, within a factor of 1,000 "
            "of the root of the number of columns."
        )
    return (
        f"Norm bound: a job protects changes up to a bound that it chooses, {rules.norm_bound}. All jobs together "
        "protect changes up to the least of these bounds, and larger changes less, in proportion."
    )


def _columns(rules: Rules) -> str:
    if isinstance(rules.columns, int):
        return f"any, at most {rules.columns}"
    shown, count = rules.columns[:_LISTED], len(rules.columns)
    more = f" and {count - _LISTED} more that the policy names" if count > _LISTED else ""
    return f"only {', '.join(shown)}{more}"


def _approval(rules: Rules) -> str:
    rule = rules.approval_rule
    if rule is None:
        return "no person. A job that follows the rules and fits the budgets is answered."
    persons = "1 of these persons" if rule.needed == 1 else f"{rule.needed} different persons of these"
    return f"{persons} must approve each job: {', '.join(rule.approvers)}."


def _quotas(quotas: Quotas) -> str:
    return (
        f"Quotas: each analyst may have {quotas.open_jobs:,} open jobs here, whose answers take up to "
        f"{quotas.answer_mebibytes:,} MiB ({quotas.answer_mebibytes_in_all:,} MiB for all analysts together), and may "
        f"submit {quotas.jobs_a_day:,} jobs with {quotas.queries_a_day:,} queries a day."
    )


def _mean(rules: Rules) -> str:
    return f", and for the mean to a length {rules.mean_bound}" if rules.mean_bound else ""
