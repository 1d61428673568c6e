"""How the error depends on the number of rounds, and which number the rule of ``rounds_of`` chooses.

    python bench/rounds.py [--quick] [--json]

The model of section 5.1 of Ge et al. (2018): d = 1000, k = 5 of 10 supporting features, s_hat = 50, 100,000 rows
shortened to ||x||^2 <= 5500, eigenvalues beyond the leading ones between 0 and 10. One sample is drawn for each leading
eigenvalue, and its Gram matrix made once. The algorithm is the real coroutine; the answers are float64 products with
that matrix plus Gaussian noise of the plan's width (row-replace-one unit, exact accounting, nothing spent on explained
variance). Seeds change the start and the noise.

The error is D[U, V] = ||sin Theta||_F, at most sqrt(5) = 2.24: the mean over seeds. More rounds converge further as
long as the noise allows it, but they divide the budget. The last columns show the rule's choice, its error, and the
best of the numbers of rounds tried. A rule that does not see the data can at best come close to that.
"""

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.common.algorithms import catalogue, dps_pca
from dpspca.common.arrays import FloatArray
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.accountant import usable_mu
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery

Result: TypeAlias = dict[str, Any]

NORM_BOUND = math.sqrt(5500)
LEADING_EIGENVALUES = (100.0, 30.0, 15.0)
BUDGETS = ((0.5, 1e-6), (1.0, 1e-6), (2.0, 1e-6), (8.0, 1e-6), (1.0, 0.3))
ROUNDS = (2, 3, 4, 5, 7, 10, 14, 20, 40)


@dataclass(frozen=True, slots=True)
class Case:
    """The size and the number of repeats, which are the same for all budgets."""

    dimension: int
    rows: int
    sparsity: int
    seeds: int
    eigenvalues: tuple[float, ...]
    rounds: tuple[int, ...]


FULL = Case(1000, 100_000, 50, 8, LEADING_EIGENVALUES, ROUNDS)
QUICK = Case(100, 20_000, 20, 5, LEADING_EIGENVALUES[:1], ROUNDS[:6:2])


def main() -> None:
    parser = argparse.ArgumentParser(description="Error against the number of rounds.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the dimension, fewer rows and rounds")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    case = QUICK if options.quick else FULL
    results = list(measured(case))
    print(json.dumps(results, indent=2) if options.json else table(case, results))


def measured(case: Case) -> Iterator[Result]:
    for eigenvalue in case.eigenvalues:
        gram, truth = sample(case, eigenvalue)
        for epsilon, delta in BUDGETS:
            yield {"ratio": 10 / eigenvalue, **budget_result(case, Budget(epsilon, delta), gram, truth)}


def sample(case: Case, eigenvalue: float) -> tuple[FloatArray, FloatArray]:
    """Draw and clip rows. Return their Gram matrix and the true basis."""
    model = SpikedModel(dimension=case.dimension, leading_eigenvalue=eigenvalue)
    drawn = spiked_rows(model, case.rows, np.random.default_rng(int(eigenvalue)))
    rows = drawn.rows
    rows *= np.minimum(1, NORM_BOUND / np.linalg.norm(rows, axis=1))[:, None]
    return rows.T @ rows, drawn.basis


def budget_result(case: Case, budget: Budget, gram: FloatArray, truth: FloatArray) -> Result:
    chosen = dps_pca.rounds_of(job(case, budget))
    errors = {
        rounds: [error(job(case, budget, rounds, seed), gram, truth) for seed in range(case.seeds)]
        for rounds in sorted({*case.rounds, chosen})
    }
    means = {rounds: statistics.fmean(values) for rounds, values in errors.items()}
    return {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "mu": usable_mu(budget.epsilon, budget.delta),
        "mean_errors": means,
        "largest_errors": {rounds: max(values) for rounds, values in errors.items()},
        "rule_rounds": chosen,
        "rule_error": means[chosen],
        "best_rounds": min(means, key=means.__getitem__),
    }


def job(case: Case, budget: Budget, rounds: int | None = None, seed: int = 0) -> JobSpec:
    return JobSpec(
        schema=Schema(case.dimension),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=budget,
        norm_bound=NORM_BOUND,
        components=5,
        explained_variance=False,
        seed=seed,
        options={"sparsity": min(case.sparsity, case.dimension), "rounds": rounds},
        method="dps-pca",
    )


def error(spec: JobSpec, gram: FloatArray, truth: FloatArray) -> float:
    """Run the real algorithm on noisy float64 products."""
    steps = iter(dps_pca.steps_of(spec))
    generator = np.random.default_rng([spec.seed, 1])

    def ask(query: RowQuery) -> Aggregate:
        basis: FloatArray = getattr(query, "basis")  # noqa: B009  # only products are asked here
        noise = next(steps).noise_std * query.unit_value(spec.norm_bound)
        return Aggregate(gram @ basis + generator.normal(0.0, noise, basis.shape), noise, parties=1)

    model = drive(dps_pca.run(catalogue.plan(spec)), ask)
    return subspace_distance(truth, model.components.T)


def table(case: Case, results: list[Result]) -> str:
    head = f"mean error over {case.seeds} seeds, d = {case.dimension}, n = {case.rows}, s_hat = {case.sparsity}"
    rounds = "".join(f"{f'T={count}':>7}" for count in case.rounds)
    lines = [head, f"{'l6/l1':>6}{'epsilon':>9}{'delta':>8}{'mu':>7}{rounds}{'rule':>12}{'best':>12}"]
    return "\n".join([*lines, *(line(case, result) for result in results)])


def line(case: Case, result: Result) -> str:
    errors = result["mean_errors"]
    best = result["best_rounds"]
    rule, least = (
        f"{value:.3f} T={count}"
        for count, value in ((result["rule_rounds"], result["rule_error"]), (best, errors[best]))
    )
    return (
        f"{result['ratio']:>6.2f}{result['epsilon']:>9g}{result['delta']:>8g}{result['mu']:>7.3f}"
        + "".join(f"{errors[count]:>7.3f}" for count in case.rounds)
        + f"{rule:>12}{least:>12}"
    )


if __name__ == "__main__":
    main()
