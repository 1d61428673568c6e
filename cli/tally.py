"""Keeps count while a job runs: who answered, how much was moved, how much privacy was spent, how long it took."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from dpspca.client.simulation import Progress
from dpspca.common.plan import Step, events
from dpspca.common.privacy.accountant import compose
from dpspca.common.spec import Budget

NUMBER_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands after an answer; bytes, mu, epsilon and seconds are those of all answers so far."""

    done: int
    total: int
    name: str
    answers: int
    bytes_moved: int
    mu: float
    epsilon: float
    budget: float
    seconds: float


class Tally:
    """Watches a simulation and shows a standing after every answer."""

    def __init__(self, budget: Budget, show: Callable[[Standing], None]) -> None:
        self._budget = budget
        self._show = show
        self._steps: list[Step] = []
        self._bytes = 0
        self._start = monotonic()
        self.standings: list[Standing] = []

    def __call__(self, progress: Progress) -> None:
        """Count one more question."""
        parties = progress.aggregate.parties
        self._steps.append(progress.step)
        self._bytes += parties * NUMBER_BYTES * _numbers(progress.step)
        # How many questions there are and how noisy each is was fixed beforehand, so composing those asked is right.
        loss = compose(events(self._steps))
        standing = Standing(
            done=progress.done,
            total=progress.total,
            name=progress.step.name,
            answers=parties,
            bytes_moved=self._bytes,
            mu=loss.gdp_bound,
            epsilon=loss.epsilon(self._budget.delta),
            budget=self._budget.epsilon,
            seconds=monotonic() - self._start,
        )
        self.standings.append(standing)
        self._show(standing)


def _numbers(step: Step) -> int:
    """Count the numbers that a question takes to each provider, and its answer back, if they are sent as they are."""
    return step.extent.dimension * step.extent.columns + math.prod(step.shape)
