"""Figures of our own for papers 000, 001, 003 and 004: the error against epsilon, size, and a key property.

The property is coherence for the first three papers, and the gap between eigenvalues for 004. All figures use exact
accounting at delta = 1e-6, and the same rows for every method in a panel.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import methods as m
from methods import Floor, Look, Method
from models import Carried, Planted, Population, Spiked
from studies import Case, Panel, Scale, Study

from dpspca.common.job import Accounting, Budget
from dpspca.common.privacy.units import PrivacyUnit

Number = TypeVar("Number", int, float)
DELTA = 1e-6
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
FULL_ENERGY, PART_ENERGY = 0.9, 0.09
BARS = "δ = 1e-6; means, bars from the smallest to the largest of {seeds} seeds."

ENTRY = PrivacyUnit.ENTRY
POWER_ENTRY = Method("noisy power, entry", Look(m.BLUE, "s"), "noisy-power", unit=ENTRY)
POWER_ENTRY_PUBLISHED = Method(
    "noisy power, entry, published noise",
    Look(m.VERMILLION, "o", "--"),
    "noisy-power",
    Accounting.PUBLISHED,
    unit=ENTRY,
)
POWER_SPECTRAL = Method("noisy power, spectral", Look(m.ORANGE, "^", "-."), "noisy-power", unit=PrivacyUnit.SPECTRAL)
ITERATION = Method("power iteration, entry", Look(m.GREEN, "D"), "power-iteration", unit=ENTRY)
ITERATION_PUBLISHED = Method(
    "power iteration, entry, published noise", Look(m.PURPLE, "X", "--"), "power-iteration", Accounting.PUBLISHED,
    {"coherence": 64.0}, unit=ENTRY,
)  # fmt: skip
PROJECTION = Method("range finder and projection", Look(m.PURPLE, "P"), "range-projection")
PROJECTION_WIDE = Method(
    "the same, d directions", Look(m.SKY, "d", "--"), "range-projection", options={"oversampling": 29}
)


@dataclass(frozen=True)
class Row:
    """A panel: its titles, and the population and epsilon at each place along its axis."""

    panel: Panel
    places: Sequence[tuple[float, Population, float]]
    methods: Sequence[Method | Floor]


def studies(scale: Scale) -> list[Study]:
    return [paper_000(scale), paper_001(scale), paper_003(scale), paper_004(scale)]


def paper_000(scale: Scale) -> Study:
    """Noisy, private and streaming power methods, over rows and over a matrix."""
    rows, wide = (5_000, 128) if scale.quick else (100_000, 512)
    counts = thinned([5_000, 10_000, 30_000, 100_000], scale, 3)
    spiked = Spiked(100, components=3, rows=rows)
    over_rows: list[Method | Floor] = [m.NOISY_POWER, m.STREAMING, m.GAUSS, m.FLOOR]
    return study(
        "paper-000",
        "Paper 000: the noisy power method",
        f"Left and middle: rows of section 5.1's model of 002, d = 100, k = 3, ‖x‖² ≤ {spiked.norm_bound**2:.0f}, "
        f"row-replace-one; n = {rows:,} (left), ε = 1 (middle). Right: a symmetric {wide} x {wide} matrix, eigenvalue "
        "2000 three times, entries of the basis ±1/√s on s features, noise of 1/2 an entry; ε = 1, an entry or a "
        "spectral norm changes by 1.",
        [
            Row(Panel("rows: error against ε", "ε", log_x=True), budgets(spiked, scale), over_rows),
            Row(
                Panel("rows: error against n", "rows n", log_x=True),
                [(count, Spiked(100, components=3, rows=count), 1.0) for count in counts],
                over_rows,
            ),
            Row(
                Panel("matrix: error against coherence", "coherence d/s", log_x=True),
                coherences(wide, scale),
                [POWER_ENTRY, POWER_ENTRY_PUBLISHED, POWER_SPECTRAL, m.FLOOR],
            ),
        ],
        scale,
    )


def paper_001(scale: Scale) -> Study:
    """Range finder and projection over rows of different coherence."""
    rows = 5_000 if scale.quick else 100_000
    counts = thinned([10_000, 30_000, 100_000], scale, 2)
    wide = 32
    shown: list[Method | Floor] = [PROJECTION, PROJECTION_WIDE, m.NOISY_POWER, m.GAUSS, m.FLOOR]
    carriers = thinned([rows // 10, rows // 5, rows // 2, rows], scale, 2)
    full = Carried(wide, rows=rows, carriers=rows, energy=FULL_ENERGY * rows)
    return study(
        "paper-001",
        "Paper 001: range finder, pruning, projection",
        f"Rows of norm at most 1, d = {wide}, k = 3: a sum of squares of {FULL_ENERGY:g} n in the subspace, shared by "
        f"all rows (left, middle), or of {PART_ENERGY:g} n, shared by a part of them (right; C = √(n / rows that carry "
        f"it)); row-replace-one; n = {rows:,} (left, right), ε = 4 (middle), ε = 16 (right).",
        [
            Row(Panel("error against ε", "ε", log_x=True), budgets(full, scale, (1.0, 2.0, 4.0, 8.0, 16.0)), shown),
            Row(
                Panel("error against n", "rows n", log_x=True),
                [(n, Carried(wide, rows=n, carriers=n, energy=FULL_ENERGY * n), 4.0) for n in counts],
                shown,
            ),
            Row(
                Panel("error against coherence", "C-coherence of the rows"),
                [
                    (
                        round(math.sqrt(rows / each), 2),
                        Carried(wide, rows=rows, carriers=each, energy=PART_ENERGY * rows),
                        16.0,
                    )
                    for each in carriers
                ],
                shown,
            ),
        ],
        scale,
    )


def paper_003(scale: Scale) -> Study:
    """Power iteration and deflation over a matrix whose entries are protected."""
    wide = 128 if scale.quick else 512
    widths = [64, 128] if scale.quick else [64, 128, 256, 512, 1024]
    shown: list[Method | Floor] = [ITERATION, ITERATION_PUBLISHED, POWER_ENTRY, m.FLOOR]
    return study(
        "paper-003",
        "Paper 003: private power iteration and deflation",
        "A symmetric matrix, eigenvalue 2000 three times, entries of the basis ±1/√s on s features, noise of 1/2 an "
        f"entry; one entry changes by 1. {wide} x {wide} and s = d (left), ε = 1 and s = d (middle), {wide} x {wide} "
        "and ε = 1 (right).",
        [
            Row(Panel("error against ε", "ε", log_x=True), budgets(Planted(wide, spread=wide), scale), shown),
            Row(
                Panel("error against the dimension", "dimension d", log_x=True),
                [(each, Planted(each, spread=each), 1.0) for each in widths],
                shown,
            ),
            Row(Panel("error against coherence", "coherence d/s", log_x=True), coherences(wide, scale), shown),
        ],
        scale,
    )


def paper_004(scale: Scale) -> Study:
    """Output perturbation by smooth sensitivity, which depends on the gap between eigenvalues."""
    rows = 20_000 if scale.quick else 50_000
    counts = thinned([1_000, 3_000, 10_000, 30_000, 100_000, 300_000], scale, 3)
    leading = thinned([15.0, 20.0, 30.0, 50.0, 100.0, 200.0], scale, 3)
    spiked = Spiked(20, components=3, rows=rows)
    shown: list[Method | Floor] = [m.OUTPUT, m.OUTPUT_PURE, m.PPCA_EXACT, m.GAUSS, m.FLOOR]
    return study(
        "paper-004",
        "Paper 004: output perturbation by smooth sensitivity",
        "Rows of section 5.1's model of 002 with d = 20, k = 3, s* = 10, clipped in proportion to ‖x‖² ≤ "
        f"{spiked.norm_bound**2:.0f} at eigenvalue 100, row-replace-one; n = {rows:,} (left, right), ε = 1 (middle, "
        "right).",
        [
            Row(Panel("error against ε", "ε", log_x=True), budgets(spiked, scale), shown),
            Row(
                Panel("error against n", "rows n", log_x=True),
                [(count, Spiked(20, components=3, rows=count), 1.0) for count in counts],
                shown,
            ),
            Row(
                Panel("error against the gap", "leading eigenvalue (others ≤ 10)", log_x=True),
                [(each, Spiked(20, components=3, rows=rows, leading=each), 1.0) for each in leading],
                shown,
            ),
        ],
        scale,
    )


def study(name: str, title: str, caption: str, rows: Sequence[Row], scale: Scale) -> Study:
    """Return the study of these panels, with its jobs."""
    cases = [
        Case(panel, method.label, method.look, at, method, where, Budget(epsilon, DELTA), seed)
        for panel, row in enumerate(rows)
        for method in row.methods
        for at, where, epsilon in row.places
        for seed in range(scale.seeds)
    ]
    bars = BARS.format(seeds=scale.seeds)
    return Study(name, title, f"{caption} {bars}", [row.panel for row in rows], cases)


def budgets(
    where: Population, scale: Scale, epsilons: Sequence[float] = EPSILONS
) -> list[tuple[float, Population, float]]:
    return [(epsilon, where, epsilon) for epsilon in thinned(list(epsilons), scale, 2)]


def coherences(wide: int, scale: Scale) -> list[tuple[float, Population, float]]:
    spreads = thinned([each for each in (8, 16, 32, 64, 128, 256, 512) if each <= wide], scale, 2)
    return [(wide / each, Planted(wide, spread=each), 1.0) for each in spreads]


def thinned(values: list[Number], scale: Scale, step: int) -> list[Number]:
    """Leave places out of a quick run: keep every so many, and none that is large."""
    return values[: 2 * step : step] if scale.quick else values
