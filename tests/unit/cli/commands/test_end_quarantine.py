"""`dpspca ledger end-quarantine --count` counts at least as much as any such job can have cost."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import examples
import pytest
from facts import facts
from local_federation import permissive_policy

from dpspca.client.steward.lost_answers import price_in
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.job import Budget, JobSpec
from dpspca.common.privacy.costs import Price
from dpspca.provider.policy.rules import Policy

ANY = Policy.parse(permissive_policy())
JOBS = {f"{name}: {label}": job for name, each in examples.EXAMPLES.items() for label, job in each.jobs.items()}
GAUSSIAN = {label: job for label, job in JOBS.items() if catalogue.find(job.method).gaussian}
OTHERS = sorted({job.method for job in JOBS.values()} - {job.method for job in GAUSSIAN.values()})


def allowing(*methods: str) -> Policy:
    """Return a policy for the data set 'cohort' that allows only these methods."""
    (rules,) = ANY.data_sets
    return Policy((replace(rules, methods=methods),))


def cost(job: JobSpec) -> Price:
    return catalogue.plan(job).price


def counted(budget: Budget, allowed: Policy) -> Price:
    text = f"{budget.epsilon!r},{budget.delta!r}"
    return price_in(f"cohort={text}", "cohort", text, allowed)


def with_other_budgets(job: JobSpec) -> Iterator[JobSpec]:
    """Yield a job with other budgets, as far as its method has a plan for them."""
    for epsilon, delta in ((0.5, 1e-3), (1.0, 0.3), (4.0, 1e-12), (4.0, 1e-24), (20.0, 1e-8)):
        other = replace(job, budget=Budget(epsilon, delta))
        with suppress(DpspcaError):
            catalogue.plan(other)
            yield other


@pytest.mark.parametrize("job", GAUSSIAN.values(), ids=GAUSSIAN)
def test_a_counted_budget_covers_any_gaussian_job_within_it(job: JobSpec) -> None:
    for each in (job, *with_other_budgets(job)):
        (units, slack), (most, most_slack) = cost(each).pair, counted(each.budget, allowing(each.method)).pair
        assert units <= most, each.budget
        assert slack <= most_slack, each.budget


def test_jobs_without_gaussian_noise_can_cost_more_than_their_budget() -> None:
    """Otherwise there would be no reason to refuse their budgets."""
    assert OTHERS
    for name in OTHERS:
        costs = [(cost(job).pair, counted(job.budget, Policy()).pair) for job in JOBS.values() if job.method == name]
        assert any(units > most or slack > most_slack for (units, slack), (most, most_slack) in costs), name


@pytest.mark.parametrize("name", OTHERS)
def test_count_refuses_a_budget_if_other_noise_is_allowed(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts("--count", name, "--count cohort=job.toml")):
        counted(Budget(1.0, 1e-6), allowing("dps-pca", name))


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_counted_file_counts_the_exact_price_of_its_job(job: JobSpec, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(job.to_dict()), encoding="utf-8")
    assert price_in(f"cohort={file}", "cohort", str(file), ANY) == cost(job)


def test_count_refuses_a_job_on_another_data_set(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    text = (
        'data_set = "trial"\nmethod = "dps-pca"\nnorm_bound = 12.0\nunit = "row-replace-one"\n'
        "components = 2\nexplained_variance = false\n"
        "[schema]\ndimension = 30\n[budget]\nepsilon = 4.0\ndelta = 1e-6\n[options]\nsparsity = 6\nrounds = 4\n"
    )
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidParameterError, match=facts(file, "'trial'", "--count", "'cohort'")):
        price_in(f"cohort={file}", "cohort", str(file), ANY)
