"""Finished jobs leave nothing in the memory of the daemons that grows with their number."""

import asyncio
import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from local_federation import AllowEverything, Enrolment, RunningFederation, federation, spec

from dpspca.common.job import Budget, Schema
from dpspca.common.names import PartyName
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.calibration import MAX_EPSILON
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.server.journal.sqlite import SqliteJournal
from dpspca.server.rpc import analyst_service

KEPT = 30
"""Jobs of an analyst that the coordinator keeps."""
WARM_UP = 100
MANY = 400
FEW_BYTES = 250
"""Bytes that a finished job may leave in three daemons together. A kept job takes 1,300 bytes in each daemon. The limit
includes up to 80,000 bytes that the last jobs leave temporarily, whatever the number of jobs."""
SMALL = spec(
    schema=Schema(4),
    norm_bound=4.0,
    components=1,
    explained_variance=False,
    budget=Budget(0.0005, 1e-9),
    options={"sparsity": 2, "rounds": 1},
)
SHARDS = {name: np.random.default_rng(0).standard_normal((100, 4)) for name in ("north", "south")}


class Generous(AllowEverything):
    """A policy that allows thousands of small jobs."""

    def limits(self, _: PartyName) -> tuple[Filter, None]:
        return Filter.for_budget(MAX_EPSILON / 2, 0.9, aside=0.4), None


async def finish(running: RunningFederation, jobs: int) -> int:
    """Run this many jobs, and return the bytes in use afterwards."""
    for _ in range(jobs):
        job = await running.analyst.submit(SMALL, "cohort", list(SHARDS))
        states = [told.state async for told in job.watch()]
        assert states[-1] == "done"
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.nightly
def test_finished_jobs_leave_no_memory_in_any_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analyst_service, "MAX_KEPT", KEPT)

    async def scenario() -> None:
        journal = SqliteJournal(tmp_path / "journal.db")
        enrolment = Enrolment.create(tmp_path)
        with (
            SqliteLedger(tmp_path / "north" / "ledger", tmp_path / "second" / "north") as north,
            SqliteLedger(tmp_path / "south" / "ledger", tmp_path / "second" / "south") as south,
        ):
            async with federation(enrolment, (), SHARDS, lambda _: system_entropy, journal=journal) as running:
                for name, ledger in zip(SHARDS, (north, south), strict=True):
                    await running.start(name, ledger=ledger, policy=Generous)
                before = await finish(running, WARM_UP)
                after = await finish(running, MANY)
                assert after - before < FEW_BYTES * MANY
                assert len(await running.analyst.jobs()) == KEPT

    tracemalloc.start()
    try:
        asyncio.run(scenario())
    finally:
        tracemalloc.stop()
