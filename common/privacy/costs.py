"""What events cost together: in whole units, for decisions, and as a mixture of noises, for reports.

Promises: a cost is never below the true one, in either currency. The currency of decisions is mu^2 of Gaussian
differential privacy in units of 2**-80, each event rounded up; distances of implemented noise from ideal noise are
counted in units of 2**-256. ``Mixture`` bounds the privacy curve where noise was not Gaussian alone.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from .calibrate import gaussian_delta, pure_mu, root_up, round_down
from .events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    ParallelEvent,
    PureEvent,
    checked_events,
)

UNIT: Final = Fraction(1, 2**80)
"""One unit of mu^2: sums stay small integers that any store can hold as text."""
SLACK_UNIT: Final = Fraction(1, 2**256)
"""One unit of total variation distance."""
_REMEMBERED: Final = 1024
"""Events whose exact costs are not worked out again: the rounds of a job are mostly one event."""


# --- Costs in whole units ---------------------------------------------------------------------------------------------


def cost_units(events: Iterable[Event]) -> int:
    """Return what the events cost together, in units of mu^2, each rounded up.

    Gaussian events cost (sensitivity/std)^2, an exact rational of the floats in them. Pure, approximate and Laplace
    events cost the square of ``pure_mu``. GDP composes by adding squares (Dong, Roth & Su 2022, Corollary 2). A
    parallel event costs what its dearest group costs.
    """
    return sum(_event_units(event) for event in checked_events(events))


def slack_units(events: Iterable[Event]) -> int:
    """Return the total variation distance between all implemented noise and its ideal, in units, rounded up.

    Distances add under (adaptive) composition: couple each step, and the transcripts differ with probability at most
    the sum. Of parallel groups only the one that holds the differing row needs to be replaced by its ideal.
    """
    return sum(_event_slack_units(event) for event in checked_events(events))


@lru_cache(maxsize=_REMEMBERED)
def _event_units(event: Event) -> int:
    match event:
        case GaussianEvent():
            return _whole_units((Fraction(event.sensitivity) / Fraction(event.std)) ** 2)
        case LaplaceEvent() | PureEvent() | ApproximateEvent():
            return _whole_units(Fraction(pure_mu(event.epsilon)) ** 2)
        case ParallelEvent():
            return max(cost_units(group) for group in event.groups)


def _whole_units(mu_squared: Fraction) -> int:
    return math.ceil(mu_squared / UNIT)


@lru_cache(maxsize=_REMEMBERED)
def _event_slack_units(event: Event) -> int:
    match event:
        case GaussianEvent() | LaplaceEvent():
            return math.ceil(Fraction(event.slack) / SLACK_UNIT)
        case ApproximateEvent():
            return math.ceil(Fraction(event.delta) / SLACK_UNIT)
        case PureEvent():
            return 0
        case ParallelEvent():
            return max(slack_units(group) for group in event.groups)


@lru_cache(maxsize=1024)
def mu_of(units: int) -> float:
    """Return the mu that so many units of mu^2 are worth, rounded up."""
    return min(root_up(units * UNIT), sys.float_info.max)


# --- Mixtures ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mixture:
    """The events that one row may meet: Gaussian noise summed up, Laplace and pure events by their epsilons."""

    gaussian_units: int = 0
    laplace: tuple[float, ...] = ()
    pure: tuple[float, ...] = ()
    slack_units: int = 0

    @property
    def is_gaussian(self) -> bool:
        """Whether there is nothing in it but Gaussian noise."""
        return not (self.laplace or self.pure)

    @property
    def converted_units(self) -> int:
        """The units of mu^2 when every pure event is taken for the Gaussian one it is no worse than."""
        return self.gaussian_units + cost_units(PureEvent(epsilon) for epsilon in self.laplace + self.pure)

    @property
    def span(self) -> float:
        """A privacy loss that the ideal noise all but never exceeds: the pure parts, and ten deviations of the rest."""
        mu = mu_of(self.gaussian_units)
        return sum(self.laplace + self.pure) + mu * mu / 2 + 10 * mu

    def joined(self, other: "Mixture") -> "Mixture":
        """Return the mixture of both, one after the other."""
        return Mixture(
            self.gaussian_units + other.gaussian_units,
            tuple(sorted(self.laplace + other.laplace)),
            tuple(sorted(self.pure + other.pure)),
            self.slack_units + other.slack_units,
        )

    def delta(self, epsilon: float) -> float:
        """Bound the delta at this epsilon for ideal noise: exactly for Gaussian noise, else by the least of three."""
        if self.is_gaussian:
            return gaussian_delta(epsilon, mu_of(self.gaussian_units))
        converted = gaussian_delta(epsilon, mu_of(self.converted_units))
        return min(converted, self._delta_by_adding(epsilon), _delta_by_distribution(self, epsilon))

    def _delta_by_adding(self, epsilon: float) -> float:
        """Compose (sum of epsilons, 0) with the Gaussian part by the basic theorem; exactly 0 for pure events alone."""
        left = Fraction(epsilon) - sum(map(Fraction, self.laplace + self.pure))
        return 1.0 if left < 0 else gaussian_delta(round_down(left), mu_of(self.gaussian_units))


_MOST_CASES: Final = 8


def worst_cases(events: tuple[Event, ...]) -> tuple[Mixture, ...]:
    """Return mixtures such that every single row meets no more than one of them.

    The differing row is in one group of each parallel event, so the loss is that of *some* choice of groups and at
    most the maximum over choices. Mixtures are not ordered, so all undominated choices are kept while they are few;
    after that a parallel event is replaced by the Gaussian event that no group of it exceeds (``pure_mu``).
    """
    cases: tuple[Mixture, ...] = (Mixture(),)
    for event in events:
        options = _options(event)
        if len(cases) * len(options) > _MOST_CASES:
            options = (_gaussian_bound(options),)
        cases = _undominated(case.joined(option) for case in cases for option in options)
    return cases


def _options(event: Event) -> tuple[Mixture, ...]:
    match event:
        case GaussianEvent():
            return (Mixture(gaussian_units=_event_units(event), slack_units=_event_slack_units(event)),)
        case LaplaceEvent():
            return (Mixture(laplace=_nonzero(event.epsilon), slack_units=_event_slack_units(event)),)
        case PureEvent() | ApproximateEvent():
            return (Mixture(pure=_nonzero(event.epsilon), slack_units=_event_slack_units(event)),)
        case ParallelEvent():
            return _undominated(case for group in event.groups for case in worst_cases(group))


def _nonzero(epsilon: float) -> tuple[float, ...]:
    return (epsilon,) if epsilon else ()


def _undominated(cases: Iterable[Mixture]) -> tuple[Mixture, ...]:
    """Merge cases that differ only in Gaussian noise and slack: the largest of each bounds them all."""
    merged: dict[tuple[tuple[float, ...], tuple[float, ...]], Mixture] = {}
    for case in cases:
        known = merged.setdefault((case.laplace, case.pure), case)
        merged[case.laplace, case.pure] = replace(
            known,
            gaussian_units=max(known.gaussian_units, case.gaussian_units),
            slack_units=max(known.slack_units, case.slack_units),
        )
    return tuple(merged.values())


def _gaussian_bound(cases: tuple[Mixture, ...]) -> Mixture:
    return Mixture(max(c.converted_units for c in cases), slack_units=max(c.slack_units for c in cases))


# --- Privacy loss distributions ---------------------------------------------------------------------------------------

_GRID_STEPS: Final = 2**15
_LARGEST_SPAN: Final = 500.0  # the exponential of larger losses would overflow
_GRID_GUARD: Final = 2.0**-36  # relative: rounding of parameters and of grid points
_MASS_GUARD: Final = 2.0**-40  # absolute, per convolution: rounding of the Fourier transforms


def _delta_by_distribution(mixture: Mixture, epsilon: float) -> float:
    """Read delta off the composed privacy loss distribution, with an allowance for floating point.

    Its estimates are pessimistic in exact arithmetic (Doroshenko et al. 2022); the allowances make up for the grid
    points and the Fourier transforms being rounded. Each family has the worst pair of its sensitivity:

    - Gaussian: one shift by mu, see ``GaussianEvent``.
    - Pure: randomised response, which every (epsilon, 0)-DP mechanism can be simulated from (Kairouz et al. 2015).
    - Laplace on vectors: one entry that shifts by all of the L1 sensitivity. For two entries shifting by a >= b (in
      scales), 0 <= e <= a + b and w = a + b - e, integrating the loss gives delta(e) = 1 - e^(-w/2) (1 + min(w, 2b)/4),
      never more than the 1 - e^(-w/2) of a single entry that shifts by a + b. So entries can be merged one by one.
    """
    span = mixture.span
    if span > _LARGEST_SPAN:
        return 1.0
    distribution = _distribution(replace(mixture, slack_units=0))
    guard = _MASS_GUARD * (1 + len(mixture.laplace) + len(mixture.pure))
    return float(distribution.get_delta_for_epsilon(epsilon - span * _GRID_GUARD)) + guard


@lru_cache(maxsize=32)
def _distribution(mixture: Mixture) -> Any:  # noqa: ANN401 -- dp_accounting publishes no types
    """Compose the distributions on a common grid; remembered, because a curve is read at many points."""
    # Imported here because it takes a second, which those who use Gaussian noise alone need not wait.
    from dp_accounting.pld import common  # noqa: PLC0415
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415

    step = mixture.span / _GRID_STEPS
    result = pld.identity(value_discretization_interval=step)
    if mixture.gaussian_units:
        std = 1 / mu_of(mixture.gaussian_units)
        result = result.compose(pld.from_gaussian_mechanism(std, value_discretization_interval=step))
    for epsilon, times in Counter(mixture.laplace).items():
        one = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=step)
        result = result.compose(one.self_compose(times))
    for epsilon, times in Counter(mixture.pure).items():
        one = pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, 0), step)
        result = result.compose(one.self_compose(times))
    return result
