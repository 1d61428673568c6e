"""How near each method comes to the truth for the same budget, side by side on the same rows.

    python bench/accuracy.py [--designs P,D,...] [--seeds 8] [--epsilon 1] [--owners 1] [--bound 1] [--quick]
                             [--out accuracy.csv] [--picture accuracy.png] [--json]
    python bench/accuracy.py --designs P --epsilon .1,.3,1,3,10 --methods "auto;dps-pca;dps-pca, as published" [...]
    python bench/accuracy.py --designs S,D --epsilon 1,.3,3 --owners 1,4,16 --bound 1,.25,4 [...]
    python bench/accuracy.py --tables ["wine;digits"] [--epsilon .1,1] [...]
    python bench/accuracy.py --tables --methods "auto;diffprivlib;opendp" [--limit 60] [...]
    python bench/accuracy.py --all FOLDER [--quick]

Designs: rows are drawn from a population whose leading directions are known. The error is ||sin Theta||_F between them
and the components, at most sqrt(k). "oracle" knows the columns that take part, and has no privacy. Every seed draws new
rows, a new start and new noise. ``--bound`` multiplies the norm bound. Of several budgets, numbers of owners or bounds,
one list is varied at a time, while the others stay at their first value.

Tables: six tables that packages ship, k = 2 and 5, and budgets from .1 to 4. The figure is the variance that the
components capture of what PCA without privacy captures. Columns are scaled to their range and centred, as if both were
public. The norm bound is the 95 % quantile of the rows' lengths, the best case for methods that cannot find it.

diffprivlib, opendp: PCA by two other libraries (``papers/rival_libraries.py``). They promise epsilon alone, without a
delta, and hold all rows in one place. A run that takes longer than ``--limit`` seconds is ended; its cell shows "-".

All runs go through the same code as a federation in one process, integer noise included, with the unit row-replace-one
and exact accounting. With ``--out`` every figure is appended to a file at once, and what is there is not computed
again, so a run that broke off goes on. ``--all`` measures all that docs/accuracy.md shows of it, into one folder: a
.csv file, a .md table and, of designs, a picture of each. That takes hours.
"""

import argparse
import csv
import itertools
import json
import math
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from accuracy_picture import draw, methods_of
from designs.accuracy_page import ALL
from designs.samples import DESIGNS, QUICK, WIDE, Design, Sample, tables

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
    "dps-pca, sparsity auto": ("dps-pca", EXACT, {"sparsity": "auto"}),
    **{name: (name, EXACT, {}) for name in ("mod-sulq", "sulq", "noisy-power", "streaming-power", "power-iteration")},
    "ppca": ("ppca", EXACT, {}),
}
"""Methods that are measured only if they are named."""
_FREE: Final = ("analyze-gauss", "mod-sulq", "sulq")
"""Methods whose release shows explained variances at no further cost."""
ORACLE: Final = "oracle"
EPSILONS: Final = (0.1, 0.5, 1.0, 2.0, 4.0)
Setting: TypeAlias = tuple[float, int, float]
"""Budget, number of owners and factor of the norm bound."""


class Run(NamedTuple):
    """What is measured once."""

    data: str
    method: str
    components: int
    epsilon: float
    owners: int
    seed: int
    bound: float = 1.0
    """The norm bound, divided by the usual one."""

    @property
    def setting(self) -> Setting:
        """What a table of results has a row for."""
        return self.epsilon, self.owners, self.bound


class Store:
    """Figures in a file of comma-separated values, or in memory alone.

    A figure is an error on a design, and on a table the part of the variance that was captured. It is NaN if a run took
    too long.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._figures = path, dict[Run, float]()
        if path is not None and path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                self._figures = dict(map(_read, csv.DictReader(file)))

    def figure(self, run: Run, measure: Callable[[], float]) -> float:
        """Return the figure of a run, and measure it if it is missing."""
        if run not in self._figures:
            self._figures[run] = measure()
            self._append(run)
        return self._figures[run]

    def ended(self, run: Run) -> bool:
        """Tell whether a run that differs by its seed alone took too long."""
        return any(math.isnan(found) and run == other._replace(seed=run.seed) for other, found in self._figures.items())

    def _append(self, run: Run) -> None:
        if self._path is None:
            return
        is_new = not self._path.exists()
        with self._path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow([*Run._fields, "figure"])
            writer.writerow([*run, self._figures[run]])


def _read(raw: dict[str, str]) -> tuple[Run, float]:
    whole = {name: int(raw[name]) for name in ("components", "owners", "seed")}
    run = Run(raw["data"], raw["method"], epsilon=float(raw["epsilon"]), bound=float(raw["bound"]), **whole)
    return run, float(raw["figure"])


def main() -> None:
    options = parsed()
    if options.all is None:
        measure(options)
        return
    options.all.mkdir(parents=True, exist_ok=True)
    for name, words in ALL.items():
        out = options.all / name
        drawn = [] if any(word.startswith("--tables") for word in words) else [f"--picture={out}.png"]
        print(f"{name}: {' '.join(words)}", flush=True)
        found = measure(parsed([*words, f"--out={out}.csv", *drawn, *["--quick"] * options.quick]))
        out.with_suffix(".md").write_text(f"{found}\n", encoding="utf-8")


def measure(options: argparse.Namespace) -> str:
    """Measure what is missing, and print the summary."""
    store = Store(options.out)
    wanted = dict(on_designs(options, store) if options.tables is None else on_tables(options, store))
    if options.picture:
        draw(wanted, options.picture)
    designs = (QUICK if options.quick else DESIGNS) | WIDE
    summary = medians(wanted, designs) if options.tables is None else captured(wanted)
    shown = json.dumps(summary, indent=2) if options.json else text(summary)
    print(shown, flush=True)
    return shown


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Accuracy of each method at the same budget.")
    parser.add_argument("--designs", default="", help="names, with commas between them; default: all")
    parser.add_argument("--methods", default="", help="names, with semicolons between them; default: all")
    names = "measure on tables instead: on all, or on those named, with semicolons between them"
    parser.add_argument("--tables", nargs="?", const="", metavar="NAMES", help=names)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0, help="of the draws of rows, starts and noise")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="measure all that the page about accuracy shows")
    parser.add_argument("--owners", default="1", help="numbers of providers, each with noise of its own")
    parser.add_argument("--bound", default="1", help="what multiplies the norm bound")
    budgets = "budgets, with commas between them; default: 1 for designs, and .1 to 4 for tables"
    parser.add_argument("--epsilon", default="", help=budgets)
    parser.add_argument("--limit", type=int, default=60, help="seconds that a run of another library may take")
    parser.add_argument("--quick", action="store_true", help="two small designs, or two tables, and two seeds")
    parser.add_argument("--out", type=Path, help="append each figure to this file, and compute none twice")
    parser.add_argument("--picture", type=Path, help="draw the figures of designs, a panel for each list that varies")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args(words)
    if options.picture and options.tables is not None:
        parser.error("--picture draws errors over designs, and none over tables. Leave one of the two out.")
    if options.quick:
        options.seeds = 2
        options.designs = ",".join(name for name in options.designs.split(",") if name in QUICK)
    options.seeds = range(options.first_seed, options.first_seed + options.seeds)
    named = options.methods.split(";") if options.methods else []
    options.methods = named or [m for m in METHODS if m != AS_PUBLISHED]
    usual = [1.0] if options.tables is None else EPSILONS[1::2] if options.quick else EPSILONS
    epsilons = list(map(float, options.epsilon.split(","))) if options.epsilon else usual
    lists = epsilons, list(map(int, options.owners.split(","))), list(map(float, options.bound.split(",")))
    options.settings = settings(lists)
    return options


def settings(lists: tuple[Sequence[float], Sequence[int], Sequence[float]]) -> list[Setting]:
    """Vary one list at a time, the others at their first value."""
    epsilon, owners, bound = (each[0] for each in lists)
    varied: list[Setting] = [
        *((each, int(owners), bound) for each in lists[0]),
        *((epsilon, each, bound) for each in lists[1]),
        *((epsilon, int(owners), each) for each in lists[2]),
    ]
    return list(dict.fromkeys(varied))


# --- Designs ----------------------------------------------------------------------------------------------------------


def on_designs(options: argparse.Namespace, store: Store) -> Iterator[tuple[Run, float]]:
    known = QUICK if options.quick else DESIGNS
    names = options.designs.split(",") if options.designs else [*known]
    for name in names:
        for seed in options.seeds:
            yield from on_design(name, (known | WIDE)[name], seed, options, store)


def on_design(
    name: str, design: Design, seed: int, options: argparse.Namespace, store: Store
) -> Iterator[tuple[Run, float]]:
    """Measure every method in every setting on one sample. It is drawn only if a figure is missing."""

    @cache
    def sample() -> Sample:
        return design.draw(np.random.default_rng([seed, sum(map(ord, name))]))

    for epsilon, owners, bound in options.settings:
        for method in [ORACLE, *options.methods]:
            run = Run(name, method, design.components, epsilon, owners, seed, bound)
            measure = partial(_error, sample, run, store, options.limit)
            yield run, store.figure(run, measure)


def _error(sample: Callable[[], Sample], run: Run, store: Store, limit: int) -> float:
    drawn = sample()
    norm_bound = drawn.norm_bound * run.bound
    found = oracle(drawn) if run.method == ORACLE else components_found(drawn.rows, norm_bound, run, store, limit)
    return math.nan if found is None else subspace_distance(drawn.truth, found.T)


def oracle(sample: Sample) -> FloatArray:
    """Find the leading directions of the rows over the columns that take part, without privacy."""
    block = sample.rows[:, : sample.support]
    count = sample.truth.shape[1]
    found = np.zeros((count, len(sample.truth)))
    found[:, : sample.support] = np.linalg.eigh(block.T @ block)[1][:, : -count - 1 : -1].T
    return found


def components_found(rows: FloatArray, norm_bound: float, run: Run, store: Store, limit: int) -> FloatArray | None:
    """Run a method of ours, or of another library; return None if that takes too long."""
    if run.method not in RIVALS:
        shards = np.array_split(rows, run.owners)
        return components_of(run.method, shards, norm_bound, run.components, run.epsilon, run.seed)
    if store.ended(run):
        return None
    job = {"library": run.method, "components": run.components, "epsilon": run.epsilon, "seed": run.seed}
    try:
        return rival_libraries.fit(rival_libraries.environment(), rows, job | {"norm_bound": norm_bound}, limit)[0]
    except subprocess.TimeoutExpired:
        return None


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


def medians(figures: Mapping[Run, float], known: Mapping[str, Design]) -> list[dict[str, Any]]:
    """Summarise each design and setting: the median error of each method over the seeds."""
    rows = []
    for name, setting in dict.fromkeys((run.data, run.setting) for run in figures):
        here = {run: error for run, error in figures.items() if (run.data, run.setting) == (name, setting)}
        epsilon, owners, bound = setting
        rows.append(
            {
                "data": name,
                "what": known[name].say,
                "goal": known[name].goal,
                "seeds": len({run.seed for run in here}),
                "owners": owners,
                "bound": bound,
                "epsilon": epsilon,
                "median_errors": _medians(here),
            }
        )
    return rows


def _medians(figures: Mapping[Run, float]) -> dict[str, float | None]:
    """Return each method's median, or None if one of its runs took too long."""
    runs = {method: [found for run, found in figures.items() if run.method == method] for method in methods_of(figures)}
    return {m: None if any(map(math.isnan, found)) else statistics.median(found) for m, found in runs.items()}


# --- Tables -----------------------------------------------------------------------------------------------------------


def on_tables(options: argparse.Namespace, store: Store) -> Iterator[tuple[Run, float]]:
    loaded = tables()
    names = options.tables.split(";") if options.tables else [*loaded][1:3] if options.quick else [*loaded]
    for name, count, (epsilon, owners, bound) in itertools.product(names, (2, 5), options.settings):
        for method, seed in itertools.product(options.methods, options.seeds):
            run = Run(name, method, count, epsilon, owners, seed, bound)
            measure = partial(_part_captured, loaded[name], run, store, options.limit)
            yield run, store.figure(run, measure)


def _part_captured(table: FloatArray, run: Run, store: Store, limit: int) -> float:
    norm_bound = run.bound * float(np.quantile(np.linalg.norm(table, axis=1), 0.95))
    rows = table[np.random.default_rng(run.seed).permutation(len(table))]
    found = components_found(rows, norm_bound, run, store, limit)
    return math.nan if found is None else _captured(table, found)


def _captured(table: FloatArray, components: FloatArray) -> float:
    """Return which part of the variance that PCA without privacy captures these components capture."""
    most = float(np.square(np.linalg.svd(table, compute_uv=False)[: len(components)]).sum())
    return float(np.square(table @ components.T).sum()) / most


def captured(figures: Mapping[Run, float]) -> list[dict[str, Any]]:
    """Summarise each cell of table, number of components and setting: the median of each method over the seeds."""
    rows = []
    for cell_ in dict.fromkeys((run.data, run.components, run.setting) for run in figures):
        here = {run: part for run, part in figures.items() if (run.data, run.components, run.setting) == cell_}
        name, count, (epsilon, owners, bound) = cell_
        parts = _medians(here)
        others = [part for method, part in parts.items() if method != "auto" and part is not None]
        ours = parts.get("auto")
        behind = None if ours is None else max(0.0, max(others, default=0.0) - ours)
        row = {"data": name, "components": count, "epsilon": epsilon, "owners": owners, "bound": bound}
        rows.append(row | {"median_captured": parts, "auto_is_behind": behind})
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
        lines.append(f"| {name}, {_setting(row)} | " + " | ".join(cells) + " |")
    if key == "median_captured":
        behind = [row["auto_is_behind"] for row in summary if row["auto_is_behind"] is not None]
        within = sum(each <= 0.01 for each in behind)
        lines += ["", f"auto is within .01 of the best of the others, or ahead, in {within} of {len(behind)} cells."]
    return "\n".join(lines)


def _setting(row: Mapping[str, Any]) -> str:
    owners = f", {row['owners']} providers" if row["owners"] > 1 else ""
    return f"epsilon {row['epsilon']:g}{owners}" + (f", bound x {row['bound']:g}" if row["bound"] != 1 else "")


def cell(figures: Mapping[str, float | None], method: str) -> str:
    figure = figures.get(method)
    if figure is None:
        return "-" if method in figures else ""
    return f"{figure:.4f}"


if __name__ == "__main__":
    main()
