"""What jobs that are over leave in the memory of the daemons: nothing that grows with their number."""

import asyncio
import gc
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from local_federation import AllowEverything, Enrolment, RunningFederation, federation, spec

from dpspca.common.names import PartyName
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.calibration import MAX_EPSILON
from dpspca.common.spec import Budget, Schema
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.server.journal.sqlite import SqliteJournal
from dpspca.server.rpc import analyst_service

KEPT = 30
"""Jobs of an analyst that the coordinator remembers."""
WARM_UP = 100
MANY = 400
FEW_BYTES = 400
"""That a job may leave in three daemons together. One that is remembered takes 1,300 in any of them; what the last jobs
leave in passing, up to 80,000 in all and however many there were, is in it."""
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
    """A policy under which thousands of small jobs fit."""

    def limits(self, _: PartyName) -> tuple[Filter, None]:
        return Filter.for_budget(MAX_EPSILON / 2, 0.9, aside=0.4), None


async def finish(running: RunningFederation, jobs: int) -> int:
    """Have so many jobs answered, and count the bytes that are in use then."""
    for _ in range(jobs):
        job = await running.analyst.submit(SMALL, "cohort", list(SHARDS))
        states = [told.state async for told in job.watch()]
        assert states[-1] == "done"
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.nightly
def test_jobs_that_are_over_leave_no_memory_taken_in_any_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
