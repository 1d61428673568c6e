"""Federations and their jobs for ``federation.py``: over gRPC, as the floor, and in one process."""

import asyncio
import math
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import federation_floor as floor  # before gRPC, which has to be loaded after dpspca
import grpc.aio
from federation_cases import NORM_BOUND, Case
from federation_parties import ANALYST, DATA_SET, RunningParty, coordinator, create_federation, providers

from dpspca.client.federation import AsyncFederation
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.job import JobSpec
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import Announcement, RowQuery
from dpspca.common.results import Model
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import SignedJob, sign
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder
from dpspca.server.jobs.sums import combine

Placement: TypeAlias = Callable[..., Any]
"""``in_this_process`` or ``in_new_process``."""
Work: TypeAlias = Callable[[], Awaitable[list[float]]]
"""Runs one job and returns times: its start, sometimes each round's end, its end."""


@dataclass(frozen=True, slots=True)
class Running:
    """A running federation."""

    case: Case
    folder: Path
    hub: RunningParty
    hub_alone: float
    """The coordinator's memory before anybody connected, in megabytes."""
    parties: Sequence[RunningParty]
    analyst: AsyncFederation

    async def run_job(self) -> list[float]:
        """Run a job, and return the times of its start and end."""
        start = time.perf_counter()
        await self.analyst.fit(self.case.spec, DATA_SET, self.case.names)
        return [start, time.perf_counter()]

    async def run_and_watch(self) -> list[float]:
        """Run a job, and return the times of its start, of each round's end, and of its end."""
        moments = [time.perf_counter()]
        job = await self.analyst.submit(self.case.spec, DATA_SET, self.case.names)
        answered = 0
        async for state in job.watch():
            if state.answered > answered:
                answered = state.answered
                moments.append(time.perf_counter())
        await job.result()
        return [*moments, time.perf_counter()]

    def signed(self) -> SignedJob:
        return sign(self.case.envelope(), Identity.load(self.folder / ANALYST))


@asynccontextmanager
async def federation(case: Case, place: Placement, *, together: bool = False) -> AsyncIterator[Running]:
    """Run a coordinator, its providers (``together``: in one process) and an analyst."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        create_federation(folder, case.names)
        case.write(folder)
        hub = await stack.enter_async_context(place(coordinator, folder, case.durable))
        alone = hub.resident()
        groups = [case.names] if together else [[name] for name in case.names]
        parties = [
            await stack.enter_async_context(place(providers, folder, hub.address, case.durable, *names))
            for names in groups
        ]
        analyst = await stack.enter_async_context(AsyncFederation(hub.address, Identity.load(folder / ANALYST)))
        yield Running(case, folder, hub, alone, [hub, *parties], analyst)


@dataclass(frozen=True, slots=True)
class Floor:
    """The running floor of a federation's job."""

    rounds: int
    parties: Sequence[RunningParty]
    channel: grpc.aio.Channel

    async def run_with_commits(self) -> list[float]:
        """Run a job with every message committed."""
        return await floor.run(self.channel, self.rounds, floor.COMMITS)

    async def run_without_commits(self) -> list[float]:
        """Run a job with nothing committed."""
        return await floor.run(self.channel, self.rounds, 0)

    async def run_with_commits_and_duties(self) -> list[float]:
        """Run a job with every message committed and all duties done."""
        return await floor.run(self.channel, self.rounds, floor.COMMITS | floor.DUTIES)

    async def run_with_duties(self) -> list[float]:
        """Run a job with all duties done and nothing committed."""
        return await floor.run(self.channel, self.rounds, floor.DUTIES)


@asynccontextmanager
async def run_floor(running: Running, place: Placement) -> AsyncIterator[Floor]:
    """Run the floor of a federation's job."""
    case, folder, sizes = running.case, running.folder, _sizes(running)
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(place(floor.hub, folder, sizes, case))
        parties = [
            await stack.enter_async_context(place(floor.peers, folder, hub.address, sizes, case, name))
            for name in case.names
        ]
        channel = await stack.enter_async_context(floor.dial(folder, ANALYST, hub.address))
        yield Floor(case.rounds, [hub, *parties], channel)


def _sizes(running: Running) -> floor.Sizes:
    """Return the sizes of a job's messages, from its plan. The result is as large as an answer."""
    steps = catalogue.plan(running.case.spec)
    queries = tuple(step.query.content_size(Announcement(step.query.kind, step.extent)) for step in steps)
    answer = 8 * math.prod(steps[0].shape)
    return floor.Sizes(len(running.signed().to_bytes()), queries, answer, result=answer)


def in_process(case: Case) -> dict[str, Work]:
    """Return the same job in this process: with preparation, and with Gram matrices made before."""
    shards = case.shards()
    made = [Shard(check_rows(rows), NORM_BOUND, strategy=Strategy.GRAM) for rows in shards]
    return {
        "in_process": lambda: _timed(lambda: simulate(shards, case.spec, strategy=Strategy.GRAM)),
        "in_process_prepared": lambda: _timed(lambda: _prepared_job(made, case.spec)),
    }


async def _timed(work: Callable[[], object]) -> list[float]:
    start = time.perf_counter()
    await asyncio.to_thread(work)
    return [start, time.perf_counter()]


def _prepared_job(shards: Sequence[Shard], spec: JobSpec) -> Model:
    steps = enumerate(catalogue.plan(spec))
    responders = [Responder(catalogue.plan(spec), shard, MemoryLedger(), system_entropy) for shard in shards]

    def ask(query: RowQuery) -> Aggregate:
        position, step = next(steps)
        return combine(spec, step, [responder.respond(position, query) for responder in responders])

    return drive(catalogue.run(catalogue.plan(spec)), ask)


async def run_in_turns(works: Mapping[str, Work], repeats: int) -> dict[str, list[list[float]]]:
    """Run the works in turns, so that a busy machine slows all of them. The first turn is a warm-up."""
    turns = [{name: await work() for name, work in works.items()} for _ in range(repeats + 1)]
    return {name: [turn[name] for turn in turns[1:]] for name in works}


def median_job(jobs: Sequence[Sequence[float]]) -> float:
    """Return the duration of the median job in milliseconds."""
    return 1e3 * statistics.median(moments[-1] - moments[0] for moments in jobs)


def later_round(jobs: Sequence[Sequence[float]], rounds: int) -> float:
    """Return the mean duration of the rounds after the first, in the median job, in milliseconds.

    The mean is over all of them, because a watcher may receive several rounds at once.
    """
    return 1e3 * statistics.median(moments[-2] - moments[1] for moments in jobs) / (rounds - 1)
