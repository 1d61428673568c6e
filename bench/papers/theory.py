"""Figure 2 of paper 002: the bound of Theorem 4.3, and the number of rows from which it says anything.

The theorem's error is at most stats_err + priv_err once the power loop has converged, where

    gamma     = (3 l_{k+1} + l_k) / (3 l_k + l_{k+1}),        rho = gamma / (1 - xi) < 1,
    xi        = 2 k (sqrt(s_hat) + sqrt(k) + tau) N nu / (n l_k),
    stats_err = C1 sqrt(k) / (1 - rho^(1/4)) sqrt(l_1 l_{k+1}) / (l_k - l_{k+1}) sqrt(s* (k + log d) / n),
    priv_err  = (1 + 2 sqrt(k s* / s_hat)) xi / (1 - xi) / (sqrt(3) (1 - rho^(1/4))),

where nu is the noise on a provider's sum. The paper gives no C1, so it is taken as 1. tau, which sets the probability
1 - 2 T exp(-tau^2 / 2), is 4.
"""

import math
from collections.abc import Callable
from typing import Any

from methods import BLACK, BLUE, GREEN, ORANGE, PURPLE, ROUNDS, SPARSITY, VERMILLION, Look
from models import PAPER_SQUARED_BOUND
from studies import Panel

from dpspca.common.privacy.calibration import gaussian_mu, published_noise_multiplier

DELTA = 0.01
EPSILONS = tuple(round(0.2 + 0.1 * step, 1) for step in range(19))
COMPONENTS, SUPPORT, DIMENSION, ROWS = 5, 10, 1000, 100_000
LEADING, NEXT = 100.0, 10.0
TAU = 4.0
GAMMA = (3 * NEXT + LEADING) / (3 * LEADING + NEXT)

Noise = Callable[[float], float]

PANELS = [
    Panel(f"the bound, ‖x‖ ≤ 1, n = {ROWS:,}", "ε"),
    Panel("rows from which it says anything (ρ < 1)", "ε", y_label="number of rows n"),
]
STATISTICAL = "statistical error"
PUBLISHED_PRIVATE = "privacy error, published noise"
EXACT_UNIT = "exact noise, ‖x‖² ≤ 1"
PUBLISHED_LONG = f"published noise, ‖x‖² ≤ {PAPER_SQUARED_BOUND:.0f}"
LOOKS = {
    STATISTICAL: Look(BLACK, "o", "--"),
    PUBLISHED_PRIVATE: Look(VERMILLION, "s"),
    "privacy error, exact noise": Look(BLUE, "D", "-."),
    "their sum, published noise": Look(ORANGE, "^", ":"),
    "published noise, ‖x‖² ≤ 1": Look(VERMILLION, "s", "--"),
    EXACT_UNIT: Look(BLUE, "D", ":"),
    PUBLISHED_LONG: Look(PURPLE, "v"),
    f"exact noise, ‖x‖² ≤ {PAPER_SQUARED_BOUND:.0f}": Look(GREEN, "P", "-."),
}


def figure_2() -> dict[str, Any]:
    """Compute both panels, which have no randomness."""
    bound = {
        STATISTICAL: [(e, statistical(perturbation(published(e), ROWS))) for e in EPSILONS],
        PUBLISHED_PRIVATE: [(e, private(perturbation(published(e), ROWS))) for e in EPSILONS],
        "privacy error, exact noise": [(e, private(perturbation(exact(e), ROWS))) for e in EPSILONS],
        "their sum, published noise": [
            (e, statistical(perturbation(published(e), ROWS)) + private(perturbation(published(e), ROWS)))
            for e in EPSILONS
        ],
    }
    least = {
        f"{name} noise, ‖x‖² ≤ {squared:.0f}": [(e, least_rows(noise(e) * squared)) for e in EPSILONS]
        for squared in (1.0, PAPER_SQUARED_BOUND)
        for name, noise in (("published", published), ("exact", exact))
    }
    return {
        "kind": "figure",
        "title": f"Figure 2: Theorem 4.3, δ = {DELTA:g}",
        "caption": (
            f"Computed, not simulated: d = {DIMENSION}, k = {COMPONENTS}, s* = {SUPPORT}, ŝ = {SPARSITY}, "
            f"T = {ROUNDS}, eigenvalues {LEADING:g} and {NEXT:g}, one provider, C1 = 1, τ = {TAU:g}. Left: limit of "
            f"many iterations. Right: with ‖x‖² ≤ {PAPER_SQUARED_BOUND:.0f} and published noise nothing is said at the "
            f"paper's n = {ROWS:,}. No seeds, so no bars."
        ),
        "left_out": {},
        "panels": [
            {
                "title": panel.title,
                "x": panel.x_label,
                "y": panel.y_label,
                "curves": {name: points(line) for name, line in lines.items()},
            }
            for panel, lines in zip(PANELS, (bound, least), strict=True)
        ],
    }


def published(epsilon: float) -> float:
    """Return the paper's noise on a sum of rows of norm one."""
    return published_noise_multiplier(ROUNDS, epsilon, DELTA)


def exact(epsilon: float) -> float:
    """Return the noise of exact accounting for T products, one row replaced."""
    return math.sqrt(2 * ROUNDS) / gaussian_mu(epsilon, DELTA)


def perturbation(noise: float, rows: float) -> float:
    """Return xi, the contribution of the noise to a round."""
    spread = math.sqrt(SPARSITY) + math.sqrt(COMPONENTS) + TAU
    return 2 * COMPONENTS * spread * noise / (rows * LEADING)


def least_rows(noise: float) -> float:
    """Return the least n with rho < 1, that is with xi < 1 - gamma."""
    return perturbation(noise, 1.0) / (1 - GAMMA)


def statistical(xi: float) -> float:
    gap = math.sqrt(LEADING * NEXT) / (LEADING - NEXT)
    sampling = math.sqrt(SUPPORT * (COMPONENTS + math.log(DIMENSION)) / ROWS)
    return math.sqrt(COMPONENTS) * gap * sampling / contraction(xi)


def private(xi: float) -> float:
    cut = 1 + 2 * math.sqrt(COMPONENTS * SUPPORT / SPARSITY)
    return cut * xi / (1 - xi) / (math.sqrt(3) * contraction(xi))


def contraction(xi: float) -> float:
    return 1 - math.sqrt(math.sqrt(GAMMA / (1 - xi)))


def points(line: list[tuple[float, float]]) -> list[dict[str, float]]:
    return [{"x": x, "mean": y, "least": y, "largest": y, "seeds": 0} for x, y in line]
