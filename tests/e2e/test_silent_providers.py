"""A provider that answers until some query and never again, beside two honest daemons, for every query of a job.

What it answers before is of the right form and adds nothing: zeros. So the model of a job that may end without it is,
byte by byte, the one of the others alone.
"""

import asyncio
import math
from pathlib import Path

import pytest
from lies import HONEST, LIAR
from puppets import OFFER, Puppet, puppet
from town import NOISE_SEED, SHARDS, Running, Town, federation, spec, words_for

from dpspca.client.federation import AsyncJob, JobFailedError
from dpspca.client.jobs import JobStatus, ParticipantStatus
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.model import Model
from dpspca.common.names import Role
from dpspca.common.spec import JobSpec
from dpspca.common.transport.wire import FRAME

EVERYBODY = (*HONEST, LIAR)
SECONDS = 2
"""That a job waits for an answer."""


def job_for(least: int) -> JobSpec:
    """Describe a short job, which goes on while so many providers answer in time."""
    return spec(minimum_parties=least, answer_seconds=SECONDS, options={"sparsity": 6, "rounds": 2})


QUERIES = len(catalogue.plan(job_for(3)))
UNWILLING = -1
"""Before the first query: it never says that it takes part."""


async def answer_zeros(site: Puppet, what: JobSpec, until: int) -> None:
    """Take part, answer queries honestly in form, and keep silent from the one at this position on."""
    if until == UNWILLING:
        return
    await site.take_part()
    for step in catalogue.plan(what)[:until]:
        size = 8 * math.prod(step.shape)
        assert size <= FRAME, "The answers of this job take one frame each."
        await site.answer(await site.query(), (0, bytes(size)))


async def submitted(running: Running, what: JobSpec, silent_at: int) -> tuple[AsyncJob, JobStatus]:
    """Run a job to its end, whatever that is; the silent one stays connected all the while."""
    home = running.town.identity(Role.PROVIDER, LIAR)
    async with puppet(running.coordinator.address, home) as site:
        await site.greet(OFFER)
        job = await running.analyst.submit(what, "cohort", EVERYBODY)
        await answer_zeros(site, what, silent_at)
        return job, [state async for state in job.watch()][-1]


def require_named(status: JobStatus, silent_at: int) -> None:
    """Have the status say who was silent, at which query, and nothing against the others."""
    told: dict[str, ParticipantStatus] = {each.name: each for each in status.participants}
    assert (told[LIAR].asked, told[LIAR].answered) == (silent_at + 1, max(0, silent_at))
    assert told[LIAR].reason == f"{_missing(silent_at)} within {SECONDS} seconds."
    assert [told[name].reason for name in HONEST] == ["", ""]


def _missing(silent_at: int) -> str:
    return "No word on the job" if silent_at == UNWILLING else f"No answer to query {silent_at + 1}"


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


@pytest.mark.parametrize("silent_at", range(UNWILLING, QUERIES))
def test_t38_a_job_that_needs_all_fails_and_names_the_silent_provider(town: Town, silent_at: int) -> None:
    what = job_for(len(EVERYBODY))

    async def scenario() -> None:
        async with federation(town, HONEST, words=words_for(what)) as running:
            job, status = await submitted(running, what, silent_at)
            with pytest.raises(JobFailedError, match=f"{_missing(silent_at)} within {SECONDS} seconds"):
                await job.result()
        assert status.state == "failed"
        assert "2 of at least 3 provider(s) are left" in status.reason
        assert LIAR in status.reason
        require_named(status, silent_at)

    asyncio.run(scenario())


@pytest.mark.parametrize("silent_at", range(UNWILLING, QUERIES))
def test_t38_a_job_that_needs_two_is_done_by_the_other_two(town: Town, silent_at: int) -> None:
    what = job_for(len(HONEST))

    async def scenario() -> tuple[Model, JobStatus]:
        async with federation(town, HONEST, words=words_for(what)) as running:
            job, status = await submitted(running, what, silent_at)
            return await job.result(), status

    model, status = asyncio.run(scenario())
    assert (status.state, model.statement.parties) == ("done", 2)
    require_named(status, silent_at)
    assert {each.answered for each in status.participants if each.name in HONEST} == {status.queries}
    alone = simulate([SHARDS[name] for name in HONEST], what, noise_seed=NOISE_SEED)
    assert model.components.tobytes() == alone.components.tobytes()
    # Whoever counted its rows and then went is in their number and not in the answers: no variance is told.
    assert (model.explained_variance is None) == (silent_at > 0)
