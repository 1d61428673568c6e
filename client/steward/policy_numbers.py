"""The meaning of the budgets of a policy: how many jobs they allow, and how well anybody can guess from all answers."""

from dataclasses import asdict
from typing import Any

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget
from dpspca.common.privacy import SLACK_UNIT, Price, best_guess_by_epsilon, best_guess_by_mu
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
    return {"epsilon": budget.epsilon, "delta": budget.delta, "mu": mu, "guess_at_most": best_guess_within(budget)}


def best_guess_within(budget: Budget) -> float:
    """Return the most that a guess from all answers within a budget can be right."""
    whole = filter_of(budget).whole
    return best_guess_by_mu(whole.mu, float(whole.slack_units * SLACK_UNIT))


def best_guess_of_job(rules: Rules) -> float:
    """Return the same for one job. If its noise is not Gaussian, epsilon and delta limit it, and not their mu."""
    gaussian, per_job = best_guess_within(rules.per_job), rules.per_job
    return gaussian if all_gaussian(rules) else max(gaussian, best_guess_by_epsilon(per_job.epsilon, per_job.delta))


def all_gaussian(rules: Rules) -> bool:
    """Return whether all methods that the policy lists have Gaussian noise."""
    return all(catalogue.find(name).gaussian for name in rules.methods)
