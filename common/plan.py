"""From a signed spec to the exact list of questions that may be asked, the noise of each and its price.

The provider's gate and the coordinator compute the same list with the same code. Nothing in it depends on data.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import BudgetExceededError, InvalidParameterError
from .privacy.accountant import Filter, calibrated_std, usable_mu
from .privacy.calibrate import published_noise_multiplier
from .privacy.events import GaussianEvent
from .privacy.lattice import MAX_STD
from .privacy.noise import DRAW_SLACK, lattice_std
from .question import Extent, RowQuery
from .spec import Accounting, JobSpec, check


@dataclass(frozen=True, slots=True)
class Intent:
    """A question an algorithm means to ask, and the share of the budget (of mu squared) it should cost.

    ``times`` is how often questions of this price are asked in all: the published formula needs to know.
    """

    name: str
    question: type[RowQuery]
    extent: Extent
    share: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One planned answer: its noise and, as an event, its price. Without an event it is public and exact."""

    name: str
    question: type[RowQuery]
    extent: Extent
    event: GaussianEvent | None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the integer noise, in lattice units.

        Integer noise of this width is as private as continuous noise of the event's (lemma in ``privacy/noise.py``).
        """
        return lattice_std(self.event.std) if self.event else 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer."""
        return self.question.answer_shape(self.extent)

    def admits(self, query: RowQuery) -> bool:
        """Tell whether this very question was planned, or one that moves no further."""
        return type(query) is self.question and self.extent.covers(query.extent)


def price(spec: JobSpec, intents: Sequence[Intent]) -> tuple[Step, ...]:
    """Turn intents into steps, and refuse a plan that its own budget does not cover, before anything is spent.

    Exact plans fill their budget to the last unit. The published formula is no proof for every budget: with a single
    round and an epsilon above about 11 it promises more than its noise gives.
    """
    steps = tuple(_step(spec, intent) for intent in intents)
    try:
        Filter.for_budget(spec.budget.epsilon, spec.budget.delta).admit(events(steps))
    except BudgetExceededError as problem:
        raise InvalidParameterError(
            f"This job's plan costs more than its budget. {problem.what}",
            "Use exact accounting, a smaller epsilon, a larger delta or fewer rounds.",
        ) from None
    return steps


def events(steps: Iterable[Step]) -> tuple[GaussianEvent, ...]:
    """List what the steps cost."""
    return tuple(step.event for step in steps if step.event)


def _step(spec: JobSpec, intent: Intent) -> Step:
    sensitivity = intent.question.lattice_sensitivity(spec.unit, intent.extent)
    if sensitivity == 0:
        return Step(intent.name, intent.question, intent.extent, None)
    std = _published_std(spec, intent) if spec.accounting is Accounting.PUBLISHED else _exact_std(spec, intent)
    check(
        std <= MAX_STD,
        f"The budget leaves so little for '{intent.name}' that its noise would leave the lattice.",
        "Raise epsilon or delta, or ask fewer questions.",
    )
    draws = math.prod(intent.question.answer_shape(intent.extent))
    return Step(intent.name, intent.question, intent.extent, GaussianEvent(sensitivity, std, draws * DRAW_SLACK))


def _exact_std(spec: JobSpec, intent: Intent) -> float:
    mu = usable_mu(spec.budget.epsilon, spec.budget.delta) * math.sqrt(intent.share / intent.times)
    return calibrated_std(intent.question.lattice_sensitivity(spec.unit, intent.extent), mu)


def _published_std(spec: JobSpec, intent: Intent) -> float:
    """Noise nu C^2 on a provider's sum, as in Theorem 4.1 of Ge et al. (2018), for this intent's share of (eps, delta).

    The paper's rows have norm one and its proof one fixed constant for every question, here that question's own scale.
    """
    nu = published_noise_multiplier(intent.times, spec.budget.epsilon * intent.share, spec.budget.delta * intent.share)
    return (
        nu
        * intent.question.lattice_sensitivity(spec.unit, intent.extent)
        / intent.question.sensitivity_of(spec.unit, intent.extent)
    )
