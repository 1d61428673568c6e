"""Time and memory of jobs over sparse ratings, up to a tenth of Netflix's: both grow with the stored entries.

    python bench/sparse.py [--quick] [--json]

There, 480,000 people gave 10^8 ratings to 17,000 films. Here it is a hundredth, a thirtieth and a tenth of the people.
Ratings are from 1 to 5, films with lower numbers are more popular, and rows are clipped to a length of 40. One provider
holds them all, in one process. Each job runs in its own process, to measure its peak of memory. The peak of a process
that only makes the rows is shown for comparison.

noisy-power (Hardt & Price) asks for products, 10 columns in 4 rounds; range-projection (Hardt & Roth 2012) sketches
once and projects once, 10 components and 16 columns more. "ns" is nanoseconds for each stored entry and column
multiplied, over the job's products with the rows: near-constant where the work goes with the entries.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy.sparse

from dpspca.client.simulation import simulate
from dpspca.common.job import Budget, JobSpec, Scalar, Schema
from dpspca.common.privacy.units import PrivacyUnit

PEOPLE: Final = 480_000
FILMS: Final = 17_000
RATINGS_EACH: Final = 208
NORM_BOUND: Final = 40.0
KIBIBYTE: Final = 1024
GIBIBYTE: Final = 2.0**30


@dataclass(frozen=True, slots=True)
class Case:
    """A job, and how many columns are multiplied with the rows and their transpose in all."""

    method: str
    options: dict[str, Scalar]
    columns: int


CASES: Final = {
    "noisy-power": Case("noisy-power", {"columns": 10, "rounds": 4}, 2 * 4 * 10),
    "range-projection": Case("range-projection", {"oversampling": 16}, 26 + 26),
}
FULL: Final = (100, 30, 10)
QUICK: Final = (3000, 1000)
ROWS_ALONE: Final = "rows alone"


def ratings(part: int) -> scipy.sparse.csr_array:
    """Return the ratings of one in so many people."""
    rng = np.random.default_rng(part)
    fuzz_parties = PEOPLE // part
    films = (FILMS * rng.random((fuzz_parties, RATINGS_EACH)) ** 2).astype(np.int32)
    films.sort(axis=1)
    stars = rng.integers(1, 6, films.shape).astype(np.float64)
    starts = np.arange(0, films.size + 1, RATINGS_EACH)
    made = scipy.sparse.csr_array((stars.ravel(), films.ravel(), starts), shape=(fuzz_parties, FILMS))
    made.sum_duplicates()
    return made


def measure(part: int, name: str) -> dict[str, Any]:
    """Run one job in this process, and return its time and memory."""
    rows = ratings(part)
    begun = time.perf_counter()
    if name in CASES:
        simulate([rows], _spec(CASES[name]))
    seconds = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIBIBYTE / GIBIBYTE
    return {"people": rows.shape[0], "stored": int(rows.nnz), "job": name, "seconds": seconds, "peak_gib": peak}


def _spec(case: Case) -> JobSpec:
    return JobSpec(
        schema=Schema(FILMS),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(4.0, 1e-6),
        norm_bound=NORM_BOUND,
        components=10,
        method=case.method,
        explained_variance=False,
        options=case.options,
    )


def elsewhere(part: int, name: str) -> dict[str, Any]:
    """Measure in a new process."""
    command = [sys.executable, __file__, "--one", name, "--part", str(part)]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603  # ourselves
    return told | {"ns": _nanoseconds(told)}


def _nanoseconds(told: dict[str, Any]) -> float | None:
    case = CASES.get(told["job"])
    return 1e9 * told["seconds"] / (told["stored"] * case.columns) if case else None


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a table in Markdown."""
    lines = ["| people | stored entries | job | seconds | peak of memory | ns |", "|---|---|---|---|---|---|"]
    for each in results:
        timed = (f"{each['seconds']:.1f}", f"{each['ns']:.1f}") if each["ns"] else ("", "")
        lines.append(
            f"| {each['people']:,} | {each['stored']:,} | {each['job']} | {timed[0]} | {each['peak_gib']:.2f} GiB | "
            f"{timed[1]} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure every job at every size, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.one:
        sys.stdout.write(json.dumps(measure(told.part, told.one)) + "\n")
        return
    jobs = (ROWS_ALONE, *CASES)
    results = [elsewhere(part, name) for part in (QUICK if told.quick else FULL) for name in jobs]
    sys.stdout.write((json.dumps(results, indent=2) if told.json else table(results)) + "\n")


if __name__ == "__main__":
    main()
