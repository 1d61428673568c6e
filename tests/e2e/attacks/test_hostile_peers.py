"""Malicious analysts and providers with valid certificates, at a real coordinator beside honest daemons.

What they send is refused or ignored, and nothing of it is kept. A job continues without a lying provider, and its model
is byte by byte that of the honest providers.
"""

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from dishonest_messages import (
    ANSWER,
    COUNT,
    DISHONEST,
    DISHONEST_ANSWERS,
    DISHONEST_JOBS,
    HONEST,
    Case,
    Misbehaviour,
    answer_of,
)
from dishonest_peers import DishonestProvider, dishonest_provider
from facts import facts, names_facts
from local_federation import NOISE_SEED, SHARDS, Enrolment, RunningFederation, federation, noise_for, spec
from scipy import sparse

from dpspca.client.connection import FederationError
from dpspca.client.connection.jobs import JobStatus, ParticipantStatus
from dpspca.client.federation import AsyncFederation
from dpspca.client.simulation import simulate
from dpspca.common.job import JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy.lattice import MAX_PROVIDERS, largest_answer
from dpspca.common.results import Model
from dpspca.common.transport.rpc import MAX_MESSAGE
from dpspca.common.transport.wire import FRAME
from dpspca.common.trust.signing import MAX_JOB_BYTES
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs import provider_call

WIDE = spec(schema=Schema(70_000), answer_seconds=2)
"""A job whose answers take two frames each."""
WIDE_ANSWER = 70_000 * 2 * 8


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


@pytest.mark.parametrize(("case", "reason"), DISHONEST_JOBS.values(), ids=DISHONEST_JOBS.keys())
def test_a_job_not_signed_by_the_caller_is_refused_and_not_kept(enrolment: Enrolment, case: Case, reason: Any) -> None:
    async def scenario() -> None:
        bea = enrolment.identity(Role.ANALYST, "bea")
        signed = case(enrolment, bea)
        async with federation(enrolment, ()) as running, AsyncFederation(running.coordinator.address, bea) as analyst:
            with pytest.raises(FederationError, match=facts(reason)):
                await analyst.submit_signed(signed, spec())
            assert await analyst.jobs() == []

    asyncio.run(scenario())


def test_bytes_that_are_not_a_job_are_refused_and_not_kept(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            true = enrolment.job(spec(), enrolment.identity(Role.ANALYST, "bea"), HONEST).to_bytes()
            for nonsense in (b"", b"nonsense", true[:-1], true + b"\0", bytes(MAX_JOB_BYTES + 1)):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await running.analyst.stub.Submit(pb.SubmitRequest(signed_job=nonsense))
                assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert await running.analyst.jobs() == []

    asyncio.run(scenario())


def test_a_finished_job_submitted_again_is_not_run_again(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        bea = enrolment.identity(Role.ANALYST, "bea")
        signed = enrolment.job(spec(), bea, HONEST)
        async with (
            federation(enrolment, HONEST) as running,
            AsyncFederation(running.coordinator.address, bea) as analyst,
        ):
            job = await analyst.submit_signed(signed, spec())
            model, after = await job.result(), await job.status()
            again = await analyst.submit_signed(signed, spec())
            assert await again.status() == after
            assert (await again.result()).to_bytes() == model.to_bytes()
            assert len(await analyst.jobs()) == 1

    asyncio.run(scenario())


def participant(status: JobStatus, name: str) -> ParticipantStatus:
    return next(each for each in status.participants if each.name == name)


def require_same(model: Model, inside: Model) -> None:
    """Compare a model with that of the honest providers. The liar was counted, so the variance is missing."""
    assert model.statement.parties == 2
    assert model.components.tobytes() == inside.components.tobytes()
    assert model.explained_variance is None


async def perform(running: RunningFederation, what: JobSpec, lie: Misbehaviour) -> tuple[Model, JobStatus]:
    """Run a job in which a liar joins two honest providers, counts no rows, and lies at the second query."""
    liar = running.enrolment.identity(Role.PROVIDER, DISHONEST)
    async with dishonest_provider(running.coordinator.address, liar) as site:
        await site.greet(pb.DataSet(name="cohort", dimension=what.schema.dimension))
        job = await running.analyst.submit(what, "cohort", [*HONEST, DISHONEST])
        await site.answer(await site.query(), COUNT)
        await lie(site, await site.query())
        return await job.result(), await job.status()


@pytest.mark.parametrize(("lie", "reason"), DISHONEST_ANSWERS.values(), ids=DISHONEST_ANSWERS.keys())
def test_a_lying_provider_is_excluded_and_the_model_is_unaffected(
    enrolment: Enrolment, lie: Misbehaviour, reason: str
) -> None:
    async def scenario() -> None:
        async with federation(enrolment, HONEST) as running:
            model, status = await perform(running, spec(), lie)
        liar = participant(status, DISHONEST)
        assert (liar.asked, liar.answered) == (2, 1)
        assert reason in liar.reason
        assert liar.reason.isprintable()
        assert len(liar.reason) < 400
        assert {participant(status, name).answered for name in HONEST} == {status.queries}
        require_same(model, simulate([SHARDS[name] for name in HONEST], spec(), noise_seed=NOISE_SEED))

    asyncio.run(scenario())


def test_unrequested_answers_are_ignored(enrolment: Enrolment) -> None:
    async def lie(site: DishonestProvider, ask: pb.Query) -> None:
        for change in ({"job": "0" * 64}, {"job": ""}, {"position": 0}, {"position": 2}, {"position": 2**32 - 1}):
            await site.answer(ask, (0, answer_of(largest_answer(MAX_PROVIDERS))), **change)
        await site.say(refusal=pb.Refusal(job="0" * 64, position=1, what="Another job's."))
        await site.answer(ask, COUNT, COUNT, (0, ANSWER[:-1]), position=0)
        await site.answer(ask, (0, ANSWER[:-1]))

    async def scenario() -> None:
        async with federation(enrolment, HONEST) as running:
            model, status = await perform(running, spec(), lie)
        assert names_facts(participant(status, DISHONEST).reason, "Frame 0", f"{len(ANSWER) - 1} bytes")
        require_same(model, simulate([SHARDS[name] for name in HONEST], spec(), noise_seed=NOISE_SEED))

    asyncio.run(scenario())


def test_a_provider_that_is_busy_is_sent_the_same_query_again(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_call, "FIRST_PAUSE", 0.01)

    async def lie(site: DishonestProvider, ask: pb.Query) -> None:
        await site.refuse(ask, "Later.", "busy")
        again = await site.query()
        assert (again.position, again.content) == (ask.position, ask.content)
        await site.refuse(again, "Never.", "refused")

    async def scenario() -> None:
        async with federation(enrolment, HONEST) as running:
            model, status = await perform(running, spec(), lie)
        assert "Refused: Never." in participant(status, DISHONEST).reason
        require_same(model, simulate([SHARDS[name] for name in HONEST], spec(), noise_seed=NOISE_SEED))

    asyncio.run(scenario())


def test_a_message_that_is_too_large_ends_its_connection(enrolment: Enrolment) -> None:
    async def lie(site: DishonestProvider, ask: pb.Query) -> None:
        await site.answer(ask, (0, bytes(MAX_MESSAGE + 1)))
        code, _ = await site.ending()
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED

    async def scenario() -> None:
        what = spec(answer_seconds=1)
        async with federation(enrolment, HONEST, words=noise_for(what)) as running:
            model, status = await perform(running, what, lie)
        assert "within 1 seconds" in participant(status, DISHONEST).reason
        require_same(model, simulate([SHARDS[name] for name in HONEST], what, noise_seed=NOISE_SEED))

    asyncio.run(scenario())


def few_rows(columns: int, seed: int) -> Any:
    return sparse.random_array((40, columns), density=20 / columns, format="csr", rng=np.random.default_rng(seed))


async def stall(site: DishonestProvider, ask: pb.Query) -> None:
    """Send the first of two frames, and nothing more."""
    await site.answer(ask, (0, answer_of(largest_answer(MAX_PROVIDERS)) * (FRAME // 480) + bytes(FRAME % 480)))


async def vanish(site: DishonestProvider, ask: pb.Query) -> None:
    await stall(site, ask)
    site.call.cancel()


async def stutter(site: DishonestProvider, ask: pb.Query) -> None:
    await stall(site, ask)
    await stall(site, ask)


async def lie_last(site: DishonestProvider, ask: pb.Query) -> None:
    await stall(site, ask)
    await site.answer(ask, (1, b"\xff" * (WIDE_ANSWER - FRAME - 8) + b"\x7f" * 8))


UNFINISHED = {
    "stalls": (stall, "within 2 seconds"),
    "vanishes": (vanish, "within 2 seconds"),
    "repeats itself": (stutter, "Frame 0 of 1048576 bytes is not the next frame"),
    "lies at the end": (lie_last, "lattice"),
}


@pytest.mark.parametrize(("lie", "reason"), UNFINISHED.values(), ids=UNFINISHED.keys())
def test_half_an_answer_is_removed_from_the_sum(enrolment: Enrolment, lie: Misbehaviour, reason: str) -> None:
    shards = {name: few_rows(70_000, number) for number, name in enumerate(HONEST)}

    async def scenario() -> None:
        async with federation(enrolment, HONEST, shards, noise_for(WIDE)) as running:
            model, status = await perform(running, WIDE, lie)
        assert (participant(status, DISHONEST).asked, participant(status, DISHONEST).answered) == (2, 1)
        assert reason in participant(status, DISHONEST).reason
        require_same(model, simulate(list(shards.values()), WIDE, noise_seed=NOISE_SEED))

    asyncio.run(scenario())


LONGEST_TURN = 0.05
"""Seconds of its own processor time that a daemon's event loop may spend on one callback."""

CallbackTimes = list[tuple[float, object]]
"""Of every callback, what it cost and whose it was: a task, or whatever else it is a method of."""


@pytest.fixture
def callback_times(monkeypatch: pytest.MonkeyPatch) -> Iterator[CallbackTimes]:
    """Record the processor time of every callback of the event loop.

    Waiting does not count. Garbage collection is off, because it would also visit what other tests have left.
    """
    noted: CallbackTimes = []
    gc.collect()
    gc.disable()
    run = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        whose = getattr(handle._callback, "__self__", handle._callback)
        start = time.thread_time()
        run(handle)
        noted.append((time.thread_time() - start, whose))

    monkeypatch.setattr(asyncio.events.Handle, "_run", timed)
    yield noted
    gc.enable()


@pytest.mark.nightly
def test_a_wide_job_never_blocks_an_event_loop_for_long(enrolment: Enrolment, callback_times: CallbackTimes) -> None:
    """The smallest of three jobs counts, because returning memory takes varying time on a busy machine.

    An analyst may take long for one callback, because nobody else waits in its process.
    """
    shards = {name: few_rows(1_000_000, number) for number, name in enumerate(HONEST)}
    what = spec(schema=Schema(1_000_000), components=10, options={"sparsity": 40, "rounds": 1})
    longest: list[tuple[float, str]] = []

    async def scenario() -> None:
        analyst = asyncio.current_task()
        async with federation(enrolment, HONEST, shards) as running:
            for _ in range(3):
                callback_times.clear()
                assert (await running.analyst.fit(what, "cohort", list(HONEST))).statement.parties == 2
                longest.append(max((seconds, repr(whose)) for seconds, whose in callback_times if whose is not analyst))

    asyncio.run(scenario())
    assert min(longest)[0] < LONGEST_TURN, longest
