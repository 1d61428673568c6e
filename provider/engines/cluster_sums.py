"""Exact sums over rows that workers read. Each query is one pass over the files that hold its rows."""

import logging
from typing import Final

import numpy as np

from dpspca.common.arrays import FloatArray, Integers
from dpspca.common.errors import DpspcaError
from dpspca.common.queries import RowQuery
from dpspca.provider.data import CheckedRows, ClusterRows
from dpspca.provider.evaluate import LocalSums, LocalThreads, Moments, QueriedMoments, Sums, WideIntegers

from .messages import PartTask, Task, Words, Work, announced, read_arrays
from .task_sender import ClusterProblemError, EngineError, ask, grouped

ALL: Final = slice(None)

_log = logging.getLogger(__name__)


class ClusterSums:
    """Sums over the rows of a cluster, added up here over tasks and there over rows. They have the bits of local ones.

    Integers are added, so neither the division into files and tasks, nor their order, nor a task that was done twice
    because its worker was lost, changes a bit: of two replies to one task, only one is used.
    """

    def __init__(self, rows: ClusterRows, norm_bound: float, mean_bound: float | None = None) -> None:
        self._rows = rows
        self._norm_bound = norm_bound
        self._mean_bound = mean_bound

    def moments(self, center: FloatArray | None, *, once: bool = False) -> Moments:
        """Return an object that asks for second moments around a centre. Nothing is kept for later queries here."""
        return QueriedMoments(self, self._rows.dimension, center)

    def of(self, query: RowQuery, rows: slice = ALL) -> Sums:
        """Let workers add up what a query needs. Only the steward learns what went wrong."""
        none = self._none(query)
        total = [_widened(each) for each in none]
        try:
            for _, content in ask(self._rows.cluster, self._tasks(query, rows)):
                total = _added(total, read_arrays(content))
        except DpspcaError as problem:
            _log.error("A pass over the rows failed: %s", problem)
            raise EngineError from None
        kinds = (isinstance(each, WideIntegers) for each in none)
        return tuple(each if is_wide else each.narrow() for each, is_wide in zip(total, kinds, strict=True))

    def _none(self, query: RowQuery) -> Sums:
        """Return the sums of no rows. A query that needs another bound is refused here, before anybody is asked."""
        none = CheckedRows(np.empty((0, self._rows.dimension)), self._rows.names)
        return LocalSums(none, self._norm_bound, self._mean_bound, engine=LocalThreads(1)).of(query)

    def _tasks(self, query: RowQuery, rows: slice) -> list[tuple[Task, bytes]]:
        spans = self._rows.spans(rows)
        parts = [PartTask(each.part.file, each.start, each.stop, each.part.digest) for each in spans]
        content = bytes(query.content())
        return [
            (
                Task(
                    work=Work.SUM,
                    parts=tuple(group),
                    columns=self._rows.columns,
                    norm_bound=self._norm_bound,
                    mean_bound=self._mean_bound,
                    query=announced(query),
                    **self._rows.task_fields,
                ),
                content,
            )
            for group in grouped(parts, self._rows.cluster.tasks())
        ]


def _widened(sums: Integers | WideIntegers) -> WideIntegers:
    return sums if isinstance(sums, WideIntegers) else WideIntegers.of(np.array(sums, dtype=np.int64))


def _added(total: list[WideIntegers], found: list[Words]) -> list[WideIntegers]:
    """Add a reply, which has two arrays for each sum."""
    expected = [each.shape for each in total for _ in range(2)]
    if expected != [each.shape for each in found]:
        raise ClusterProblemError("A worker sent sums of another form.", "Install one version everywhere.")
    halves = zip(found[::2], found[1::2], strict=True)
    return [one + WideIntegers(high, low) for one, (high, low) in zip(total, halves, strict=True)]
