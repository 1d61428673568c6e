"""Refusals leave nothing in the coordinator's memory, however many and for whatever reason."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import grpc
import pytest
from lies import ANSWER, COUNT, HONEST, JOBS, LIAR, LIES, Lie
from patience import PATIENCE
from puppets import OFFER, Puppet, Siege, besieged, line, puppet, reissued
from town import SHARDS, Town, now, spec

from dpspca.client.federation import AsyncFederation, FederationError
from dpspca.common.names import Role
from dpspca.common.spec import Budget
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
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path)


async def require_constant_memory(siege: Siege, attempts: Iterable[Attempt], warm_up: int, times: int) -> None:
    """Repeat all attempts, and check that the coordinator does not grow after the first few."""
    every = list(attempts)
    for attempt in every * warm_up:
        await attempt()
    before = siege.memory()
    for attempt in every * times:
        await attempt()
    assert siege.memory() - before < MOST_GROWTH


def strangers(town: Town) -> dict[str, Identity | None]:
    """Return identities that are refused, or refused for what they call."""
    bea, eve = town.identity(Role.ANALYST, "bea"), town.identity(Role.ANALYST, "eve")
    town.authority.revoke(eve.name)
    return {
        "of another role": town.identity(Role.PROVIDER, "site-9"),
        "run out": reissued(town, bea, since=now() - timedelta(days=3)),
        "revoked": eve,
        "of two parties": reissued(town, bea, ["dpspca://town/provider/site-0"]),
        "of another authority": Town.found(town.folder / "elsewhere").identity(Role.ANALYST, "bea"),
        "without a certificate": None,
    }


async def try_to_list_jobs(address: str, identity: Identity | None, town: Town) -> None:
    """Open a new connection and list jobs."""
    if identity is None:
        credentials = grpc.ssl_channel_credentials(town.authority.certificate_pem)
        options = [("grpc.ssl_target_name_override", "coordinator.dpspca"), ("grpc.use_local_subchannel_pool", 1)]
        channel = grpc.aio.secure_channel(address, credentials, options)
    elif (
        identity.authority_pem != town.authority.certificate_pem
    ):  # trusts the right authority, and shows a certificate of another
        channel = line(address, replace(identity, authority_pem=town.authority.certificate_pem))
    else:
        channel = line(address, identity)
    async with channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/dpspca.v1.AnalystService/List")(b"", timeout=PATIENCE)
    assert caught.value.code() in {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
    }


@pytest.mark.slow
def test_t33_t35_refused_parties_leave_no_memory_used(town: Town) -> None:
    async def scenario() -> None:
        everybody = strangers(town).values()
        async with besieged(town, {}) as siege:
            await require_constant_memory(
                siege, [partial(try_to_list_jobs, siege.address, each, town) for each in everybody], 20, 60
            )

    asyncio.run(scenario())


@pytest.mark.slow
def test_t07_t10_t35_refused_jobs_leave_no_memory_used(town: Town) -> None:
    async def scenario() -> None:
        bea = town.identity(Role.ANALYST, "bea")
        jobs = [(case(town, bea), reason) for case, reason in JOBS.values()]
        async with besieged(town, {}) as siege, AsyncFederation(siege.address, bea) as analyst:

            async def submit(signed: SignedJob, reason: str) -> None:
                with pytest.raises(FederationError, match=reason):
                    await analyst.submit_signed(signed, spec())

            await require_constant_memory(siege, [partial(submit, *job) for job in jobs], 10, 40)

    asyncio.run(scenario())


async def too_large(site: Puppet, ask: pb.Ask) -> None:
    await site.answer(ask, (0, bytes(MAX_MESSAGE + 1)))


async def not_asked_for(site: Puppet, ask: pb.Ask) -> None:
    for change in ({"job": "0" * 64}, {"position": 0}, {"position": 2**32 - 1}):
        await site.answer(ask, (0, ANSWER), **change)
    await site.refuse(ask, "No.")


ANSWERS: Mapping[str, Lie] = {name: lie for name, (lie, _) in LIES.items()} | {
    "larger than any message": too_large,
    "to what nobody asked": not_asked_for,
}


@dataclass
class Liar:
    """Takes part in one job after the other, and lies at the second query of each."""

    siege: Siege
    identity: Identity
    lie: Lie

    async def __call__(self) -> None:
        async with puppet(self.siege.address, self.identity) as site:
            await site.greet(OFFER)
            job = await self.siege.analyst.submit(CHEAP, "cohort", [*HONEST, LIAR])
            await site.answer(await site.query(), COUNT)
            await self.lie(site, await site.query())
            assert (await job.result()).statement.parties == len(HONEST)
            with suppress(grpc.aio.AioRpcError):
                await site.call.done_writing()


@pytest.mark.slow
def test_t34_t35_a_lying_provider_leaves_no_memory_used(town: Town) -> None:
    async def scenario() -> None:
        shards = {name: SHARDS[name] for name in HONEST}
        async with besieged(town, shards) as siege:
            liar = town.identity(Role.PROVIDER, LIAR)
            await require_constant_memory(siege, [Liar(siege, liar, lie) for lie in ANSWERS.values()], 3, 5)

    asyncio.run(scenario())
