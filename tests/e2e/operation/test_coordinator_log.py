"""The coordinator's log: connections, refusals, and what became of each job."""

import asyncio
import logging
import re
from pathlib import Path

import pytest
from facts import facts, names_facts
from local_federation import SHARDS, Enrolment, federation, spec

from dpspca.client.connection import FederationError, JobFailedError
from dpspca.client.federation import AsyncFederation
from dpspca.common.names import Role

SERVER = (
    "dpspca.server.rpc.provider_service",
    "dpspca.server.rpc.analyst_service",
    "dpspca.server.jobs.job_runner",
    "dpspca.common.transport.rpc",
)


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def output(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.name in SERVER]


def test_the_log_follows_a_job_from_submission_to_end(enrolment: Enrolment, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> str:
        async with federation(enrolment) as running:
            job = await running.analyst.submit(spec(), "cohort", list(SHARDS))
            await job.result()
            return job.name[:12]

    with caplog.at_level(logging.INFO, "dpspca"):
        name = asyncio.run(scenario())
    lines = output(caplog)
    assert [f"{site} connected and offers cohort." in dict(map(reversed, lines)) for site in SHARDS] == [True] * len(
        SHARDS
    )
    who = "dpspca://town/analyst/ada"
    assert ("INFO", f"Job {name} of {who} about 'cohort' starts with {[*SHARDS]}.") in lines
    assert ("INFO", f"Job {name} is done.") in lines
    left = [line for _, line in lines if re.match(r"site-\d disconnected", line)]
    assert len(left) == len(SHARDS)


def test_the_log_names_missing_providers_and_why_a_job_failed(
    enrolment: Enrolment, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> str:
        async with federation(enrolment, ("site-0",)) as running:
            job = await running.analyst.submit(spec(answer_seconds=1, minimum_providers=2), "cohort", list(SHARDS))
            with pytest.raises(JobFailedError):
                await job.result()
            return job.name[:12]

    with caplog.at_level(logging.INFO, "dpspca"):
        name = asyncio.run(scenario())
    lines = output(caplog)
    without = [line for level, line in lines if level == "WARNING" and names_facts(line, f"Job {name}", "without")]
    assert [names_facts(line, "site-1, site-2") for line in without] == [True]
    assert any(names_facts(line, f"Job {name}", "failed", "1 provider", "at least 2") for _, line in lines)


def test_the_log_gives_the_reason_of_a_refused_call(enrolment: Enrolment, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ("site-0",)) as running:
            stranger = enrolment.identity(Role.PROVIDER, "mallory")
            async with AsyncFederation(running.coordinator.address, stranger) as misplaced:
                with pytest.raises(FederationError, match=facts("wrong-role", "provider")):
                    await misplaced.jobs()

    asyncio.run(scenario())
    assert any(
        level == "WARNING" and names_facts(line, "call of List", "role provider") for level, line in output(caplog)
    )
