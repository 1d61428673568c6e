"""Jobs of the largest intended width, a million columns, over real daemons. Those with many components are nightly."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from coordinator_processes import free_port
from daemons import daemons
from local_federation import permissive_policy, spec

from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Schema

COLUMNS = 10**6


def peak(process: int) -> int:
    """Return the peak memory of a process, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


async def peak_of_a_coordinator(folder: Path, providers: int, components: int) -> int:
    """Run a wide job over so many providers, and return the most memory that the coordinator took for it."""
    wide = spec(
        schema=Schema(COLUMNS),
        components=components,
        explained_variance=False,
        answer_seconds=300,
        options={"sparsity": 100, "rounds": 1},
    )
    rows = {
        f"site-{number}": {"cohort": np.random.default_rng(number).standard_normal((3, COLUMNS)) / COLUMNS**0.5}
        for number in range(providers)
    }
    async with daemons(folder, f"127.0.0.1:{free_port()}", permissive_policy(), rows) as settled:
        idle = peak(settled.hub.number)
        async with AsyncFederation(settled.address, settled.ada) as analyst:
            model = await analyst.fit(wide, "cohort", list(rows))
        assert model.components.shape == (components, COLUMNS)
        assert model.statement.parties == providers
        assert 0 < len(model.support) <= 100
        return peak(settled.hub.number) - idle


@pytest.mark.nightly
@pytest.mark.parametrize("components", [8, 20])  # an answer with fewer is no larger than what is moved while it comes
def test_a_wide_job_needs_the_memory_of_one_sum(components: int, tmp_path: Path) -> None:
    """If answers were kept until all have arrived, each further provider would cost the memory of an answer."""
    taken, answer = [], 8 * COLUMNS * components
    for providers in (1, 3):
        (folder := tmp_path / str(providers)).mkdir()
        taken.append(asyncio.run(peak_of_a_coordinator(folder, providers, components)))
    alone, together = taken
    assert together - alone < answer
    assert together < 10 * answer
