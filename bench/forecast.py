"""Whether forecasts are right: what `dpspca plan --rows` expects, beside what runs over made-up rows give.

    python bench/forecast.py [--runs 3] [--quick] [--json] [--page docs/planning.md]
    python bench/forecast.py --tables [...]

Rows are drawn from the model of section 5.1 of Ge et al. (2018): k equal leading eigenvalues over a support, and the
other eigenvalues evenly between two numbers. The forecast is given the model's public facts and no row. The figure is
the median error ||sin Theta||_F of runs in one process, integer noise included, each with new rows and new noise. Delta
is 1e-6, and the unit row-replace-one unless "how" says otherwise. There, "pairs" are differences of pairs of rows, and
"private bound" leaves the norm bound to the method.

A table has forecast / runs in each cell, in bold if the forecast is wrong. "bound" is the norm bound over a tight one:
the mean squared length of a row and two standard deviations. A forecast is right if it is within a factor of 2 of the
runs' median, where that is below half of the error of random directions ("chance"). Above, it is right if it is above
half of chance too.

With --tables it is about real tables that packages ship, and about the part of the variance that is captured, of what
PCA without privacy captures. The forecast is given the table's own eigenvalues as hints, or nothing but its size and
the mean squared length of its rows. (To take hints from the rows of a job would give something of them away; here they
show how good a forecast can be.) The cells are: with hints / without / runs.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from accuracy import components_of
from designs.samples import tables

from dpspca import simulate
from dpspca.client.forecast import Hints, chance, of_job
from dpspca.client.made_up_rows import SpikedModel, spiked_rows
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaWarning
from dpspca.common.job import PRIVATE_BOUND, Budget, Centering, JobSpec, Scalar, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.units import PrivacyUnit

SPARSE: Final = "analyze-gauss, sparsity auto"
MARK: Final = "<!-- {} of bench/forecast.py{} -->"
MAIN: Final = ("auto", "analyze-gauss", SPARSE, "dps-pca", "noisy-power")
FEW: Final = ("auto", "analyze-gauss", "dps-pca")
PAIRS, BOUND, ADD_REMOVE = "pairs", "private bound", "row-add-remove"
OTHERS: Final = (
    *("mod-sulq", "sulq", "streaming-power", "power-iteration", "range-projection", "ppca", "output-perturbation"),
)


@dataclass(frozen=True, slots=True)
class Shape:
    """Public facts of a job. ``sparsity`` is that of dps-pca; by default the true support.

    ``others`` are the least and the largest of the other eigenvalues; ``bound`` multiplies the norm bound.
    """

    rows: int
    dimension: int
    components: int
    support: int
    leading: float
    epsilon: float
    providers: int = 1
    others: tuple[float, float] = (0.0, 10.0)
    sparsity: int | None = None
    bound: float = 1.0
    methods: tuple[str, ...] = MAIN
    how: str = ""

    @property
    def model(self) -> SpikedModel:
        return SpikedModel(self.dimension, self.components, self.support, self.leading, self.others)

    @property
    def hints(self) -> Hints:
        """The model's public facts, as a user would give them."""
        beside = (self.dimension - self.components) * sum(self.others) / 2
        mean = self.components * self.leading + beside
        return Hints(
            rows=self.rows,
            providers=self.providers,
            leading=self.leading / mean,
            following=self.others[1] / mean,
            support=self.support,
            row_length=mean**0.5,
        )

    def job(self, method: str, seed: int = 0) -> JobSpec:
        options: dict[str, Scalar] = {"sparsity": "auto"} if method == SPARSE else {}
        if method == "dps-pca":
            options = {"sparsity": self.sparsity or self.support}
        return JobSpec(
            schema=Schema(self.dimension),
            unit=PrivacyUnit.ROW_ADD_REMOVE if self.how == ADD_REMOVE else PrivacyUnit.ROW_REPLACE_ONE,
            budget=Budget(self.epsilon, 1e-6),
            norm_bound=PRIVATE_BOUND if self.how == BOUND else self.bound * self.model.norm_bound,
            centering=Centering.PAIRS if self.how == PAIRS else Centering.NONE,
            components=self.components,
            method=method.partition(",")[0],
            seed=seed,
            options=options,
        )


SHAPES: Final = (
    Shape(20_000, 110, 5, 10, 100, 1.0, sparsity=50, methods=FEW, how=PAIRS),
    Shape(3_000, 25, 2, 25, 50, 1.0, methods=FEW, how=PAIRS),
    Shape(30_000, 160, 4, 100, 60, 2.0, methods=FEW, how=PAIRS),
    Shape(20_000, 40, 3, 40, 60, 0.5, methods=FEW, how=PAIRS),
    Shape(20_000, 60, 3, 60, 60, 1.0, methods=FEW, how=ADD_REMOVE),
    Shape(10_000, 200, 2, 12, 80, 1.0, 2, methods=FEW, how=ADD_REMOVE),
    Shape(50_000, 100, 3, 100, 80, 0.1, methods=FEW),
    Shape(5_000, 50, 2, 50, 60, 4.0, methods=FEW),
    Shape(2_000, 20, 2, 20, 50, 8.0, methods=FEW),
    Shape(100_000, 64, 4, 64, 40, 0.2, methods=FEW),
    Shape(20_000, 200, 2, 20, 60, 0.3, 10, methods=FEW),
    Shape(4_000, 10, 2, 10, 40, 0.5, methods=FEW),
    Shape(1_000, 5, 1, 5, 30, 1.0, methods=FEW),
    Shape(2_000, 8, 3, 8, 40, 2.0, methods=FEW),
    Shape(40_000, 400, 3, 400, 150, 1.0, methods=FEW),
    Shape(60_000, 250, 5, 25, 60, 0.5, 3, methods=FEW),
    Shape(20_000, 110, 5, 10, 100, 1.0, methods=("auto",), how=BOUND),
    Shape(3_000, 25, 2, 25, 50, 1.0, methods=("auto",), how=BOUND),
    Shape(30_000, 160, 1, 160, 80, 1.0, 1, (1.0, 9.0), methods=("auto",), how=BOUND),
    Shape(10_000, 300, 2, 10, 100, 1.0, 4, methods=("auto",), how=BOUND),
    Shape(20_000, 1000, 2, 20, 150, 1.0, 1, (5.0, 5.0), methods=("auto",)),
    Shape(4_000, 9_000, 2, 10, 400, 2.0, 1, (5.0, 5.0), methods=("auto",)),
    Shape(20_000, 110, 5, 10, 100, 1.0, sparsity=50),
    Shape(20_000, 110, 5, 10, 100, 0.2, sparsity=20),
    Shape(40_000, 300, 5, 20, 100, 1.0, sparsity=40),
    Shape(10_000, 300, 2, 10, 100, 1.0, 4),
    Shape(5_000, 300, 2, 12, 60, 0.5),
    Shape(20_000, 500, 3, 15, 80, 0.5, 2, sparsity=50),
    Shape(20_000, 40, 3, 40, 60, 0.5, 3),
    Shape(3_000, 25, 2, 25, 50, 1.0),
    Shape(1_000, 60, 2, 60, 40, 0.5),
    Shape(30_000, 160, 1, 160, 80, 1.0, 1, (1.0, 9.0)),
    Shape(30_000, 160, 4, 100, 60, 2.0, 8),
    Shape(8_000, 250, 2, 8, 40, 2.0, 1, (5.0, 5.0)),
    Shape(50_000, 80, 6, 12, 40, 0.3, 5, (2.0, 4.0)),
    Shape(20_000, 150, 2, 10, 80, 1.0, 2, bound=3.0),
    Shape(20_000, 150, 2, 150, 80, 1.0, 1, (4.0, 6.0), bound=0.6),
    Shape(15_000, 1700, 2, 10, 150, 1.0, 1, (5.0, 5.0), methods=("auto", "dps-pca")),
    Shape(10_000, 20, 2, 20, 100, 1.0, methods=OTHERS),
    Shape(10_000, 20, 2, 20, 100, 5.0, 4, methods=OTHERS),
    Shape(20_000, 50, 3, 50, 60, 2.0, 2, methods=OTHERS),
)
QUICK: Final = (
    Shape(4_000, 110, 2, 8, 100, 2.0, 2, methods=("auto", "analyze-gauss", "dps-pca")),
    Shape(500, 30, 2, 30, 40, 0.3, methods=("auto", "noisy-power")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Forecasts beside real runs.")
    parser.add_argument("--runs", type=int, default=3, help="runs of each setting")
    parser.add_argument("--quick", action="store_true", help="two small shapes")
    parser.add_argument("--tables", action="store_true", help="real tables, and the variance that is captured")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--page", type=Path, help="also write the table into this page, between its marks")
    options = parser.parse_args()
    result: dict[str, Any]
    if options.tables:
        result = {"tables": list(on_tables(options.runs, quick=options.quick))}
        shown = text_of_tables(result["tables"])
    else:
        settings = [each for shape in (QUICK if options.quick else SHAPES) for each in measured(shape, options.runs)]
        result = {"settings": settings, **summary(settings)}
        shown = text(result)
    if options.page:
        write_into(options.page, shown, " --tables" if options.tables else "")
    print(json.dumps(result, indent=2) if options.json else shown)


def measured(shape: Shape, runs: int) -> Iterator[dict[str, Any]]:
    """Run all methods of a shape over the same rows, and compare each with its forecast."""
    errors: dict[str, list[float]] = {method: [] for method in shape.methods}
    for seed in range(runs):
        drawn = spiked_rows(shape.model, shape.rows, np.random.default_rng([seed, shape.rows, shape.dimension]))
        shards = np.array_split(drawn.rows, shape.providers)
        for method in shape.methods:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DpspcaWarning)  # small budgets are part of what is measured
                model = simulate(shards, shape.job(method, seed), noise_seed=1000 + seed)
            errors[method].append(subspace_distance(drawn.basis, model.components.T))
    for method in shape.methods:
        yield compared(shape, method, errors[method])


def compared(shape: Shape, method: str, errors: list[float]) -> dict[str, Any]:
    begun = time.perf_counter()
    expected = of_job(shape.job(method), shape.hints)
    seconds = time.perf_counter() - begun
    median, random = statistics.median(errors), chance(shape.job(method))
    clear = median < random / 2
    right = median / 2 <= expected.error <= 2 * median if clear else expected.error >= random / 2
    return {
        "rows": shape.rows,
        "columns": shape.dimension,
        "components": shape.components,
        "support": shape.support,
        "epsilon": shape.epsilon,
        "providers": shape.providers,
        "bound": shape.bound,
        "how": shape.how,
        "method": method,
        "median_error": median,
        "forecast": expected.error,
        "chance": random,
        "clear": clear,
        "right": right,
        "forecast_seconds": seconds,
    }


def summary(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the right forecasts among clear settings, and among those near chance."""
    clear = [each for each in settings if each["clear"]]
    near = [each for each in settings if not each["clear"]]
    return {
        "clear": len(clear),
        "clear_right": sum(each["right"] for each in clear),
        "near_chance": len(near),
        "near_chance_right": sum(each["right"] for each in near),
    }


def text(result: dict[str, Any]) -> str:
    """Write a table for each group of methods: a row for each shape, and forecast and runs for each method."""
    rows: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for each in result["settings"]:
        rows.setdefault(tuple(str(each[name]) for name in SHAPE), {})[each["method"]] = each
    groups: dict[tuple[str, ...], list[str]] = {}
    for shape, by_method in rows.items():
        first = next(iter(by_method.values()))
        cells = [*shape, f"{first['chance']:.2f}", *map(_cell, by_method.values())]
        groups.setdefault(tuple(by_method), []).append(f"| {' | '.join(cells)} |")
    lines = []
    for methods, below in groups.items():
        heads = [*SHAPE.values(), "chance", *methods]
        lines += [f"| {' | '.join(heads)} |", f"|{'--:|' * len(heads)}", *below, ""]
    clear = f"{result['clear_right']} of {result['clear']} forecasts below half of chance are within a factor of 2"
    near = (
        f"{result['near_chance_right']} of {result['near_chance']} settings above half of chance were forecast as such"
    )
    return "\n".join([*lines, f"{clear}; {near}."])


SHAPE: Final = {
    "rows": "n",
    "columns": "d",
    "components": "k",
    "support": "support",
    "epsilon": "epsilon",
    "providers": "N",
    "bound": "bound",
    "how": "how",
}


def _cell(each: dict[str, Any]) -> str:
    """Write forecast and runs, in bold if the forecast is wrong."""
    both = f"{each['forecast']:.2g} / {each['median_error']:.2g}"
    return both if each["right"] else f"**{both}**"


def write_into(page: Path, table: str, flag: str) -> None:
    """Replace what stands between the page's two marks."""
    begin, end = MARK.format("begin", flag), MARK.format("end", flag)
    before, rest = page.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    page.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", encoding="utf-8")


# --- Real tables ------------------------------------------------------------------------------------------------------


def on_tables(runs: int, *, quick: bool) -> Iterator[dict[str, Any]]:
    loaded = tables()
    for name in [*loaded][3:4] if quick else loaded:
        for count in (2, 5):
            for epsilon in (0.5, 2.0):
                for method in ("auto", "analyze-gauss"):
                    yield on_table(name, loaded[name], (method, count, epsilon), runs)


def on_table(name: str, table: FloatArray, job: tuple[str, int, float], runs: int) -> dict[str, Any]:
    method, count, epsilon = job
    rows, dimension = table.shape
    values = np.linalg.eigvalsh(table.T @ table)[::-1] / rows
    bound, mean = float(np.quantile(np.linalg.norm(table, axis=1), 0.95)), float(values.sum())
    parts = [
        float(np.square(table @ components_of(method, [table], bound, count, epsilon, seed).T).sum())
        / float(rows * values[:count].sum())
        for seed in range(runs)
    ]
    spec = JobSpec(
        schema=Schema(dimension),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, 1e-6),
        norm_bound=bound,
        components=count,
        method=method,
    )
    leading, following, largest = (float(values[at] / mean) for at in (count - 1, count, 0))
    bare = Hints(rows=rows, row_length=mean**0.5)
    hinted = replace(bare, leading=leading, following=following, largest=largest)
    return {
        "table": name,
        "rows": rows,
        "columns": dimension,
        "components": count,
        "epsilon": epsilon,
        "method": method,
        "with_hints": of_job(spec, hinted).captured,
        "without_hints": of_job(spec, bare).captured,
        "median_captured": statistics.median(parts),
    }


def text_of_tables(rows: list[dict[str, Any]]) -> str:
    """Write a row for each table, number of components and budget, and a column for each method."""
    lines = ["| table | n | d | k | epsilon | auto | analyze-gauss |", "|---|--:|--:|--:|--:|--:|--:|"]
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        cells = [
            " / ".join(f"{each[key]:.2f}" for key in ("with_hints", "without_hints", "median_captured"))
            for each in (one, other)
        ]
        shape = [one["table"], *(f"{one[key]:g}" for key in ("rows", "columns", "components", "epsilon"))]
        lines.append(f"| {' | '.join([*shape, *cells])} |")
    near = [
        sum(abs(row[key] - row["median_captured"]) <= 0.1 for row in rows) for key in ("with_hints", "without_hints")
    ]
    total = f"Of {len(rows)} forecasts, {near[0]} with hints and {near[1]} without are within .1 of the runs."
    return "\n".join([*lines, "", total])


if __name__ == "__main__":
    main()
