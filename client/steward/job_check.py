"""Checks a job against a policy under which nothing has been spent yet. Pure."""

from typing import Any

from dpspca.client import plan_facts
from dpspca.client.jobs import JobFile
from dpspca.common.errors import BudgetExceededError, RefusedError
from dpspca.common.names import PartyName, Role
from dpspca.provider.policy import JobRequest, Policy, Rules, filter_of

from .policy_numbers import jobs_that_fit


def check_job(read: Policy, job_file: JobFile, name: str, analyst: str | None) -> dict[str, Any]:
    """Check a job on the data set of this name. Without an analyst, any whom the policy names may sign it."""
    refusals = _refusals(read, job_file, name, analyst) or _lifetime_refusal(read, job_file, name)
    facts = {"data_set": name, "analyst": analyst, "providers": job_file.providers, "allowed": not refusals}
    refused = [{"code": each.code, "what": each.what, "remedy": each.remedy} for each in refusals]
    return facts | {"refusals": refused} | _price(job_file, None if refusals else read.rules(name))


def _refusals(read: Policy, job_file: JobFile, name: str, analyst: str | None) -> list[RefusedError]:
    """Return the refusals by the rules.

    A job that names no providers is addressed to all that offer the data set. They are assumed to be enough.
    """
    try:
        rules = read.rules(name)
    except RefusedError as refusal:
        return [refusal]
    signer = PartyName("any", Role.ANALYST, analyst or rules.analysts[0])
    audience = job_file.providers or tuple(map(str, range(rules.minimum_providers)))
    return [*rules.refusals(JobRequest.of_plan(job_file.plan, signer, audience, job_file.public_bound))]


def _lifetime_refusal(read: Policy, job_file: JobFile, name: str) -> list[RefusedError]:
    """Return a refusal if the rules allow the job but the lifetime is too small for it even while nothing is spent."""
    rules = read.rules(name)
    try:
        filter_of(rules.lifetime).charge(job_file.plan.price)
    except BudgetExceededError as problem:
        return [BudgetExceededError(f"The lifetime of '{name}': {problem.what}", problem.remedy)]
    return []


def _price(job_file: JobFile, rules: Rules | None) -> dict[str, Any]:
    planned = plan_facts.facts(job_file.plan)
    price = {"price": planned["total"], "queries": planned["queries"]}
    return price | ({"such_jobs": jobs_that_fit(rules, job_file.plan.price)} if rules else {})
