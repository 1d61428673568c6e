"""How much a result says and hides: whether noise may have mixed components, and how well anybody can guess a row.

This is post-processing of the model, so it costs nothing. Two directions that explain about the same amount can be
turned into each other by little noise. So where the difference of two explained variances is not clearly above its own
noise, the two components have to be read together, as a plane.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dpspca.common.privacy import best_guess_by_epsilon, best_guess_by_mu
from dpspca.common.results import Model, PrivacyStatement

CLEARLY: Final = 3.0
"""Times the standard deviation of its noise, from which a difference counts as clear."""


def stability(model: Model, components: list[dict[str, Any]]) -> dict[str, Any]:
    """Return whether neighbouring components are told apart, and how many of the listed loadings are clear of zero."""
    known = [each["loading_interval"] for part in components for each in part["top_features"]]
    ends = [each for each in known if each]
    return {
        "neighbours": _neighbours(model),
        "loadings_with_interval": len(ends),
        "loadings_clear_of_zero": sum(low > 0 or high < 0 for low, high in ends),
    }


def _neighbours(model: Model) -> list[dict[str, Any]]:
    """Return for each component but the last how far it is from the next. Empty if the noise is not known."""
    return [_neighbour(model, place) for place in range(len(model.components) - 1)] if _known_sizes(model) else []


def _known_sizes(model: Model) -> list[tuple[Sequence[float], float]]:
    """Return the sizes of components with their noise, from each release that shows them.

    Where variances were asked for apart, the matrix that components were read off tells them apart, too.
    """
    decided, values = model.decision, model.explained_variance
    read_off = (decided.values, decided.noise_std) if decided is not None else (None, None)
    asked = (None if values is None else np.abs(values).tolist(), model.explained_variance_std)
    return [(sizes, std) for sizes, std in (asked, read_off) if sizes and std]


def _neighbour(model: Model, place: int) -> dict[str, Any]:
    """Return how far a component is from the next, by the release that shows it best."""
    differences = [(sizes[place] - sizes[place + 1], math.sqrt(2.0) * std) for sizes, std in _known_sizes(model)]
    difference, noise = max(differences, key=lambda each: each[0] / each[1])
    return {
        "component": place + 1,
        "difference": float(difference),
        "difference_std": noise,
        "told_apart": bool(difference > CLEARLY * noise),
    }


def best_guess_from(statement: PrivacyStatement) -> float:
    """Return the most that a guess from a result can be right: by mu as well if all noise is Gaussian."""
    right = best_guess_by_epsilon(statement.epsilon, statement.delta)
    return min(right, best_guess_by_mu(statement.mu, statement.delta)) if statement.gaussian else right


def in_words(facts: list[dict[str, Any]]) -> list[str]:
    """Return one sentence for each pair of neighbouring components."""
    return [_sentence(each) for each in facts]


def _sentence(each: dict[str, Any]) -> str:
    one, times = each["component"], each["difference"] / each["difference_std"]
    head = f"Components {one} and {one + 1} differ in size by {max(times, 0.0):.1f} times the noise of that difference"
    if each["told_apart"]:
        return f"{head}: they are clearly separate."
    return f"{head}: noise may have mixed them, so read the two together."
