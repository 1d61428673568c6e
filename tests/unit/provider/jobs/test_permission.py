"""A job that the policy of this moment does not allow gets no more answers, and keeps no budget that it did not use."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from facts import facts
from local_federation import Enrolment, now, permissive_policy

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import JobEndedError, RefusedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.plan import prices
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.transport import wire
from dpspca.common.trust.signing import SignedJob
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs import permission
from dpspca.provider.jobs.open_job import OpenJob
from dpspca.provider.jobs.permission import WITHDRAWN, WithdrawnError
from dpspca.provider.jobs.registry import JobRegistry, ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.policy.file import CurrentPolicy
from dpspca.provider.policy.rules import UnreadablePolicyError

SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    options={"sparsity": 4, "rounds": 3},
    method="dps-pca",
)
FIRST = CovarianceProduct(np.eye(4)[:, :2])
COSTS = [price.units for price in prices(catalogue.plan(SPEC))]
POLICY = permissive_policy("row-replace-one", "cohort", "other")
LITTLE = "{ epsilon = 0.1, delta = 1e-9 }"


@dataclass
class Provider:
    """One provider, whose steward edits the policy."""

    folder: Path
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    def __post_init__(self) -> None:
        self.enrolment = Enrolment.create(self.folder)
        self.ada = self.enrolment.identity(Role.ANALYST, "ada")
        self.north = self.enrolment.identity(Role.PROVIDER, "north")
        self.edits = 0
        self.write(POLICY)
        self.policy = CurrentPolicy(self.folder / "policy.toml")
        self.start()

    def start(self) -> None:
        rows = {"cohort": check_rows(np.random.default_rng(1).standard_normal((20, 4)))}
        told = ProviderSetup(
            "", lambda: self.north, self.enrolment.revocations, now, rows, self.policy.get, self.ledger
        )
        self.registry = JobRegistry(told)

    def write(self, text: str) -> None:
        """Edit the policy; its length changes each time, whatever the clock of the disk can tell apart."""
        self.edits += 1
        (self.folder / "policy.toml").write_text(text + "\n" * self.edits)

    def job(self) -> SignedJob:
        return self.enrolment.job(SPEC, self.ada, ["north"])

    def answer(self, job: OpenJob, position: int) -> bytes:
        announced = FIRST.announcement
        reader = wire.QueryReader(announced, job.plan[position])
        reader.add(0, bytes(FIRST.content()))
        content, _ = asyncio.run(job.answer(position, reader, lambda: None))
        return bytes(content)

    @property
    def account(self) -> tuple[int, int]:
        """Say what is spent and what is reserved on the data set."""
        found = self.ledger._state.data_sets["cohort"]
        return found.spent.units, found.reserved.units


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    return Provider(tmp_path)


def without_table(policy: str) -> str:
    return policy[policy.index("[data_sets.other]") :]


def changed(key: str, value: str) -> str:
    """Write the policy with another value of a key, for the first data set alone."""
    begin = POLICY.index(f"\n{key} = ") + 1
    return f"{POLICY[:begin]}{key} = {value}{POLICY[POLICY.index(chr(10), begin) :]}"


CHANGES = {
    "the analyst is taken out": changed("analysts", '["bob"]'),
    "the method is taken off": changed("methods", '["ppca"]'),
    "the data set's table is removed": without_table(POLICY),
    "the unit is another": changed("unit", '"row-add-remove"'),
    "fewer columns are allowed": changed("columns", "3"),
    "a smaller bound is allowed": changed("norm_bound", "{ least = 1.0, most = 2.0 }"),
    "a job may cost less": changed("per_job", LITTLE),
    "the lifetime is smaller": changed("lifetime", LITTLE).replace(
        "per_job = ", f"per_analyst = {LITTLE}\nper_job = {LITTLE} #", 1
    ),
    "an analyst may spend less": changed("per_job", f"{LITTLE}\nper_analyst = {LITTLE}"),
}


@pytest.mark.parametrize("policy", CHANGES.values(), ids=CHANGES.keys())
def test_a_job_that_the_policy_no_longer_allows_gets_no_more_answers(policy: str, provider: Provider) -> None:
    """Neither to its next query, nor again to the last; the rest of its budget is free, and it stays closed."""
    signed = provider.job()
    opened = provider.registry.open(signed)
    provider.answer(opened, 0)
    assert provider.account == (COSTS[0], COSTS[-1] - COSTS[0])
    provider.write(policy)
    for position in (0, 1):
        with pytest.raises(WithdrawnError) as caught:
            provider.answer(opened, position)
        assert caught.value.remedy == permission._OVER, "not the remedy of a refusal, which says that it cost nothing"
    assert provider.account == (COSTS[0], 0)
    assert provider.ledger._state.jobs[signed.job_id].state == WITHDRAWN
    with pytest.raises(WithdrawnError):
        provider.registry.find(signed.job_id)
    provider.write(POLICY)
    with pytest.raises(WithdrawnError):
        provider.answer(opened, 0)
    assert provider.registry.find(signed.job_id) is None
    with pytest.raises(JobEndedError, match=facts("(withdrawn)")):
        provider.registry.open(signed)
    assert provider.account == (COSTS[0], 0)


@pytest.mark.parametrize("policy", CHANGES.values(), ids=CHANGES.keys())
def test_a_job_that_is_not_allowed_after_a_restart_is_closed_too(policy: str, provider: Provider) -> None:
    signed = provider.job()
    provider.answer(provider.registry.open(signed), 0)
    provider.write(policy)
    provider.start()
    with pytest.raises(RefusedError):
        provider.registry.open(signed)
    assert provider.account == (COSTS[0], 0)


def test_a_lifetime_that_is_smaller_than_what_is_promised_stops_the_job(provider: Provider) -> None:
    """Each of two jobs is within every rule; together they were promised more than the new lifetime."""
    first, second = (provider.registry.open(provider.job()) for _ in range(2))
    provider.answer(first, 0)
    one = "{ epsilon = 1.3, delta = 1e-6 }"
    provider.write(changed("lifetime", one).replace("per_job = ", f"per_job = {one} #", 1))
    with pytest.raises(WithdrawnError, match=facts("'cohort'")):
        provider.answer(first, 1)
    provider.answer(second, 0)  # what the first has not spent is free again, and the rest fits
    assert provider.account == (2 * COSTS[0], COSTS[-1] - COSTS[0])


@pytest.mark.parametrize("broken", ["nonsense", "", changed("unit", '"row"'), changed("lifetime", "3")])
def test_an_unreadable_policy_stops_a_job_until_it_is_repaired(broken: str, provider: Provider) -> None:
    signed = provider.job()
    opened = provider.registry.open(signed)
    answer = provider.answer(opened, 0)
    before = provider.account
    provider.write(broken)
    for position in (0, 1):
        with pytest.raises(UnreadablePolicyError, match=facts("'cohort'")):
            provider.answer(opened, position)
    with pytest.raises(UnreadablePolicyError):
        provider.registry.find(signed.job_id)
    assert provider.account == before
    provider.write(POLICY)
    assert provider.answer(opened, 0) == answer
    provider.answer(opened, 1)
    assert provider.account == (COSTS[1], COSTS[-1] - COSTS[1])


def test_a_policy_change_that_still_allows_the_job_changes_nothing(provider: Provider) -> None:
    opened = provider.registry.open(provider.job())
    provider.answer(opened, 0)
    provider.write(changed("analysts", '["ada"]') + "# a remark")
    provider.answer(opened, 1)
    provider.write(POLICY[: POLICY.index("[data_sets.other]")] + "[data_sets.other]\nunit = 3\n")
    provider.answer(opened, 2)
    assert provider.account == (COSTS[-1], 0)


def test_t22_a_changed_interval_applies_to_the_next_query_of_an_open_job(provider: Provider) -> None:
    opened = provider.registry.open(provider.job())
    first = provider.answer(opened, 0)
    provider.write(changed("minimum_providers", "1\nanswer_interval = 0.2"))
    for position in (0, 1):  # one that is repeated, and one that is new
        begun = time.monotonic()
        answer = provider.answer(opened, position)
        assert time.monotonic() - begun >= 0.39
        assert position or answer == first
