"""Studies: the jobs of a figure, and the curves of their errors.

All chosen studies run together, sample by sample, so that every method gets the same rows, which are drawn and prepared
once. A job that two studies share runs once.
"""

import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from measure import Outcome
from methods import Floor, Look, Method, Noise
from models import Population, sample

from dpspca.common.errors import DpspcaError
from dpspca.common.job import Budget


@dataclass(frozen=True)
class Scale:
    """How large a run is."""

    quick: bool
    seeds: int


@dataclass(frozen=True)
class Case:
    """One job and the curve that its error belongs to: at ``x``, or along the iterations where there is no x."""

    panel: int
    label: str
    look: Look
    x: float | None
    method: Method | Floor
    population: Population
    budget: Budget
    seed: int

    @property
    def key(self) -> tuple[object, ...]:
        """Everything that the outcome depends on."""
        noiseless = isinstance(self.method, Floor) or self.method.noise is Noise.NONE
        return repr(self.method), self.population, self.seed, None if noiseless else self.budget


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    log_x: bool = False
    log_y: bool = True
    y_label: str = "subspace error ‖sin Θ‖"


@dataclass(frozen=True)
class Study:
    """A figure: its panels, its caption, and its jobs."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    cases: Sequence[Case]

    @property
    def looks(self) -> dict[str, Look]:
        """Return the look of each curve."""
        return {case.label: case.look for case in self.cases}


def outcomes(studies: Iterable[Study], note: "Notes") -> dict[tuple[object, ...], Outcome]:
    """Run every job once, sample by sample."""
    unique = {case.key: case for study in studies for case in study.cases if not note.left_out(case.method)}
    groups: dict[tuple[Population, int], list[Case]] = {}
    for case in unique.values():
        groups.setdefault((case.population, case.seed), []).append(case)
    found: dict[tuple[object, ...], Outcome] = {}
    for number, ((population, seed), cases) in enumerate(groups.items(), start=1):
        start = time.perf_counter()
        drawn = sample(population, seed)
        prepared = time.perf_counter() - start
        for case in cases:
            try:
                found[case.key] = case.method.run(drawn, population, case.budget, seed)
            except DpspcaError as problem:
                note.refused(case.method.label, f"{problem}")
        jobs = time.perf_counter() - start - prepared
        print_progress(
            f"{number}/{len(groups)} {population} seed {seed}: {prepared:.1f} s, {len(cases)} jobs {jobs:.1f} s"
        )
    return found


class Notes:
    """Notes on what could not be measured, each printed once."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def left_out(self, method: Method | Floor) -> bool:
        if method.missing:
            self._print_once(method.label, f"left out: the catalogue has no {getattr(method, 'method', '')}")
        return method.missing

    def refused(self, label: str, why: str) -> None:
        self._print_once(label, f"refused: {why}")

    def of(self, labels: Iterable[str]) -> dict[str, str]:
        """Return the notes on these studies."""
        return {label: self.lines[label] for label in sorted(set(labels) & set(self.lines))}

    def _print_once(self, label: str, what: str) -> None:
        if self.lines.setdefault(label, what) is what:
            print_progress(f"{label}: {what}")


def curves(study: Study, found: dict[tuple[object, ...], Outcome], notes: Notes) -> dict[str, Any]:
    """Collect a study's errors into the curves that are written and drawn."""
    values: dict[tuple[int, str], dict[float, list[float]]] = {}
    for case in study.cases:
        if case.key not in found:
            continue
        points = values.setdefault((case.panel, case.label), {})
        outcome = found[case.key]
        for x, error in enumerate(outcome.trail) if case.x is None else [(case.x, outcome.error)]:
            points.setdefault(float(x), []).append(error)
    return {
        "kind": "figure",
        "title": study.title,
        "caption": study.caption,
        "left_out": notes.of({case.method.label for case in study.cases}),
        "panels": [
            {
                "title": panel.title,
                "x": panel.x_label,
                "y": panel.y_label,
                "curves": {
                    label: [
                        {"x": x, "mean": statistics.fmean(at), "least": min(at), "largest": max(at), "seeds": len(at)}
                        for x, at in sorted(points.items())
                    ]
                    for (where, label), points in values.items()
                    if where == number
                },
            }
            for number, panel in enumerate(study.panels)
        ],
    }


def print_progress(line: str) -> None:
    """Report progress on standard error."""
    print(line, file=sys.stderr, flush=True)
