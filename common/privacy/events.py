"""What was released, as far as privacy is concerned.

An event alone suffices to account for it: no context, no default unit. The sensitivity in it already belongs to the
privacy unit of the job. The meaning of a class never changes; a mechanism that none of them describes gets a new one.

``slack`` is the total variation distance between the noise as implemented and the ideal noise that the class names
(a truncated tail, a rounded table), or between a mechanism as implemented and the one that keeps the promise. It is
tiny, and it is paid for out of delta.
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
    """A query of this L2 sensitivity was answered with Gaussian noise of this standard deviation.

    It is mu-GDP with mu = sensitivity / std (Dong, Roth & Su 2022, Theorem 1, which holds for vectors because the
    likelihood ratio of two shifted spherical Gaussians depends on the length of the shift alone).
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
    """A query of this L1 sensitivity was answered with independent discrete Laplace noise of this scale on each entry.

    The exact answer is a vector of integers, and so is the noise: P(x) is proportional to exp(-|x|/scale). Sensitivity
    and scale are in the same unit, that of the integers. It is (epsilon, 0)-DP with epsilon = sensitivity / scale
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
        """The number of equal steps, each (epsilon / steps, 0)-DP, by which neighbouring answers are apart at most.

        Integer vectors at an L1 distance of at most n = floor(sensitivity) are joined by n steps of one integer in one
        entry, and such a step multiplies no probability by more than e^(1/scale) <= e^(epsilon/n). A sensitivity below
        one is counted as a single step: then the price is that of randomised response, which no reading of the event
        exceeds. (Continuous noise and a shift of any real size up to the sensitivity go in n equal steps, too.)
        ``costs.Mixture`` says what n steps cost together.
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
    """Any (epsilon, delta)-DP mechanism of which nothing more is known.

    For two neighbours there are mechanisms that are (epsilon, 0)-DP on these two and within total variation delta of
    this one on each (Kairouz, Oh & Viswanath 2015, by whose Theorem 2 every such pair of outputs is simulated from one
    that shows its input with probability delta and is randomised response otherwise). So delta is a slack, and the
    rest a pure event.
    """

    epsilon: float
    delta: float
    slack: float = 0.0

    def __post_init__(self) -> None:
        nonnegative("epsilon", self.epsilon)
        _check_slack(self.slack)
        if nonnegative("delta", self.delta) >= 1:
            raise InvalidParameterError(f"delta = {self.delta} promises nothing.", "Give a number far below 1.")


@final
@dataclass(frozen=True, slots=True)
class ParallelEvent:
    """Groups of events on disjoint sets of rows: the cost is the largest group's, not the sum.

    Two neighbouring data sets differ in one row, which is in one group; the answers of every other group have the same
    distribution on both and tell nothing, even if their queries were chosen after seeing this group's answers.
    This needs an assignment of rows to groups under which a neighbour has its differing row in the SAME group and
    every other row where it was: by position for replace-one, by a key outside the data for add/remove; never by
    what the row says. It means nothing for units other than rows.
    """

    groups: tuple[tuple["Event", ...], ...]

    def __post_init__(self) -> None:
        if not isinstance(self.groups, tuple) or not all(isinstance(group, tuple) for group in self.groups):
            raise InvalidTypeError("The groups of a parallel event are no tuple of tuples.", "Give a tuple of tuples.")
        if not self.groups:
            raise InvalidParameterError("A parallel event without groups says nothing.", "Give at least one group.")
        for group in self.groups:
            checked_events(group)


Event: TypeAlias = GaussianEvent | LaplaceEvent | PureEvent | ApproximateEvent | ParallelEvent


def checked_events(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return a tuple of events; refuse anything else: what cannot be accounted for must not count as free."""
    try:
        listed: tuple[object, ...] = tuple(events)
    except TypeError:
        raise InvalidTypeError(f"A {type(events).__name__} is no list of events.", "Give a list of events.") from None
    return tuple(_checked_event(event) for event in listed)


def _checked_event(event: object) -> Event:
    if isinstance(event, Event):
        return event
    raise InvalidTypeError(
        f"A {type(event).__name__} is no privacy event.",
        "Give GaussianEvent, LaplaceEvent, PureEvent, ApproximateEvent or ParallelEvent objects.",
    )


def _check_noise(sensitivity: object, noise_name: str, noise: object, slack: object) -> None:
    shift, width = nonnegative("sensitivity", sensitivity), positive(noise_name, noise)
    if not math.isfinite(quotient_up(shift, width)):
        raise InvalidParameterError(
            f"{noise_name} = {width} hides nothing of a sensitivity of {shift}.", "Give noise of the query's size."
        )
    _check_slack(slack)


def _check_slack(slack: object) -> None:
    if nonnegative("slack", slack) >= 1:
        raise InvalidParameterError(
            f"slack = {slack} says that what is implemented has nothing to do with its ideal.",
            "Give the total variation distance between them, a number far below 1.",
        )
