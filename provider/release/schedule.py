"""When an answer may leave: at moments that follow from public numbers and a coin, and hardly from the rows.

How long an answer takes to make depends on the number of rows and, if they are sparse, on their content. So an answer
does not leave as soon as it is made. The clock starts when its query has arrived and the job's earlier answers have
left, or when it has a place, if it had to wait for one. If making the answer takes w intervals, it leaves after

    max(2, ceil(w + u))    intervals,

where u, the coin, is uniform between 0 and 1 and drawn again for each query. The interval follows from the job's plan
and from whether the rows are sparse, unless the steward set one in the policy.

**What this promises.** Let making the answer take w intervals over one data set and w' over its neighbour, and let
d = |w - w'|. If both are at most 1, both answers leave after 2 intervals. Otherwise they leave at different moments
only if a whole number lies between w + u and w' + u, which has probability at most d over the coin. So the two
distributions differ by at most d in total variation. An observer who sees one answer leave, and nothing else, tells the
data sets apart with an area under the ROC curve of at most (1 + d) / 2: 0.55 for d = 0.1. ``ENTRY_SECONDS`` is chosen
so that d stays below 0.1. Trusted: the system's random numbers and this machine's clock. Not covered: an observer who
measures this machine's load in another way, and what many queries reveal together (docs/privacy.md).

Waiting for a place ends when an earlier answer leaves, and not when it is made (``provider/jobs/row_places.py``). So
somebody who knows when that one left learns nothing more of it from when the clock starts.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from secrets import SystemRandom
from typing import Final, TypeAlias, TypeVar

from dpspca.common.plan import Step
from dpspca.common.privacy import ChoiceEvent, most_levels
from dpspca.common.queries import (
    CompressedCovariance,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
    SignPairs,
    SubspaceQuery,
)

Coin: TypeAlias = Callable[[], float]
"""Draws a number uniformly from [0, 1)."""
Result = TypeVar("Result")

LEAST_INTERVAL: Final = 0.002
"""In seconds. One row adds far less than a tenth of this to the time of a small query."""
ENTRY_SECONDS: Final = 1e-7
SPARSE_ENTRY_SECONDS: Final = 2.5e-7
"""Seconds of the interval for each number in one row's contribution to an answer: ten times what computing it takes.

``bench/answer_times.py`` measures that time: for wide queries, below 10 ns a number for a dense row and about 25 ns
for the longest sparse row, which has one more number for each of its columns. For narrow queries over narrow rows, a
row adds a few microseconds, which ``LEAST_INTERVAL`` covers."""
CONVERT_SECONDS: Final = 2e-7
"""Seconds of the interval for each number of a dense row: ten times what it takes to read it from scratch, to centre,
scale and clip it, and to make it an integer. Measured once, on a busy machine: with this, a query with one number for
each column takes up to 26 ns a number, over 20,000 to 100,000 columns. No benchmark repeats it."""
READ_ENTRY_SECONDS: Final = 3e-7
"""In place of ``ENTRY_SECONDS`` if an answer reads the source of the rows, some rows at a time. One row more may begin
another part, whose sums are added to the others. Measured once, at about 20 ns a number. No benchmark repeats it."""
READ_SECONDS: Final = 1e-5
"""Seconds of the interval for each number of a row that an answer reads from its source: ten times what reading takes.

Only the workers of a cluster read the source for each answer, and a provider whose rows arrive in files. A number in
text takes 430 to 650 ns, with hashing and rounding, and a number in Parquet 50 to 80 ns (``bench/engines.py``)."""
COPY_SECONDS: Final = 5e-7
"""Seconds of the interval for each number of a row that is copied before an answer: ten times what copying takes.

Rows are copied for the first query about them if it is known whose they are, if differences of pairs are used, or if
columns are chosen. Measured once, on a busy machine, and rounded up: 17 ns for a number in scratch, and up to 50 ns in
a pair. No benchmark repeats it."""
ROW_SECONDS: Final = 2e-5
"""Seconds of the interval for each of several rows that are protected together: ten times what a narrow one adds."""
LONGEST_INTERVAL: Final = 10.0
"""The most seconds to which the number of rows that are protected together makes an interval longer."""

_SUBSPACE: Final = 100
"""Of d^3, an eigendecomposition took 0.3 ns a number (500 to 2,048 columns, measured once; no benchmark repeats it).
If a subspace takes one for each of its columns, and two more, they all together take a third of an interval."""
_PREPARES: Final = (Covariance, CovarianceTriangle, CovarianceProduct, CompressedCovariance, SubspaceQuery)
"""Queries that use a Gram matrix or kept integers, if there are any."""

system_coin: Final[Coin] = SystemRandom().random


class Schedule:
    """The moments at which the answers of one job may leave."""

    def __init__(  # noqa: PLR0913  # what the interval follows from, and the coin
        self,
        plan: Sequence[Step],
        *,
        interval: Callable[[], float | None] = lambda: None,
        is_sparse: bool = False,
        makes_matrix: bool = False,
        read_columns: int = 0,
        copied_columns: int = 0,
        kept_columns: int = 0,
        rows_together: int = 1,
        toss: Coin = system_coin,
    ) -> None:
        """``interval`` returns the steward's choice in seconds, by the rules of now. 0 sends answers at once.

        By default the interval follows from the plan.

        ``makes_matrix`` says that the first query about second moments also computes the Gram matrix, and
        ``read_columns`` how many numbers of each row an answer reads from the source of the rows. ``copied_columns`` is
        how many numbers of each row are copied before an answer, which may be the first after the job was opened again.
        ``kept_columns`` is how many the first query about second moments keeps for others, and ``rows_together`` in how
        many rows of one person neighbours differ.
        """
        self._plan = plan
        self._chosen = interval
        self._is_sparse = is_sparse
        self._first = first_of_moments(plan)
        self._makes_matrix = makes_matrix
        self._kept = COPY_SECONDS * kept_columns
        self._moved = READ_SECONDS * read_columns + COPY_SECONDS * copied_columns
        self._dense = READ_ENTRY_SECONDS if read_columns else ENTRY_SECONDS
        self._rows = rows_together
        self._toss = toss

    def interval(self, position: int) -> float:
        """Return the seconds between two moments at which the answer to a planned query may leave."""
        chosen = self._chosen()
        if chosen is not None:
            return chosen
        step = self._plan[position]
        is_first = position == self._first
        matrix = step.extent.dimension**2 if is_first and self._makes_matrix else 0
        entries = max(*map(_entries, step.choices), matrix)
        sparse = SPARSE_ENTRY_SECONDS * (entries + step.extent.dimension)
        dense = CONVERT_SECONDS * step.extent.dimension + self._dense * entries
        row = self._moved + is_first * self._kept + (sparse if self._is_sparse else dense)
        return max(LEAST_INTERVAL, row, min(self._rows * max(row, ROW_SECONDS), LONGEST_INTERVAL))

    async def delay_result(self, work: "asyncio.Future[Result]", position: int, begun: float | None = None) -> Result:
        """Return the answer to a planned query, or raise its refusal, at a moment of the schedule."""
        return await delay_result(work, self.interval(position), self._toss, begun)


async def delay_result(
    work: "asyncio.Future[Result]", interval: float, toss: Coin = system_coin, begun: float | None = None
) -> Result:
    """Wait for the work, and then for its moment to leave. Return its result or raise its error.

    ``interval`` is the seconds between two such moments, and ``begun`` the time from which they count, by default now.
    """
    clock = asyncio.get_running_loop().time
    begun, tossed = clock() if begun is None else begun, toss()
    await asyncio.wait([work])
    await asyncio.sleep(begun + departure(clock() - begun, interval, tossed) - clock())
    return work.result()


def departure(seconds: float, interval: float, tossed: float) -> float:
    """Return after how many seconds an answer leaves, if making it took ``seconds``."""
    return interval * max(2, math.ceil(seconds / interval + tossed)) if interval else seconds


def first_of_moments(plan: Sequence[Step]) -> int | None:
    """Return the position of the query for which rows are prepared, whose interval counts that."""
    asked = (at for at, step in enumerate(plan) if issubclass(step.query, _PREPARES))
    return next(asked, None)


def _entries(step: Step) -> int:
    """Count the numbers in one row's contribution to an answer. A subspace may cost eigenvectors for each column."""
    dimension, columns = step.extent.dimension, max(1, step.extent.columns)
    made = max(math.prod(step.shape), dimension * columns)
    if issubclass(step.query, SignPairs):
        made = max(made, SignPairs.columns_of(step.extent) ** 2)  # a score for each pair of columns
    if isinstance(step.event, ChoiceEvent):
        made = max(made, step.event.picks * _levels(step, step.event))
    if issubclass(step.query, SubspaceQuery):
        return max(made, dimension**3 * (step.extent.columns + 2) // _SUBSPACE)
    return made


def _levels(step: Step, event: ChoiceEvent) -> int:
    """Count the levels of scores that a row can add to a choice. Each takes as long as a number."""
    columns = SignPairs.columns_of(step.extent) if issubclass(step.query, SignPairs) else step.extent.dimension
    scores = columns * (columns - 1) // 2 if issubclass(step.query, SignPairs) else columns
    return min(scores, most_levels(event.scale))
