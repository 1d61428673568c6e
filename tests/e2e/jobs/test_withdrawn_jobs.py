"""A job stops when its analyst is removed from a policy, and no more answers leave. The connection is real."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from coordinator_processes import SlowLedger, wait_for_answers
from facts import names_facts
from files_in_use import put
from local_federation import SHARDS, Enrolment, federation, permissive_policy, spec

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.plan import prices
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.policy.file import CurrentPolicy

SPEC = spec(answer_seconds=4, minimum_providers=2)
COSTS = [price.units for price in prices(catalogue.plan(SPEC))]
POLICY = permissive_policy()
WITHOUT = POLICY.replace('"ada", ', "")


class PolicyEditingLedger(MemoryLedger):
    """A ledger that edits the policy while the answer to one query is being made."""

    def __init__(self, at: int, edit: Callable[[], object]) -> None:
        super().__init__()
        self.at, self.edit = at, edit

    def store(self, job: str, position: int, answer: Integers) -> None:
        super().store(job, position, answer)
        if position == self.at:
            self.edit()


def test_an_analyst_removed_from_a_policy_gets_no_more_answers(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)

    async def scenario() -> None:
        async with federation(Enrolment.create(tmp_path / "town"), (), heartbeat_seconds=1) as running:
            ledgers = {name: SlowLedger(0.2) for name in SHARDS}
            for name, ledger in ledgers.items():
                output = {"policy": CurrentPolicy(policy).get} if name == "site-1" else {}
                await running.start(name, ledger=ledger, **output)
            job = await running.analyst.submit(SPEC, "cohort", list(SHARDS))
            await wait_for_answers(job, 1)
            put(policy, WITHOUT)
            model = await job.result()
            assert model.statement.parties == 2
            told_of = {each.name: each for each in (await job.status()).participants}
            assert names_facts(told_of["site-1"].reason, "(withdrawn)", "policy changed")
            account = ledgers["site-1"]._state.data_sets["cohort"]
            assert account.reserved.units == 0
            assert account.spent.units in COSTS[:-1]
            assert ledgers["site-1"]._state.jobs[job.name].state == "withdrawn"

    asyncio.run(scenario())


@pytest.mark.parametrize("broken", [WITHOUT, "nonsense"])
def test_a_finished_answer_is_not_sent_if_the_policy_has_changed(broken: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)

    async def scenario() -> None:
        async with federation(Enrolment.create(tmp_path / "town"), (), heartbeat_seconds=1) as running:
            ledger = PolicyEditingLedger(1, lambda: put(policy, broken))
            for name in SHARDS:
                output = {"policy": CurrentPolicy(policy).get, "ledger": ledger} if name == "site-1" else {}
                await running.start(name, **output)
            job = await running.analyst.submit(SPEC, "cohort", list(SHARDS))
            await job.result()
            told_of = {each.name: each for each in (await job.status()).participants}
            assert told_of["site-1"].answered == 1
            assert ("cannot be read" in told_of["site-1"].reason) == (broken == "nonsense")
            assert ledger._state.data_sets["cohort"].spent.units == COSTS[1]  # the answer was made and charged

    asyncio.run(scenario())
