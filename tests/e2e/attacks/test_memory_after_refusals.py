"""Refusals leave nothing in the coordinator's memory, however many and for whatever reason."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from dishonest_messages import ANSWER, COUNT, DISHONEST, DISHONEST_ANSWERS, DISHONEST_JOBS, HONEST, Misbehaviour
from dishonest_peers import (
    OFFER,
    DishonestProvider,
    MeasuredCoordinator,
    dishonest_provider,
    measured_coordinator,
    open_channel,
    reissued,
)
from facts import facts
from local_federation import SHARDS, Enrolment, now, spec
from timeouts import TIMEOUT

from dpspca.client.connection import FederationError
from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Budget
from dpspca.common.names import Role
from dpspca.common.transport.rpc import MAX_MESSAGE
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

MOST_GROWTH = 2 * 2**20
"""Bytes by which the coordinator's resident memory may differ afterwards: in each test some kilobytes for an attempt.

A certificate, a signed job or an answer that is kept, with what comes with it, takes as much or more, and a message of
the largest size a megabyte.
"""
CHEAP = spec(answer_seconds=4, budget=Budget(0.5, 1e-6))
"""A job of which a hundred fit into the budget of honest providers."""

Attempt = Callable[[], Awaitable[None]]


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


async def require_constant_memory(
    measured: MeasuredCoordinator, attempts: Iterable[Attempt], warm_up: int, times: int
) -> None:
    """Repeat all attempts, and check that the coordinator does not grow after the first few."""
    every = list(attempts)
    for attempt in every * warm_up:
        await attempt()
    before = measured.memory()
    for attempt in every * times:
        await attempt()
    assert measured.memory() - before < MOST_GROWTH


def strangers(enrolment: Enrolment) -> dict[str, Identity | None]:
    """Return identities that are refused, or refused for what they call."""
    bea, eve = enrolment.identity(Role.ANALYST, "bea"), enrolment.identity(Role.ANALYST, "eve")
    enrolment.authority.revoke(eve.name)
    return {
        "of another role": enrolment.identity(Role.PROVIDER, "site-9"),
        "run out": reissued(enrolment, bea, since=now() - timedelta(days=3)),
        "revoked": eve,
        "of two parties": reissued(enrolment, bea, ["dpspca://town/provider/site-0"]),
        "of another authority": Enrolment.create(enrolment.folder / "elsewhere").identity(Role.ANALYST, "bea"),
        "without a certificate": None,
    }


async def try_to_list_jobs(address: str, identity: Identity | None, enrolment: Enrolment) -> None:
    """Open a new connection and list jobs."""
    if identity is None:
        credentials = grpc.ssl_channel_credentials(enrolment.authority.certificate_pem)
        options = [("grpc.ssl_target_name_override", "coordinator.dpspca"), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.secure_channel(address, credentials, options)
    elif (
        identity.authority_pem != enrolment.authority.certificate_pem
    ):  # trusts the right authority, and shows a certificate of another
        channel = open_channel(address, replace(identity, authority_pem=enrolment.authority.certificate_pem))
    else:
        channel = open_channel(address, identity)
    async with channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/dpspca.v1.AnalystService/List")(b"", timeout=TIMEOUT)
    assert caught.value.code() in {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }


@pytest.mark.slow
def test_t33_t35_refused_parties_leave_no_memory_used(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        everybody = strangers(enrolment).values()
        async with measured_coordinator(enrolment, {}) as measured:
            await require_constant_memory(
                measured, [partial(try_to_list_jobs, measured.address, each, enrolment) for each in everybody], 20, 60
            )

    asyncio.run(scenario())


@pytest.mark.slow
def test_t07_t10_t35_refused_jobs_leave_no_memory_used(enrolment: Enrolment) -> None:
    async def scenario() -> None:
        bea = enrolment.identity(Role.ANALYST, "bea")
        jobs = [(case(enrolment, bea), reason) for case, reason in DISHONEST_JOBS.values()]
        async with measured_coordinator(enrolment, {}) as measured, AsyncFederation(measured.address, bea) as analyst:

            async def submit(signed: SignedJob, reason: Any) -> None:
                with pytest.raises(FederationError, match=facts(reason)):
                    await analyst.submit_signed(signed, spec())

            await require_constant_memory(measured, [partial(submit, *job) for job in jobs], 10, 40)

    asyncio.run(scenario())


async def too_large(site: DishonestProvider, ask: pb.Query) -> None:
    await site.answer(ask, (0, bytes(MAX_MESSAGE + 1)))


async def not_asked_for(site: DishonestProvider, ask: pb.Query) -> None:
    for change in ({"job": "0" * 64}, {"position": 0}, {"position": 2**32 - 1}):
        await site.answer(ask, (0, ANSWER), **change)
    await site.refuse(ask, "No.")


ANSWERS: Mapping[str, Misbehaviour] = {name: lie for name, (lie, _) in DISHONEST_ANSWERS.items()} | {
    "larger than any message": too_large,
    "to what nobody asked": not_asked_for,
}


@dataclass
class Liar:
    """Takes part in one job after the other, and lies at the second query of each."""

    measured: MeasuredCoordinator
    identity: Identity
    lie: Misbehaviour

    async def __call__(self) -> None:
        async with dishonest_provider(self.measured.address, self.identity) as site:
            await site.greet(OFFER)
            job = await self.measured.analyst.submit(CHEAP, "cohort", [*HONEST, DISHONEST])
            await site.answer(await site.query(), COUNT)
            await self.lie(site, await site.query())
            assert (await job.result()).statement.parties == len(HONEST)
            with suppress(grpc.aio.AioRpcError):
                await site.call.done_writing()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "lies",
    [
        pytest.param(["larger than any message"], id="the largest answer"),
        pytest.param(list(ANSWERS), id="every lie"),
    ],
)
def test_t34_t35_a_lying_provider_leaves_no_memory_used(enrolment: Enrolment, lies: list[str]) -> None:
    async def scenario() -> None:
        shards = {name: SHARDS[name] for name in HONEST}
        async with measured_coordinator(enrolment, shards) as measured:
            liar = enrolment.identity(Role.PROVIDER, DISHONEST)
            await require_constant_memory(measured, [Liar(measured, liar, ANSWERS[lie]) for lie in lies], 3, 5)

    asyncio.run(scenario())
