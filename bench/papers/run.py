"""Draw the figures and tables of paper 002 again, our own for the other papers, and compare other libraries.

    python bench/papers/run.py [--quick] [--only NAME ...] [--out DIR] [--seeds N] [--json]

All methods get the same rows and seeds, and are compared with floors without privacy. Each figure becomes a PNG and a
CSV, each table a CSV, in ``--out`` (docs/papers). summary.json there holds all numbers; a complete run also writes the
tables in docs/papers.md from it. ``--quick`` uses small sizes, and draws into out/papers unless ``--out`` is given. A
method that the catalogue lacks is left out, and a line says so. Progress goes to standard error.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: measure one core, and leave the others free

import draw
import figures_002
import figures_own
import numpy as np
import page
import rivals
import theory
import timing
from methods import Look
from studies import Notes, Panel, Scale, Study, curves, outcomes, print_progress

ROOT = Path(__file__).parents[2]
SEEDS = {True: 2, False: 4}


def main() -> None:
    options = parsed()
    scale = Scale(options.quick, options.seeds or SEEDS[options.quick])
    out = options.out or ROOT / ("out/papers" if options.quick else "docs/papers")
    out.mkdir(parents=True, exist_ok=True)
    before, start = earlier(out, options.only, scale), time.perf_counter()
    summary, done = before, []
    for name, result in measured(scale, options.only, out):
        done.append(name)
        summary = merged(summary, {name: result}, scale, before["seconds"] + round(time.perf_counter() - start))
        (out / "summary.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if out == ROOT / "docs/papers":
        page.write(ROOT / "docs/papers.md", summary)
    print(json.dumps(summary, indent=2, ensure_ascii=False) if options.json else page.plain(summary, done, out))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Regenerate the figures and tables of the papers.")
    parser.add_argument("--quick", action="store_true", help="small sizes, two seeds")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names(), help=f"of: {', '.join(names())}")
    parser.add_argument("--out", type=Path, help="where figures and numbers go")
    parser.add_argument("--seeds", type=int, help="how often to repeat with other rows, starts and noise")
    parser.add_argument("--json", action="store_true", help="print all numbers as JSON")
    return parser.parse_args()


def names() -> list[str]:
    scale = Scale(quick=True, seeds=1)
    return ["figure-2", *(study.name for study in studies(scale)), "table-1", "rivals"]


def studies(scale: Scale) -> list[Study]:
    return [*figures_002.studies(scale), *figures_own.studies(scale)]


def wanted(scale: Scale, only: list[str] | None) -> set[str]:
    """Return what to measure. Other libraries take minutes to install and fit, so a quick run must name them."""
    if scale.quick and not only:
        print_progress("rivals: left out of a quick run that does not name them")
        return set(names()) - {"rivals"}
    return set(only or names())


def measured(scale: Scale, only: list[str] | None, out: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run what was chosen, and draw each result as soon as it is there."""
    chosen = wanted(scale, only)
    if "figure-2" in chosen:
        yield drawn("figure-2", theory.figure_2(), theory.PANELS, theory.LOOKS, out)
    figures = [study for study in studies(scale) if study.name in chosen]
    notes = Notes()
    found = outcomes(figures, notes)
    for study in figures:
        yield drawn(study.name, curves(study, found, notes), study.panels, study.looks, out)
    for name, table in {"table-1": timing.table_1, "rivals": rivals.comparison}.items():
        if name in chosen:
            result = table(scale)
            draw.table_csv(result, out / f"{name}.csv")
            yield name, result


def drawn(
    name: str, result: dict[str, Any], panels: Sequence[Panel], looks: Mapping[str, Look], out: Path
) -> tuple[str, dict[str, Any]]:
    """Write a figure and its numbers."""
    draw.figure_csv(result, out / f"{name}.csv")
    draw.png(result, panels, looks, out / f"{name}.png")
    print_progress(f"drew {name}")
    return name, result


def earlier(out: Path, only: list[str] | None, scale: Scale) -> dict[str, Any]:
    """Read the results of an earlier run of the same size, so that a run of some parts keeps the others."""
    stored = out / "summary.json"
    before = json.loads(stored.read_text(encoding="utf-8")) if only and stored.exists() else {}
    return before if before.get("quick") == scale.quick else {"seconds": 0, "results": {}}


def merged(before: Mapping[str, Any], results: Mapping[str, Any], scale: Scale, seconds: int) -> dict[str, Any]:
    """Merge new results with earlier ones. Their times add up."""
    known = {**before["results"], **results}
    return {
        "quick": scale.quick,
        "seeds": scale.seeds,
        "seconds": seconds,
        "machine": (
            f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}"
        ),
        "results": {name: known[name] for name in names() if name in known},
    }


if __name__ == "__main__":
    main()
