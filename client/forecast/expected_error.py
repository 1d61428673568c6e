"""The error to expect of a dps-pca job, by Theorem 4.3 of its paper, for an assumed population."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from dpspca.common.errors import InvalidParameterError
from dpspca.common.plan import Plan

from .forecast import Forecast
from .theorem_bound import for_job

METHOD: Final = "dps-pca"
"""The method that the theorem is about."""


def facts(plan: Plan, forecast: Forecast) -> dict[str, Any]:
    """Return the theorem's terms for what the forecast assumes, or why the theorem says nothing, as plain values."""
    assumed = forecast.assumed
    scale = assumed["row_length"] ** 2
    try:
        terms = for_job(
            plan,
            leading=assumed["leading"] * scale,
            following=assumed["following"] * scale,
            largest=assumed["largest"] * scale,
            rows=int(assumed["used_rows"]),
            parties=int(assumed["providers"]),
            s_star=int(assumed["support"]),
        )
    except InvalidParameterError as problem:
        return {"says_nothing": f"{problem.what} {problem.remedy}"}
    return {**asdict(terms), "total": terms.total, "largest_possible": plan.spec.components**0.5}


def words(terms: dict[str, Any]) -> Iterator[str]:
    """Yield the same as sentences."""
    if "says_nothing" in terms:
        yield f"Theorem 4.3 of Ge et al. (2018): {terms['says_nothing']}"
        return
    yield (
        f"By Theorem 4.3 of Ge et al. (2018) the error ||sin Theta||_F is at most {terms['total']:.3g}: "
        f"{terms['statistical']:.3g} because the rows are a sample, {terms['noise']:.3g} because of the noise and "
        f"{terms['convergence']:.3g} because the number of rounds is limited. This holds with probability "
        f"{terms['probability']:.3g} for the assumed population, with constant 1 and a start near the truth."
    )
    if terms["total"] >= terms["largest_possible"]:
        yield f"The bound is useless here: no error is above {terms['largest_possible']:.3g}."
