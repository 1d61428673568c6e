"""Every provider admits or refuses a job before the first query, so a refusal costs nobody anything."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from dishonest_messages import DISHONEST, HONEST
from dishonest_peers import OFFER, DishonestProvider, dishonest_provider
from facts import facts
from local_federation import NOISE_SEED, SHARDS, Enrolment, RunningFederation, federation, noise_for, spec
from timeouts import TIMEOUT

from dpspca.client.connection.errors import UnpaidJobError
from dpspca.client.simulation import simulate
from dpspca.common.names import Role
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.policy.rules import Policy


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def is_unspent(ledger: MemoryLedger) -> bool:
    """Return whether nothing was answered, and nothing is reserved."""
    (account,) = ledger._state.data_sets.values()
    assert len(ledger.entries) == 1  # the entry that founds the ledger
    return not ledger._state.jobs and not any(
        (account.spent.units, account.reserved.units, account.spent.slack_units, account.reserved.slack_units)
    )


async def wait_until_closed(ledger: MemoryLedger) -> None:
    """Wait until a job is closed in a ledger. The message that closes it may still be on its way."""
    for _ in range(2000):
        if not ledger.open_jobs():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("The job is still open.")


async def with_ledgers(running: RunningFederation, names: Sequence[str]) -> list[MemoryLedger]:
    """Start providers, and return their ledgers."""
    ledgers = [MemoryLedger() for _ in names]
    for name, ledger in zip(names, ledgers, strict=True):
        await running.start(name, ledger=ledger)
    return ledgers


def test_one_provider_s_refusal_costs_the_others_nothing(enrolment: Enrolment) -> None:
    first, second, third = SHARDS

    async def scenario() -> None:
        async with federation(enrolment, []) as running:
            ledgers = await with_ledgers(running, (first, second))
            await running.start(third, policy=Policy)
            job = await running.analyst.submit(spec(minimum_providers=3), "cohort", list(SHARDS))
            with pytest.raises(UnpaidJobError, match=facts(2, 3, f"{third}: Refused", "'cohort'")):
                await job.result()
            assert [each.asked for each in (await job.status()).participants] == [0, 0, 0]
            for ledger in ledgers:
                await wait_until_closed(ledger)
                assert is_unspent(ledger)

    asyncio.run(scenario())


def test_enough_other_providers_continue_after_a_refusal(enrolment: Enrolment) -> None:
    *others, last = SHARDS

    async def scenario() -> None:
        async with federation(enrolment, others) as running:
            await running.start(last, policy=Policy)
            model = await running.analyst.fit(spec(), "cohort", list(SHARDS))
        inside = simulate([SHARDS[name] for name in others], spec(), noise_seed=NOISE_SEED)
        assert model.components.tobytes() == inside.components.tobytes()

    asyncio.run(scenario())


async def silent(site: DishonestProvider) -> None:
    """Receive the job, and send nothing."""
    await site.invitation()


async def evasive(site: DishonestProvider) -> None:
    """Admit unknown jobs, and send answers without queries."""
    await silent(site)
    for name in ("", "0" * 64):
        await site.say(admitted={"job": name})
        await site.say(refusal={"job": name, "what": "Another job's."})
        await site.say(answer={"job": name, "content": bytes(8)})


def test_a_job_with_too_few_participants_ends_at_once(enrolment: Enrolment) -> None:
    """What the others reserved is freed at once, too."""

    async def scenario() -> None:
        async with federation(enrolment, []) as running:
            ledgers = await with_ledgers(running, HONEST[:1])
            await running.start(HONEST[1], policy=Policy)
            async with dishonest_provider(
                running.coordinator.address, enrolment.identity(Role.PROVIDER, DISHONEST)
            ) as site:
                await site.greet(OFFER)
                what = spec(minimum_providers=3, answer_seconds=600)
                job = await running.analyst.submit(what, "cohort", [*HONEST, DISHONEST])
                async with asyncio.timeout(TIMEOUT):
                    with pytest.raises(UnpaidJobError, match=facts(f"{HONEST[1]}: Refused", "'cohort'")):
                        await job.result()
                    await wait_until_closed(ledgers[0])
                assert is_unspent(ledgers[0])

    asyncio.run(scenario())


@pytest.mark.parametrize("behave", [silent, evasive])
def test_a_provider_silent_about_a_job_costs_the_others_nothing(
    enrolment: Enrolment, behave: Callable[[DishonestProvider], Awaitable[None]]
) -> None:
    what = spec(minimum_providers=3, answer_seconds=2)

    async def scenario() -> None:
        async with federation(enrolment, []) as running:
            ledgers = await with_ledgers(running, HONEST)
            async with dishonest_provider(
                running.coordinator.address, enrolment.identity(Role.PROVIDER, DISHONEST)
            ) as site:
                await site.greet(OFFER)
                job = await running.analyst.submit(what, "cohort", [*HONEST, DISHONEST])
                await behave(site)
                with pytest.raises(UnpaidJobError, match=facts(DISHONEST, "2 seconds")):
                    await job.result()
            for ledger in ledgers:
                await wait_until_closed(ledger)
                assert is_unspent(ledger)

    asyncio.run(scenario())


@pytest.mark.slow
def test_an_answer_without_admission_is_not_counted(enrolment: Enrolment) -> None:
    """Its answer arrives while the others are waited for, and is ignored."""
    what = spec(answer_seconds=2)

    async def scenario() -> None:
        async with federation(enrolment, HONEST, words=noise_for(what)) as running:
            async with dishonest_provider(
                running.coordinator.address, enrolment.identity(Role.PROVIDER, DISHONEST)
            ) as site:
                await site.greet(OFFER)
                job = await running.analyst.submit(what, "cohort", [*HONEST, DISHONEST])
                await silent(site)
                await site.say(answer={"job": job.name, "content": (10**9).to_bytes(8, "little")})
                model = await job.result()
            inside = simulate([SHARDS[name] for name in HONEST], what, noise_seed=NOISE_SEED)
            assert model.components.tobytes() == inside.components.tobytes()
            assert model.statement.parties == len(HONEST)

    asyncio.run(scenario())


def test_a_provider_lost_before_admission_is_asked_again(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        liar = enrolment.identity(Role.PROVIDER, DISHONEST)
        async with federation(enrolment, HONEST) as running:
            async with dishonest_provider(running.coordinator.address, liar) as site:
                await site.greet(OFFER)
                job = await running.analyst.submit(spec(minimum_providers=3), "cohort", [*HONEST, DISHONEST])
                await silent(site)
            assert (await job.status()).state == "waiting"
            async with dishonest_provider(running.coordinator.address, liar) as site:
                await site.greet(OFFER)
                assert (await site.query()).position == 0
                assert (await job.status()).state == "running"
                await job.cancel()

    asyncio.run(scenario())
