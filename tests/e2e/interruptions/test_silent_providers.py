"""A provider falls silent at some query of a job, beside two honest daemons. Every query is tried.

Its answers until then are zeros. So if the job may end without it, the model is byte by byte that of the others.
"""

import asyncio
import math
from pathlib import Path

import pytest
from dishonest_messages import DISHONEST, HONEST
from dishonest_peers import OFFER, DishonestProvider, dishonest_provider
from facts import facts, names_facts
from local_federation import NOISE_SEED, SHARDS, Enrolment, RunningFederation, federation, noise_for, spec

from dpspca.client.connection import JobFailedError
from dpspca.client.connection.jobs import JobStatus, ParticipantStatus
from dpspca.client.federation import AsyncJob
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec
from dpspca.common.names import Role
from dpspca.common.results import Model
from dpspca.common.transport.wire import FRAME

EVERYBODY = (*HONEST, DISHONEST)
SECONDS = 2
"""That a job waits for an answer."""


def job_for(least: int) -> JobSpec:
    """Return a short job that continues while so many providers answer in time. It has little noise."""
    options = {"sparsity": 6, "rounds": 2}
    return spec(budget=Budget(40.0, 1e-3), minimum_providers=least, answer_seconds=SECONDS, options=options)


QUERIES = len(catalogue.plan(job_for(3)))
UNWILLING = -1
"""Before the first query: it never says that it takes part."""


async def answer_zeros(site: DishonestProvider, what: JobSpec, until: int) -> None:
    """Admit the job, answer with zeros, and fall silent at the query of this position."""
    if until == UNWILLING:
        return
    await site.take_part()
    for step in catalogue.plan(what)[:until]:
        size = 8 * math.prod(step.shape)
        assert size <= FRAME, "The answers of this job take one frame each."
        await site.answer(await site.query(), (0, bytes(size)))


async def run_job(running: RunningFederation, what: JobSpec, silent_at: int) -> tuple[AsyncJob, JobStatus]:
    """Run a job to its end, while the silent provider stays connected."""
    home = running.enrolment.identity(Role.PROVIDER, DISHONEST)
    async with dishonest_provider(running.coordinator.address, home) as site:
        await site.greet(OFFER)
        job = await running.analyst.submit(what, "cohort", EVERYBODY)
        await answer_zeros(site, what, silent_at)
        return job, [state async for state in job.watch()][-1]


def require_named(status: JobStatus, silent_at: int) -> None:
    """Check that the status names only the silent provider, and the query."""
    output: dict[str, ParticipantStatus] = {each.name: each for each in status.participants}
    assert (output[DISHONEST].asked, output[DISHONEST].answered) == (silent_at + 1, max(0, silent_at))
    assert output[DISHONEST].reason == f"{_missing(silent_at)} within {SECONDS} seconds."
    assert [output[name].reason for name in HONEST] == ["", ""]


def _missing(silent_at: int) -> str:
    return "No reply about the job" if silent_at == UNWILLING else f"No answer to query {silent_at + 1}"


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("silent_at", range(UNWILLING, QUERIES))
def test_t38_a_job_that_needs_all_fails_and_names_the_silent_provider(enrolment: Enrolment, silent_at: int) -> None:
    what = job_for(len(EVERYBODY))

    async def scenario() -> None:
        async with federation(enrolment, HONEST, words=noise_for(what)) as running:
            job, status = await run_job(running, what, silent_at)
            with pytest.raises(
                JobFailedError,
                match=facts(
                    DISHONEST, f"{SECONDS} seconds", *([] if silent_at == UNWILLING else [f"query {silent_at + 1}"])
                ),
            ):
                await job.result()
        assert status.state == "failed"
        assert names_facts(status.reason, "2 providers", "at least 3", DISHONEST)
        require_named(status, silent_at)

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("silent_at", range(UNWILLING, QUERIES))
def test_t38_a_job_that_needs_two_is_done_by_the_other_two(enrolment: Enrolment, silent_at: int) -> None:
    what = job_for(len(HONEST))

    async def scenario() -> tuple[Model, JobStatus]:
        async with federation(enrolment, HONEST, words=noise_for(what)) as running:
            job, status = await run_job(running, what, silent_at)
            return await job.result(), status

    model, status = asyncio.run(scenario())
    assert (status.state, model.statement.parties) == ("done", 2)
    require_named(status, silent_at)
    assert {each.answered for each in status.participants if each.name in HONEST} == {status.queries}
    alone = simulate([SHARDS[name] for name in HONEST], what, noise_seed=NOISE_SEED)
    if silent_at <= 1:
        assert model.components.tobytes() == alone.components.tobytes()
    # Later, its zeros counted as the answer of one row. So sums were scaled by another number, later queries differ in
    # their last bits, and noise is drawn anew for another query: the first component is the same but for noise. Over
    # 60 draws of it, no two components had a product below .995, and half of them one above .9996.
    assert abs(float(model.components[0] @ alone.components[0])) > 0.9
    # The silent provider's rows were counted but are not in the answers, so the variance is missing.
    assert (model.explained_variance is None) == (silent_at > 0)
