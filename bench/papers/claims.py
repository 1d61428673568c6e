"""The papers' statements about their figures, each as a check of what was measured here."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import figures_own as own
import methods as m
from theory import EXACT_UNIT, PUBLISHED_LONG, PUBLISHED_PRIVATE, STATISTICAL

Found = tuple[bool | None, str]
Check = Callable[[Mapping[str, Any]], Found]

CHANCE: Final = 0.9
"""An estimate counts as meaningless from this part of the largest possible error on."""
LARGE: Final = 10.0
"""Numbers from here on are written without decimals."""
HALF: Final = 0.5
"""The distance between two marks of an axis."""
SAME: Final = 1.1
"""Errors that differ by less than this factor count as equal."""


def line(result: Mapping[str, Any], panel: int, curve: str) -> list[float]:
    """Return the means of a curve, in order."""
    return [point["mean"] for point in result["panels"][panel]["curves"][curve]]


def places(result: Mapping[str, Any], panel: int, curve: str) -> list[float]:
    return [point["x"] for point in result["panels"][panel]["curves"][curve]]


def formatted(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" if value >= LARGE else f"{value:.2g}" for value in values)


def falls(values: Sequence[float]) -> bool:
    """Return whether no value is clearly above the one before."""
    return all(later <= SAME * earlier for earlier, later in pairwise(values))


def ends(result: Mapping[str, Any], panel: int) -> dict[str, float]:
    """Return the last mean of every curve that belongs to a budget."""
    curves = result["panels"][panel]["curves"]
    return {
        label: points[-1]["mean"]
        for label, points in curves.items()
        if label.startswith(("ε", "δ")) and "," not in label
    }


def privacy_is_free(result: Mapping[str, Any]) -> Found:
    private, statistical = line(result, 0, PUBLISHED_PRIVATE), line(result, 0, STATISTICAL)
    parts = [a / b for a, b in zip(private, statistical, strict=True)]
    return max(parts) < 1, f"with ‖x‖ ≤ 1 it is {min(parts):.2g} to {max(parts):.2g} of the statistical error"


def free_for_long_rows(result: Mapping[str, Any]) -> Found:
    needed = line(result, 1, PUBLISHED_LONG)
    return max(needed) <= 1e5, f"the theorem needs {min(needed):.2g} to {max(needed):.2g} rows of ‖x‖² ≤ 5500"


def exact_is_smaller(result: Mapping[str, Any]) -> Found:
    ratios = [
        a / b for a, b in zip(line(result, 1, "published noise, ‖x‖² ≤ 1"), line(result, 1, EXACT_UNIT), strict=True)
    ]
    return None, f"exact accounting divides the rows that are needed by {min(ratios):.2g} to {max(ratios):.2g}"


def stricter_is_worse(result: Mapping[str, Any]) -> Found:
    found = ends(result, 0)
    return falls(list(found.values())), "; ".join(f"{label}: {value:.2g}" for label, value in found.items())


def stricter_is_worse_exact(panel: int) -> Check:
    def check(result: Mapping[str, Any]) -> Found:
        found = ends(result, panel)
        return falls(list(found.values())), "; ".join(f"{label}: {value:.2g}" for label, value in found.items())

    return check


def converges(panel: int, curve: str) -> Check:
    """Check "geometric convergence" by the share of the initial error that is left after the last iteration."""

    def check(result: Mapping[str, Any]) -> Found:
        values = line(result, panel, curve)
        done = next(at for at, value in enumerate(values) if value <= 1.2 * values[-1])
        return values[-1] < values[
            0
        ] / 10, f"{curve}: {values[0]:.2g} to {values[-1]:.2g}, within a fifth of it after {done}"

    return check


def within_marks(result: Mapping[str, Any]) -> Found:
    """Check the curves against the printed axis, whose marks are 1.0, 1.5 and 2.0: the next marks were not reached."""
    found = [point["mean"] for label in ends(result, 0) for point in result["panels"][0]["curves"][label]]
    return min(found) > HALF and max(found) < 5 * HALF, f"means lie between {min(found):.2g} and {max(found):.3g}"


def never_finds(result: Mapping[str, Any]) -> Found:
    cut, dense = line(result, 0, "the same loop, no noise"), line(result, 1, "the same loop, no noise")
    return cut[-1] < SAME * dense[
        -1
    ], f"without any noise the cut start ends at {cut[-1]:.2g}, a dense one at {dense[-1]:.2g}"


def unit_noise(result: Mapping[str, Any]) -> Found:
    unit = line(result, 0, "ε = 0.5, noise for unit rows (not private)")[-1]
    plain = line(result, 0, "the same loop, no noise")[-1]
    return (
        unit > SAME * plain,
        f"with noise for ‖x‖ ≤ 1 the error is {unit:.2g}, without noise {plain:.2g}: ε would not show",
    )


def best_everywhere(result: Mapping[str, Any]) -> Found:
    ours = dict(zip(places(result, 0, m.DPS_PUBLISHED.label), line(result, 0, m.DPS_PUBLISHED.label), strict=True))
    words, wins = [], []
    for rival in (m.MOD_SULQ.label, m.PPCA_GIBBS.label):
        if rival in result["panels"][0]["curves"]:
            theirs = dict(zip(places(result, 0, rival), line(result, 0, rival), strict=True))
            better = [at for at, value in theirs.items() if ours[at] < value]
            wins.append(len(better) == len(theirs))
            words.append(f"better than {rival} at {len(better)} of {len(theirs)}")
    return all(wins), "; ".join(words)


def at_chance(curve: str, components: int) -> Check:
    def check(result: Mapping[str, Any]) -> Found:
        least = min(line(result, 0, curve))
        worst = math.sqrt(components)
        return least > CHANCE * worst, f"its least error is {least:.2g} of at most {worst:.3g}"

    return check


def least_error(curve: str) -> Check:
    """Report the least error of a curve about which the paper says too little for a check."""

    def check(result: Mapping[str, Any]) -> Found:
        return None, f"its least error is {min(line(result, 0, curve)):.2g}, from a chain without guarantee"

    return check


def well_at_first(result: Mapping[str, Any]) -> Found:
    first = {label: line(result, 0, label)[0] for label in (m.MOD_SULQ.label, m.PPCA_GIBBS.label)}
    words = "; ".join(f"{label}: {value:.2g}" for label, value in first.items())
    return max(first.values()) < math.sqrt(3) / 2, f"{words} in the lowest dimension, of at most 1.73"


def covariance_works(result: Mapping[str, Any]) -> Found:
    gauss, floor = line(result, 1, m.GAUSS.label), line(result, 1, m.FLOOR.label)
    sparse = line(result, 1, m.DPS_OURS.label)
    return False, (
        f"Analyze Gauss, exactly accounted for, has {max(gauss):.2g} to {min(gauss):.2g} (no privacy: {floor[0]:.2g}); "
        f"DPS-PCA by our defaults {max(sparse):.2g} to {min(sparse):.2g}"
    )


def axis_fits(result: Mapping[str, Any]) -> Found:
    curves = result["panels"][0]["curves"]
    largest = max(point["largest"] for points in curves.values() for point in points)
    return (
        False,
        f"‖sin Θ‖ is at most √5 = 2.24, and the largest here {largest:.3g}; ‖QQᵀ - UUᵀ‖ is √2 times that, at most 3.16",
    )


def grows(curve: str) -> Check:
    def check(result: Mapping[str, Any]) -> Found:
        values, at = line(result, 0, curve), places(result, 0, curve)
        return values[-1] > SAME * values[0], f"{values[0]:.2g} at d = {at[0]:g}, {values[-1]:.2g} at d = {at[-1]:g}"

    return check


def fast(result: Mapping[str, Any]) -> Found:
    spent = result["milliseconds"][m.DPS_PUBLISHED.label]
    return max(
        spent
    ) < 1, f"{formatted(spent)} ms for a whole job of {m.ROUNDS} rounds: checked, paid for, integer noise"


def slower(rival: str, least: float) -> Check:
    def check(result: Mapping[str, Any]) -> Found:
        pairs = zip(result["milliseconds"][rival], result["milliseconds"][m.DPS_PUBLISHED.label], strict=True)
        ratios = [theirs / ours for theirs, ours in pairs]
        return min(ratios) > least, f"{formatted(ratios)} times DPS-PCA's time"

    return check


def rises_with_coherence(panel: int, curve: str) -> Check:
    def check(result: Mapping[str, Any]) -> Found:
        pairs = sorted(zip(places(result, panel, curve), line(result, panel, curve), strict=True))
        values = [value for _, value in pairs]
        return falls(values[::-1]) and values[-1] > SAME * values[0], f"{curve}: {formatted(values)} as coherence grows"

    return check


def free_of_dimension(curve: str) -> Check:
    def check(result: Mapping[str, Any]) -> Found:
        values = line(result, 1, curve)
        return max(values) < 2 * min(values), f"{curve}: {formatted(values)} as d grows"

    return check


def drops(panel: int, curve: str) -> Check:
    def check(result: Mapping[str, Any]) -> Found:
        values = line(result, panel, curve)
        return falls(values) and values[-1] < values[0] / 2, f"{curve}: {formatted(values)}"

    return check


CLAIMS: dict[str, Sequence[tuple[str, Check]]] = {
    "figure-2": [
        ("the privacy error is below the statistical one: privacy for free", privacy_is_free),
        ("... at the paper's n = 100,000, for rows as long as its figures need them", free_for_long_rows),
        ("(not in the paper) exact accounting", exact_is_smaller),
    ],
    "figure-3a": [
        ("smaller ε, larger final error", stricter_is_worse),
        ("the axis is marked 1.0, 1.5 and 2.0, so that all errors are between 0.5 and 2.5", within_marks),
        ("the loop converges within ten iterations, as published", converges(0, "ε = 2")),
        ("... with exact accounting and a dense start", converges(1, "ε = 2")),
        ("the start does no harm (it is assumed to be good)", never_finds),
        ("noise for rows of norm one gives curves that differ by ε", unit_noise),
    ],
    "figure-3b": [
        ("smaller δ, larger final error, ε = 2", stricter_is_worse),
        ("the axis is marked 1.0, 1.5 and 2.0, so that all errors are between 0.5 and 2.5", within_marks),
        ("... with exact accounting", stricter_is_worse_exact(2)),
    ],
    "figure-4a": [
        ("DPS-PCA outperforms MOD-SuLQ and PPCA", best_everywhere),
        ("MOD-SuLQ cannot produce meaningful estimates in high dimension", at_chance(m.MOD_SULQ.label, 5)),
        ("(not in the paper) PPCA in high dimension", least_error(m.PPCA_GIBBS.label)),
        ("model-free methods cannot be applied successfully to high-dimensional data", covariance_works),
        ("the printed axis, which reaches 3.0, fits the measure", axis_fits),
    ],
    "figure-4b": [
        ("DPS-PCA outperforms in all scenarios", best_everywhere),
        ("MOD-SuLQ quickly deteriorates as d grows", grows(m.MOD_SULQ.label)),
        ("MOD-SuLQ and PPCA perform reasonably well in low dimensions", well_at_first),
    ],
    "table-1": [
        ("DPS-PCA takes less than a millisecond", fast),
        ("MOD-SuLQ takes longer", slower(m.MOD_SULQ.label, 1)),
        ("PPCA takes thousands of times as long", slower(m.PPCA_GIBBS.label, 1000)),
    ],
    "paper-000": [
        ("the error grows with coherence where entries are protected", rises_with_coherence(2, own.POWER_ENTRY.label)),
        ("more rows help the streaming method", drops(1, m.STREAMING.label)),
    ],
    "paper-001": [
        ("the error grows with the rows' coherence", rises_with_coherence(2, own.PROJECTION.label)),
        ("more rows help", drops(1, own.PROJECTION.label)),
    ],
    "paper-003": [
        ("the error grows with coherence", rises_with_coherence(2, own.ITERATION.label)),
        ("at coherence 1 it is free of the dimension", free_of_dimension(own.ITERATION.label)),
    ],
    "paper-004": [
        ("a wider gap leaves less noise", drops(2, m.OUTPUT.label)),
        ("more rows help", drops(1, m.OUTPUT.label)),
    ],
}
