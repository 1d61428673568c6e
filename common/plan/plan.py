"""The plan of a job: its steps in order, what they cost together, and what the price assumes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, overload

from dpspca.common.job import JobSpec
from dpspca.common.privacy import (
    NOTHING,
    ApproximateEvent,
    Event,
    ParallelEvent,
    Price,
    PrivacyLoss,
    compose,
)

from .steps import Step

NUMBER_BYTES: Final = 8
"""Of each number of an answer, a 64-bit integer."""


@dataclass(frozen=True)
class Plan(Sequence[Step]):
    """All queries that a job may ask, in order, and what each costs. Every party builds it once, from the signed spec.

    Prices and privacy losses follow from the plan alone, so all of them are fixed before the first answer.
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

    @property
    def answer_bytes(self) -> int:
        """The bytes of all answers of one provider, if they are as large as they may be."""
        return NUMBER_BYTES * sum(step.largest for step in self.steps)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The privacy events of all answers together."""
        return events(self.steps)

    @cached_property
    def price(self) -> Price:
        """The price of the whole plan."""
        return Price.of(self.events)

    @cached_property
    def prices(self) -> tuple[Price, ...]:
        """The prices of the first 0, 1, 2, ... queries together."""
        return (NOTHING, *prices(self.steps))

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The composed privacy loss of the whole plan."""
        return compose(self.events)

    @property
    def is_proven(self) -> bool:
        """Whether every price holds unconditionally."""
        return all(step.query.is_proven for step in self.steps)

    @property
    def caveats(self) -> list[str]:
        """Assumptions of the prices."""
        return sorted({step.query.caveat for step in self.steps if step.query.caveat})

    @property
    def mechanism_delta(self) -> float:
        """The sum of the deltas of the plan's own private mechanisms."""
        return sum(event.delta for event in self.events if isinstance(event, ApproximateEvent))

    def epsilon_after(self, queries: int) -> float:
        """Return the epsilon, at the job's delta, that the first queries cost together.

        The number of queries and the noise of each were fixed beforehand, so it is right to compose those asked.
        """
        if queries not in self._epsilons:
            cost = events(self.steps[:queries])
            self._epsilons[queries] = compose(cost).epsilon(self.spec.budget.delta) if cost else 0.0
        return self._epsilons[queries]

    @cached_property
    def _epsilons(self) -> dict[int, float]:
        return {}


def events(steps: Iterable[Step]) -> tuple[Event, ...]:
    """List the privacy events of steps. Blocks are disjoint and each row is in one, so they compose in parallel."""
    plain, blocks = [], dict[int, list[Event]]()
    for step in steps:
        if step.event and step.extent.blocks:
            blocks.setdefault(step.extent.block, []).append(step.event)
        elif step.event:
            plain.append(step.event)
    return (*plain, ParallelEvent(tuple(map(tuple, blocks.values())))) if blocks else tuple(plain)


def prices(steps: Iterable[Step]) -> Iterator[Price]:
    """Yield, after each step, the price of all steps up to it: the price of their ``events``.

    Of all blocks only the most expensive counts, so a query about a block may be free once another block was paid for.
    """
    plain, highest, blocks = NOTHING, NOTHING, dict[int, Price]()
    for step in steps:
        own = _price_of(step.event)
        if step.extent.blocks:
            blocks[step.extent.block] = blocks.get(step.extent.block, NOTHING) + own
            highest = highest.at_least(blocks[step.extent.block])
        else:
            plain += own
        yield plain + highest


def _price_of(event: Event | None) -> Price:
    return Price.of([event]) if event else NOTHING
