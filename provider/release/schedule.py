"""When an answer may leave: at moments that public numbers and a coin choose, next to nothing of them by the rows.

How long an answer takes to make depends on how many rows there are and, where rows are sparse, on what they hold. So
an answer does not leave when it is made. It leaves a whole number of intervals after its query had arrived, and
after the answers before it had left: if making it took w intervals, after

    max(2, ceil(w + u))    intervals,

where u is a coin between 0 and 1, tossed for this query. The interval follows from the job's plan and the form of
the rows, or is what the steward wrote into the policy.

**What this promises.** Let making the answer take w intervals over one data set and w' over its neighbour, and let
d = |w - w'|. If both are at most 1, both answers leave after 2. Otherwise they leave at different moments only if a
whole number lies between w + u and w' + u, which has a probability of at most d over the coin. So the two laws differ
by at most d in total variation, and whoever sees one answer leave, and nothing else, tells them apart with an area
under the ROC curve of at most (1 + d) / 2: with d at most a tenth, .55. ``ENTRY_SECONDS`` is chosen for that. Trusted:
the system's random numbers and this machine's clock. Not covered: somebody who sees this machine's load in another way,
and the sum of what many queries tell (docs/privacy.md).
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from secrets import SystemRandom
from typing import Final, TypeAlias, TypeVar

from dpspca.common.plan import Step
from dpspca.common.queries import SecondMomentQuery, SubspaceQuery

Coin: TypeAlias = Callable[[], float]
"""Gives a number from 0 up to 1, each as likely as any other."""
Made = TypeVar("Made")

LEAST_INTERVAL: Final = 0.002
"""Seconds. What one row adds to a small query is far below a tenth of it."""
ENTRY_SECONDS: Final = 1e-7
SPARSE_ENTRY_SECONDS: Final = 2.5e-7
"""Of the interval, for each number that one row's part in an answer is made of: ten times what that takes.

``bench/answer_times.py`` measures it: below 10 ns a number for a dense row of wide queries, and about 25 ns for the
longest sparse one, with one more number for each of its columns. Of narrow queries what a row adds is some
microseconds, for which ``LEAST_INTERVAL`` is there."""

coin: Final[Coin] = SystemRandom().random


class Schedule:
    """The moments at which the answers of one job may leave."""

    def __init__(
        self,
        plan: Sequence[Step],
        *,
        interval: float | None = None,
        is_sparse: bool = False,
        makes_matrix: bool = False,
        toss: Coin = coin,
    ) -> None:
        """``interval`` is the steward's choice, in seconds: 0 sends answers at once. Left out, it follows the plan.

        ``makes_matrix`` says that the first query about second moments has a Gram matrix made.
        """
        self._plan = plan
        self._interval = interval
        self._is_sparse = is_sparse
        self._matrix = _first_of_moments(plan) if makes_matrix else None
        self._toss = toss

    def interval(self, position: int) -> float:
        """Give the seconds between two moments at which the answer to a planned query may leave."""
        if self._interval is not None:
            return self._interval
        step = self._plan[position]
        entries = max(_entries(step), step.extent.dimension**2 if position == self._matrix else 0)
        if self._is_sparse:
            return max(LEAST_INTERVAL, SPARSE_ENTRY_SECONDS * (entries + step.extent.dimension))
        return max(LEAST_INTERVAL, ENTRY_SECONDS * entries)

    async def held(self, position: int, work: "asyncio.Future[Made]") -> Made:
        """Give the answer to a query, or raise its refusal, at a moment of the schedule."""
        return await held(work, self.interval(position), self._toss)


async def held(work: "asyncio.Future[Made]", interval: float, toss: Coin = coin) -> Made:
    """Wait for work, and then for the moment to leave, counted from now; raise what it raised, then too."""
    clock = asyncio.get_running_loop().time
    begun, tossed = clock(), toss()
    await asyncio.wait([work])
    await asyncio.sleep(begun + departure(clock() - begun, interval, tossed) - clock())
    return work.result()


def departure(seconds: float, interval: float, tossed: float) -> float:
    """Say after how many seconds an answer leaves that took so long to make."""
    return interval * max(2, math.ceil(seconds / interval + tossed)) if interval else seconds


def _first_of_moments(plan: Sequence[Step]) -> int | None:
    asked = (at for at, step in enumerate(plan) if issubclass(step.query, SecondMomentQuery))
    return next(asked, None)


def _entries(step: Step) -> int:
    """Count the numbers that one row's part in an answer is made of; eigenvectors may be made for each column anew."""
    dimension, columns = step.extent.dimension, max(1, step.extent.columns)
    made = max(math.prod(step.shape), dimension * columns)
    return dimension * made if issubclass(step.query, SubspaceQuery) else made
