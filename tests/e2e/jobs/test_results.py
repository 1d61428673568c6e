"""A coordinator keeps results and signed jobs up to a limit, which analysts share fairly."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from dishonest_peers import measured_coordinator
from facts import facts
from local_federation import Enrolment, federation, spec
from scipy import sparse

from dpspca.client.connection import FederationError
from dpspca.client.federation import AsyncFederation
from dpspca.common.job import JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.transport.wire import FRAME
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.rpc import analyst_service

ROOM = 80_000
"""Bytes: room for two of the models below."""
SOME = ("site-0", "site-1")


def wide(columns: int = 2000, **changes: Any) -> JobSpec:
    return spec(schema=Schema(columns), options={"sparsity": 10, "rounds": 1}, **changes)


def shards(columns: int = 2000) -> dict[str, Any]:
    return {
        name: sparse.random_array((40, columns), density=20 / columns, format="csr", rng=np.random.default_rng(number))
        for number, name in enumerate(SOME)
    }


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def test_a_dropped_result_is_reported_and_its_job_stays_done(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, shards=shards(), result_bytes=ROOM) as running:
            jobs = []
            for _ in range(3):
                jobs.append(await running.analyst.submit(wide(), "cohort"))
                assert await last_state(jobs[-1]) == "done"
            assert [each.state for each in await running.analyst.jobs()] == 3 * ["done"]
            with pytest.raises(FederationError, match=facts("result-gone", "80000 bytes")):
                await jobs[0].result()
            for job in jobs[1:]:
                assert (await job.result()).components.shape == (2, 2000)

    asyncio.run(scenario())


async def last_state(job: Any) -> str:
    return [str(status.state) async for status in job.watch()][-1]


def test_one_analyst_s_results_do_not_displace_another_s(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with (
            federation(enrolment, shards=shards(), result_bytes=ROOM) as running,
            AsyncFederation(running.coordinator.address, enrolment.identity(Role.ANALYST, "bea")) as bea,
        ):
            modest = await bea.submit(wide(), "cohort")
            before = await modest.result()
            for _ in range(3):
                await running.analyst.fit(wide(), "cohort")
            assert (await modest.result()).to_bytes() == before.to_bytes()

    asyncio.run(scenario())


def test_a_job_whose_model_cannot_be_kept_is_refused_at_no_cost(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, shards=shards(), result_bytes=ROOM) as running:
            with pytest.raises(FederationError, match=facts("96000 bytes", "80000 bytes")):
                await running.analyst.submit(wide(components=5), "cohort")
            assert await running.analyst.jobs() == []

    asyncio.run(scenario())


def test_a_job_cancelled_when_just_done_keeps_its_result(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, shards=shards()) as running:
            job = await running.analyst.submit(wide(), "cohort")
            assert await last_state(job) == "done"
            assert (await job.cancel()).state == "done"
            assert (await job.result()).components.shape == (2, 2000)

    asyncio.run(scenario())


def test_the_oldest_signed_jobs_are_forgotten_beyond_the_limit(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        bea = enrolment.identity(Role.ANALYST, "bea")
        async with federation(enrolment, ()) as running, AsyncFederation(running.coordinator.address, bea) as analyst:
            signed = [enrolment.job(spec(), bea, ["nobody"]) for _ in range(5)]
            monkeypatch.setattr(analyst_service, "MAX_SIGNED_BYTES", 2 * max(len(each.to_bytes()) for each in signed))
            for each in signed:
                job = await analyst.submit_signed(each, spec())
                await job.cancel()
            assert [each.job for each in await analyst.jobs()] == [each.job_id for each in signed[2:]]

    asyncio.run(scenario())


async def frames(reading: Any) -> AsyncIterator[pb.Frame]:
    """Yield the remaining frames of a call. It was read by hand before, so it cannot be iterated."""
    while (frame := await reading.read()) is not grpc.aio.EOF:
        yield frame


@pytest.mark.slow
def test_a_slow_reader_does_not_hold_a_dropped_result(enrolment: Enrolment) -> None:
    large = wide(250_000, components=10, answer_seconds=60)  # twenty megabytes, far more than a connection buffers

    async def scenario() -> None:
        async with federation(enrolment, shards=shards(250_000), result_bytes=25_000_000) as running:
            job = await running.analyst.submit(large, "cohort")
            assert await last_state(job) == "done"
            reading = job.stub.Result(pb.JobName(job=job.name))
            assert len((await reading.read()).content) == FRAME
            assert await last_state(await running.analyst.submit(large, "cohort")) == "done"
            with pytest.raises(grpc.aio.AioRpcError, match=facts("25000000 bytes")):
                [frame async for frame in frames(reading)]

    asyncio.run(scenario())


MANY = wide(50_000, components=10, answer_seconds=60)
"""A job whose model takes four megabytes."""
MOST_GROWTH = 12 * 2**20
"""Bytes that a coordinator may need more while fifteen models of four megabytes each come and go."""


@pytest.mark.nightly
def test_many_finished_jobs_do_not_fill_the_memory(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with measured_coordinator(enrolment, shards(50_000), result_bytes=2**23) as measured:
            for _ in range(10):
                await measured.fit(MANY)
            before = measured.most_memory()
            for _ in range(15):
                await measured.fit(MANY)
            assert measured.most_memory() - before < MOST_GROWTH

    asyncio.run(scenario())
