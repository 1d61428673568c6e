"""Private PCA of other libraries compared with ours: the same rows, epsilon, unit (one row replaced) and norm bound.

If the other libraries cannot be installed (``rival_libraries.py``), for example without a network, the comparison
continues without them and says so. Both promise delta = 0. All times are wall times of a fit, from rows to components,
including the preparation of the rows.
"""

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import methods as m
import numpy as np
import rival_libraries
from methods import Method
from models import Spiked
from studies import Notes, Scale, print_progress

from dpspca.client.simulation import simulate
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Budget
from dpspca.common.linalg import subspace_distance, thin_qr

MOST_SEEDS = 4
"""A fit by these libraries takes up to a minute."""
DELTA = 1e-6
OURS = (m.GAUSS, m.DPS_OURS, m.OUTPUT, m.OUTPUT_PURE, m.PPCA_EXACT, m.MOD_SULQ)

Fit = Callable[[FloatArray, float, int], tuple[FloatArray, float]]


@dataclass(frozen=True)
class Entrant:
    """One line of the comparison."""

    label: str
    delta: str
    fit: Fit


def comparison(scale: Scale) -> dict[str, Any]:
    """Fit every entrant to the same rows, in turn."""
    population = Spiked(10, components=3, support=10, rows=1_000 if scale.quick else 20_000)
    epsilons = (0.1,) if scale.quick else (0.1, 1.0)
    seeds = 1 if scale.quick else min(scale.seeds, MOST_SEEDS)
    notes = Notes()
    entrants = [
        *(ours(method, population) for method in OURS if not notes.left_out(method)),
        *others(population, notes),
    ]
    measured = [
        (entrant, epsilon, *results(entrant, population, epsilon, seeds, notes))
        for epsilon in epsilons
        for entrant in entrants
    ]
    return {
        "kind": "table",
        "title": "Beside other libraries",
        "caption": (
            f"d = {population.dimension}, k = {population.components}, n = {population.rows:,}, eigenvalues 100 and "
            f"U[0, 10], rows clipped to ‖x‖² ≤ {population.norm_bound**2:.0f} and not centred, row-replace-one. Mean "
            f"error ‖sin Θ‖ over {seeds} seeds (smallest to largest), median wall time of a fit."
        ),
        "columns": ["method", "ε", "δ", "error", "smallest", "largest", "time"],
        "rows": [
            [entrant.label, f"{epsilon:g}", entrant.delta, f"{statistics.fmean(errors):.3g}", f"{min(errors):.3g}",
             f"{max(errors):.3g}", f"{statistics.median(seconds):.3g} s"]
            for entrant, epsilon, errors, seconds in measured
            if errors
        ],
        "left_out": notes.lines,
    }  # fmt: skip


def results(
    entrant: Entrant, population: Spiked, epsilon: float, seeds: int, notes: Notes
) -> tuple[list[float], list[float]]:
    errors, times = [], []
    for seed in range(seeds):
        rows, truth = population.draw(seed)
        try:
            components, seconds = entrant.fit(rows, epsilon, seed)
        except (DpspcaError, subprocess.SubprocessError) as problem:
            notes.refused(entrant.label, str(problem))
            continue
        errors.append(subspace_distance(truth, thin_qr(components.T)[0]))
        times.append(seconds)
    print_progress(f"{entrant.label}, epsilon {epsilon:g}: fitted {len(errors)} times")
    return errors, times


def ours(method: Method, population: Spiked) -> Entrant:
    """Return one of our methods as an entrant, from rows to model."""

    def fit(rows: FloatArray, epsilon: float, seed: int) -> tuple[FloatArray, float]:
        spec = method.spec(population, Budget(epsilon, DELTA), seed)
        start = time.perf_counter()
        model = simulate([rows], spec, noise_seed=seed)
        return np.array(model.components), time.perf_counter() - start

    return Entrant(f"dpspca: {method.label}", "0" if method.pure else f"{DELTA:g}", fit)


def others(population: Spiked, notes: Notes) -> Iterator[Entrant]:
    """Return the other libraries as entrants, if their environment can be made."""
    python = environment(notes)
    if python is not None:
        for library, label in rival_libraries.RIVALS.items():
            yield Entrant(label, "0", rival(library, population, python))


def rival(library: str, population: Spiked, python: Path) -> Fit:
    def fit(rows: FloatArray, epsilon: float, seed: int) -> tuple[FloatArray, float]:
        job = {"library": library, "epsilon": epsilon, "norm_bound": population.norm_bound,
               "components": population.components, "seed": seed}  # fmt: skip
        return rival_libraries.fit(python, rows, job)

    return fit


def environment(notes: Notes) -> Path | None:
    """Return the other libraries' Python, or report why their environment cannot be made."""
    try:
        return rival_libraries.environment()
    except (OSError, subprocess.SubprocessError) as problem:
        reason = (getattr(problem, "stderr", None) or str(problem)).strip().splitlines()[-1:]
        notes.refused("other libraries", f"their environment cannot be made here ({''.join(reason)})")
        return None
