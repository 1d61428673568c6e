"""What happens to a job while it runs: a party is revoked, or its analyst thinks better of it, at any question."""

import asyncio
from pathlib import Path

import pytest
from hubs import Slow, answered
from town import SHARDS, Running, Town, federation, spec

from dpspca.client.federation import JobFailedError
from dpspca.common.algorithms import catalogue
from dpspca.common.plan import NOTHING, prices
from dpspca.common.transport.names import PartyName, Role

LASTS = 0.2
"""Seconds that an answer takes."""
SPEC = spec(answer_seconds=4, minimum_parties=2)
QUESTIONS = len(catalogue.plan(SPEC))


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


async def begun(running: Running) -> dict[str, Slow]:
    """Start all providers, each with a ledger that takes its time."""
    ledgers = {name: Slow(LASTS) for name in SHARDS}
    for name, ledger in ledgers.items():
        await running.start(name, ledger=ledger)
    return ledgers


@pytest.mark.parametrize("reached", [1, 3])
def test_a_provider_that_is_revoked_is_shown_out_and_the_others_go_on(town: Town, reached: int) -> None:
    async def scenario() -> None:
        async with federation(town, (), heartbeat_seconds=1) as running:
            ledgers = await begun(running)
            job = await running.analyst.submit(SPEC, "cohort", list(SHARDS))
            await answered(job, reached)
            town.authority.revoke(PartyName("town", Role.PROVIDER, "site-1"))
            running.revoked.append(town.revocations())
            model = await job.result()
            told = {each.name: each for each in (await job.status()).participants}
            assert model.statement.parties == 2
            assert told["site-1"].reason
            assert reached <= told["site-1"].answered < QUESTIONS
            standing = ledgers["site-1"].standing(job.name)
            assert standing is not None
            assert told["site-1"].answered <= standing.reached <= told["site-1"].asked
            assert [told[name].answered for name in ("site-0", "site-2")] == [QUESTIONS] * 2

    asyncio.run(scenario())


@pytest.mark.parametrize("reached", range(QUESTIONS))
def test_a_job_can_be_cancelled_at_every_question_and_costs_what_was_asked_by_then(town: Town, reached: int) -> None:
    async def scenario() -> None:
        async with federation(town, ()) as running:
            ledgers = await begun(running)
            job = await running.analyst.submit(SPEC, "cohort", list(SHARDS))
            await answered(job, reached)
            ended = await job.cancel()
            assert (ended.state, ended.reason) == ("cancelled", "Cancelled by the analyst.")
            with pytest.raises(JobFailedError):
                await job.result()
            async with asyncio.timeout(20):  # for answers that were being made, and for the farewell
                while any(ledger.unfinished() for ledger in ledgers.values()):  # noqa: ASYNC110  # it tells nobody
                    await asyncio.sleep(LASTS / 4)
            costs = (NOTHING, *prices(catalogue.plan(SPEC)))
            told = {each.name: each for each in ended.participants}
            for name, ledger in ledgers.items():
                account = ledger._books.jobs[job.name].account
                assert (account.reserved_units, account.reserved_slack_units) == (0, 0)
                assert account.spent_units <= costs[told[name].asked].units

    asyncio.run(scenario())
