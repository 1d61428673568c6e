"""The total price of events: in whole units for decisions, and as a mixture of noises for reports.

Promises: a cost is never below the true one. Decisions count mu^2 of Gaussian differential privacy in units of 2**-80,
each event rounded up, and distances of implemented from ideal noise in units of 2**-256. ``Mixture`` bounds the privacy
curve if not all noise was Gaussian.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

import numpy as np

from dpspca.common.arrays import FloatArray

from .calibration import choice_mu, float_below, gaussian_delta, pure_mu, root_up
from .events import (
    ApproximateEvent,
    ChoiceEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    ParallelEvent,
    PureEvent,
    checked_events,
)

UNIT: Final = Fraction(1, 2**80)
"""One unit of mu^2, small enough that rounding up does not matter; sums are stored as text."""
SLACK_UNIT: Final = Fraction(1, 2**256)
"""One unit of total variation distance."""
_REMEMBERED: Final = 1024
"""How many events' exact costs are cached: most rounds of a job have the same event."""


# --- Costs in whole units ---------------------------------------------------------------------------------------------


def cost_units(events: Iterable[Event]) -> int:
    """Return the total price of events in units of mu^2, each rounded up.

    Gaussian events cost (sensitivity/std)^2, an exact rational of the floats in them. Pure, approximate and Laplace
    events cost the square of ``pure_mu``. GDP composes by adding squares (Dong, Roth & Su 2022, Corollary 2). A
    parallel event costs what its most expensive group costs.
    """
    return sum(_event_units(event) for event in checked_events(events))


def slack_units(events: Iterable[Event]) -> int:
    """Return the total variation distance between all implemented noise and its ideal, in units, rounded up.

    Distances add under (adaptive) composition: if each step is coupled, the transcripts differ with probability at most
    the sum. Of parallel groups only the one with the differing row needs to be replaced by its ideal.
    """
    return sum(_event_slack_units(event) for event in checked_events(events))


@dataclass(frozen=True, slots=True)
class Price:
    """The total price of answers, or the size of a budget, in whole units of mu^2 and of slack."""

    units: int = 0
    slack_units: int = 0

    @classmethod
    def of(cls, events: Iterable[Event]) -> Self:
        """Return the total price of events."""
        listed = checked_events(events)
        return cls(cost_units(listed), slack_units(listed))

    def __add__(self, other: "Price") -> "Price":
        return Price(self.units + other.units, self.slack_units + other.slack_units)

    def __sub__(self, other: "Price") -> "Price":
        return Price(self.units - other.units, self.slack_units - other.slack_units)

    def __mul__(self, times: int) -> "Price":
        return Price(self.units * times, self.slack_units * times)

    def at_least(self, other: "Price") -> "Price":
        """Return the larger units of mu^2 and the larger units of slack of both prices."""
        return Price(max(self.units, other.units), max(self.slack_units, other.slack_units))

    def at_most(self, other: "Price") -> "Price":
        """Return the smaller units of mu^2 and the smaller units of slack of both prices."""
        return Price(min(self.units, other.units), min(self.slack_units, other.slack_units))

    def is_within(self, room: "Price") -> bool:
        """Whether neither unit exceeds that of ``room``."""
        return self.units <= room.units and self.slack_units <= room.slack_units

    def times_in(self, room: "Price") -> int:
        """Return how many such prices fit into the rest of a budget; 0 for a free price."""
        pairs = (room.units, self.units), (room.slack_units, self.slack_units)
        return max(0, min((left // price for left, price in pairs if price), default=0))

    @property
    def gaussian_part(self) -> "Price":
        """The part in mu, without that of delta: the price of one job whose noise is Gaussian and takes all of it."""
        return Price(self.units)

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing."""
        return self == NOTHING

    @property
    def pair(self) -> tuple[int, int]:
        """Both units, as they are stored."""
        return self.units, self.slack_units

    @property
    def mu(self) -> float:
        """The mu of the units of mu^2, rounded up."""
        return mu_of(self.units)


NOTHING: Final = Price()


@lru_cache(maxsize=_REMEMBERED)
def _event_units(event: Event) -> int:
    match event:
        case GaussianEvent():
            return _whole_units((Fraction(event.sensitivity) / Fraction(event.std)) ** 2)
        case LaplaceEvent() | PureEvent() | ApproximateEvent():
            return _whole_units(Fraction(pure_mu(event.epsilon)) ** 2)
        case ChoiceEvent():
            return _whole_units(event.picks * Fraction(choice_mu(event.log_range)) ** 2)
        case ParallelEvent():
            return max(cost_units(group) for group in event.groups)


def _whole_units(mu_squared: Fraction) -> int:
    return math.ceil(mu_squared / UNIT)


@lru_cache(maxsize=_REMEMBERED)
def _event_slack_units(event: Event) -> int:
    match event:
        case GaussianEvent() | LaplaceEvent() | PureEvent() | ChoiceEvent():
            return math.ceil(Fraction(event.slack) / SLACK_UNIT)
        case ApproximateEvent():
            return math.ceil((Fraction(event.delta) + Fraction(event.slack)) / SLACK_UNIT)
        case ParallelEvent():
            return max(slack_units(group) for group in event.groups)


@lru_cache(maxsize=1024)
def mu_of(units: int) -> float:
    """Return the mu of this many units of mu^2, rounded up."""
    return min(root_up(units * UNIT), sys.float_info.max)


# --- Mixtures ---------------------------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """A Laplace event: neighbouring answers are at most ``number`` steps apart, which cost ``epsilon`` together."""

    epsilon: float
    number: int


@dataclass(frozen=True, slots=True)
class Mixture:
    """The events that one row may affect: summed Gaussian noise, the steps of Laplace events, epsilons of pure ones."""

    gaussian_units: int = 0
    laplace: tuple[Steps, ...] = ()
    pure: tuple[float, ...] = ()
    slack_units: int = 0

    @property
    def is_gaussian(self) -> bool:
        """Whether it has only Gaussian noise."""
        return not (self.laplace or self.pure)

    @property
    def converted_units(self) -> int:
        """The units of mu^2 if each other event is replaced by a Gaussian event that is at least as bad."""
        return self.gaussian_units + cost_units(PureEvent(epsilon) for epsilon in self.epsilons)

    @property
    def epsilons(self) -> tuple[float, ...]:
        """The epsilon of each event that is not Gaussian."""
        return tuple(steps.epsilon for steps in self.laplace) + self.pure

    @property
    def loss_range(self) -> float:
        """A privacy loss that ideal noise almost never exceeds: all epsilons plus ten deviations of Gaussian noise."""
        mu = mu_of(self.gaussian_units)
        return sum(self.epsilons) + mu * mu / 2 + 10 * mu

    def followed_by(self, other: "Mixture") -> "Mixture":
        """Return the mixture of both, composed."""
        return Mixture(
            self.gaussian_units + other.gaussian_units,
            tuple(sorted(self.laplace + other.laplace)),
            tuple(sorted(self.pure + other.pure)),
            self.slack_units + other.slack_units,
        )

    def delta(self, epsilon: float) -> float:
        """Bound delta at this epsilon for ideal noise: exactly if all is Gaussian, else by the best of three."""
        if self.is_gaussian:
            return gaussian_delta(epsilon, mu_of(self.gaussian_units))
        converted = gaussian_delta(epsilon, mu_of(self.converted_units))
        return min(converted, self._delta_by_adding(epsilon), _delta_by_distribution(self, epsilon))

    def _delta_by_adding(self, epsilon: float) -> float:
        """Compose (sum of epsilons, 0) with the Gaussian part by basic composition; 0 without Gaussian noise."""
        left = Fraction(epsilon) - sum(map(Fraction, self.epsilons))
        return 1.0 if left < 0 else gaussian_delta(float_below(left), mu_of(self.gaussian_units))


_MOST_CASES: Final = 8


def worst_cases(events: tuple[Event, ...]) -> tuple[Mixture, ...]:
    """Return mixtures such that each row affects the events of at most one of them.

    The differing row is in one group of each parallel event, so the loss is that of *some* choice of groups and at
    most the maximum over choices. Mixtures are not totally ordered, so all undominated choices are kept while they are
    few. After that, a parallel event is replaced by a Gaussian event that bounds all its groups (``pure_mu``).
    """
    cases: tuple[Mixture, ...] = (Mixture(),)
    for event in events:
        options = _options(event)
        if len(cases) * len(options) > _MOST_CASES:
            options = (_gaussian_bound(options),)
        cases = _undominated(case.followed_by(option) for case in cases for option in options)
    return cases


def _options(event: Event) -> tuple[Mixture, ...]:
    match event:
        case GaussianEvent() | ChoiceEvent():  # choices by the Gaussian event that bounds them
            return (Mixture(gaussian_units=_event_units(event), slack_units=_event_slack_units(event)),)
        case LaplaceEvent():
            steps = (Steps(event.epsilon, event.steps),) if event.epsilon else ()
            return (Mixture(laplace=steps, slack_units=_event_slack_units(event)),)
        case PureEvent() | ApproximateEvent():
            pure = (event.epsilon,) if event.epsilon else ()
            return (Mixture(pure=pure, slack_units=_event_slack_units(event)),)
        case ParallelEvent():
            return _undominated(case for group in event.groups for case in worst_cases(group))


def _undominated(cases: Iterable[Mixture]) -> tuple[Mixture, ...]:
    """Merge cases that differ only in Gaussian noise and slack: the largest of each bounds them all."""
    merged: dict[tuple[tuple[Steps, ...], tuple[float, ...]], Mixture] = {}
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
_MOST_ATOMS: Final = 2**15
_LARGEST_SPAN: Final = 500.0  # the exponential of larger losses would overflow
_GRID_GUARD: Final = 2.0**-36  # relative, for the rounding of parameters and grid points
_MASS_GUARD: Final = 2.0**-40  # absolute, per convolution, for the rounding of the Fourier transforms


def _delta_by_distribution(mixture: Mixture, epsilon: float) -> float:
    """Read delta off the composed privacy loss distribution, with an allowance for floating point.

    The estimates are pessimistic in exact arithmetic (Doroshenko et al. 2022); the allowances cover the rounding of
    grid points and Fourier transforms. Each family is represented by the worst pair for its sensitivity:

    - Gaussian: one shift by mu, see ``GaussianEvent``.
    - Pure: randomised response, from which every (epsilon, 0)-DP mechanism can be simulated (Kairouz et al. 2015).
    - n steps that are (epsilon/n, 0)-DP each (``LaplaceEvent.steps``): discrete Laplace noise on one integer that
      shifts by n, P(x) proportional to q^|x|, q = e^(-epsilon/n). Reason: if a test has false positive rate a, a step
      raises its rate to at most g(a) = min(a/q, 1 - q (1 - a)), and n steps to g(g(...g(a))), because g increases. The
      tests X >= m of that noise reach it: P(X >= m) = q^m/(1 + q) for m >= 1 and 1 - q^(1 - m)/(1 + q)
      for m <= 0, so that g(P(X >= m)) = P(X >= m - 1) for every m, and g is linear in between. With n = 1 this is
      randomised response; as n grows it falls to the curve of continuous Laplace noise, 1 - e^((e - epsilon)/2).
    """
    span = mixture.loss_range
    if span > _LARGEST_SPAN:
        return 1.0
    distribution = _distribution(replace(mixture, slack_units=0))
    guard = _MASS_GUARD * (1 + len(mixture.epsilons))
    return float(distribution.get_delta_for_epsilon(epsilon - span * _GRID_GUARD)) + guard


@lru_cache(maxsize=32)
def _distribution(mixture: Mixture) -> Any:  # noqa: ANN401 -- dp_accounting publishes no types
    """Compose the distributions on a common grid; cached, because a curve is read at many points."""
    # Imported here because it takes a second, which jobs with only Gaussian noise save.
    from dp_accounting.pld import pld_pmf  # noqa: PLC0415
    from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415

    step = mixture.loss_range / _GRID_STEPS
    result = pld.identity(value_discretization_interval=step)
    if mixture.gaussian_units:
        std = 1 / mu_of(mixture.gaussian_units)
        result = result.compose(pld.from_gaussian_mechanism(std, value_discretization_interval=step))
    for steps, times in Counter(mixture.laplace + tuple(Steps(epsilon, 1) for epsilon in mixture.pure)).items():
        masses = pld_pmf.create_pmf(_on_grid(_atoms(steps), step), step, 0.0, pessimistic_estimate=True)
        result = result.compose(pld.PrivacyLossDistribution(masses).self_compose(times))
    return result


class _Atoms(NamedTuple):
    """Probabilities of privacy losses, each spread over ``loss`` plus or minus ``spread`` with mean ``loss``."""

    mass: FloatArray
    loss: FloatArray
    spread: FloatArray


def _atoms(steps: Steps) -> _Atoms:
    """Return the privacy losses of discrete Laplace noise against the same noise shifted by n, under the former.

    The loss at x is (n - 2x) epsilon/n for 0 <= x <= n, with probability 1/(1 + q) for all x <= 0 together,
    q^n/(1 + q) for all x >= n, and (1 - q) q^x/(1 + q) between. If there are many, u adjacent ones are merged: their
    masses add up to q^x (1 - q^u)/(1 + q) from x on, and to that times e^-loss under the shifted noise, where ``loss``
    is the middle of theirs.
    """
    each = steps.epsilon / steps.number
    together = -(-steps.number // _MOST_ATOMS)
    first = np.arange(1, steps.number, together, dtype=np.float64)
    among = np.minimum(together, steps.number - first)
    inside = np.exp(-each * first) * -np.expm1(-each * among)
    ends = np.array([1.0, math.exp(-steps.epsilon)])
    whole = 1 + math.exp(-each)
    loss = steps.epsilon * (1 - (2 * first + among - 1) / steps.number)
    return _Atoms(
        np.concatenate([ends, inside]) / whole,
        np.concatenate([[steps.epsilon, -steps.epsilon], loss]),
        np.concatenate([[0.0, 0.0], each * (among - 1)]),
    )


def _on_grid(atoms: _Atoms, step: float) -> dict[int, float]:
    """Move each atom to the grid points around it, preserving its probability under both data sets.

    This is "connecting the dots" (Doroshenko et al. 2022). It never lowers delta, because
    max(0, 1 - e^(epsilon - loss)) is convex in e^-loss.
    """
    lower = np.floor((atoms.loss - atoms.spread) / step)
    upper = np.maximum(np.ceil((atoms.loss + atoms.spread) / step), lower + 1)
    above = np.expm1(lower * step - atoms.loss) / np.expm1((lower - upper) * step)
    places = np.concatenate([lower, upper]).astype(np.int64)
    masses = np.concatenate([atoms.mass * (1 - above), atoms.mass * above])
    grid: dict[int, float] = {}
    for place, mass in zip(places.tolist(), masses.tolist(), strict=True):
        grid[place] = grid.get(place, 0.0) + max(0.0, mass)
    return grid
