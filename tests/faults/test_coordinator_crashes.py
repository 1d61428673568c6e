"""The coordinator crashes at every relevant moment. The job still finishes, with the same model."""

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
from facts import names_facts
from local_federation import SHARDS, Enrolment, spec

from dpspca.client.connection import FederationError, JobFailedError
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.results import Model
from dpspca.common.trust.signing import SignedJob

WRITES = 8
"""Writes of one job: acceptance, six queries, end."""
QUERIES = WRITES - 2
OVER = QUERIES + 1
"""The moment, counted in answers, at which the result is stored too."""
LASTS = 0.4
"""Seconds per answer, if a test must find the job unfinished."""


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return StableEnrolment.create(tmp_path)


async def states_until_it_dies(hub: CoordinatorProcess, job: SignedJob) -> list[str]:
    """Submit a job and watch it over a separate connection until the coordinator crashes or the job has ended."""
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
def test_t38_a_job_finishes_unchanged_after_a_crash_at_any_write(
    enrolment: Enrolment, moment: str, fatal: int, lives: int
) -> None:
    """Each process commits one write and crashes at the next one or right after it, so each write is once the last."""

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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_random_repeated_kills_give_the_same_model(enrolment: Enrolment, seed: int) -> None:
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
    """Wait until this many queries are answered, or the result is stored."""
    if moment == OVER:
        await job.result()
    else:
        await wait_for_answers(job, moment)


def barrier_after(answers: int) -> Barrier:
    """Return a barrier after this many answers, so that the job cannot end before its coordinator is killed."""
    return Barrier(answers + 1)


async def require_same_or_over(work: Callable[[], Awaitable[Model]], last: int) -> None:
    """Require the same model, or a failure if the providers may have learned that the job has ended."""
    try:
        model = await retry_while_away(work)
    except JobFailedError as problem:
        reason = str(problem)
    else:
        assert_same_as_undisturbed(model)
        return
    assert last >= QUERIES, reason
    assert names_facts(reason, "(job-ended)", "(done)")


def lose_journal(enrolment: Enrolment) -> None:
    for file in enrolment.folder.glob("journal.db*"):
        file.unlink()


MOMENTS = [each if each in {3, OVER} else pytest.param(each, marks=pytest.mark.nightly) for each in range(OVER + 1)]
"""Right after a job is accepted, after each answer, and after the result."""


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_lost_journal_costs_no_privacy(enrolment: Enrolment, moment: int) -> None:
    """The new journal is empty. The providers send the same bytes as before or refuse, and draw no new noise."""

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
    """Return the number of random words that a run without faults draws."""
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
"""After how many answers the journal is copied, and after how many the copy replaces the journal."""


@pytest.mark.slow
@pytest.mark.parametrize(("copied", "lost"), COPIES)
def test_an_old_copy_of_the_journal_gives_the_same_model_at_no_price(
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


@pytest.mark.slow
def test_a_full_disk_ends_the_coordinator_with_the_reason(enrolment: Enrolment) -> None:
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
            assert names_facts(hub.log[-1], "journal.db", "disk I/O error")
            await hub.start()
            told = await retry_while_away(running.analyst.jobs)
            assert [each.state for each in told].count("done") >= done
            for job in jobs[: done + 1]:
                model = await (await submit(running, job)).result()
                assert model.statement.parties == len(SHARDS)

    asyncio.run(scenario())
