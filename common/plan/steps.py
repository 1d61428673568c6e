"""The parts of a plan: the queries that a method plans, and the priced steps that they become."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from dpspca.common.job import JobSpec
from dpspca.common.privacy import (
    Event,
    GaussianEvent,
    LaplaceEvent,
    PrivacyUnit,
    calibrated_scale,
    calibrated_std,
    lattice_std,
)
from dpspca.common.queries import Extent, RowQuery


class Noise(StrEnum):
    """The distribution of the noise that is added to an exact answer."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that an algorithm plans to ask, before it has a price.

    ``share`` is the part of the budget for all ``times`` queries of this kind: of mu squared or, if the noise is not
    Gaussian, of epsilon. A query that is a private mechanism by itself needs no noise; its ``event`` is its cost.
    ``instead`` is another query that may be asked in its place: the price is the same whichever is asked, so that the
    choice may follow from released numbers.
    """

    name: str
    query: type[RowQuery]
    extent: Extent
    share: float
    times: int = 1
    noise: Noise = Noise.GAUSSIAN
    event: Event | None = None
    instead: "tuple[type[RowQuery], Extent] | None" = None


@dataclass(frozen=True, slots=True)
class QuerySeries:
    """``count`` queries in a row that differ only in their names; ``name_of(1)`` is the name of the first.

    A few numbers in a spec can ask for very many queries. A series is counted before it is listed, and priced once.
    ``lower`` names the settings that an analyst can lower to get fewer queries.
    """

    query: PlannedQuery
    count: int
    name_of: Callable[[int], str]
    lower: str


PlannedQueries: TypeAlias = Sequence[PlannedQuery | QuerySeries]

PublishedNoise: TypeAlias = Callable[[JobSpec, PlannedQuery], float]
"""A paper's formula for the noise on a provider's sum (standard deviation or scale), for rows of norm one."""


EXPLAINING: Final = "explained variance"
"""The name of the query for what the components explain."""


@dataclass(frozen=True, slots=True)
class Step:
    """One query of a plan, with the privacy event of its answer. Without an event the answer is public and exact.

    ``instead`` is a step that may be taken in its place. It costs no more (``plan.price`` checks it), and this step's
    price is paid whichever is taken. So a choice between them may follow from released numbers.
    """

    name: str
    query: type[RowQuery]
    extent: Extent
    event: Event | None
    instead: "Step | None" = None

    @property
    def explains(self) -> bool:
        """Whether it asks for the variance that the components explain. They were found before."""
        return self.name == EXPLAINING

    @property
    def noise_std(self) -> float:
        """Standard deviation of the integer noise, in lattice units; zero if none is added to the answer itself.

        Integer Gaussian noise of this width is as private as continuous noise of the event's width (lemma in
        ``privacy/noise.py``). Integer Laplace noise has the event's epsilon without being wider.
        """
        if self.query.is_private:
            return 0.0
        match self.event:
            case GaussianEvent(std=std):
                return lattice_std(std)
            case LaplaceEvent(scale=scale):
                return math.sqrt(2) * scale
            case _:
                return 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the answer."""
        return self.query.answer_shape(self.extent)

    @property
    def choices(self) -> "tuple[Step, ...]":
        """This step, and its alternative if there is one."""
        return (self,) if self.instead is None else (replace(self, instead=None), self.instead)

    def of_kind(self, kind: str) -> "Step":
        """Return the choice that asks a query of this kind, or this step if there is none."""
        return next((each for each in self.choices if each.query.kind == kind), self)

    @property
    def largest(self) -> int:
        """The number of numbers in the largest answer."""
        return max(math.prod(each.shape) for each in self.choices)

    def admits(self, query: RowQuery) -> bool:
        """Return whether the plan allows this query: its kind was planned, with an extent that covers its own."""
        return any(type(query) is each.query and query.is_within(query.extent, each.extent) for each in self.choices)

    def fit_to(self, query: RowQuery, unit: PrivacyUnit) -> "Step":
        """Reduce the noise to what this query needs, at the same price.

        The width changes only for queries whose sensitivity depends on their public content (``fits_noise``). None of
        them is about rows, so a person's number of rows plays no part. A query that ``fits_extent`` keeps the planned
        noise on each number, and only has fewer numbers. Of two choices, the one that the query is for is taken.
        """
        if self.instead is not None:
            return self.of_kind(query.kind).fit_to(query, unit)
        if self.query.fits_extent:
            return replace(self, extent=query.extent)
        event = self.event
        if not self.query.fits_noise or not isinstance(event, GaussianEvent | LaplaceEvent):
            return self
        moves = query.movement(unit, l1=isinstance(event, LaplaceEvent))
        if isinstance(event, GaussianEvent):
            return replace(self, event=replace(event, sensitivity=moves, std=calibrated_std(moves, event.mu)))
        return replace(self, event=replace(event, sensitivity=moves, scale=calibrated_scale(moves, event.epsilon)))
