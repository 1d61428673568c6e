"""Run a real federation for a hundred thousand rounds, and measure its resources: ``make soak``.

After the warm-up, memory must not grow by a megabyte an hour, the number of descriptors must not grow, and write-ahead
logs must not exceed the size at which SQLite restarts them. If one of these fails, the exit code is 1. A run lasts at
least an hour: memory settles for about twenty minutes, and then varies by a tenth of a megabyte, which would look like
a megabyte an hour in a run of fifteen minutes.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from coordinator_processes import free_port
from daemons import AS_DEPLOYED, Daemons, daemons
from local_federation import permissive_policy
from measures import MEBIBYTE, Sample, growth, sample

from dpspca.client.connection.errors import FederationError
from dpspca.client.federation import AsyncFederation
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.provider.ledger.sqlite import verify

SITES = ("north", "south")
COLUMNS = 4
ROUNDS_A_JOB = 100
"""With this number the warm-up has 250 jobs, as many as a coordinator keeps for an analyst. Each later job replaces an
older one."""
BUDGET = Budget(0.2, 1e-6)
AT_ONCE = 2
"""Jobs at a time."""
VISITED = 5
"""In one of this many jobs, an analyst makes calls over a separate connection."""
WARM_UP = 0.25
"""Share of all rounds."""
BETWEEN = 0.2
"""Seconds from sample to sample."""
LARGEST_LOG = 1100 * 2**15
"""Largest size of a write-ahead log in bytes. SQLite restarts it after a thousand pages, of 32 KiB in the journal."""
SPEC = JobSpec(
    schema=Schema(COLUMNS),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=BUDGET,
    norm_bound=4.0,
    components=1,
    explained_variance=False,
    minimum_providers=len(SITES),
    options={"sparsity": 2, "rounds": ROUNDS_A_JOB},
    method="dps-pca",
)


class Soak:
    """Runs jobs continuously, and measures each daemon."""

    def __init__(self, settled: Daemons, federation: AsyncFederation, rounds: int, seconds: float) -> None:
        self._daemons = settled
        self._federation = federation
        self._jobs = -(-rounds // ROUNDS_A_JOB)
        self._until = time.monotonic() + seconds
        self._answered: dict[int, int] = {}
        self.samples: dict[str, list[Sample]] = {each.name: [] for each in settled.everybody}

    @property
    def rounds(self) -> int:
        """Return the number of finished rounds."""
        return sum(self._answered.values())

    async def run(self) -> None:
        """Run all jobs, and measure meanwhile."""
        measuring = asyncio.create_task(self._measure())
        async with asyncio.TaskGroup() as working:
            for _ in range(AT_ONCE):
                working.create_task(self._work())
        measuring.cancel()
        await asyncio.gather(measuring, return_exceptions=True)

    async def _work(self) -> None:
        while (number := len(self._answered)) < self._jobs or time.monotonic() < self._until:
            self._answered[number] = 0
            job = await self._federation.submit(SPEC, "cohort", SITES)
            if number % VISITED == 0:
                await self._visit(job.name)
            async for state in job.watch():
                self._answered[number] = state.answered
                last = state
            assert (last.state, last.answered) == ("done", ROUNDS_A_JOB), last

    async def _visit(self, running: str) -> None:
        """Make every call of an analyst over a separate connection, including refused and cancelled calls."""
        async with AsyncFederation(self._daemons.address, self._daemons.ada) as visitor:
            await visitor.data_sets()
            listed = await visitor.jobs()
            for each in [each for each in listed if each.state == "done"][-1:]:
                await (await visitor.job(each.job)).result()
            with suppress(FederationError):
                await visitor.job("0" * 64)
            async with aclosing((await visitor.job(running)).watch()) as states:
                await anext(states)

    async def _measure(self) -> None:
        begun = time.monotonic()
        while True:
            for name, process, database in self._measured():
                self.samples[name].append(sample(time.monotonic() - begun, self.rounds, process, database))
            await asyncio.sleep(BETWEEN)

    def _measured(self) -> Iterator[tuple[str, int, Path]]:
        settled = self._daemons
        yield settled.hub.name, settled.hub.number, settled.journal
        for name, process in settled.providers.items():
            yield name, process.number, settled.ledger(name)


async def soak(folder: Path, rounds: int, seconds: float = 0.0) -> dict[str, Any]:
    """Run for this many rounds and at least this long, and return a report."""
    draw = np.random.default_rng(0)
    rows = {name: {"cohort": draw.standard_normal((100, COLUMNS))} for name in SITES}
    begun = time.monotonic()
    address, policy = f"127.0.0.1:{free_port()}", permissive_policy("row-replace-one")
    async with daemons(folder, address, policy, rows, within=lambda _: AS_DEPLOYED) as settled:
        async with AsyncFederation(settled.address, settled.ada) as federation:
            soaking = Soak(settled, federation, rounds, seconds)
            await soaking.run()
        codes = {each.name: await each.end() for each in settled.everybody}
        wrong = [f"{name} ended with {code}" for name, code in codes.items() if code]
        wrong += [f"{name}: {found}" for name in SITES for found in verify(settled.ledger(name), settled.head(name))]
    grown = {name: growth(_warm(samples, soaking.rounds)) for name, samples in soaking.samples.items()}
    wrong += [f"{name}: {found}" for name, growth_rates in grown.items() for found in _excess(growth_rates)]
    return {
        "rounds": soaking.rounds,
        "seconds": round(time.monotonic() - begun),
        "after_warm_up": grown,
        "problems": wrong,
    }


def _warm(samples: list[Sample], rounds: int) -> list[Sample]:
    return [each for each in samples if each.rounds >= WARM_UP * rounds]


def _excess(grown: dict[str, float]) -> Iterator[str]:
    if grown["mebibytes_an_hour"] * MEBIBYTE > 10**6:
        yield f"memory grows by {grown['mebibytes_an_hour']} MiB an hour"
    if grown["descriptors_least"] != grown["descriptors_most"]:
        yield f"between {grown['descriptors_least']} and {grown['descriptors_most']} descriptors are open"
    if grown["write_ahead_most"] > LARGEST_LOG:
        yield f"the write-ahead log takes {grown['write_ahead_most']} bytes"


def main() -> int:
    """Run, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100_000, help="queries that everybody answers, at least")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it lasts at least")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        report = asyncio.run(soak(Path(folder), arguments.rounds, 60 * arguments.minutes))
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
