"""Descriptions of releases, as far as privacy is concerned.

An event holds all that accounting needs: no context, no default unit. Its sensitivity is for the privacy unit of the
job. The meaning of a class never changes; a mechanism that no class describes gets a new class.

``slack`` is the total variation distance between the implemented noise and the ideal noise that the class names (a
truncated tail, a rounded table), or between an implemented mechanism and the one that keeps the promise. It is tiny,
and delta pays for it.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, final

from dpspca.common.errors import InvalidParameterError, InvalidTypeError

from .calibration import nonnegative, positive, quotient_up


@final
@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """An answer of this L2 sensitivity, with Gaussian noise of this standard deviation.

    It is mu-GDP with mu = sensitivity / std (Dong, Roth & Su 2022, Theorem 1, which holds for vectors because the
    likelihood ratio of two shifted spherical Gaussians depends only on the length of the shift).
    """

    sensitivity: float
    std: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        _check_noise(self.sensitivity, "std", self.std, self.slack)

    @property
    def mu(self) -> float:
        """Sensitivity / std, rounded up."""
        return quotient_up(self.sensitivity, self.std)


@final
@dataclass(frozen=True, slots=True)
class LaplaceEvent:
    """An answer of this L1 sensitivity, with independent discrete Laplace noise of this scale on each entry.

    Exact answer and noise are vectors of integers, with P(x) proportional to exp(-|x|/scale). Sensitivity and scale are
    in the unit of these integers. It is (epsilon, 0)-DP with epsilon = sensitivity / scale
    (Dwork, McSherry, Nissim & Smith 2006; Ghosh, Roughgarden & Sundararajan 2009). The whole privacy curve of integer
    noise lies above that of continuous noise: a shift by one integer is randomised response (see ``steps``).
    """

    sensitivity: float
    scale: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        _check_noise(self.sensitivity, "scale", self.scale, self.slack)

    @property
    def epsilon(self) -> float:
        """Sensitivity / scale, rounded up."""
        return quotient_up(self.sensitivity, self.scale)

    @property
    def steps(self) -> int:
        """The largest number of equal steps, each (epsilon / steps, 0)-DP, between neighbouring answers.

        Integer vectors at an L1 distance of at most n = floor(sensitivity) are joined by n steps of one integer in one
        entry, and such a step multiplies no probability by more than e^(1/scale) <= e^(epsilon/n). A sensitivity below
        one is counted as a single step: then the price is that of randomised response, the worst case of every
        (epsilon, 0)-DP mechanism. (Continuous noise that shifts by any real number up to the sensitivity divides into n
        equal steps, too.) ``costs.Mixture`` says what n steps cost together.
        """
        return max(1, math.floor(self.sensitivity))


@final
@dataclass(frozen=True, slots=True)
class PureEvent:
    """Any (epsilon, 0)-DP mechanism: exponential, Cauchy-type, randomised response."""

    epsilon: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        nonnegative("epsilon", self.epsilon)
        _check_slack(self.slack)


@final
@dataclass(frozen=True, slots=True)
class ApproximateEvent:
    """Any (epsilon, delta)-DP mechanism.

    For any two neighbours there is a mechanism that is (epsilon, 0)-DP on these two and within total variation delta of
    this one on each. (By Theorem 2 of Kairouz, Oh & Viswanath 2015, every such pair of outputs can be simulated from a
    mechanism that shows its input with probability delta and is randomised response otherwise.) So delta counts as
    slack, and the rest as a pure event.
    """

    epsilon: float
    delta: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        nonnegative("epsilon", self.epsilon)
        _check_slack(self.slack)
        if nonnegative("delta", self.delta) >= 1:
            raise InvalidParameterError(
                f"delta = {self.delta} is not below 1 and promises nothing.", "Give a number far below 1."
            )


@final
@dataclass(frozen=True, slots=True)
class ChoiceEvent:
    """``picks`` choices by exponential mechanisms, one after the other.

    Each is made with probabilities proportional to exp(score / scale), of whole scores that move by at most
    ``sensitivity`` each, and may depend on the choices before it. Its range is 2 sensitivity / scale, and it is mu-GDP
    with the mu of ``calibration.choice_mu``, where the proof is. So all of them together are sqrt(picks) mu-GDP.
    """

    sensitivity: float
    scale: float
    picks: int = 1
    slack: float = 0.0

    def __post_init__(self) -> None:
        _check_noise(self.sensitivity, "scale", self.scale, self.slack)
        if self.picks < 1:
            raise InvalidParameterError(f"The number of picks is {self.picks}.", "Give at least 1.")

    @property
    def log_range(self) -> float:
        """2 sensitivity / scale, rounded up."""
        return quotient_up(2 * self.sensitivity, self.scale)


@final
@dataclass(frozen=True, slots=True)
class ParallelEvent:
    """Groups of events on disjoint sets of rows; the cost is that of the largest group, not the sum.

    Two neighbouring data sets differ in one row, which is in one group. The answers of every other group have the same
    distribution on both and disclose nothing, even if their queries were chosen after seeing this group's answers.
    This requires an assignment of rows to groups under which a neighbour has its differing row in the SAME group and
    every other row where it was: by position for replace-one, by a key outside the data for add/remove; never by the
    contents of the row. It is valid only for units of rows.
    """

    groups: tuple[tuple["Event", ...], ...]

    def __post_init__(self) -> None:
        if not isinstance(self.groups, tuple) or not all(isinstance(group, tuple) for group in self.groups):
            raise InvalidTypeError(
                "The groups of a parallel event are not a tuple of tuples.", "Give a tuple of tuples."
            )
        if not self.groups:
            raise InvalidParameterError("A parallel event has no groups.", "Give at least one group.")
        for group in self.groups:
            checked_events(group)


Event: TypeAlias = GaussianEvent | LaplaceEvent | PureEvent | ApproximateEvent | ChoiceEvent | ParallelEvent


def checked_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return a tuple of events, or refuse: what cannot be accounted for must not count as free."""
    try:
        listed: tuple[object, ...] = tuple(events)
    except TypeError:
        raise InvalidTypeError(
            f"A {type(events).__name__} is not a list of events.", "Give a list of events."
        ) from None
    return tuple(_checked_event(event) for event in listed)


def _checked_event(event: object) -> Event:
    if isinstance(event, Event):
        return event
    raise InvalidTypeError(
        f"A {type(event).__name__} is not a privacy event.",
        "Give GaussianEvent, LaplaceEvent, PureEvent, ApproximateEvent, ChoiceEvent or ParallelEvent objects.",
    )


def _check_noise(sensitivity: object, noise_name: str, noise: object, slack: object) -> None:
    shift, width = nonnegative("sensitivity", sensitivity), positive(noise_name, noise)
    if not math.isfinite(quotient_up(shift, width)):
        raise InvalidParameterError(
            f"{noise_name} = {width} is too small for a sensitivity of {shift}.", "Give noise of the query's size."
        )
    _check_slack(slack)


def _check_slack(slack: object) -> None:
    if nonnegative("slack", slack) >= 1:
        raise InvalidParameterError(
            f"slack = {slack} is not below 1.",
            "Give the total variation distance of the implementation from its ideal, a number far below 1.",
        )
