"""Memory, descriptors and log size of processes on Linux, and how they grow over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

MEBIBYTE = 2**20
STRETCHES, LEAST = 20, 8
"""Number of stretches of time, and least samples in each. The smallest number of descriptors in a stretch counts,
because files that are being read and open calls are only temporary."""


@dataclass(frozen=True)
class Sample:
    """One measurement of a process: seconds since the start, memory, descriptors, and bytes of its write-ahead log.

    Memory is private memory only: cached pages of files come and go with the load of the machine.
    """

    at: float
    rounds: int
    own: int
    descriptors: int
    threads: int
    write_ahead: int


def sample(at: float, rounds: int, process: int, database: Path) -> Sample:
    """Measure a process and the write-ahead log of its database."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    log = database.with_name(f"{database.name}-wal")
    return Sample(
        at,
        rounds,
        int(status["RssAnon"].split()[0]) * 1024,
        sum(1 for _ in Path(f"/proc/{process}/fd").iterdir()),
        int(status["Threads"]),
        log.stat().st_size if log.exists() else 0,
    )


def growth(samples: Sequence[Sample]) -> dict[str, float]:
    """Return the least-squares slopes of memory over time and over rounds, and the ranges of the other measures."""
    own = np.array([each.own for each in samples]) / MEBIBYTE
    hours = np.array([each.at for each in samples]) / 3600
    rounds = np.array([each.rounds for each in samples]) / 100_000
    kept = [min(each.descriptors for each in stretch) for stretch in _stretches(samples)]
    return {
        "mebibytes": round(float(own[-1]), 1),
        "mebibytes_an_hour": round(_slope(hours, own), 2),
        "mebibytes_a_100000_rounds": round(_slope(rounds, own), 2),
        "descriptors_least": min(kept),
        "descriptors_most": max(kept),
        "threads_most": max(each.threads for each in samples),
        "write_ahead_most": max(each.write_ahead for each in samples),
    }


def _stretches(samples: Sequence[Sample]) -> list[Sequence[Sample]]:
    ends = np.linspace(0, len(samples), min(STRETCHES, max(1, len(samples) // LEAST)) + 1).astype(int)
    return [samples[first:end] for first, end in pairwise(ends)]


def _slope(
    along: np.ndarray[tuple[int], np.dtype[np.float64]], values: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> float:
    return float(np.polyfit(along, values, 1)[0]) if np.ptp(along) else 0.0
