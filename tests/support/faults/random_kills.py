"""Daemons that are killed and stopped at random moments while analysts run jobs."""

import asyncio
import re
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
from coordinator_processes import free_port
from daemons import Daemons, Process, daemons
from fault_invariants import JobOutcome, ProcessDeath, RunRecord
from local_federation import permissive_policy

from dpspca.client.connection import FederationError
from dpspca.client.connection.jobs import JobStatus
from dpspca.client.federation import AsyncFederation, AsyncJob
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.provider.ledger.files import read_head

COLUMNS = 20
SITES = ("north", "south", "west")
UNITS = {"cohort": PrivacyUnit.ROW_ADD_REMOVE, "scarce": PrivacyUnit.ROW_REPLACE_ONE}
SCARCE = Budget(1.0, 1e-5)
"""A lifetime budget that is enough for a few jobs only."""
HASTE = 0.15
"""Probability that a daemon is killed or stopped before it has finished starting."""
AT_ONCE = 4
"""Number of jobs at a time."""
LONGEST_PAUSE = 10.0
"""Longest time between two kills or stops, in seconds."""
SHORTEST_DEADLINE = 4
"""Answer timeout of some jobs, in seconds. Some daemons are away for longer."""
TIMEOUT = 300.0
"""Timeout of everything that an analyst does, in seconds. All daemons are back before it ends."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class Strike:
    """What happens to a daemon, and when: it is killed, or stopped and continued, or killed while stopped."""

    answers: int
    """It happens after this many more answers of providers, or after ``LONGEST_PEACE`` without any."""
    pause: float
    victim: int
    kills: bool
    stops: bool
    absence: float
    hasty: bool


def random_strikes(seed: int, count: int) -> list[Strike]:
    """Draw what will happen; equal seeds give equal blows."""
    draw = Random(f"blows {seed}")
    return [_blow(draw) for _ in range(count)]


def _blow(draw: Random) -> Strike:
    kills, stops = draw.choice([(True, False), (True, False), (False, True), (False, True), (True, True)])
    absence = draw.uniform(0, 2) if draw.random() < 0.75 else draw.uniform(SHORTEST_DEADLINE, 2 * SHORTEST_DEADLINE)
    answers = draw.randint(1, 100) if draw.random() < 0.5 else 0
    victim = draw.randrange(1 + len(SITES))
    return Strike(answers, draw.uniform(0, 0.5), victim, kills, stops, absence, draw.random() < HASTE)


class RandomKiller:
    """Kills and stops daemons, and brings each back."""

    def __init__(self, struck: Daemons) -> None:
        self._daemons = struck
        self._away: set[Process] = set()
        self._back = asyncio.Event()
        self.counts: Counter[str] = Counter()
        self.deaths: list[ProcessDeath] = []

    async def strike_at_random(self, planned: Sequence[Strike]) -> None:
        """Carry out all blows, and bring all daemons back."""
        async with asyncio.TaskGroup() as striking:
            for strike in planned:
                await self._pause(strike.answers)
                await asyncio.sleep(strike.pause)
                victim = await self._victim(strike.victim)
                self._away.add(victim)
                striking.create_task(self._strike(victim, strike))

    async def _pause(self, answers: int) -> None:
        """Wait for this many answers, so that blows hit running jobs on fast and slow machines."""
        logs = [each.log for each in self._daemons.providers.values()]
        begun = [log.stat().st_size for log in logs]
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_PAUSE):
                while sum(map(_answers_since, logs, begun)) < answers:  # noqa: ASYNC110  # other processes give them
                    await asyncio.sleep(0.05)

    async def _victim(self, first: int) -> Process:
        """Return the chosen daemon, or the next one that is running."""
        everybody = self._daemons.everybody
        while not (there := [each for each in everybody[first:] + everybody[:first] if each not in self._away]):
            self._back.clear()
            await self._back.wait()
        return there[0]

    async def _strike(self, victim: Process, strike: Strike) -> None:
        assert victim.alive, f"{victim.name} ended by itself: {victim.said}"
        self.counts.update([f"{victim.name} {'killed' if strike.kills else 'stopped'}"])
        if strike.stops:
            victim.send(signal.SIGSTOP)
            await asyncio.sleep(strike.absence)
        if not strike.kills:
            victim.send(signal.SIGCONT)
        else:
            await self._kill(victim, 0 if strike.stops else strike.absence)
            await victim.start()
            if not strike.hasty:
                await victim.until_ready()
        self._away.discard(victim)
        self._back.set()

    async def _kill(self, victim: Process, absence: float) -> None:
        await victim.kill()
        if victim.name in SITES:
            self.deaths.append(ProcessDeath(victim.name, read_head(self._daemons.head(victim.name))))
        await asyncio.sleep(absence)


def _answers_since(log: Path, offset: int) -> int:
    with log.open("rb") as file:
        file.seek(offset)
        return file.read().count(b"Answered query")


# --- Jobs -------------------------------------------------------------------------------------------------------------


def job(draw: Random) -> tuple[JobSpec, str, list[str]]:
    """Draw a job, its data set and its audience."""
    data_set = draw.choice(["cohort", "cohort", "cohort", "scarce"])
    audience = sorted(draw.sample(SITES, draw.choice([2, 3, 3, 3])))
    private = draw.random() < 0.3
    components = draw.randint(1, 3)
    spec = JobSpec(
        schema=Schema(COLUMNS),
        unit=UNITS[data_set],
        budget=Budget(draw.choice([0.3, 0.5]), 1e-6),
        norm_bound=12.0,
        components=components,
        centering=Centering.PRIVATE if private else Centering.NONE,
        mean_bound=12.0 if private else None,
        explained_variance=draw.random() < 0.7,
        minimum_providers=draw.randint(1, len(audience)),
        answer_seconds=draw.choice([SHORTEST_DEADLINE, 15, 120]),
        seed=draw.getrandbits(32),
        options={"sparsity": draw.randint(components, COLUMNS), "rounds": draw.randint(5, 150)},
        method="dps-pca",
    )
    return spec, data_set, audience


class Analyst:
    """Runs one job after the other, whatever happens to the coordinator."""

    def __init__(self, running: Daemons, federation: AsyncFederation, seed: str) -> None:
        self._daemons = running
        self._federation = federation
        self._draw = Random(seed)
        self.outcomes: list[JobOutcome] = []

    async def work(self, over: asyncio.Event) -> None:
        """Start new jobs until ``over`` is set, and wait for the last one."""
        while not over.is_set():
            spec, data_set, audience = job(self._draw)
            signed = self._daemons.enrolment.job(spec, self._daemons.ada, audience, data_set, life=timedelta(hours=6))
            submitted = await retry_calls(partial(self._federation.submit_signed, signed, spec))
            if self._draw.random() < 0.1:
                await asyncio.sleep(self._draw.uniform(0, 2))
                await retry_calls(submitted.cancel)
            self.outcomes.append(await _end(submitted, signed.job_id))


async def _end(submitted: AsyncJob, name: str) -> JobOutcome:
    status = await retry_calls(lambda: _last(submitted))
    model = await retry_calls(submitted.result) if status.state == "done" else None
    return JobOutcome(name, submitted.spec, status, model)


async def _last(submitted: AsyncJob) -> JobStatus:
    return [state async for state in submitted.watch()][-1]


async def retry_calls(work: Callable[[], Awaitable[Found]]) -> Found:
    """Retry while the coordinator cannot be reached or is stopped."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await work()
            except FederationError as problem:
                if "UNAVAILABLE" not in str(problem) and "did not answer" not in str(problem):
                    raise
            await asyncio.sleep(0.2)


# --- All of it --------------------------------------------------------------------------------------------------------


async def run_with_kills(folder: Path, seed: int, strikes: int) -> RunRecord:
    """Strike real daemons ``strikes`` times while jobs run, then end everything and return the record."""
    async with daemons(folder, f"127.0.0.1:{free_port()}", _policy(), _rows(), keeping=True) as running:
        killer = RandomKiller(running)
        async with AsyncFederation(running.address, running.ada) as federation:
            outcomes = await _outcomes(killer, running, federation, seed, strikes)
            remembered = await retry_calls(federation.jobs)
        codes = {each.name: await each.end() for each in running.everybody}
    return RunRecord(running, tuple(UNITS), outcomes, remembered, killer.deaths, codes, killer.counts)


async def _outcomes(
    killer: RandomKiller, running: Daemons, federation: AsyncFederation, seed: int, strikes: int
) -> list[JobOutcome]:
    over = asyncio.Event()
    analysts = [Analyst(running, federation, f"jobs {seed} {number}") for number in range(AT_ONCE)]
    async with asyncio.TaskGroup() as working:
        for analyst in analysts:
            working.create_task(analyst.work(over))
        await killer.strike_at_random(random_strikes(seed, strikes))
        over.set()
    return [each for analyst in analysts for each in analyst.outcomes]


def _policy() -> str:
    scarce = f"{{ epsilon = {SCARCE.epsilon!r}, delta = {SCARCE.delta!r} }}"
    lax = permissive_policy(UNITS["scarce"], "scarce")
    return permissive_policy(UNITS["cohort"], "cohort") + re.sub(r"(lifetime|per_job) = .*", rf"\1 = {scarce}", lax)


def _rows() -> dict[str, dict[str, Any]]:
    draw = np.random.default_rng(0)
    scale = np.r_[5, 4, np.ones(COLUMNS - 2)]
    return {site: {name: draw.standard_normal((300, COLUMNS)) * scale for name in UNITS} for site in SITES}
