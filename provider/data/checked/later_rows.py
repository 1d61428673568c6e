"""Rows that are copied when the first query about them was paid for, and not when a job is opened.

Opening a job costs nothing and can be repeated without end, by jobs that are never asked anything. So it must not take
a time that depends on rows: each try would tell a little more. Copying rows does take such a time. Whatever a job is
refused for is known before: how many rows it is about, and the form of the table. Only the rows of each person are
counted at once, which does not depend on what is in them.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Protocol, runtime_checkable

import numpy as np

from .pairs import differences, require_pairs
from .preparation import CheckedRows, Table, UsableRows, require_rows


class LaterRows:
    """Some of the rows of a data set, or what is made of them. They are made once, when they are first used."""

    def __init__(
        self, given: UsableRows, count: int, names: tuple[str, ...] | None, make: Callable[[], CheckedRows]
    ) -> None:
        """``count`` is how many rows ``make`` returns. They have the form of those that are given."""
        self.given: UsableRows = given.given if isinstance(given, LaterRows) else given
        self.count, self.names = count, names
        self.dimension = given.dimension if names is None else len(names)
        self.is_sparse = given.is_sparse
        self.copied_columns = given.dimension + copied_columns(given)
        """Numbers of a row that are copied, in all copies that are made one from the other."""
        self._make = make
        self._before = given if isinstance(given, LaterRows) else None
        self._made: CheckedRows | None = None
        self._making = Lock()

    @property
    def pieces(self) -> Sequence[slice] | None:
        """None: all rows are in memory or in scratch."""
        return None

    def part(self, which: slice) -> Table:
        """Return rows by their position."""
        return self.made().part(which)

    def forget(self) -> list[object]:
        """Drop the rows, and return them. They are made again when next used, which every interval counts."""
        gone, self._made = self._made, None
        return [gone, *(self._before.forget() if self._before else ())]

    def made(self) -> CheckedRows:
        """Return all rows."""
        with self._making:
            made = self._made
            if made is None:
                made = self._made = self._make()
            return made


@runtime_checkable
class KeepsRows(Protocol):
    """Rows, some of which stay in memory between two answers."""

    def forget(self) -> list[object]:
        """Drop the rows that were kept, and return them. The caller decides which thread frees the memory."""
        ...


def forget_kept(rows: UsableRows) -> list[object]:
    """Drop what stays of rows between two answers, and return it. It is read or made again when next used."""
    return rows.forget() if isinstance(rows, KeepsRows) else []


def copied_columns(rows: UsableRows) -> int:
    """Return how many numbers of each row are copied before a query about these rows can be answered."""
    return rows.copied_columns if isinstance(rows, LaterRows) else 0


def used_later(
    rows: CheckedRows, rows_per_person: int, limit: int | None, columns: Sequence[str] | None
) -> CheckedRows | LaterRows:
    """Return the rows and columns that a job is about: without a copy, or as a copy that is made later.

    Refuse a job about more rows than there are. Whether a copy is needed follows from the job and the table's form.
    """
    count = rows.count
    if rows.persons is not None:
        count = int(np.minimum(np.bincount(rows.persons), rows_per_person).sum())
    require_rows(limit, count)
    if columns is not None and tuple(columns) == rows.names:
        columns = None
    if rows.persons is None and columns is None and (limit in {None, count} or not rows.is_sparse):
        return rows.first(limit)
    names = rows.names if columns is None else tuple(columns)
    return LaterRows(
        rows,
        count if limit is None else limit,
        names,
        lambda: rows.bounded(rows_per_person).first(limit).with_columns(columns),
    )


def paired_later(rows: UsableRows, seed: int) -> LaterRows:
    """Return the differences of pairs of rows, which are made later. Refuse rows that cannot be paired."""
    require_pairs(rows.given if isinstance(rows, LaterRows) else rows)
    return LaterRows(rows, rows.count // 2, rows.names, lambda: differences(_whole(rows), seed))


def _whole(rows: UsableRows) -> UsableRows:
    return rows.made() if isinstance(rows, LaterRows) else rows
