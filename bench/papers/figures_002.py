"""The figures of paper 002 (Ge, Wang, Wang & Liu 2018) that come from data: 3a, 3b, 4a and 4b.

The paper's text says which model, sizes and budgets; its figures' points are not in the text, so what can be compared
is what it says of them, and the ranges of their axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import methods as m
from methods import Floor, Look, Method
from models import Population, Spiked
from studies import Case, Panel, Scale, Study

from dpspca.common.job import Budget

EPSILONS = (0.5, 1.0, 1.5, 2.0)
DELTAS = (0.01, 0.05, 0.1, 0.5)
BUDGET_LOOKS = (Look(m.VERMILLION, "o"), Look(m.ORANGE, "s", "--"), Look(m.GREEN, "^", "-."), Look(m.BLUE, "D", ":"))
FIGURE_4A_EPSILONS = tuple(round(0.8 + 0.1 * step, 1) for step in range(13))
FIGURE_4B_DIMENSIONS = (40, 60, 80, 100, 120, 140, 160)
BARS = "Points are means, bars reach from the smallest to the largest of {seeds} seeds (rows, start and noise)."


@dataclass(frozen=True)
class Trail:
    """A curve along the iterations."""

    panel: int
    label: str
    look: Look
    method: Method
    budget: Budget


def studies(scale: Scale) -> list[Study]:
    return [figure_3a(scale), figure_3b(scale), figure_4a(scale), figure_4b(scale)]


def population(scale: Scale) -> Spiked:
    """Return the model of section 5.1, a tenth as wide in a quick run."""
    return Spiked(100, rows=20_000) if scale.quick else Spiked()


def described(of: Spiked, seeds: int) -> str:
    return (
        f"Section 5.1's model: d = {of.dimension}, k = {of.components}, s* = {of.support}, eigenvalues 100 and "
        f"U[0, 10], n = {of.rows:,}, one provider, rows clipped to ‖x‖² ≤ {of.norm_bound**2:.0f}, row-replace-one; "
        f"ŝ = {m.SPARSITY}. {BARS.format(seeds=seeds)}"
    )


def figure_3a(scale: Scale) -> Study:
    """Error along the iterations, for four epsilons at delta 0.3."""
    budgets = [(f"ε = {epsilon:g}", Budget(epsilon, 0.3)) for epsilon in EPSILONS]
    unit = Trail(0, "ε = 0.5, noise for unit rows (not private)", m.DPS_UNIT.look, m.DPS_UNIT, budgets[0][1])
    trails = [
        *by_budget(0, m.DPS_PUBLISHED, budgets),
        noiseless(0, m.DPS_PUBLISHED),
        unit,
        *by_budget(1, m.DPS_EXACT, budgets),
        noiseless(1, m.DPS_EXACT),
    ]
    panels = [Panel("published noise and start", "iteration"), Panel("exact accounting, dense start", "iteration")]
    return along("figure-3a", "Figure 3a: convergence at δ = 0.3", panels, trails, scale)


def figure_3b(scale: Scale) -> Study:
    """Error along the iterations, for four deltas. The caption of the paper says epsilon 2, its text says 1."""
    sides = {
        "published, ε = 2 (its caption)": (2.0, m.DPS_PUBLISHED),
        "published, ε = 1 (its text)": (1.0, m.DPS_PUBLISHED),
        "exact accounting, dense start, ε = 2": (2.0, m.DPS_EXACT),
    }
    trails = [
        trail
        for panel, (epsilon, method) in enumerate(sides.values())
        for trail in by_budget(panel, method, [(f"δ = {delta:g}", Budget(epsilon, delta)) for delta in DELTAS])
    ]
    panels = [Panel(title, "iteration") for title in sides]
    return along("figure-3b", "Figure 3b: convergence for four δ", panels, trails, scale)


def figure_4a(scale: Scale) -> Study:
    """Error against epsilon in high dimension."""
    where = population(scale)
    epsilons = FIGURE_4A_EPSILONS[::6] if scale.quick else FIGURE_4A_EPSILONS
    places = [(epsilon, where, Budget(epsilon, 0.3)) for epsilon in epsilons]
    caption = f"{described(where, scale.seeds)} PPCA promises δ = 0; its Gibbs chain, minutes a draw: seed 0, two ε."
    title = "Figure 4a: error against ε, δ = 0.3"
    study = Study("figure-4a", title, caption, sides("ε"), compared(places, scale))
    return replace(study, cases=[case for case in study.cases if case.method is not m.PPCA_GIBBS or spared(case)])


def spared(case: Case) -> bool:
    """Return whether the slow chain runs for a case in high dimension."""
    return case.seed == 0 and case.x in {FIGURE_4A_EPSILONS[0], FIGURE_4A_EPSILONS[-1]}


def figure_4b(scale: Scale) -> Study:
    """Error against the dimension, at low dimensions."""
    dimensions = FIGURE_4B_DIMENSIONS[::3] if scale.quick else FIGURE_4B_DIMENSIONS
    rows = 20_000 if scale.quick else 100_000
    spiked = [Spiked(dimension, components=3, rows=rows) for dimension in dimensions]
    first, last = (f"{each.norm_bound**2:.0f} (d = {each.dimension})" for each in (spiked[0], spiked[-1]))
    caption = (
        f"Section 5.1's model with k = 3, s* = 10, n = {rows:,}, one provider, rows clipped to ‖x‖² ≤ {first} to "
        f"{last}, row-replace-one; ŝ = min({m.SPARSITY}, d). PPCA promises δ = 0. {BARS.format(seeds=scale.seeds)}"
    )
    places = [(each.dimension, each, Budget(1.0, 0.1)) for each in spiked]
    title = "Figure 4b: error against the dimension, ε = 1, δ = 0.1"
    return Study("figure-4b", title, caption, sides("dimension d"), compared(places, scale))


def sides(x: str) -> list[Panel]:
    """Return the titles of the two panels that ``compared`` fills."""
    return [Panel("the paper's methods, as published", x), Panel("others, on the same rows", x)]


def compared(places: Sequence[tuple[float, Population, Budget]], scale: Scale) -> list[Case]:
    """Return the cases of two panels: the paper's three methods as published, and all others on the same rows."""
    floors: list[Method | Floor] = [m.FLOOR, m.LOOP_FLOOR, m.ORACLE]
    shown: list[list[Method | Floor]] = [
        [m.DPS_PUBLISHED, m.MOD_SULQ, m.SULQ, m.PPCA_GIBBS, *floors],
        [m.DPS_EXACT, m.DPS_OURS, *m.OTHERS, *floors],
    ]
    return [
        Case(panel, method.label, method.look, at, method, where, budget, seed)
        for panel, methods in enumerate(shown)
        for method in methods
        for at, where, budget in places
        for seed in range(scale.seeds)
    ]


def along(name: str, title: str, panels: Sequence[Panel], trails: Sequence[Trail], scale: Scale) -> Study:
    """Return the cases of every trail for every seed. Twice as many seeds, because the published start is random."""
    where, seeds = population(scale), 2 * scale.seeds
    cases = [
        Case(trail.panel, trail.label, trail.look, None, trail.method, where, trail.budget, seed)
        for trail in trails
        for seed in range(seeds)
    ]
    return Study(name, title, described(where, seeds), panels, cases)


def by_budget(panel: int, method: Method, budgets: Sequence[tuple[str, Budget]]) -> list[Trail]:
    """Return one curve of a method for each budget."""
    return [
        Trail(panel, label, look, method, budget) for (label, budget), look in zip(budgets, BUDGET_LOOKS, strict=True)
    ]


def noiseless(panel: int, method: Method) -> Trail:
    """Return the same loop without any noise."""
    plain = replace(method, noise=m.Noise.NONE)
    return Trail(panel, "the same loop, no noise", Look(m.BLACK, "", "--"), plain, Budget(1.0, 0.3))
