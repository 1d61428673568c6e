"""What plans are made of: what a method means to ask, and the steps that this becomes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

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
from dpspca.common.spec import JobSpec


class Noise(StrEnum):
    """What is added to an exact answer."""

    GAUSSIAN = "gaussian"
    LAPLACE = "laplace"


@dataclass(frozen=True, slots=True)
class Intent:
    """A query an algorithm means to ask.

    ``share`` is the part of the budget it should cost: of mu squared or, where noise is not Gaussian, of epsilon.
    ``times`` is how often queries of this price are asked in all: the published formula needs to know. A query
    that is a private mechanism by itself needs no noise; what it costs is the ``event``.
    """

    name: str
    query: type[RowQuery]
    extent: Extent
    share: float
    times: int = 1
    noise: Noise = Noise.GAUSSIAN
    event: Event | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Queries in a row that are one intent but for their names; ``named`` gives the name of the first for 1.

    What a few numbers of a spec make many is planned as this: it is counted before it is listed, and priced once.
    ``lower`` says which of those numbers would make it fewer.
    """

    intent: Intent
    count: int
    named: Callable[[int], str]
    lower: str


Intents: TypeAlias = Sequence[Intent | Series]

Published: TypeAlias = Callable[[JobSpec, Intent], float]
"""A paper's own width of the noise on a provider's sum (standard deviation or scale), for rows of norm one."""


@dataclass(frozen=True, slots=True)
class Step:
    """One planned answer: its noise and, as an event, what it gives away. Without an event it is public and exact."""

    name: str
    query: type[RowQuery]
    extent: Extent
    event: Event | None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the integer noise, in lattice units; zero where none is added to the answer itself.

        Integer noise of this width is as private as continuous noise of the event's (lemma in ``privacy/noise.py``);
        Laplace noise needs no widening, for the discrete law over integers has the event's epsilon as it is.
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

    def admits(self, query: RowQuery) -> bool:
        """Tell whether this very query was planned, or one that moves no further."""
        return type(query) is self.query and self.extent.covers(query.extent)

    def fitted(self, query: RowQuery, unit: PrivacyUnit) -> "Step":
        """Take the noise in to what this very query needs: the same event but for its size, at the same price.

        Only a query whose movement depends on its content, which is public, is any different from its extent; none
        of these is about rows, of which a person may have several. A query that ``fits_extent`` keeps the planned
        noise on each number, and only has fewer numbers.
        """
        if self.query.fits_extent:
            return replace(self, extent=query.extent)
        event = self.event
        if not self.query.fits_noise or not isinstance(event, GaussianEvent | LaplaceEvent):
            return self
        moves = query.movement(unit, l1=isinstance(event, LaplaceEvent))
        if isinstance(event, GaussianEvent):
            return replace(self, event=replace(event, sensitivity=moves, std=calibrated_std(moves, event.mu)))
        return replace(self, event=replace(event, sensitivity=moves, scale=calibrated_scale(moves, event.epsilon)))
