"""A person at a provider approves or rejects a job, over real connections, with real ledgers and queues."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from approvals import BEN, MARIA, Site, awaiting, human_policy, joined
from coordinator_processes import wait_for_answers
from facts import facts
from files_in_use import put
from local_federation import Enrolment, RunningFederation, federation, spec

from dpspca.client.connection import JobFailedError
from dpspca.client.evidence import verify
from dpspca.common.approval_record import APPROVE, REJECT
from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.provider.ledger.sqlite import read_ledger_state

SPEC = spec(minimum_providers=2, answer_seconds=20)
NAMES = ["site-0", "site-1"]


@asynccontextmanager
async def town_with(tmp_path: Path, policy: str, more: str = "") -> AsyncIterator[tuple[RunningFederation, Site]]:
    """Run two providers, of which site-0 asks for approval."""
    enrolment = Enrolment.create(tmp_path / "town")
    site = Site.made(enrolment, "site-0", policy, more)
    async with federation(enrolment, ["site-1"], heartbeat_seconds=1) as running:
        with joined(running, site) as settings:
            await running.start("site-0", **settings)
            yield running, site


def nothing_is_taken(site: Site) -> bool:
    state = read_ledger_state(site.folder / "ledger" / "ledger.db")
    return not state.jobs and not state.data_sets


@pytest.mark.slow
def test_an_approved_job_runs_and_the_decision_is_in_the_ledger(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town_with(tmp_path, human_policy()) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            status = await awaiting(job, "site-0")
            assert status.state == "waiting for approval"
            assert nothing_is_taken(site)
            done = await site.decide(job.name[:8], APPROVE, reason="fine")
            assert (done["taken"], done["problem"], done["state"]) == (True, "", "approved")
            model = await job.result()
            assert model.statement.parties == 2
            assert all(each.awaiting_approval_since is None for each in (await job.status()).participants)
            found = verify(await running.analyst.evidence(job.name))
            assert found.holds
            stated = found.facts["providers"]["site-0"]["approvals"]["decisions"]
            assert [(each["verdict"], each["person"], each["reason"]) for each in stated] == [(APPROVE, MARIA, "fine")]
        entries = [each for each in site_entries(site) if each["kind"] == "decided"]
        assert [(each["job"], each["person"], each["verdict"], each["reason"]) for each in entries] == [
            (job.name, MARIA, APPROVE, "fine")
        ]

    asyncio.run(scenario())


def site_entries(site: Site) -> list[dict[str, object]]:
    from dpspca.provider.ledger.sqlite import export  # noqa: PLC0415

    return list(export(site.folder / "ledger" / "ledger.db"))


@pytest.mark.slow
def test_a_rejected_job_ends_with_the_name_and_the_reason_and_costs_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town_with(tmp_path, human_policy()) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            await awaiting(job, "site-0")
            await site.decide(job.name, REJECT, reason="not in the protocol")
            with pytest.raises(JobFailedError, match=facts("site-0", "rejected", "maria", "protocol")):
                await job.result()
            rejected = verify(await running.analyst.evidence(job.name)).facts["providers"]["site-0"]["approvals"]
            assert [(each["verdict"], each["person"]) for each in rejected["decisions"]] == [(REJECT, MARIA)]
            assert nothing_is_taken(site)
            with pytest.raises(InvalidParameterError, match=facts(f"Job {job.name:.12}", "rejected")):
                await site.decide(job.name, APPROVE)

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_job_goes_on_without_a_provider_that_rejected_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town_with(tmp_path, human_policy()) as (running, site):
            job = await running.analyst.submit(replace(SPEC, minimum_providers=1), "cohort", NAMES)
            await awaiting(job, "site-0")
            await site.decide(job.name, REJECT, reason="no")
            assert (await job.result()).statement.parties == 1

    asyncio.run(scenario())


@pytest.mark.slow
def test_two_different_persons_are_needed_if_the_policy_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town_with(tmp_path, human_policy(MARIA, BEN, needed=2)) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            await awaiting(job, "site-0")
            assert (await site.decide(job.name, APPROVE))["state"] == "waiting"
            with pytest.raises(InvalidParameterError, match=facts("maria", f"{job.name:.12}")):
                await site.decide(job.name, APPROVE)
            with pytest.raises(InvalidParameterError, match=facts("'eve'", "maria, ben")):
                await site.decide(job.name, APPROVE, "eve")
            await asyncio.sleep(2.5)  # two looks at the queue
            await awaiting(job, "site-0")
            decided = await site.decide(job.name, APPROVE, BEN)
            assert decided["taken"]
            assert decided["state"] in {"approved", "ended"}, "the job may be over by now"
            await job.result()

    asyncio.run(scenario())


def test_a_job_cancelled_while_it_waits_leaves_the_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town_with(tmp_path, human_policy()) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            await awaiting(job, "site-0")
            assert (await job.cancel()).state == "cancelled"
            async with asyncio.timeout(10):
                while site.office.requests():  # noqa: ASYNC110  # a file, which tells nobody
                    await asyncio.sleep(0.05)
            with pytest.raises(InvalidParameterError, match=facts(f"Job {job.name:.12}", "ended")):
                await site.decide(job.name, APPROVE)
            assert nothing_is_taken(site)

    asyncio.run(scenario())


def test_a_job_without_approval_in_time_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with town_with(tmp_path, human_policy()) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            await awaiting(job, "site-0")
            with site.office.queue._writing() as run:
                run("UPDATE requests SET lapses_at = 1")
            with pytest.raises(JobFailedError, match=facts("site-0", "approval-expired")):
                await job.result()
            assert nothing_is_taken(site)

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_waiting_job_survives_a_restart_and_a_decision_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        enrolment = Enrolment.create(tmp_path / "town")
        site = Site.made(enrolment, "site-0", human_policy())
        async with federation(enrolment, ["site-1"], heartbeat_seconds=1) as running:
            with joined(running, site) as settings:
                await running.start("site-0", **settings)
                job = await running.analyst.submit(SPEC, "cohort", NAMES)
                since = await awaiting(job, "site-0")
                running.daemons["site-0"].cancel()
                await asyncio.gather(running.daemons["site-0"], return_exceptions=True)
            decided = await site.decide(job.name, APPROVE)
            assert not decided["taken"]
            assert (await job.status()).state == "waiting for approval"
            assert (await awaiting(job, "site-0")).participants == since.participants
            with joined(running, site) as settings:
                await running.start("site-0", **settings)
                await job.result()

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_job_rejected_after_it_began_is_answered_no_further(tmp_path: Path) -> None:
    slow = {"answer_interval": "0.5"}

    async def scenario() -> None:
        async with town_with(tmp_path, human_policy(**slow)) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            await awaiting(job, "site-0")
            await site.decide(job.name, APPROVE)
            await wait_for_answers(job, 1)
            await site.decide(job.name, REJECT, reason="a mistake")
            with pytest.raises(JobFailedError, match=facts("site-0", "withdrawn", "maria", "a mistake")):
                await job.result()
            state = read_ledger_state(site.folder / "ledger" / "ledger.db")
            assert state.jobs[job.name].state == "withdrawn"
            assert state.data_sets["cohort"].reserved.units == 0

    asyncio.run(scenario())


def test_a_policy_that_asks_for_approval_ends_a_running_job_without_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        from local_federation import permissive_policy  # noqa: PLC0415

        async with town_with(tmp_path, permissive_policy() + "answer_interval = 0.5\n") as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            await wait_for_answers(job, 1)
            put(site.folder / "policy.toml", human_policy(answer_interval="0.5"))
            with pytest.raises(JobFailedError, match=facts("site-0", "withdrawn")):
                await job.result()

    asyncio.run(scenario())


def test_a_job_that_the_rules_refuse_is_not_put_before_anybody(tmp_path: Path) -> None:
    async def scenario() -> None:
        policy = human_policy().replace("minimum_providers = 1", "minimum_providers = 5")
        async with town_with(tmp_path, policy) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            with pytest.raises(JobFailedError, match=facts("'cohort'", "'minimum_providers'")):
                await job.result()
            assert site.office.requests(every=True) == []

    asyncio.run(scenario())


@pytest.mark.slow
def test_waiting_jobs_run_if_the_policy_needs_no_approval_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        from local_federation import permissive_policy  # noqa: PLC0415

        async with town_with(tmp_path, human_policy()) as (running, site):
            job = await running.analyst.submit(SPEC, "cohort", NAMES)
            await awaiting(job, "site-0")
            put(site.folder / "policy.toml", permissive_policy())
            await job.result()
            with pytest.raises(RefusedError, match=facts("'cohort'", 'approval = "human"')):
                await site.decide(job.name, APPROVE)

    asyncio.run(scenario())
