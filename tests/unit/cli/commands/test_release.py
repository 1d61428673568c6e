"""What `dpspca ledger release --count` takes for the cost of a job covers what any such job can have cost."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import examples
import pytest
from town import lax_policy

from dpspca.cli.commands.release import parse_count
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.privacy.costs import Price
from dpspca.common.spec import Budget, JobSpec
from dpspca.provider.policy.rules import Policy

ANY = Policy.parse(lax_policy())
JOBS = {f"{name}: {label}": job for name, each in examples.EXAMPLES.items() for label, job in each.jobs.items()}
GAUSSIAN = {label: job for label, job in JOBS.items() if catalogue.find(job.method).gaussian}
OTHERS = sorted({job.method for job in JOBS.values()} - {job.method for job in GAUSSIAN.values()})


def allowing(*methods: str) -> Policy:
    """Give a policy for the data set 'cohort' that allows these methods alone."""
    (rules,) = ANY.data_sets
    return Policy((replace(rules, methods=methods),))


def cost(job: JobSpec) -> Price:
    return catalogue.plan(job).price


def counted(budget: Budget, allowed: Policy) -> Price:
    text = f"{budget.epsilon!r},{budget.delta!r}"
    return parse_count(f"cohort={text}", "cohort", text, allowed)


def with_other_budgets(job: JobSpec) -> Iterator[JobSpec]:
    """Give a job under budgets for which its method has a plan."""
    for epsilon, delta in ((0.5, 1e-3), (1.0, 0.3), (4.0, 1e-12), (4.0, 1e-24), (20.0, 1e-8)):
        other = replace(job, budget=Budget(epsilon, delta))
        with suppress(DpspcaError):
            catalogue.plan(other)
            yield other


@pytest.mark.parametrize("job", GAUSSIAN.values(), ids=GAUSSIAN)
def test_an_epsilon_and_a_delta_count_for_no_less_than_a_job_of_gaussian_noise_costs(job: JobSpec) -> None:
    for each in (job, *with_other_budgets(job)):
        (units, slack), (most, most_slack) = cost(each).pair, counted(each.budget, allowing(each.method)).pair
        assert units <= most, each.budget
        assert slack <= most_slack, each.budget


def test_jobs_of_other_noise_cost_more_than_that() -> None:
    """Or there would be no reason to refuse them."""
    assert OTHERS
    for name in OTHERS:
        costs = [(cost(job).pair, counted(job.budget, Policy()).pair) for job in JOBS.values() if job.method == name]
        assert any(units > most or slack > most_slack for (units, slack), (most, most_slack) in costs), name


@pytest.mark.parametrize("name", OTHERS)
def test_where_other_noise_is_allowed_an_epsilon_and_a_delta_are_refused(name: str) -> None:
    with pytest.raises(
        InvalidParameterError, match=rf"--count is .*policy allows {name} .*not Gaussian.*--count cohort=job\.toml"
    ):
        counted(Budget(1.0, 1e-6), allowing("dps-pca", name))


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_a_file_counts_for_exactly_what_its_job_costs(job: JobSpec, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(job.to_json(), encoding="utf-8")
    assert parse_count(f"cohort={file}", "cohort", str(file), ANY) == cost(job)


def test_a_job_over_another_data_set_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    text = (
        'data_set = "trial"\nnorm_bound = 12.0\nunit = "row-replace-one"\ncomponents = 2\nexplained_variance = false\n'
        "[schema]\ndimension = 30\n[budget]\nepsilon = 4.0\ndelta = 1e-6\n[options]\nsparsity = 6\nrounds = 4\n"
    )
    file.write_text(text, encoding="utf-8")
    with pytest.raises(
        InvalidParameterError, match=r"job\.toml is a job on the data set 'trial', but --count names 'cohort'"
    ):
        parse_count(f"cohort={file}", "cohort", str(file), ANY)
