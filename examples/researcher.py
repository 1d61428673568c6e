"""A researcher compares methods, and the paper's own noise, on the same rows at the same privacy.

Run it with ``python examples/researcher.py``. Each figure is the median over several runs of the distance between the
subspace that was found and the true one: 0 is perfect, and sqrt(2 * components) is the worst possible.
"""

import numpy as np

from dpspca import Budget, JobSpec, PrivacyUnit, Schema, simulate
from dpspca.common.job import Accounting

COLUMNS, COMPONENTS, ROWS, RUNS = 100, 2, 20_000, 5
METHODS = {
    "dps-pca": ("dps-pca", Accounting.EXACT, {"sparsity": 10}),
    "dps-pca, the paper's noise": ("dps-pca", Accounting.PUBLISHED, {"sparsity": 10}),
    "noisy-power": ("noisy-power", Accounting.EXACT, {}),
    "analyze-gauss": ("analyze-gauss", Accounting.EXACT, {}),
}


def sparse_spikes(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose covariance has two sparse leading components, and these components."""
    truth = np.zeros((COLUMNS, COMPONENTS))
    truth[:3, 0] = truth[3:6, 1] = 3**-0.5
    rows = rng.standard_normal((ROWS, COLUMNS)) + 3 * rng.standard_normal((ROWS, COMPONENTS)) @ truth.T
    return rows, truth


def distance(truth: np.ndarray, found: np.ndarray) -> float:
    """Return the Frobenius distance between the projections onto two subspaces."""
    basis = np.linalg.qr(found)[0]
    return float(np.linalg.norm(truth @ truth.T - basis @ basis.T))


def main() -> None:
    """Print one line for each method, and one column for each epsilon."""
    rows, truth = sparse_spikes(np.random.default_rng(0))
    epsilons = (0.1, 0.3, 1.0, 3.0)
    print(f"{'method':28}" + "".join(f"{f'epsilon {epsilon:g}':>12}" for epsilon in epsilons))
    for label, (method, accounting, options) in METHODS.items():
        errors = []
        for epsilon in epsilons:
            job = JobSpec(
                schema=Schema.of(COLUMNS),
                unit=PrivacyUnit.ROW_REPLACE_ONE,
                budget=Budget(epsilon, 1e-6),
                norm_bound=16.0,
                components=COMPONENTS,
                method=method,
                accounting=accounting,
                explained_variance=False,
                options=options,
            )
            models = [simulate(np.array_split(rows, 4), job) for _ in range(RUNS)]
            errors.append(float(np.median([distance(truth, model.components.T) for model in models])))
        print(f"{label:28}" + "".join(f"{error:12.2f}" for error in errors))


if __name__ == "__main__":
    main()
