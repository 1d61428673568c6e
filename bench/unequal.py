"""What weights bring where providers differ in size: each design with equal weights and with those of the default.

    python bench/unequal.py [--designs S,M,...] [--sizes one-large,four-equal,geometric] [--epsilon .1,.5,1,4]
                            [--methods auto,analyze-gauss] [--seeds 4] [--quick] [--json]

Sizes of the providers: one has as many rows as twenty others, and there are nine of those; four are equal; each of
sixteen has .7 times the rows of the one before. Rows, their order and the noise are the same for both kinds of weights:
a job that asks for equal weights would have another name, and other noise, so the weights are taken away instead.
The error is ||sin Theta||_F between the components and the true directions. "ratio" is the median, over the draws, of
the error with weights over the error without. "noise" is the same for the distance from the directions that these very
rows have without privacy, on the columns that take part. With a large budget most of the error is the sample's own,
which no weights change, and noise adds to it or cancels it by chance. So "noise" is the figure that must not be above
one.
"""

import argparse
import json
import statistics
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from designs.samples import DESIGNS, QUICK, Sample

from dpspca import simulate
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaWarning
from dpspca.common.job import Budget, JobSpec, Schema, Weights
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import ProviderWeights

DELTA: Final = 1e-6
SIZES: Final[dict[str, FloatArray]] = {
    "one-large": np.r_[20.0, np.ones(9)],
    "four-equal": np.ones(4),
    "geometric": 0.7 ** np.arange(16),
}


def main() -> None:
    options = parsed()
    rows = list(measured(options))
    print(json.dumps(rows, indent=2) if options.json else text(rows))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Errors with and without weights, where providers differ in size.")
    parser.add_argument("--designs", default="S,M,D,P4,P", help="names, with commas between them")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--epsilon", default=".1,.5,1,4")
    parser.add_argument("--methods", default="auto", help="names of methods, with commas between them")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="one small design, one budget and two seeds")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    if options.quick:
        options.designs, options.epsilon, options.seeds = "D", "1", 2
    return options


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for design in options.designs.split(","):
        known = (QUICK if options.quick else DESIGNS)[design]
        drawn = [known.draw(np.random.default_rng([seed, sum(map(ord, design))])) for seed in range(options.seeds)]
        for sizes in options.sizes.split(","):
            for method in options.methods.split(","):
                for epsilon in map(float, options.epsilon.split(",")):
                    yield compared(drawn, design, sizes, method, epsilon)


def compared(drawn: list[Sample], design: str, sizes: str, method: str, epsilon: float) -> dict[str, Any]:
    """Run every sample with equal weights, and with those that follow from the sizes."""
    found = {
        kind.value: [components(sample, sizes, method, epsilon, seed, kind) for seed, sample in enumerate(drawn)]
        for kind in (Weights.EQUAL, Weights.AUTO)
    }
    to_truth = [sample.truth for sample in drawn]
    errors, noise = distances(found, to_truth), distances(found, [own_directions(sample) for sample in drawn])
    return {
        "design": design,
        "sizes": sizes,
        "method": method,
        "epsilon": epsilon,
        "median_errors": {kind: statistics.median(values) for kind, values in errors.items()},
        "median_ratio": median_ratio(errors),
        "median_noise_ratio": median_ratio(noise),
    }


def distances(found: dict[str, list[FloatArray]], targets: list[FloatArray]) -> dict[str, list[float]]:
    return {kind: [*map(subspace_distance, targets, each)] for kind, each in found.items()}


def median_ratio(errors: dict[str, list[float]]) -> float:
    return statistics.median(auto / equal for equal, auto in zip(errors["equal"], errors["auto"], strict=True))


def own_directions(sample: Sample) -> FloatArray:
    """Find the leading directions of the rows themselves, over the columns that take part."""
    block = sample.rows[:, : sample.support]
    own = np.zeros_like(sample.truth)
    own[: sample.support] = np.linalg.eigh(block.T @ block)[1][:, -sample.truth.shape[1] :]
    return own


def components(  # noqa: PLR0913, PLR0917  # what a run is
    sample: Sample, sizes: str, method: str, epsilon: float, seed: int, weights: Weights
) -> FloatArray:
    """Run one job."""
    parts = SIZES[sizes] / SIZES[sizes].sum()
    shards = np.split(sample.rows, np.rint(len(sample.rows) * parts.cumsum()).astype(int)[:-1])
    spec = JobSpec(
        schema=Schema(sample.rows.shape[1]),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, DELTA),
        norm_bound=sample.norm_bound,
        components=sample.truth.shape[1],
        method=method,
        seed=seed,
    )
    plain = patch.object(ProviderWeights, "of", lambda *_: {}) if weights is Weights.EQUAL else nullcontext()
    with plain, warnings.catch_warnings():
        warnings.simplefilter("ignore", DpspcaWarning)  # small budgets are part of what is measured
        return simulate(shards, spec, noise_seed=1000 + seed).components.T


def text(rows: list[dict[str, Any]]) -> str:
    lines = ["| design, sizes, method | epsilon | equal | auto | ratio | noise |", "|---|--:|--:|--:|--:|--:|"]
    for row in rows:
        errors = row["median_errors"]
        what = f"{row['design']}, {row['sizes']}, {row['method']}"
        ratios = f"{row['median_ratio']:.2f} | {row['median_noise_ratio']:.2f}"
        figures = f"{errors['equal']:.4f} | {errors['auto']:.4f} | {ratios}"
        lines.append(f"| {what} | {row['epsilon']:g} | {figures} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
