"""Two hundred idle providers cost the coordinator very little, and a job over fifty providers is done."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from puppets import Puppet, Siege, besieged, line
from town import Town, spec

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
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


def spent(siege: Siege) -> float:
    """Return the processor time that the coordinator has used so far, in seconds."""
    fields = Path(f"/proc/{siege.process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def live(site: Puppet) -> None:
    while (message := await site.call.read()) is not grpc.aio.EOF:
        if message.HasField("heartbeat"):
            await site.say(heartbeat=pb.Heartbeat())


@asynccontextmanager
async def idle(town: Town, siege: Siege) -> AsyncIterator[None]:
    """Connect so many providers, which only greet and answer heartbeats."""
    homes = [town.identity(Role.PROVIDER, f"idle-{number}") for number in range(IDLE)]
    async with AsyncExitStack() as held:
        for home in homes:
            site = Puppet(await held.enter_async_context(line(siege.address, home)))
            await site.greet()
            living = asyncio.create_task(live(site))
            held.callback(living.cancel)
        yield


@pytest.mark.slow
def test_two_hundred_idle_providers_cost_little_memory_and_time(town: Town) -> None:
    async def scenario() -> None:
        async with besieged(town, {}) as siege:
            alone = siege.memory()
            async with idle(town, siege):
                assert len({offer.provider for offer in await siege.analyst.data_sets()}) == IDLE
                assert (siege.memory() - alone) / IDLE < MOST_BYTES
                before = spent(siege)
                await asyncio.sleep(WATCHED)
                assert (spent(siege) - before) / WATCHED < MOST_OF_A_CORE
                assert len(await siege.analyst.data_sets()) == IDLE

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_job_over_fifty_light_providers_is_done(town: Town) -> None:
    rows = np.random.default_rng(5).standard_normal((20 * LIGHT, 30))
    shards = {f"site-{number}": part for number, part in enumerate(np.split(rows, LIGHT))}

    async def scenario() -> None:
        async with besieged(town, shards) as siege:
            job = spec(minimum_parties=LIGHT, answer_seconds=60)  # all of them run in this process
            assert (await siege.fit(job)).statement.parties == LIGHT

    asyncio.run(scenario())
