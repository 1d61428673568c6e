"""The coordinator dies at every moment that matters; the job is finished all the same, and is the same."""

import asyncio
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from coordinator_processes import (
    CRASHING_PROGRAM,
    SMALL_FILES_PROGRAM,
    Barrier,
    CoordinatorProcess,
    CountedNoise,
    StableEnrolment,
    ada,
    assert_same_as_undisturbed,
    random_times,
    retry_while_away,
    signed,
    submit,
    wait_for_answers,
    with_providers,
)
from local_federation import SHARDS, Enrolment, spec

from dpspca.client.federation import AsyncFederation, AsyncJob, FederationError, JobFailedError
from dpspca.common.model import Model
from dpspca.common.trust.signing import SignedJob

WRITES = 8
"""Of one job: accepted, six queries, ended."""
QUERIES = WRITES - 2
OVER = QUERIES + 1
"""The moment, counted in answers, at which the result is there too."""
LASTS = 0.4
"""Seconds that an answer takes, where a job is to be met half-way."""


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return StableEnrolment.create(tmp_path)


async def states_until_it_dies(hub: CoordinatorProcess, job: SignedJob) -> list[str]:
    """Submit a job and watch it over connections of its own, until the coordinator dies or the job is over."""
    seen = [""]
    while hub.process.returncode is None and seen[-1] != "done":
        with suppress(FederationError):
            async with AsyncFederation(hub.address, ada(hub.enrolment), retry_seconds=0) as analyst:
                submitted = await analyst.submit_signed(job, spec())
                async for state in submitted.watch():
                    seen += [str(state.state)]
        await asyncio.sleep(0.05)
    return seen


@pytest.mark.nightly
@pytest.mark.parametrize(("moment", "fatal", "lives"), [("before", 2, WRITES), ("after", 1, WRITES + 1)])
def test_t38_whichever_write_it_dies_at_the_job_is_finished_and_the_same(
    enrolment: Enrolment, moment: str, fatal: int, lives: int
) -> None:
    """Each life commits one write and dies at the next, or right after it: every write is some life's last."""

    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start(CRASHING_PROGRAM, 1, "before")
        async with with_providers(enrolment, hub) as running:
            job = signed(enrolment)
            assert await states_until_it_dies(hub, job) == [""]
            for life in range(1, lives + 1):
                assert await hub.ended() == 9
                await hub.start(CRASHING_PROGRAM, fatal, moment)
                seen = await states_until_it_dies(hub, job)
                assert ("done" in seen) == (life == lives), life
            assert_same_as_undisturbed(await (await submit(running, job)).result())

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_at_random_moments_it_gives_the_same_model(enrolment: Enrolment, seed: int) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        async with with_providers(enrolment, hub, LASTS) as running:
            job = signed(enrolment)
            for moment in random_times(seed, 3, LASTS):
                await submit(running, job)
                await asyncio.sleep(moment)
                assert await hub.kill() == -signal.SIGKILL
                await hub.start()
            assert_same_as_undisturbed(await (await submit(running, job)).result())
            assert [each.state for each in await running.analyst.jobs()] == ["done"]

    asyncio.run(scenario())


async def reached(job: AsyncJob, moment: int) -> None:
    """Wait until so many queries are answered, or the result is there."""
    if moment == OVER:
        await job.result()
    else:
        await wait_for_answers(job, moment)


def barrier_after(answers: int) -> Barrier:
    """Hold a job after so many answers: it must not be over while its coordinator is still to be killed."""
    return Barrier(answers + 1)


async def require_same_or_over(work: Callable[[], Awaitable[Model]], last: int) -> None:
    """Have the same model made again, or none where the providers may have been told that the job is over."""
    try:
        model = await retry_while_away(work)
    except JobFailedError as problem:
        reason = str(problem)
    else:
        assert_same_as_undisturbed(model)
        return
    assert last >= QUERIES, reason
    assert "has ended at this provider (done)" in reason


def lose_journal(enrolment: Enrolment) -> None:
    for file in enrolment.folder.glob("journal.db*"):
        file.unlink()


MOMENTS = [each if each in {3, OVER} else pytest.param(each, marks=pytest.mark.nightly) for each in range(OVER + 1)]
"""Right after a job is accepted, after each answer, and after the result."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_journal_that_is_lost_costs_nobody_any_privacy(enrolment: Enrolment, moment: int) -> None:
    """The new one knows nothing; the providers send what they sent before, or refuse, and draw no noise anew."""

    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        barrier = barrier_after(moment)
        async with with_providers(enrolment, hub, barrier=barrier) as running:
            job = signed(enrolment)
            await reached(await submit(running, job), moment)
            await hub.kill()
            await barrier.lift()
            lose_journal(enrolment)
            await hub.start()
            assert await retry_while_away(running.analyst.jobs) == []
            again = await submit(running, job)
            await require_same_or_over(again.result, moment)
            assert CountedNoise.tally.drawn == await undisturbed_draws(enrolment)

    asyncio.run(scenario())


async def undisturbed_draws(enrolment: Enrolment) -> int:
    """Count the words that a run draws in which nothing happens."""
    elsewhere = StableEnrolment.create(enrolment.folder / "elsewhere")
    hub = CoordinatorProcess(elsewhere)
    await hub.start()
    async with with_providers(elsewhere, hub) as running:
        await (await submit(running, signed(elsewhere))).result()
    return CountedNoise.tally.drawn


COPIES = [
    (copied, lost) if (copied, lost) in {(1, 4), (0, OVER)} else pytest.param(copied, lost, marks=pytest.mark.nightly)
    for copied, lost in [(0, 1), *((each, 4) for each in range(4)), (4, 5), (5, QUERIES), (0, OVER), (5, OVER)]
]
"""After how many answers a copy of the journal is made, and when that copy takes the journal's place."""


@pytest.mark.parametrize(("copied", "lost"), COPIES)
def test_an_old_copy_of_the_journal_leads_to_the_same_model_at_no_price(
    enrolment: Enrolment, copied: int, lost: int
) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start()
        barrier = barrier_after(copied)
        async with with_providers(enrolment, hub, barrier=barrier) as running:
            job = await submit(running, signed(enrolment))
            await wait_for_answers(job, copied)
            await hub.kill()
            await barrier.move(lost + 1)
            copies = [
                shutil.copy(file, enrolment.folder / f"copy-of-{file.name}")
                for file in enrolment.folder.glob("journal.db*")
            ]
            await hub.start()
            await retry_while_away(lambda: reached(job, lost))
            await hub.kill()
            await barrier.lift()
            lose_journal(enrolment)
            for copy in copies:
                shutil.move(copy, enrolment.folder / Path(copy).name.removeprefix("copy-of-"))
            await hub.start()
            await require_same_or_over(job.result, lost)
            assert CountedNoise.tally.drawn == await undisturbed_draws(enrolment)

    asyncio.run(scenario())


def test_without_room_for_its_journal_it_ends_with_the_reason_and_calls_nothing_done(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        hub = CoordinatorProcess(enrolment)
        await hub.start(SMALL_FILES_PROGRAM, 3_000_000)
        async with with_providers(enrolment, hub) as running:
            jobs, seen = [signed(enrolment) for _ in range(20)], [""]
            done = 0
            while done < len(jobs):
                seen = await states_until_it_dies(hub, jobs[done])
                if "done" not in seen:
                    break
                done += 1
            assert 0 < done < len(jobs)
            assert await hub.ended() == 2
            assert "journal.db cannot be used: disk I/O error" in hub.log[-1]
            await hub.start()
            told = await retry_while_away(running.analyst.jobs)
            assert [each.state for each in told].count("done") >= done
            for job in jobs[: done + 1]:
                model = await (await submit(running, job)).result()
                assert model.statement.parties == len(SHARDS)

    asyncio.run(scenario())
