"""Bounds and budgets in a policy, and the filters that decide about budgets. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dpspca.common.checks import check, check_bound
from dpspca.common.decoding import Source, read_part
from dpspca.common.job import Budget, JobSpec, Scaling, scaled_bounds
from dpspca.common.names import shortened
from dpspca.common.plan import Plan
from dpspca.common.privacy import ChoiceEvent, Filter, GaussianEvent

APPROXIMATE: Final = "approximate_delta"


@dataclass(frozen=True, slots=True)
class Range:
    """The range of bounds on a row's length that a job may choose, including both ends."""

    least: float
    most: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "least", check_bound("least", self.least))
        object.__setattr__(self, "most", check_bound("most", self.most))
        check(self.least <= self.most, f"least is {self.least}, which is above most, {self.most}.", "Swap them.")

    def __contains__(self, bound: float) -> bool:
        return self.least <= bound <= self.most

    def __str__(self) -> str:
        return f"between {self.least} and {self.most}" if self.least < self.most else f"exactly {self.least}"

    def for_job(self, spec: JobSpec) -> "Range":
        """Return the range for a job. One that scales its columns has bounds in other units than the rows."""
        if spec.scaling is Scaling.NONE:
            return self
        bounds = scaled_bounds(spec.schema.dimension)
        return Range(bounds.least, bounds.most)


@dataclass(frozen=True, slots=True)
class Cap(Budget):
    """A budget in which a part of delta may be used by mechanisms that are only approximately private."""

    approximate_delta: float = 0.0

    def __post_init__(self) -> None:
        Budget.__post_init__(self)
        check(
            isinstance(self.approximate_delta, float | int) and 0 <= self.approximate_delta < self.delta,
            f"approximate_delta is {shortened(self.approximate_delta)}.",
            "Give a part of delta, or leave it out.",
        )


def filter_of(budget: Budget) -> Filter:
    """Return the filter of a budget, with nothing spent."""
    return Filter.for_budget(budget.epsilon, budget.delta, aside(budget))


def aside(budget: Budget) -> float:
    """Return the part of delta that may be used by mechanisms that are only approximately private."""
    return budget.approximate_delta if isinstance(budget, Cap) else 0.0


def read_budget(raw: object, source: Source) -> Budget:
    """Read a budget, with or without a part of delta set aside. Refuse one that pays for nothing."""
    kind = Cap if isinstance(raw, Mapping) and APPROXIMATE in raw else Budget
    made: Budget = read_part(kind, raw, source)
    check(
        min(filter_of(made).whole.pair) > 0, "It is too small to pay for any job.", "Choose a larger epsilon or delta."
    )
    return made


def covers_as_signed(cap: Budget, plan: Plan) -> bool:
    """Tell whether a job with noise that is not Gaussian has an epsilon and a delta within those of a cap.

    In mu such a job costs more than its epsilon and delta suggest, and the lifetime, which is the promise, is charged
    that much. ``per_job`` only shares the lifetime out, so comparing the two numbers is enough.
    """
    signed = plan.spec.budget
    within = signed.epsilon <= cap.epsilon and signed.delta <= cap.delta and plan.mechanism_delta <= aside(cap)
    return within and not all(isinstance(event, GaussianEvent | ChoiceEvent) for event in plan.events)
