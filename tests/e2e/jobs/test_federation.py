"""Coordinator, providers and analyst over real mutual TLS on loopback, in one event loop."""

import asyncio
import itertools
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from coordinator_processes import Barrier, SlowLedger
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from facts import facts
from local_federation import NOISE_SEED, SHARDS, AllowEverything, Enrolment, federation, noise_for, now, spec
from timeouts import TIMEOUT

from dpspca.client.connection import FederationError, JobFailedError
from dpspca.client.connection.errors import UnpaidJobError
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import JobSpec
from dpspca.common.names import PartyName, Role
from dpspca.common.plan import Plan
from dpspca.common.privacy.keystream import repeatable_entropy
from dpspca.common.privacy.lattice import MAX_PROVIDERS
from dpspca.common.protocol import Aggregate, Algorithm, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.results import Model
from dpspca.common.transport import rpc
from dpspca.common.trust.certificates import read_key
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import JobEnvelope, SignedJob, sign
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder
from dpspca.server.coordinator import Coordinator
from dpspca.server.jobs.sums import JobSums


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


def test_the_model_over_the_wire_equals_that_in_process(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment) as running:
            job = await running.analyst.submit(spec(), "cohort", list(SHARDS))
            model = await job.result()
            inside = simulate(list(SHARDS.values()), spec(), noise_seed=NOISE_SEED)
            assert model.components.tobytes() == inside.components.tobytes()
            assert model.explained_variance is not None
            assert inside.explained_variance is not None
            assert model.explained_variance.tobytes() == inside.explained_variance.tobytes()
            assert model.weights is not None
            assert inside.weights is not None
            assert model.weights.tobytes() == inside.weights.tobytes()
            assert model.statement.weights == inside.statement.weights != ""
            assert model.statement.federated
            assert model.statement.parties == 3

    asyncio.run(scenario())


def test_watching_reports_every_step_and_who_answered(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment) as running:
            job = await running.analyst.submit(spec(), "cohort", list(SHARDS))
            states = [state async for state in job.watch()]
            assert states[-1].state == "done"
            assert states[-1].answered == states[-1].queries == len(catalogue.plan(spec()))
            assert {each.name: each.answered for each in states[-1].participants} == dict.fromkeys(SHARDS, 6)
            assert states[-1].bytes_moved > 0
            assert [listed.job for listed in await running.analyst.jobs()] == [job.name]

    asyncio.run(scenario())


def test_a_provider_that_reconnects_costs_only_time(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ("site-0", "site-1")) as running:
            job = await running.analyst.submit(spec(), "cohort", list(SHARDS))
            await running.start("site-2")
            assert (await job.result()).statement.parties == 3

    asyncio.run(scenario())


def test_an_absent_provider_is_named_and_the_others_continue(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ("site-0", "site-1")) as running:
            job = await running.analyst.submit(spec(answer_seconds=1, minimum_providers=2), "cohort", list(SHARDS))
            model = await job.result()
            assert model.statement.parties == 2
            states = [state async for state in job.watch()]
            reasons = {each.name: each.reason for each in states[-1].participants}
            assert "Not connected" in reasons["site-2"]

    asyncio.run(scenario())


def test_below_the_minimum_the_job_fails_with_the_reason(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ("site-0",)) as running:
            job = await running.analyst.submit(spec(answer_seconds=1, minimum_providers=2), "cohort", list(SHARDS))
            with pytest.raises(JobFailedError, match=facts(1, 2, "site-1", "site-2")):
                await job.result()

    asyncio.run(scenario())


def test_a_method_that_asks_more_than_its_plan_fails_the_job(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = catalogue.run

    def ask_once_more(plan: Plan) -> Algorithm:
        algorithm = honest(plan)
        query = next(algorithm)
        with suppress(StopIteration):
            while True:
                query = algorithm.send((yield query))
        yield query
        raise AssertionError

    monkeypatch.setattr(catalogue, "run", ask_once_more)

    async def scenario() -> None:
        async with federation(enrolment) as running:
            job = await running.analyst.submit(spec(), "cohort", list(SHARDS))
            with pytest.raises(JobFailedError, match=facts("dps-pca", "6 queries")):
                await job.result()

    asyncio.run(scenario())


def test_submitting_a_signed_job_twice_gives_one_job(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment) as running:
            ada = enrolment.identity(Role.ANALYST, "ada-again")
            async with AsyncFederation(running.coordinator.address, ada) as analyst:
                audience = [PartyName("town", Role.PROVIDER, name) for name in SHARDS]
                envelope = JobEnvelope.draw(
                    spec().to_json().encode(), audience, "cohort", now=now(), life=timedelta(hours=1)
                )
                signed = sign(envelope, ada)
                first = await analyst.submit_signed(signed, spec())
                again = await analyst.submit_signed(signed, spec())
                assert first.name == again.name
                assert (await first.result()).to_bytes() == (await again.result()).to_bytes()
                assert len(await analyst.jobs()) == 1
            with pytest.raises(
                FederationError, match=facts("dpspca://town/analyst/ada-again", "dpspca://town/analyst/ada")
            ):
                await running.analyst.submit_signed(signed, spec())
            with pytest.raises(FederationError, match=facts("FAILED_PRECONDITION", "`dpspca jobs list`")):
                await AsyncJob(first.name, catalogue.plan(spec()), running.analyst.stub).result()

    asyncio.run(scenario())


def test_t07_a_tampered_job_is_refused(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            audience = [PartyName("town", Role.PROVIDER, "site-0")]
            content = spec().to_json().encode()
            envelope = JobEnvelope.draw(content, audience, "cohort", now=now(), life=timedelta(hours=1))
            signed = sign(envelope, enrolment.identity(Role.ANALYST, "bea"))
            looser = replace(signed, payload=signed.payload.replace(b'"epsilon":4.0', b'"epsilon":9.0'))
            assert looser.payload != signed.payload
            with pytest.raises(FederationError, match=facts("UNAUTHENTICATED, wrong-signer")):
                await running.analyst.submit_signed(looser, spec())

    asyncio.run(scenario())


def test_providers_reconnect_after_a_coordinator_restart(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        me = enrolment.identity(Role.COORDINATOR, "hub")
        revoked = enrolment.revocations()
        first = Coordinator(lambda: me, lambda: revoked, now)
        await first.start("127.0.0.1:0")
        home = enrolment.identity(Role.PROVIDER, "site-0")
        rows = {"cohort": check_rows(SHARDS["site-0"])}
        daemon = Daemon(ProviderSetup(first.address, lambda: home, lambda: revoked, now, rows, AllowEverything))
        task = asyncio.create_task(daemon.run())
        await asyncio.wait_for(daemon.connected.wait(), TIMEOUT)
        await first.stop(grace=0)
        second = Coordinator(lambda: me, lambda: revoked, now)
        await second.start(first.address)
        async with AsyncFederation(second.address, enrolment.identity(Role.ANALYST, "ada")) as analyst:
            assert (await analyst.fit(spec(), "cohort", ["site-0"])).statement.parties == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await second.stop(grace=0)

    asyncio.run(scenario())


def test_a_waiting_job_can_be_cancelled(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            job = await running.analyst.submit(spec(answer_seconds=600), "cohort", list(SHARDS))
            assert (await job.cancel()).state == "cancelled"
            with pytest.raises(UnpaidJobError, match=facts("(cancelled)")):
                await job.result()
            assert (await job.cancel()).state == "cancelled"

    asyncio.run(scenario())


def test_a_job_on_an_unknown_data_set_fails_with_its_name(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment) as running:
            job = await running.analyst.submit(spec(answer_seconds=1), "other", list(SHARDS))
            with pytest.raises(JobFailedError, match=facts("'other'")):
                await job.result()

    asyncio.run(scenario())


def test_t33_roles_are_read_from_certificates_and_enforced(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            provider = enrolment.identity(Role.PROVIDER, "intruder")
            async with AsyncFederation(running.coordinator.address, provider) as wrong:
                with pytest.raises(FederationError, match=facts("PERMISSION_DENIED, wrong-role")):
                    await wrong.jobs()

    asyncio.run(scenario())


def test_a_certificate_of_another_authority_is_refused(enrolment: Enrolment, tmp_path: Path) -> None:
    other = Enrolment.create(tmp_path / "elsewhere")

    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            stranger = other.identity(Role.ANALYST, "ada")
            trusting = Identity(
                stranger.name,
                stranger.key_pem,
                stranger.certificate_pem,
                enrolment.authority.certificate_pem,
                now() + timedelta(days=1),
            )
            async with AsyncFederation(running.coordinator.address, trusting) as wrong:
                with pytest.raises(FederationError, match=facts("UNAVAILABLE")):
                    await wrong.jobs()

    asyncio.run(scenario())


def test_a_client_without_certificate_is_refused(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            credentials = grpc.ssl_channel_credentials(enrolment.authority.certificate_pem)
            options = [("grpc.ssl_target_name_override", "coordinator.dpspca")]
            async with grpc.aio.secure_channel(running.coordinator.address, credentials, options) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary("/dpspca.v1.AnalystService/List")(b"")
                assert caught.value.code() == grpc.StatusCode.UNAVAILABLE

    asyncio.run(scenario())


def test_t10_a_job_belongs_to_the_analyst_named_in_it(enrolment: Enrolment) -> None:
    """Another analyst who signs the same bytes, earlier or later, gets no job and does not affect hers."""

    async def scenario() -> None:
        async with federation(enrolment, names=[]) as running:
            bob = enrolment.identity(Role.ANALYST, "bob")
            signed = running.enrolment.job(spec(), Identity.load(enrolment.folder / "analyst-ada"), ["site-0"])
            signature = read_key(bob.key_pem).sign(signed.payload, ec.ECDSA(SHA256()))
            ours = SignedJob(signed.payload, signature, bob.certificate_pem)
            assert ours.job_id == signed.job_id
            async with AsyncFederation(running.coordinator.address, bob) as other:
                for submit in (asyncio.sleep(0), running.analyst.submit_signed(signed, spec())):
                    await submit
                    with pytest.raises(FederationError, match=facts("wrong-signer", "bob", "ada")):
                        await other.submit_signed(ours, spec())
                    assert await other.jobs() == []
            assert [job.job for job in await running.analyst.jobs()] == [signed.job_id]

    asyncio.run(scenario())


def test_the_data_set_must_be_named_if_there_are_several(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        async with federation(enrolment, ()) as running:
            with pytest.raises(InvalidParameterError):
                await running.analyst.submit(spec())
            await running.start("site-0")
            assert (await running.analyst.fit(spec())).components.shape == (2, 30)
            rows = {name: check_rows(SHARDS["site-1"] + shift) for shift, name in enumerate(("cohort", "trial"))}
            await running.start("site-1", data_sets=rows)
            for ask in (running.analyst.submit, running.analyst.fit):
                with pytest.raises(InvalidParameterError, match=facts("cohort, trial")):
                    await ask(spec())
            assert len(await running.analyst.jobs()) == 1

    asyncio.run(scenario())


def test_a_list_of_jobs_longer_than_a_message_is_sent_whole(
    enrolment: Enrolment, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{number:03d}-{'x' * 50}" for number in range(MAX_PROVIDERS)]
    most = 2**16  # bytes of a message: with the real limit, five hundred jobs would be needed
    for side in ("_SERVER", "_CLIENT"):
        limits = [(name, most if name.endswith("message_length") else value) for name, value in getattr(rpc, side)]
        monkeypatch.setattr(rpc, side, limits)

    async def scenario() -> None:
        async with federation(enrolment, names=[]) as running:
            for _ in range(12):
                await running.analyst.submit(spec(), "cohort", names)
            listed = await running.analyst.jobs()
            assert len(listed) == 12
            assert sum(len(each.name) for job in listed for each in job.participants) > most

    asyncio.run(scenario())


@pytest.mark.slow
def test_weights_are_those_of_the_providers_that_are_left_when_one_leaves(enrolment: Enrolment) -> None:
    """The largest provider answers two queries, and no more: the model is that of the same answers in one process."""
    asked = spec(answer_seconds=2, minimum_providers=2)

    async def scenario() -> Model:
        barrier = Barrier(3)
        async with federation(enrolment, (), words=noise_for(asked)) as running:
            for name in SHARDS:
                await running.start(name, ledger=SlowLedger(0, barrier if name == "site-0" else None))
            try:
                job = await running.analyst.submit(asked, "cohort", list(SHARDS))
                return await job.result()
            finally:
                barrier.open()

    model, inside = asyncio.run(scenario()), _with_one_that_leaves(asked, answering=2)
    assert model.statement.parties == 2
    assert model.components.tobytes() == inside.components.tobytes()
    assert model.weights is not None
    assert inside.weights is not None
    assert model.weights.tobytes() == inside.weights.tobytes()


def _with_one_that_leaves(asked: JobSpec, answering: int) -> Model:
    plan, sums = catalogue.plan(asked), JobSums(asked)
    providers = {
        name: Responder(
            plan, Shard(check_rows(rows), asked.norm_bound), MemoryLedger(), repeatable_entropy(NOISE_SEED), seat=at
        )
        for at, (name, rows) in enumerate(SHARDS.items())
    }
    position = itertools.count()

    def ask(query: RowQuery) -> Aggregate:
        at = next(position)
        there = [*providers][0 if at < answering else 1 :]
        return sums.add(plan[at], {name: providers[name].respond(at, query) for name in there})

    return drive(catalogue.run(plan), ask).weighed_by(sums.weighed)
