"""Two hundred idle providers cost the coordinator very little, and a job over fifty providers is done."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from dishonest_peers import DishonestProvider, MeasuredCoordinator, measured_coordinator, open_channel
from local_federation import Enrolment, spec

from dpspca.common.names import Role
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

IDLE = 200
MOST_BYTES = 2**20
"""Of the coordinator's memory for each that is connected."""
MOST_OF_A_CORE = 0.05
"""For all of them together."""
WATCHED = 20.0
"""Seconds: a heartbeat to everybody, and from everybody."""
LIGHT = 50


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def spent(measured: MeasuredCoordinator) -> float:
    """Return the processor time that the coordinator has used so far, in seconds."""
    fields = Path(f"/proc/{measured.process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def live(site: DishonestProvider) -> None:
    while (message := await site.call.read()) is not grpc.aio.EOF:
        if message.HasField("heartbeat"):
            await site.say(heartbeat=pb.Heartbeat())


@asynccontextmanager
async def idle(enrolment: Enrolment, measured: MeasuredCoordinator) -> AsyncIterator[None]:
    """Connect so many providers, which only greet and answer heartbeats."""
    homes = [enrolment.identity(Role.PROVIDER, f"idle-{number}") for number in range(IDLE)]
    async with AsyncExitStack() as held:
        for home in homes:
            site = DishonestProvider(await held.enter_async_context(open_channel(measured.address, home)))
            await site.greet()
            living = asyncio.create_task(live(site))
            held.callback(living.cancel)
        yield


@pytest.mark.nightly
def test_two_hundred_idle_providers_cost_little_memory_and_time(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with measured_coordinator(enrolment, {}) as measured:
            alone = measured.memory()
            async with idle(enrolment, measured):
                assert len({offer.provider for offer in await measured.analyst.data_sets()}) == IDLE
                assert (measured.memory() - alone) / IDLE < MOST_BYTES
                before = spent(measured)
                await asyncio.sleep(WATCHED)
                assert (spent(measured) - before) / WATCHED < MOST_OF_A_CORE
                assert len(await measured.analyst.data_sets()) == IDLE

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_job_over_fifty_light_providers_is_done(enrolment: Enrolment) -> None:
    rows = np.random.default_rng(5).standard_normal((20 * LIGHT, 30))
    shards = {f"site-{number}": part for number, part in enumerate(np.split(rows, LIGHT))}

    async def scenario() -> None:
        async with measured_coordinator(enrolment, shards) as measured:
            job = spec(minimum_providers=LIGHT, answer_seconds=60)  # all of them run in this process
            assert (await measured.fit(job)).statement.parties == LIGHT

    asyncio.run(scenario())
