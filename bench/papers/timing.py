"""Table 1 of paper 002: processor time of the methods in three dimensions, side by side in one run.

The covariance of the rows is computed before, once for all methods, as it must have been for the times in the paper;
its time is shown separately. A time is that of a whole job: plan, gate, ledger, noise, answers, and the coordinator's
work. The methods run in turns. The first turn is left out, and the median of the others is shown.
"""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import methods as m
from methods import Floor, Method
from models import Spiked, sample
from studies import Notes, Scale, print_progress

from dpspca.common.errors import DpspcaError
from dpspca.common.job import Budget
from dpspca.provider.evaluate.mechanisms import BURN_IN

BUDGET = Budget(1.0, 0.1)
SLOW = 5.0
"""Methods that take longer than so many seconds are timed only once."""
PAPER = {
    m.DPS_PUBLISHED.label: ("< 1 ms", "< 1 ms", "< 1 ms"),
    m.MOD_SULQ.label: ("8 ms", "21 ms", "97 ms"),
    m.PPCA_GIBBS.label: ("9.82 s", "37.46 s", "173.78 s"),
}
METHODS: Sequence[Method | Floor] = (
    m.DPS_PUBLISHED, m.DPS_OURS, m.MOD_SULQ, m.PPCA_GIBBS, m.PPCA_EXACT, m.GAUSS, m.NOISY_POWER, m.STREAMING,
    m.OUTPUT, m.FLOOR,
)  # fmt: skip
COVARIANCE = "rows into one covariance, once (wall time)"


def table_1(scale: Scale) -> dict[str, Any]:
    """Measure every method at every dimension."""
    dimensions = (40, 80, 160) if scale.quick else (200, 400, 800)
    rows = 5_000 if scale.quick else 100_000
    turns = 2 if scale.quick else 5
    notes = Notes()
    chosen = [method for method in METHODS if not notes.left_out(method)]
    columns = [medians(Spiked(dimension, rows=rows), chosen, turns, notes) for dimension in dimensions]
    base = [column[m.DPS_PUBLISHED.label] for column in columns]
    lines = [line(label, columns, base) for label in columns[0]]
    return {
        "kind": "table",
        "title": "Table 1: processor time of a job",
        "caption": (
            f"Section 5.1's model, n = {rows:,}, one provider, ε = {BUDGET.epsilon:g}, δ = {BUDGET.delta:g}; "
            f"T = {m.ROUNDS} for DPS-PCA as published; {BURN_IN} sweeps over all axes for the Gibbs sampler, where the "
            f"paper has 100 iterations. Medians of {turns} turns after one that is left out (of that one alone beyond "
            f"{SLOW:g} s), one thread; × is the ratio to DPS-PCA as published in the same run. "
            "The last columns are the paper's own table, from its own machine."
        ),
        "columns": [
            "method", *(f"d = {each}" for each in dimensions), *(f"× at d = {each}" for each in dimensions),
            *(f"paper, d = {dimension}" for dimension in (200, 400, 800)),
        ],
        "rows": lines,
        "left_out": notes.lines,
        "milliseconds": {label: [1e3 * column[label] for column in columns if label in column] for label in columns[0]},
    }  # fmt: skip


def medians(population: Spiked, chosen: Sequence[Method | Floor], turns: int, notes: Notes) -> dict[str, float]:
    """Run the methods in turns on one sample. The first turn makes tables that are cached."""
    sample.cache_clear()
    model_rows, _ = population.draw(0)
    start = time.perf_counter()
    float((model_rows.T @ model_rows)[0, 0])
    covariance = time.perf_counter() - start
    del model_rows
    drawn = sample(population, 0)
    seconds: dict[str, list[float]] = {method.label: [] for method in chosen}
    for turn in range(turns + 1):
        for method in chosen:
            spent = seconds[method.label]
            if (turn and not spent) or max(spent, default=0.0) > SLOW:
                continue  # refused before, or too slow to repeat
            try:
                spent.append(method.run(drawn, population, BUDGET, turn).cpu_seconds)
            except DpspcaError as problem:
                notes.refused(method.label, str(problem))
    print_progress(f"timed at d = {population.dimension}")
    return {COVARIANCE: covariance} | {
        label: statistics.median(spent[1:] or spent) for label, spent in seconds.items() if spent
    }


def line(label: str, columns: Sequence[dict[str, float]], base: Sequence[float]) -> list[str]:
    """Return a method's times, their ratios, and the paper's times."""
    times = [column.get(label) for column in columns]
    ratios = ["" if t is None or label == COVARIANCE else f"{t / b:.3g}" for t, b in zip(times, base, strict=True)]
    return [label, *("" if t is None else time_text(t) for t in times), *ratios, *PAPER.get(label, ("", "", ""))]


def time_text(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
