"""A job's plan: its steps in order, what they cost together, and what that rests on."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from dpspca.common.privacy import (
    NOTHING,
    ApproximateEvent,
    Event,
    ParallelEvent,
    Price,
    PrivacyLoss,
    compose,
)
from dpspca.common.spec import JobSpec

from .steps import Step


@dataclass(frozen=True)
class Plan(Sequence[Step]):
    """All queries that a job may ask, in order, and what each costs. Every party builds it once, from the signed spec.

    What is fixed with it, before the first answer: prices, what they rest on, and the loss after any of its queries.
    """

    spec: JobSpec
    steps: tuple[Step, ...]

    @overload
    def __getitem__(self, at: int) -> Step: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Step, ...]: ...
    def __getitem__(self, at: int | slice) -> Step | tuple[Step, ...]:
        return self.steps[at]

    def __len__(self) -> int:
        return len(self.steps)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """What all answers together give away."""
        return events(self.steps)

    @cached_property
    def price(self) -> Price:
        """What the whole plan costs."""
        return Price.of(self.events)

    @cached_property
    def prices(self) -> tuple[Price, ...]:
        """What the first 0, 1, 2, ... queries cost together."""
        return (NOTHING, *prices(self.steps))

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The composed privacy loss of the whole plan."""
        return compose(self.events)

    @property
    def is_proven(self) -> bool:
        """Whether every price holds whatever happens."""
        return all(step.query.is_proven for step in self.steps)

    @property
    def caveats(self) -> list[str]:
        """What else has to hold for the prices to be true."""
        return sorted({step.query.caveat for step in self.steps if step.query.caveat})

    @property
    def failing(self) -> float:
        """The delta that mechanisms of the plan have of their own."""
        return sum(event.delta for event in self.events if isinstance(event, ApproximateEvent))

    def epsilon_after(self, queries: int) -> float:
        """Return the epsilon, at the job's delta, that the first queries cost.

        How many queries there are and how noisy each is was fixed beforehand, so composing those asked is right.
        """
        if queries not in self._epsilons:
            paid = events(self.steps[:queries])
            self._epsilons[queries] = compose(paid).epsilon(self.spec.budget.delta) if paid else 0.0
        return self._epsilons[queries]

    @cached_property
    def _epsilons(self) -> dict[int, float]:
        return {}


def events(steps: Iterable[Step]) -> tuple[Event, ...]:
    """List what the steps cost. Those on blocks of rows are on disjoint ones, so that one row meets one block."""
    plain, blocks = [], dict[int, list[Event]]()
    for step in steps:
        if step.event and step.extent.blocks:
            blocks.setdefault(step.extent.block, []).append(step.event)
        elif step.event:
            plain.append(step.event)
    return (*plain, ParallelEvent(tuple(map(tuple, blocks.values())))) if blocks else tuple(plain)


def prices(steps: Iterable[Step]) -> Iterator[Price]:
    """Say, after each step, what all up to it cost: what ``events`` of these costs.

    Of blocks of rows the dearest counts, so a query about a block may be free because of what was paid for another.
    """
    plain, dearest, blocks = NOTHING, NOTHING, dict[int, Price]()
    for step in steps:
        own = _price_of(step.event)
        if step.extent.blocks:
            blocks[step.extent.block] = blocks.get(step.extent.block, NOTHING) + own
            dearest = dearest.at_least(blocks[step.extent.block])
        else:
            plain += own
        yield plain + dearest


def _price_of(event: Event | None) -> Price:
    return Price.of([event]) if event else NOTHING
