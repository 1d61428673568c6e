"""What ways to centre rows are worth: captured variance where columns are far from zero, and nobody knows how far.

    python bench/centering.py [--tables wine,digits,...] [--offsets .5,3,30] [--epsilon .5,1,4] [--components 2]
                              [--providers 1] [--seeds 8] [--quick] [--json]

Rows are those of tables that packages ship, each column scaled to its range [-1, 1] and then moved by the offset, up or
down at random. No norm bound is given. The figures are the mean share that components have of the variance about the
true mean of what as many components can have:

- "none": rows as they are;
- "pairs": differences of pairs of rows;
- "known": a private mean, where somebody knows the longest row;
- "private": a private mean without a bound;
- "true mean": the true mean is subtracted, which no one is told. No way to centre can do better;
- "auto": what ``AutoCentering`` chooses, which is told the numbers of rows and providers;
- "auto or pairs": the same if it may choose pairs for several providers too, which is tried for several only.

"noise" is how long the noise of a private mean is, in lengths of a row: what ``auto`` decides by.
"""

import argparse
import json
import math
import statistics
import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from designs.samples import tables

from dpspca import AutoCentering, simulate
from dpspca.client.private_bounds import centred
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaWarning
from dpspca.common.job import MEAN_SHARE, PRIVATE_BOUND, Budget, JobSpec, Schema
from dpspca.common.privacy import PrivacyUnit, usable_mu

DELTA: Final = 1e-6
WAYS: Final = ("none", "pairs", "known", "private", "true mean", "auto")
OR_PAIRS: Final = "auto or pairs"


def main() -> None:
    options = parsed()
    rows = list(measured(options))
    print(json.dumps(rows, indent=2) if options.json else text(rows, ways(options)))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Captured variance by how rows are centred.")
    parser.add_argument("--tables", default="", help="names, with commas between them; all by default")
    parser.add_argument("--offsets", default=".5,3,30")
    parser.add_argument("--epsilon", default=".5,1,4")
    parser.add_argument("--components", type=int, default=2)
    parser.add_argument("--providers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="one small table, one offset, one budget and two seeds")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    if options.quick:
        options.tables, options.offsets, options.epsilon, options.seeds = "digits", "3", "4", 2
    return options


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    known = tables()
    for name in options.tables.split(",") if options.tables else known:
        for offset in map(float, options.offsets.split(",")):
            signs = np.random.default_rng(1).choice([-1.0, 1.0], known[name].shape[1])
            for epsilon in map(float, options.epsilon.split(",")):
                yield {"table": name, "offset": offset} | compared(known[name] + offset * signs, epsilon, options)


def compared(rows: FloatArray, epsilon: float, options: argparse.Namespace) -> dict[str, Any]:
    """Run every way with all seeds."""
    count, columns = rows.shape
    share = math.sqrt(MEAN_SHARE) * usable_mu(epsilon, DELTA)
    specs = {way: job(rows, epsilon, way, options) for way in ways(options)}
    shares = {
        way: statistics.mean(captured(rows, spec, seed, options.providers) for seed in range(options.seeds))
        for way, spec in specs.items()
    }
    return {
        "rows": count,
        "columns": columns,
        "epsilon": epsilon,
        "noise": 2 * math.sqrt(columns * options.providers) / (share * count),
        "chosen": str(specs["auto"].centering),
        "captured": shares,
    }


def ways(options: argparse.Namespace) -> tuple[str, ...]:
    return WAYS if options.providers == 1 else (*WAYS, OR_PAIRS)


def job(rows: FloatArray, epsilon: float, way: str, options: argparse.Namespace) -> JobSpec:
    plain = JobSpec(
        schema=Schema(rows.shape[1]),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, DELTA),
        norm_bound=PRIVATE_BOUND,
        components=options.components,
    )
    if way in ("auto", OR_PAIRS):
        return centred(plain, AutoCentering(rows=len(rows), or_pairs=way == OR_PAIRS), options.providers)
    longest = float(np.linalg.norm(rows, axis=1).max())
    given: dict[str, Any] = {
        "none": {},
        "pairs": {"centering": "pairs"},
        "known": {"centering": "private", "mean_bound": longest},
        "private": {"centering": "private", "mean_bound": PRIVATE_BOUND},
        "true mean": {"centering": "public", "public_mean": tuple(rows.mean(axis=0))},
    }[way]
    return JobSpec(**{name: getattr(plain, name) for name in plain.__slots__} | given)


def captured(rows: FloatArray, spec: JobSpec, seed: int, providers: int) -> float:
    """Run one job. Return which part of the variance that can be captured its components have."""
    order = np.random.default_rng(seed).permutation(len(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DpspcaWarning)  # bad ways are part of what is measured
        found = simulate(np.array_split(rows[order], providers), spec, noise_seed=1000 + seed).components
    moments = np.cov(rows.T, bias=True)
    most = np.linalg.eigvalsh(moments)[-spec.components :].sum()
    return float(np.trace(found @ moments @ found.T) / most)


def text(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    lines = [
        f"| table | offset | epsilon | noise | {' | '.join(columns)} | chosen |",
        "|---|--:|--:|--:|" + "--:|" * len(columns) + "---|",
    ]
    for row in rows:
        figures = " | ".join(f"{row['captured'][way]:.3f}" for way in columns)
        what = f"{row['table']}, {row['rows']:,} x {row['columns']}"
        lines.append(
            f"| {what} | {row['offset']:g} | {row['epsilon']:g} | {row['noise']:.3f} | {figures} | {row['chosen']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
