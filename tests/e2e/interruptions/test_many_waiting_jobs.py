"""Very many jobs that wait for absent providers delay nobody, and each analyst has only a share."""

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median

import pytest
from attackers import Attacker
from coordinator_processes import free_port
from daemons import daemons
from facts import facts
from local_federation import SHARDS, Enrolment, RunningFederation, federation, now, permissive_policy, spec

from dpspca.client.connection import FederationError
from dpspca.client.federation import AsyncFederation
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy.lattice import MAX_PROVIDERS
from dpspca.common.trust.signing import JobEnvelope, sign
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.rpc.analyst_service import MAX_RUNNING, MAX_RUNNING_BYTES

MOST_TIMES, SLACK = 2.0, 0.2


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


async def seconds_to_reconnect_and_run(running: RunningFederation) -> float:
    """Let a provider reconnect and run an honest job. Return the seconds that this took."""
    begun = time.monotonic()
    task = running.daemons.pop("site-0")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await running.start("site-0")
    await running.analyst.fit(spec(), "cohort", list(SHARDS))
    return time.monotonic() - begun


@pytest.mark.slow
def test_jobs_for_absent_providers_do_not_delay_other_jobs(enrolment: Enrolment) -> None:
    names = [f"absent-{number}" for number in range(MAX_PROVIDERS)]
    what = spec(answer_seconds=600)

    async def scenario() -> None:
        mallory = enrolment.identity(Role.ANALYST, "mallory")
        async with federation(enrolment) as running, AsyncFederation(running.coordinator.address, mallory) as attacker:
            usual = median([await seconds_to_reconnect_and_run(running) for _ in range(5)])
            for _ in range(MAX_RUNNING):
                await attacker.submit_signed(enrolment.job(what, mallory, names), what)
            taken = median([await seconds_to_reconnect_and_run(running) for _ in range(5)])
            assert taken < MOST_TIMES * usual + SLACK

    asyncio.run(scenario())


def test_a_job_with_more_providers_than_sums_allow_is_refused() -> None:
    def drawn(count: int) -> JobEnvelope:
        audience = [PartyName("town", Role.PROVIDER, f"site-{number}") for number in range(count)]
        return JobEnvelope.draw(b"{}", audience, "cohort", now=now(), life=timedelta(hours=1))

    assert len(drawn(MAX_PROVIDERS).audience) == MAX_PROVIDERS
    with pytest.raises(InvalidParameterError, match=facts(MAX_PROVIDERS + 1, MAX_PROVIDERS)):
        drawn(MAX_PROVIDERS + 1)


@pytest.mark.nightly
def test_the_bytes_of_running_jobs_are_limited_for_each_analyst(enrolment: Enrolment) -> None:
    names = tuple(f"gene {number:07d}" for number in range(130_000))
    what = spec(schema=Schema(len(names), names), answer_seconds=600)

    async def scenario() -> None:
        ada, bea = (enrolment.identity(Role.ANALYST, name) for name in ("greedy", "bea"))
        async with federation(enrolment, ()) as running, AsyncFederation(running.coordinator.address, ada) as greedy:
            signed = [enrolment.job(what, ada, ["absent"]) for _ in range(MAX_RUNNING_BYTES // len(what.to_json()) + 1)]
            jobs = [await greedy.submit_signed(each, what) for each in signed[:-1]]
            with pytest.raises(FederationError, match=facts(MAX_RUNNING_BYTES, "`dpspca jobs cancel`")):
                await greedy.submit_signed(signed[-1], what)
            async with AsyncFederation(running.coordinator.address, bea) as modest:
                await modest.submit_signed(enrolment.job(what, bea, ["absent"]), what)
            await jobs[0].cancel()
            await greedy.submit_signed(enrolment.job(what, ada, ["absent"]), what)

    asyncio.run(scenario())


@pytest.mark.slow
def test_hanging_up_during_a_refusal_leaves_no_traceback(tmp_path: Path) -> None:
    """There is no caller left to inform, and its content must not get into the log. The coordinator continues."""

    async def scenario() -> str:
        async with daemons(tmp_path, f"127.0.0.1:{free_port()}", permissive_policy(), {}) as running:
            enrolment, ada = running.enrolment, running.enrolment.identity(Role.ANALYST, "forger")
            (enrolment.folder / "raw.pem").write_bytes(ada.key_pem + ada.certificate_pem)
            audience = [PartyName("town", Role.PROVIDER, "a")]
            no_json = JobEnvelope.draw(b"{", audience, "cohort", now=now(), life=timedelta(hours=1))
            forged = replace(enrolment.job(spec(), ada, ["a"]), signature=bytes(70))
            attacker = Attacker(running.address, enrolment.folder)
            for job in (sign(no_json, ada), forged):
                request = pb.SubmitRequest(signed_job=job.to_bytes()).SerializeToString()
                for _ in range(5):
                    await asyncio.to_thread(attacker.dropped, content=request)
                    await asyncio.sleep(0.2)  # a few of its calls are being served
            assert (
                await running.hub.end() == 0
            )  # asyncio reports unread exceptions when their task is collected, at the latest
            return running.hub.said

    message = asyncio.run(scenario())
    assert "never retrieved" not in message
    assert "Traceback" not in message
