"""The meaning of the budgets of a policy: how many jobs they allow, and how well anybody can guess from all answers."""

import math
from dataclasses import asdict
from typing import Any

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget
from dpspca.common.privacy import SLACK_UNIT, Price
from dpspca.provider.ledger import Balance
from dpspca.provider.policy import Rules, filter_of


def rules_facts(rules: Rules) -> dict[str, Any]:
    """Return the rules of a data set, and what follows from them, as plain values."""
    budgets = {name: _budget_facts(getattr(rules, name)) for name in ("lifetime", "per_analyst", "per_job")}
    budgets["per_job"] = (budgets["per_job"] or {}) | {"guess_at_most": best_guess_of_job(rules)}
    return (
        asdict(rules)
        | budgets
        | {"largest_jobs": jobs_that_fit(rules, rules.largest_gaussian_job), "unusable": rules.unusable()}
    )


def jobs_that_fit(rules: Rules, price: Price) -> dict[str, int | None]:
    """Return how many jobs of a price fit into the budgets while nothing is spent."""
    budgets = {"lifetime": rules.lifetime, "per_analyst": rules.per_analyst}
    return {name: Balance.of(filter_of(each)).jobs(price) if each else None for name, each in budgets.items()}


def _budget_facts(budget: Budget | None) -> dict[str, float] | None:
    if budget is None:
        return None
    mu = filter_of(budget).whole.mu
    return {"epsilon": budget.epsilon, "delta": budget.delta, "mu": mu, "guess_at_most": best_guess(budget)}


def best_guess(budget: Budget) -> float:
    """Return the most that a guess between two neighbouring data sets, at even odds, can be right, as a probability.

    It is rounded up to a thousandth. Telling N(0, 1) from N(mu, 1) succeeds with probability Phi(mu / 2). The slack of
    the budget is added, because the implemented noise is a little off.
    """
    whole = filter_of(budget).whole
    right = math.erfc(-whole.mu / 2 / math.sqrt(2)) / 2 + float(whole.slack_units * SLACK_UNIT)
    return min(1.0, math.ceil(1000 * right) / 1000)


def best_guess_of_job(rules: Rules) -> float:
    """Return the same for one job. A job whose noise is not Gaussian is limited by epsilon and delta, not by their mu.

    By (epsilon, delta) alone a guess is right with probability at most (e^epsilon + delta) / (1 + e^epsilon): the total
    variation distance of neighbours is at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Kairouz, Oh & Viswanath
    2015), and knowing the answers adds half of it to one half.
    """
    gaussian = best_guess(rules.per_job)
    if all_gaussian(rules):
        return gaussian
    odds, delta = math.exp(rules.per_job.epsilon), rules.per_job.delta
    return max(gaussian, min(1.0, math.ceil(1000 * (odds + delta) / (1 + odds)) / 1000))


def all_gaussian(rules: Rules) -> bool:
    """Return whether all methods that the policy lists have Gaussian noise."""
    return all(catalogue.find(name).gaussian for name in rules.methods)
