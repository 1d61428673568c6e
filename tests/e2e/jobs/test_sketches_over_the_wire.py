"""A job with sketches: which providers may be missing, and what ends it. Real daemons, over mutual TLS."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_federation import ROWS, AllowEverything, Enrolment, RunningFederation, federation, now, spec

from dpspca.client.connection.errors import JobFailedError
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.server.jobs.roster import Link

SHARDS = {f"site-{number}": part for number, part in enumerate(np.array_split(ROWS, 3))}
JOB = spec(method="range-projection", options={}, answer_seconds=3)
COMMITMENTS, NONCES, SKETCH, LARGEST, LONGEST = range(1, 6)


def settings(running: RunningFederation, ledger: MemoryLedger) -> ProviderSetup:
    """Return the settings to start a provider again with its ledger."""
    home, rows, revoked = running.known["site-1"], check_rows(SHARDS["site-1"]), running.revoked
    return ProviderSetup(
        running.coordinator.address,
        lambda: home,
        lambda: revoked[-1],
        now,
        data_sets={"cohort": rows},
        policy=AllowEverything,
        ledger=ledger,
    )


@pytest.mark.slow
def test_a_provider_absent_from_the_start_does_not_stop_a_sketch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with federation(Enrolment.create(tmp_path), ["site-0", "site-2"], SHARDS) as running:
            model = await running.analyst.fit(JOB, "cohort", list(SHARDS))
            assert model.statement.parties == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("position", [COMMITMENTS, NONCES, SKETCH, LARGEST, LONGEST])
@pytest.mark.parametrize("returns", [False, True], ids=["stays away", "restarts"])
def test_a_provider_lost_after_committing_ends_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int, returns: bool
) -> None:
    """After a restart it has its ledger with its earlier answers. Its random draw is lost, and not repeated."""
    ledger = MemoryLedger()
    receive = Link.receive_answer

    async def scenario() -> None:
        async with federation(Enrolment.create(tmp_path), ["site-0", "site-2"], SHARDS) as running:
            await running.start("site-1", ledger=ledger)
            tasks: list[asyncio.Task[Any]] = []

            async def stop() -> None:
                running.daemons["site-1"].cancel()
                await asyncio.gather(running.daemons["site-1"], return_exceptions=True)
                if returns:
                    again = Daemon(settings(running, ledger))
                    running.daemons["site-1"] = asyncio.create_task(again.run())

            def take(link: Link, frame: pb.AnswerFrame) -> None:
                receive(link, frame)
                if link.name == "site-1" and frame.position == position and not tasks:
                    tasks.append(asyncio.create_task(stop()))

            monkeypatch.setattr(Link, "receive_answer", take)
            with pytest.raises(JobFailedError):
                await running.analyst.fit(JOB, "cohort", list(SHARDS))
            await asyncio.gather(*tasks)
            (job,) = await running.analyst.jobs()
            (reason,) = [each.reason for each in job.participants if each.name == "site-1"]
            assert ("has no random draws" if returns else "No answer") in reason

    asyncio.run(scenario())
