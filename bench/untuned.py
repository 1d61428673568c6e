"""The default beside every other method, at the same budget, on populations that no rule was fitted on.

    python bench/untuned.py [--designs "tails;d = 3;..."] [--methods "auto;..."] [--epsilon .3,1,4] [--seeds 5]
                            [--out untuned.csv] [--quick] [--json]

The error is ||sin Theta||_F between the true directions and the components, at most sqrt(k). "oracle" knows the columns
that take part, and has no privacy. Every seed draws new rows, a new start and new noise, the same rows for all methods.
All runs are federations in one process, with the unit row-replace-one and a delta of 1e-6.

"behind" is the median, over the seeds, of the error of auto minus that of the best other method, which is the one whose
own median is least. Choosing the best afterwards favours it. With ``--out`` a run that broke off goes on.
"""

import argparse
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from accuracy import AS_PUBLISHED, METHODS, ORACLE, OTHERS, Run, Store, cell, components_of, oracle
from designs.samples import Sample
from designs.untuned import QUICK, UNTUNED, Untuned

from dpspca.common.arrays import FloatArray
from dpspca.common.linalg import subspace_distance

COMPARED: Final = tuple(name for name in METHODS | OTHERS if name != AS_PUBLISHED)
"""Not range-projection and output-perturbation, which need far more rows (docs/papers.md)."""
SLOW: Final = {"ppca": 60}
"""The most columns for which a method is measured."""


def main() -> None:
    options = parsed()
    summary = compared(dict(measured(options, Store(options.out))))
    print(json.dumps(summary, indent=2) if options.json else text(summary))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The default beside other methods on populations nobody tuned for.")
    parser.add_argument("--designs", default=";".join(UNTUNED), help="names, with semicolons between them")
    parser.add_argument("--methods", default=";".join(COMPARED), help="names, with semicolons between them")
    parser.add_argument("--epsilon", default=".3,1,4", help="budgets, with commas between them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="append each figure to this file, and compute none twice")
    parser.add_argument("--quick", action="store_true", help="one small population, one budget and two seeds")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    if options.quick:
        options.designs, options.epsilon, options.seeds = ";".join(QUICK), "1", 2
    return options


def measured(options: argparse.Namespace, store: Store) -> Iterator[tuple[Run, float]]:
    for name in options.designs.split(";"):
        for seed in range(options.seeds):
            yield from on_draw(name, UNTUNED[name], seed, options, store)


def on_draw(
    name: str, design: Untuned, seed: int, options: argparse.Namespace, store: Store
) -> Iterator[tuple[Run, float]]:
    """Measure every method at every budget on one draw of the rows."""
    sample = design.draw(np.random.default_rng([seed, sum(map(ord, name))]))
    shards = np.split(sample.rows, np.rint(len(sample.rows) * np.cumsum(design.parts)).astype(int)[:-1])
    for epsilon, method in itertools.product(
        map(float, options.epsilon.split(",")), [ORACLE, *options.methods.split(";")]
    ):
        if sample.rows.shape[1] <= SLOW.get(method, math.inf):
            run = Run(name, method, design.components, epsilon, len(shards), seed)
            yield run, store.figure(run, partial(_error, sample, shards, run))


def _error(sample: Sample, shards: list[FloatArray], run: Run) -> float:
    wanted = (shards, sample.norm_bound, run.components, run.epsilon, run.seed)
    found = oracle(sample) if run.method == ORACLE else components_of(run.method, *wanted)
    return subspace_distance(sample.truth, found.T)


def compared(figures: Mapping[Run, float]) -> list[dict[str, Any]]:
    """Summarise each population and budget: median errors, and how far auto is behind the best other method."""
    rows = []
    for name, epsilon in dict.fromkeys((run.data, run.epsilon) for run in figures):
        runs: dict[str, list[float]] = {}
        for run, error in figures.items():
            if (run.data, run.epsilon) == (name, epsilon):
                runs.setdefault(run.method, []).append(error)
        errors = {method: statistics.median(found) for method, found in runs.items()}
        others = {method: error for method, error in errors.items() if method not in {ORACLE, "auto"}}
        best = min(others, key=lambda method: others[method]) if others else None
        behind = None
        if best is not None and "auto" in runs:
            behind = statistics.median(auto - other for auto, other in zip(runs["auto"], runs[best], strict=True))
        row = {"data": name, "what": UNTUNED[name].say, "epsilon": epsilon, "median_errors": errors}
        rows.append(row | {"best_other": best, "behind": behind})
    return rows


def text(summary: list[dict[str, Any]]) -> str:
    """Write a row for each population, and for each budget the errors of auto and of the best other method."""
    epsilons, names = (list(dict.fromkeys(row[key] for row in summary)) for key in ("epsilon", "data"))
    found = {(row["data"], row["epsilon"]): row for row in summary}
    headings = [f"{what}, {epsilon:g}" for epsilon in epsilons for what in ("auto", "best other")]
    lines = [f"| data | oracle | {' | '.join(headings)} |", "|---|--:|" + "--:|" * len(headings)]
    for name in names:
        rows = [found[name, epsilon] for epsilon in epsilons if (name, epsilon) in found]
        cells = [f"{cell(each['median_errors'], 'auto')} | {_best(each)}" for each in rows]
        lines.append(f"| {name} | {cell(rows[0]['median_errors'], ORACLE)} | {' | '.join(cells)} |")
    behind = [row for row in summary if row["behind"] is not None]
    ahead = sum(row["behind"] <= 0 for row in behind)
    lines += ["", f"auto is level with the best of the others, or ahead, in {ahead} of {len(behind)} cells; behind:"]
    lines += [
        f"{row['data']}, epsilon {row['epsilon']:g}: {row['behind']:.4f} behind {row['best_other']}"
        for row in behind
        if row["behind"] > 0
    ]
    return "\n".join([*lines, "", *(f"{name}: {UNTUNED[name].say}" for name in names)])


def _best(row: dict[str, Any]) -> str:
    return cell(row["median_errors"], row["best_other"] or "")


if __name__ == "__main__":
    main()
