"""A data set whose rows the workers of a cluster read. This process knows how many there are, and digests of them.

Rows never come here: workers read the files, and send sums (``dpspca.provider.engines``). What is pinned at the start
is the list of files, and for each the number and a digest of its rows as jobs use them. At every pass each worker
compares the digest of what it read before it sends anything, so every answer is about the rows of the start.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from typing import Any, Protocol, Self

from dpspca.common.errors import InvalidQueryError

from .checked import Table, Unusable, require_rows, unusable_rows


class Cluster(Protocol):
    """Processes elsewhere that work for this provider. They, and their operators, may see its rows."""

    @property
    def name(self) -> str:
        """Its name in messages to the steward."""
        ...

    def tasks(self) -> int:
        """Return in how many tasks a pass should be divided at most. It follows from settings and processors alone."""
        ...

    def run(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Have each message worked on by some worker (``engines.work``). Give the replies in any order.

        A task whose worker is lost is done again by another: what a reply says follows from its message and the rows.
        """
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a data set, as its rows were at the start."""

    file: str
    """The path under which every worker finds it."""
    count: int
    digest: str


@dataclass(frozen=True, slots=True)
class PartSpan:
    """Some rows of a part."""

    part: Part
    start: int
    stop: int


@dataclass(frozen=True, eq=False, slots=True)
class ClusterRows:
    """Rows that were counted and hashed by workers, before any job."""

    cluster: Cluster
    task_fields: Mapping[str, Any]
    """The fields of every task that say how the files are read (``engines.task_fields``)."""
    parts: tuple[Part, ...]
    names: tuple[str, ...] | None
    dimension: int
    prints: frozenset[str]
    unusable_count: int = 0
    uncut: frozenset[str] | None = None
    """The fingerprints of the rows before any entries were changed or left out, if any may have been."""
    limit: int | None = None
    """How many rows count, from the first. By default all."""
    columns: tuple[str, ...] | None = None
    """The columns that are used, in this order. By default all."""
    width: int = 0
    """How many numbers of a row are read. Jobs may use fewer of them."""
    persons: None = None
    span: None = None

    @property
    def count(self) -> int:
        """Number of rows."""
        whole = sum(part.count for part in self.parts)
        return whole if self.limit is None else min(whole, self.limit)

    @property
    def read_columns(self) -> int:
        """How many numbers of a row a pass reads."""
        return max(self.dimension, self.width)

    @property
    def is_sparse(self) -> bool:
        """Workers read dense rows alone."""
        return False

    @property
    def pieces(self) -> None:
        """None: all rows are there at any time."""
        return

    @property
    def unusable(self) -> Unusable | None:
        """How many rows count as rows of zeros. Only the steward may know it."""
        return unusable_rows(self.unusable_count)

    def part(self, which: slice) -> Table:
        """Refuse: no row comes here."""
        raise InvalidQueryError("A cluster holds the rows of this data set.", "Ask for sums over them.")

    def digest(self) -> str:
        """Return a hash of these rows in their form. A job that began over them must not continue over others."""
        form = self.names, self.dimension, [(part.count, part.digest) for part in self.parts]
        return sha256(b"dpspca rows of a cluster 1\0" + json.dumps(form).encode()).hexdigest()

    def fingerprints(self) -> frozenset[str]:
        """Return fingerprints of the rows' content. They are those of the same rows that this provider reads itself."""
        return self.prints

    def first(self, rows: int | None) -> Self:
        """Keep the first ``rows`` rows, or all if None. Refuse if there are fewer."""
        if rows is None or rows == self.count:
            return self
        require_rows(rows, self.count)
        return replace(self, limit=rows)

    def with_columns(self, names: Sequence[str] | None) -> Self:
        """Keep the columns of these names, in this order, or all as they stand if None. The names must be there."""
        if names is None or tuple(names) == self.names:
            return self
        chosen = tuple(names)
        return replace(self, names=chosen, dimension=len(chosen), columns=chosen)

    def spans(self, rows: slice) -> list[PartSpan]:
        """Return where rows, by their position in all parts together, are. At least one part is returned.

        All rows are in all parts, also in those without any row or, of a job about the first rows, after these. If an
        empty part were left out, the time of a pass would show whether it has one row or none.
        """
        if rows == slice(None):
            left, whole = self.count, list[PartSpan]()
            for part in self.parts:
                whole.append(PartSpan(part, 0, min(part.count, left)))
                left -= whole[-1].stop
            return whole
        start, stop, _ = rows.indices(self.count)
        ends = list(accumulate(part.count for part in self.parts))
        found = [
            PartSpan(part, max(0, start - (end - part.count)), min(stop, end) - (end - part.count))
            for part, end in zip(self.parts, ends, strict=True)
            if max(start, end - part.count) < min(stop, end)
        ]
        return found or [PartSpan(self.parts[0], 0, 0)]
