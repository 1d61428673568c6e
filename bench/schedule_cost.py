"""What the schedule of answers costs a job: the same job with answers sent at once, and on the default schedule.

    python bench/schedule_cost.py [--quick] [--json]

Real daemons run on loopback, over mutual TLS, with ledgers on disk (``client/demo/loopback.py``). The jobs run in
turns, so that other work on the machine slows both alike. The output is medians and their ratio, for a whole job:
signed, submitted, admitted, answered by every provider, and its model fetched.
"""

import argparse
import asyncio
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from dpspca.client.demo import loopback
from dpspca.client.federation import AsyncFederation
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaWarning
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.trust.identity import Identity
from dpspca.provider.policy.caps import Cap
from dpspca.provider.policy.suggestion import suggest

SHAPES: Final = ((30, 3, 10), (200, 5, 10), (2000, 5, 5))
"""Columns, components and rounds."""
ROWS: Final = 500
LIFETIME: Final = Cap(48.0, 0.5)


def job(dimension: int, components: int, rounds: int) -> JobSpec:
    """Return a small job with so many rounds."""
    return JobSpec(
        schema=Schema(dimension),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(0.1, 1e-9),
        norm_bound=10.0,
        components=components,
        options={"sparsity": dimension, "rounds": rounds},
        method="dps-pca",
    )


async def _compared(running: loopback.Loopback, spec: JobSpec, repeats: int) -> dict[str, list[float]]:
    """Run the job in turns under two policies. A provider rereads its policy when the file changes."""
    policy = running.analyst.parent / loopback.POLICY
    text = suggest(catalogue.plan(spec), loopback.DATA_SET, [loopback.ANALYST], LIFETIME)
    ways = {"at once": text + "answer_interval = 0\n", "by default": text}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    async with AsyncFederation(running.address, Identity.load(running.analyst)) as federation:
        for turn in range(repeats + 1):
            for name, said in ways.items():
                _replace(policy, said)
                begun = time.perf_counter()
                await federation.fit(spec, loopback.DATA_SET, [party.name for party in running.parties[1:]])
                if turn:  # the first also waits for the parties to connect
                    seconds[name].append(time.perf_counter() - begun)
    return seconds


def _replace(path: Path, text: str) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def measured(shape: tuple[int, int, int], repeats: int) -> dict[str, Any]:
    """Compare the two for one shape."""
    spec = job(*shape)
    rng = np.random.default_rng(0)
    shards = {name: rng.standard_normal((ROWS, shape[0])) for name in ("north", "south")}
    with loopback.federation(shards, spec) as running:
        seconds = asyncio.run(_compared(running, spec, repeats))
    medians = {name: median(each) for name, each in seconds.items()}
    return {"shape": shape, "seconds": medians, "ratio": medians["by default"] / medians["at once"]}


def main(given: Sequence[str] | None = None) -> None:
    """Measure every shape and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one shape, a few times")
    parser.add_argument("--json", action="store_true", help="facts instead of a table")
    chosen = parser.parse_args(given)
    warnings.simplefilter("ignore", DpspcaWarning)  # the rows are noise, because only the transport is measured
    shapes, repeats = (SHAPES[:1], 2) if chosen.quick else (SHAPES, 15)
    found = [measured(shape, repeats) for shape in shapes]
    if chosen.json:
        print(json.dumps(found, indent=2))
        return
    for each in found:
        dimension, components, rounds = each["shape"]
        once, default = each["seconds"].values()
        print(
            f"d = {dimension:>5}, k = {components}, {rounds} rounds: {once:.3f} s at once, {default:.3f} s by default, "
            f"{each['ratio']:.2f} times as long"
        )


if __name__ == "__main__":
    main()
