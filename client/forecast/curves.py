"""The expected error for a range of budgets, as numbers and as a plot."""

from dataclasses import dataclass, replace
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from dpspca.client.reports import new_canvas
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Budget, JobSpec
from dpspca.common.plan import Plan
from dpspca.common.privacy import MAX_EPSILON

from .candidates import Within, as_it_is, candidates, of_candidate
from .methods import MethodForecast, about, chance
from .population import Hints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST: Final = 5
"""Methods in one plot: those with the smallest errors at the job's own budget."""
_POINTS: Final = 25
_TIMES: Final = 10.0
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")  # of Okabe and Ito's palette


@dataclass(frozen=True, slots=True)
class Curves:
    """The expected errors of methods at several values of epsilon."""

    epsilons: tuple[float, ...]
    errors: dict[str, tuple[float, ...]]
    chance: float
    own_epsilon: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        errors = {label: list(of_method) for label, of_method in self.errors.items()}
        return {
            "epsilons": list(self.epsilons),
            "errors": errors,
            "chance": self.chance,
            "own_epsilon": self.own_epsilon,
        }


def curves(job: JobSpec | Plan, hints: Hints, within: Within = as_it_is) -> Curves:
    """Forecast the best methods for budgets from a tenth of the job's own to ten times as much.

    The job may be planned already. ``within`` makes each candidate one that providers would admit.
    """
    job = about(job, hints)
    spec = job.spec if isinstance(job, Plan) else job
    own = spec.budget.epsilon
    epsilons = np.geomspace(own / _TIMES, min(_TIMES * own, MAX_EPSILON), _POINTS)
    allowed = [each for each in (_allowed(other, within) for other in candidates(spec, hints)) if each]
    tried = ((_tried(job, other, hints), other) for other in allowed)
    found = [(each, other) for each, other in tried if each]
    found.sort(key=lambda pair: pair[0].error)
    errors = {
        each.label: tuple(_error(other, hints, float(epsilon)) for epsilon in epsilons) for each, other in found[:MOST]
    }
    return Curves(tuple(map(float, epsilons)), errors, chance(spec), own)


def draw(shown: Curves, path: str | PathLike[str] | IO[bytes] | None = None) -> "Figure":
    """Draw the curves. Write a PNG if a path is given. It needs matplotlib."""
    canvas, axes = new_canvas(width=6.4, height=4.2)
    for colour, (label, errors) in zip(_COLOURS, shown.errors.items(), strict=False):
        axes.plot(shown.epsilons, errors, color=colour, label=label)
    axes.axhline(shown.chance, color="#666666", linestyle="--", linewidth=1, label="random directions")
    axes.axvline(shown.own_epsilon, color="#666666", linestyle=":", linewidth=1, label="the job's epsilon")
    axes.set(xscale="log", yscale="log", xlabel="epsilon", ylabel="expected error")
    axes.legend(frameon=False, fontsize=8)
    if path is not None:
        canvas.figure.savefig(path, format="png")
    return canvas.figure


def _allowed(candidate: JobSpec, within: Within) -> JobSpec | None:
    try:
        return within(candidate)
    except DpspcaError:
        return None


def _tried(job: JobSpec | Plan, other: JobSpec, hints: Hints) -> MethodForecast | None:
    try:
        return of_candidate(job, other, hints)
    except DpspcaError:
        return None


def _error(spec: JobSpec, hints: Hints, epsilon: float) -> float:
    """Return the error at another budget; that of random directions if the method refuses it."""
    at_epsilon = replace(spec, budget=Budget(epsilon, spec.budget.delta))
    found = _tried(at_epsilon, at_epsilon, hints)
    return found.error if found else chance(spec)
