"""A provider's process is stopped in the middle of a job, for longer than the job waits for an answer.

Stopped by a signal it neither answers nor hangs up: nothing but the deadline tells it from one that thinks. When it
goes on it finds a query of a job that went on without it, or that is over.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from coordinator_processes import free_port
from daemons import Daemons, Process, daemons
from fault_invariants import JobOutcome, RunRecord, problems
from local_federation import permissive_policy

from dpspca.client.connection.jobs import JobStatus, ParticipantStatus
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.provider.ledger.sqlite import read_ledger_state

COLUMNS = 20
SITES = ("north", "south", "west")
STOPPED = "west"
DEADLINE = 8
"""Answer timeout of a job in seconds, for processes on a busy machine."""
FEW, MANY = 5, 150
"""With many rounds, a job is still running when a provider is stopped after its first answers."""


def job(least: int, rounds: int) -> JobSpec:
    """Return a job that continues while at least this many providers answer in time."""
    return JobSpec(
        schema=Schema(COLUMNS),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(1.0, 1e-6),
        norm_bound=12.0,
        components=2,
        explained_variance=False,
        minimum_providers=least,
        answer_seconds=DEADLINE,
        options={"sparsity": 6, "rounds": rounds},
        method="dps-pca",
    )


@dataclass
class Scene:
    """Real daemons, an analyst, and the final status that it received of each job."""

    daemons: Daemons
    analyst: AsyncFederation
    told: list[JobOutcome] = field(default_factory=list)

    @property
    def stopped(self) -> Process:
        return self.daemons.providers[STOPPED]

    async def submit(self, what: JobSpec) -> tuple[AsyncJob, str]:
        signed = self.daemons.enrolment.job(what, self.daemons.ada, SITES)
        return await self.analyst.submit_signed(signed, what), signed.job_id

    async def see_through(self, submitted: AsyncJob, name: str) -> JobStatus:
        """Wait for the end of a job, and keep its final status."""
        status = [state async for state in submitted.watch()][-1]
        model = await submitted.result() if status.state == "done" else None
        self.told.append(JobOutcome(name, submitted.spec, status, model))
        return status

    def stored(self, name: str) -> int:
        """Return the number of answers to a job that the stopped provider has stored."""
        return sum(each.job == name for each in read_ledger_state(self.daemons.ledger(STOPPED)).outbox())


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    """Run the federation. At the end, stop all parties properly and check the invariants I1, I2, I3 and I5."""
    draw = np.random.default_rng(0)
    rows = {
        site: {"cohort": draw.standard_normal((300, COLUMNS)) * np.r_[5, 4, np.ones(COLUMNS - 2)]} for site in SITES
    }
    policy = permissive_policy(PrivacyUnit.ROW_REPLACE_ONE)
    async with daemons(folder, f"127.0.0.1:{free_port()}", policy, rows, keeping=True) as settled:
        async with AsyncFederation(settled.address, settled.ada) as analyst:
            here = Scene(settled, analyst)
            yield here
            remembered = await analyst.jobs()
        codes = {each.name: await each.end() for each in settled.everybody}
        assert list(problems(RunRecord(settled, ("cohort",), here.told, remembered, [], codes, {}))) == []


async def stopped_half_way(here: Scene, submitted: AsyncJob) -> None:
    """Stop the process after a few of its answers have arrived."""
    async for state in submitted.watch():
        if state.answered >= 3:
            break
    here.stopped.send(signal.SIGSTOP)


def find(status: JobStatus, name: str) -> ParticipantStatus:
    return next(each for each in status.participants if each.name == name)


def require_late(status: JobStatus, ending: str) -> ParticipantStatus:
    """Require that the status names the stopped provider, with the reason, and no other."""
    late = find(status, STOPPED)
    assert status.state == ending, status
    missing = f"answer to query {late.answered + 1}" if late.asked else "reply about the job"
    assert late.reason == f"No {missing} within {DEADLINE} seconds."
    assert late.asked in {0, late.answered + 1}
    assert late.answered < status.queries
    assert ending == "done" or f"{STOPPED}: {late.reason}" in status.reason
    assert not any(each.reason for each in status.participants if each is not late)
    return late


@pytest.mark.nightly
@pytest.mark.parametrize(("least", "ending"), [(2, "done"), (3, "failed")])
def test_i1_i2_i3_a_provider_stopped_past_the_timeout_is_named_and_returns(
    tmp_path: Path, least: int, ending: str
) -> None:
    """It misses the end of one job and all of another. Its late answers belong to real queries and are charged once."""

    async def scenario() -> None:
        async with scene(tmp_path) as here:
            first, name = await here.submit(job(least, MANY))
            await stopped_half_way(here, first)
            over = await here.see_through(first, name)
            late = require_late(over, ending)
            assert late.asked > late.answered >= 3
            second, missed = await here.submit(job(2, FEW))
            assert require_late(await here.see_through(second, missed), "done").asked == 0
            assert here.stored(name) in {late.answered, late.asked}
            here.stopped.send(signal.SIGCONT)
            back = await here.see_through(*await here.submit(job(3, FEW)))
            assert (back.state, {each.answered for each in back.participants}) == ("done", {back.queries})
            assert here.stored(name) <= late.asked
            assert here.stored(missed) == 0
            assert await first.status() == over

    asyncio.run(scenario())
