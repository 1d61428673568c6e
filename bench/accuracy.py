"""How near each method comes to the truth for the same budget, side by side on the same rows.

    python bench/accuracy.py [--designs P,D,...] [--seeds 8] [--owners 1] [--epsilon 1] [--quick]
                             [--out accuracy.csv] [--picture accuracy.png] [--json]
    python bench/accuracy.py --designs P --epsilon .1,.3,1,3,10 --methods "auto;dps-pca;dps-pca, as published" [...]
    python bench/accuracy.py --tables ["wine;digits"] [--epsilon .1,1] [...]
    python bench/accuracy.py --tables --methods "auto;diffprivlib;opendp" [--limit 60] [...]

Designs: rows are drawn from a population whose leading directions are known. The error is ||sin Theta||_F between them
and the components, at most sqrt(k). "oracle" knows the columns that take part, and has no privacy. Every seed draws new
rows, a new start and new noise.

Tables: six tables that packages ship, k = 2 and 5, and budgets from .1 to 4. The figure is the variance that the
components capture of what PCA without privacy captures. Columns are scaled to their range and centred, as if both were
public. The norm bound is the 95 % quantile of the rows' lengths, the best case for methods that cannot find it.

diffprivlib, opendp: PCA by two other libraries, on tables (``papers/rival_libraries.py``). They promise epsilon alone,
without a delta. A run that takes longer than ``--limit`` seconds is ended, and its cell shows "-".

All runs go through the same code as a federation in one process, integer noise included, with the unit row-replace-one
and exact accounting. With ``--out`` every figure is appended to a file at once, and what is there is not computed
again, so a run that broke off goes on.
"""

import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from accuracy_designs import DESIGNS, QUICK, WIDE, Design, Sample, tables

sys.path.append(str(Path(__file__).parent / "papers"))
import rival_libraries
from rival_libraries import RIVALS

from dpspca import simulate
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaWarning
from dpspca.common.job import Accounting, Budget, JobSpec, Scalar, Schema
from dpspca.common.linalg import subspace_distance
from dpspca.common.privacy.units import PrivacyUnit

DELTA: Final = 1e-6
EXACT, PUBLISHED = Accounting.EXACT, Accounting.PUBLISHED
AS_PUBLISHED: Final = "dps-pca, as published"
METHODS: Final[dict[str, tuple[str, Accounting, dict[str, Scalar]]]] = {
    "auto": ("auto", EXACT, {}),
    "analyze-gauss": ("analyze-gauss", EXACT, {}),
    "analyze-gauss, sparsity auto": ("analyze-gauss", EXACT, {"sparsity": "auto"}),
    "dps-pca": ("dps-pca", EXACT, {"sparsity": 50}),
    AS_PUBLISHED: ("dps-pca", PUBLISHED, {"sparsity": 50, "rounds": 10, "start": "published"}),
}
OTHERS: Final[dict[str, tuple[str, Accounting, dict[str, Scalar]]]] = {
    "dps-pca, improved": ("dps-pca", EXACT, {"sparsity": 50, "loop": "improved"}),
    **{name: (name, EXACT, {}) for name in ("mod-sulq", "sulq", "noisy-power", "streaming-power", "power-iteration")},
    "ppca": ("ppca", EXACT, {}),
}
"""Methods that are measured only if they are named."""
_FREE: Final = ("analyze-gauss", "mod-sulq", "sulq")
"""Methods whose release shows explained variances at no further cost."""
ORACLE: Final = "oracle"
LOOKS: Final = (
    ("#000000", ""),
    ("#0072B2", "o"),
    ("#009E73", "D"),
    ("#D55E00", "s"),
    ("#E69F00", "v"),
    ("#CC79A7", "x"),
)
"""A colour that colour-blind readers can tell from others, and a mark, for the oracle and each method."""
EPSILONS: Final = (0.1, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """One run. ``figure`` is an error on a design, and on a table the part of the variance that was captured."""

    data: str
    method: str
    components: int
    epsilon: float
    owners: int
    seed: int
    figure: float

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(str(value) for value in list(asdict(self).values())[:-1])


class Store:
    """Figures in a file of comma-separated values, or in memory alone."""

    def __init__(self, path: Path | None) -> None:
        self._path, self.figures = path, dict[tuple[str, ...], Figure]()
        if path is not None and path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for raw in csv.DictReader(file):
                    self._keep(_figure(raw))

    def add(self, figure: Figure) -> None:
        self._keep(figure)
        if self._path is None:
            return
        is_new = not self._path.exists()
        with self._path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, asdict(figure))
            if is_new:
                writer.writeheader()
            writer.writerow(asdict(figure))

    def _keep(self, figure: Figure) -> None:
        self.figures[figure.key] = figure

    def has(self, *key: object) -> bool:
        return tuple(str(value) for value in key) in self.figures

    def ended(self, *stem: object) -> bool:
        """Tell whether a run that differs by its seed alone took too long."""
        start = tuple(str(value) for value in stem)
        return any(key[:-1] == start and math.isnan(each.figure) for key, each in self.figures.items())


def _figure(raw: dict[str, str]) -> Figure:
    whole = {name: int(raw[name]) for name in ("components", "owners", "seed")}
    return Figure(raw["data"], raw["method"], epsilon=float(raw["epsilon"]), figure=float(raw["figure"]), **whole)


def main() -> None:
    options = parsed()
    store = Store(options.out)
    wanted = list(on_designs(options, store) if options.tables is None else on_tables(options, store))
    if options.picture:
        draw(wanted, options.picture)
    designs = (QUICK if options.quick else DESIGNS) | WIDE
    summary = medians(wanted, designs) if options.tables is None else captured(wanted)
    print(json.dumps(summary, indent=2) if options.json else text(summary))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Accuracy of each method at the same budget.")
    parser.add_argument("--designs", default="", help="names, with commas between them; default: all")
    parser.add_argument("--methods", default="", help="names, with semicolons between them; default: all")
    names = "measure on tables instead: on all, or on those named, with semicolons between them"
    parser.add_argument("--tables", nargs="?", const="", metavar="NAMES", help=names)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--owners", type=int, default=1, help="providers, each with noise of its own")
    budgets = "budgets, with commas between them; default: 1 for designs, and .1 to 4 for tables"
    parser.add_argument("--epsilon", default="", help=budgets)
    parser.add_argument("--limit", type=int, default=60, help="seconds that a run of another library may take")
    parser.add_argument("--quick", action="store_true", help="two small designs, or two tables, and two seeds")
    parser.add_argument("--out", type=Path, help="append each figure to this file, and compute none twice")
    parser.add_argument("--picture", type=Path, help="draw the figures of designs")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    if options.quick:
        options.seeds = 2
    named = options.methods.split(";") if options.methods else []
    options.methods = named or [m for m in METHODS if m != AS_PUBLISHED]
    usual = [1.0] if options.tables is None else EPSILONS[1::2] if options.quick else EPSILONS
    options.epsilons = [float(each) for each in options.epsilon.split(",")] if options.epsilon else usual
    return options


# --- Designs ----------------------------------------------------------------------------------------------------------


def on_designs(options: argparse.Namespace, store: Store) -> Iterator[Figure]:
    known = QUICK if options.quick else DESIGNS
    names = options.designs.split(",") if options.designs else [*known]
    for name in names:
        for seed in range(options.seeds):
            yield from on_design(name, (known | WIDE)[name], seed, options, store)


def on_design(name: str, design: Design, seed: int, options: argparse.Namespace, store: Store) -> Iterator[Figure]:
    """Measure every method at every budget on one sample. It is drawn only if a figure is missing."""
    sample: Sample | None = None
    for epsilon in options.epsilons:
        for method in [ORACLE, *options.methods]:
            stem = (name, method, design.components, epsilon, options.owners, seed)
            if not store.has(*stem):
                sample = sample or design.draw(np.random.default_rng([seed, sum(map(ord, name))]))
                found = oracle(sample) if method == ORACLE else fitted(method, sample, epsilon, options.owners, seed)
                store.add(Figure(*stem, figure=subspace_distance(sample.truth, found.T)))
            yield store.figures[tuple(str(value) for value in stem)]


def oracle(sample: Sample) -> FloatArray:
    """Find the leading directions of the rows over the columns that take part, without privacy."""
    block = sample.rows[:, : sample.support]
    count = sample.truth.shape[1]
    found = np.zeros((count, len(sample.truth)))
    found[:, : sample.support] = np.linalg.eigh(block.T @ block)[1][:, : -count - 1 : -1].T
    return found


def fitted(method: str, sample: Sample, epsilon: float, owners: int, seed: int) -> FloatArray:
    count = sample.truth.shape[1]
    return components_of(method, np.array_split(sample.rows, owners), sample.norm_bound, count, epsilon, seed)


def components_of(  # noqa: PLR0913, PLR0917  # what a run is
    method: str, shards: list[FloatArray], norm_bound: float, count: int, epsilon: float, seed: int
) -> FloatArray:
    """Run one job."""
    name, accounting, settings = (METHODS | OTHERS)[method]
    dimension = shards[0].shape[1]
    if isinstance(limit := settings.get("sparsity"), int):
        settings = settings | {"sparsity": min(limit, dimension)}
    spec = JobSpec(
        schema=Schema(dimension),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(epsilon, DELTA),
        norm_bound=norm_bound,
        components=count,
        method=name,
        accounting=accounting,
        explained_variance=name in _FREE,  # elsewhere it costs a share of the budget
        seed=seed,
        options=settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DpspcaWarning)  # small budgets are part of what is measured
        return simulate(shards, spec, noise_seed=1000 + seed).components


def medians(figures: list[Figure], known: Mapping[str, Design]) -> list[dict[str, Any]]:
    """Summarise each design and budget: the median error of each method over the seeds."""
    rows = []
    for name, epsilon in dict.fromkeys((figure.data, figure.epsilon) for figure in figures):
        here = [figure for figure in figures if (figure.data, figure.epsilon) == (name, epsilon)]
        errors = {method: [f.figure for f in here if f.method == method] for method in _methods(here)}
        rows.append(
            {
                "data": name,
                "what": known[name].say,
                "goal": known[name].goal,
                "seeds": max(map(len, errors.values())),
                "owners": here[0].owners,
                "epsilon": epsilon,
                "median_errors": {method: statistics.median(values) for method, values in errors.items()},
            }
        )
    return rows


def _methods(figures: list[Figure]) -> list[str]:
    return list(dict.fromkeys(figure.method for figure in figures))


# --- Tables -----------------------------------------------------------------------------------------------------------


def on_tables(options: argparse.Namespace, store: Store) -> Iterator[Figure]:
    loaded = tables()
    names = options.tables.split(";") if options.tables else [*loaded][1:3] if options.quick else [*loaded]
    for name in names:
        for count in (2, 5):
            for epsilon in options.epsilons:
                for method in options.methods:
                    for seed in range(options.seeds):
                        run = (method, count, epsilon, options.owners, seed)
                        yield on_table(name, loaded[name], run, options, store)


def on_table(
    name: str, table: FloatArray, run: tuple[str, int, float, int, int], options: argparse.Namespace, store: Store
) -> Figure:
    method, count, epsilon, owners, seed = run
    if not store.has(name, *run):
        bound = float(np.quantile(np.linalg.norm(table, axis=1), 0.95))
        order = np.random.default_rng(seed).permutation(len(table))
        if method in RIVALS and store.ended(name, *run[:-1]):
            found = None
        elif method in RIVALS:
            found = by_another_library(method, table[order], (count, epsilon, bound, seed), options)
        else:
            found = components_of(method, np.array_split(table[order], owners), bound, count, epsilon, seed)
        store.add(Figure(name, *run, figure=math.nan if found is None else _captured(table, found)))
    return store.figures[tuple(str(value) for value in (name, *run))]


def by_another_library(
    library: str, rows: FloatArray, settings: tuple[int, float, float, int], options: argparse.Namespace
) -> FloatArray | None:
    """Run another library; return None if it takes too long."""
    job = dict(zip(("components", "epsilon", "norm_bound", "seed"), settings, strict=True)) | {"library": library}
    try:
        return rival_libraries.fit(rival_libraries.environment(), rows, job, options.limit)[0]
    except subprocess.TimeoutExpired:
        return None


def _captured(table: FloatArray, components: FloatArray) -> float:
    """Return which part of the variance that PCA without privacy captures these components capture."""
    most = float(np.square(np.linalg.svd(table, compute_uv=False)[: len(components)]).sum())
    return float(np.square(table @ components.T).sum()) / most


def captured(figures: list[Figure]) -> list[dict[str, Any]]:
    """Summarise each cell of table, number of components and budget: the median of each method over the seeds."""
    rows = []
    for name, count, epsilon in dict.fromkeys((f.data, f.components, f.epsilon) for f in figures):
        here = [f for f in figures if (f.data, f.components, f.epsilon) == (name, count, epsilon)]
        runs = {m: [f.figure for f in here if f.method == m] for m in _methods(here)}
        parts = {m: None if any(map(math.isnan, each)) else statistics.median(each) for m, each in runs.items()}
        others = [part for method, part in parts.items() if method != "auto" and part is not None]
        ours = parts.get("auto")
        behind = None if ours is None else max(0.0, max(others, default=0.0) - ours)
        rows.append(
            {"data": name, "components": count, "epsilon": epsilon, "median_captured": parts, "auto_is_behind": behind}
        )
    return rows


# --- For readers ------------------------------------------------------------------------------------------------------


def text(summary: list[dict[str, Any]]) -> str:
    """Write a table with a column for each method."""
    key = "median_errors" if "median_errors" in summary[0] else "median_captured"
    methods = list(dict.fromkeys(method for row in summary for method in row[key]))
    lines = ["| data | " + " | ".join(methods) + " |", "|---|" + "--:|" * len(methods)]
    for row in summary:
        name = f"{row['data']}: {row['what']}" if "what" in row else f"{row['data']}, k = {row['components']}"
        cells = [cell(row[key], method) for method in methods]
        lines.append(f"| {name}, epsilon {row['epsilon']:g} | " + " | ".join(cells) + " |")
    if key == "median_captured":
        behind = [row["auto_is_behind"] for row in summary if row["auto_is_behind"] is not None]
        within = sum(each <= 0.01 for each in behind)
        lines += ["", f"auto is within .01 of the best of the others, or ahead, in {within} of {len(behind)} cells."]
    return "\n".join(lines)


def cell(figures: Mapping[str, float | None], method: str) -> str:
    figure = figures.get(method)
    if figure is None:
        return "-" if method in figures else ""
    return f"{figure:.4f}"


def draw(figures: list[Figure], path: Path) -> None:
    """Draw the median error of each method against epsilon: a panel for each design."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  # an extra
    from matplotlib.figure import Figure as Sheet  # noqa: PLC0415

    names, methods = list(dict.fromkeys(f.data for f in figures)), _methods(figures)
    sheet = Sheet(figsize=(6.4 * len(names), 4.2), layout="constrained")
    FigureCanvasAgg(sheet)
    looks = dict(zip(methods, LOOKS, strict=False))
    for axes, name in zip(sheet.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for method in methods:
            errors: dict[float, list[float]] = {}
            for figure in figures:
                if (figure.data, figure.method) == (name, method):
                    errors.setdefault(figure.epsilon, []).append(figure.figure)
            colour, marker = looks[method]
            middle = [statistics.median(values) for values in errors.values()]
            axes.plot([*errors], middle, color=colour, marker=marker, label=method, lw=1.8)
        axes.set(xscale="log", yscale="log", title=name, xlabel="epsilon (delta = 1e-6)")
        axes.set_ylabel(r"error $\|\sin\Theta\|_F$")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False)
    sheet.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
