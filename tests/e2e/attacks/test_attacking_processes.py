"""Attackers in other processes can use up neither the coordinator's memory, nor its log, nor its time.

The coordinator and its providers are processes, too, as their operators run them, and all speak mutual TLS.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import attackers
import pytest
from coordinator_processes import free_port
from daemons import Daemons, daemons
from files_in_use import put
from local_federation import SHARDS, permissive_policy, spec
from measures import MEBIBYTE, sample
from timeouts import TIMEOUT

from dpspca.client.federation import AsyncFederation
from dpspca.common.names import Role

SECONDS = 8.0
"""For which an attack lasts."""
ATTACKERS = 2
MOST_GROWTH = 100 * MEBIBYTE
LEAST_BACK = 50 * MEBIBYTE
"""By which a coordinator may be larger a minute after an attack: what the allocator keeps."""
MOST_LOG_A_DAY = 50 * MEBIBYTE
MOST_TIMES = 2.0
"""By which an honest job may take longer."""
SLACK = 0.3
"""Seconds that two more busy processes take from each job where there are two processors."""


def memory(running: Daemons) -> int:
    return sample(0, 0, running.hub.number, running.journal).own


async def seconds_of_a_job(analyst: AsyncFederation) -> float:
    """Run an honest job, and return its duration in seconds."""
    begun = time.monotonic()
    await analyst.fit(spec(), "cohort", list(SHARDS))
    return time.monotonic() - begun


@asynccontextmanager
async def attacked(running: Daemons, attack: str) -> AsyncIterator[None]:
    command = (sys.executable, attackers.__file__, running.address, str(running.enrolment.folder), attack, str(SECONDS))
    processes = [await asyncio.create_subprocess_exec(*command) for _ in range(ATTACKERS)]
    try:
        yield
    finally:
        for each in processes:
            assert await asyncio.wait_for(each.wait(), TIMEOUT) == 0


async def check_bounds(running: Daemons, analyst: AsyncFederation, attack: str) -> None:
    """Check that the effects of an attack on others stay within bounds."""
    usual = [await seconds_of_a_job(analyst) for _ in range(6)][1:]
    before, most, taken = memory(running), 0, []
    logged = running.hub.log.stat().st_size
    async with attacked(running, attack):
        begun = time.monotonic()
        while time.monotonic() - begun < SECONDS:
            taken.append(await seconds_of_a_job(analyst))
            most = max(most, memory(running))
            await asyncio.sleep(0.2)
    logged = running.hub.log.stat().st_size - logged - 1000 * len(taken)  # the honest jobs have lines as well
    async with asyncio.timeout(TIMEOUT):
        while memory(running) - before > LEAST_BACK:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.5)
    assert most - before < MOST_GROWTH
    # What the first minute holds, a day holds 1,440 times: the share of a party is by the minute.
    assert logged * 24 * 60 < MOST_LOG_A_DAY
    assert median(taken) < MOST_TIMES * median(usual) + SLACK


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("attack", "role", "revoked"),
    [
        *((attack, Role.ANALYST, True) for attack in attackers.ATTACKS),
        *((attack, Role.ANALYST, False) for attack in ("dropped", "hammered", "unanswered", "unknown")),
        ("dropped", Role.PROVIDER, True),
        ("hammered", Role.PROVIDER, False),
    ],
)
def test_a_flood_by_one_party_is_bounded_in_memory_log_and_time(
    tmp_path: Path, attack: str, role: Role, revoked: bool
) -> None:
    async def scenario() -> None:
        rows = {name: {"cohort": part} for name, part in SHARDS.items()}
        async with daemons(tmp_path, f"127.0.0.1:{free_port()}", permissive_policy(), rows) as running:
            mallory = running.enrolment.identity(role, "mallory")
            (tmp_path / "raw.pem").write_bytes(mallory.key_pem + mallory.certificate_pem)
            if revoked:
                running.enrolment.authority.revoke(mallory.name)
                put(tmp_path / "revoked.pem", running.enrolment.authority.revocation_list())
            async with AsyncFederation(running.address, running.ada) as analyst:
                await check_bounds(running, analyst, attack)

    asyncio.run(scenario())
