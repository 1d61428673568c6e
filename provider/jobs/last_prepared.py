"""Keeps what was prepared for the few open jobs that were asked last, and drops what was prepared for others."""

from collections.abc import Callable
from threading import Lock
from typing import Final, Protocol
from weakref import ref

from dpspca.provider.data import free_in_thread

MOST_PREPARED: Final = 4


class Prepares(Protocol):
    """Rows or a matrix, prepared for a job: copies of rows, a Gram matrix, or integers in scratch."""

    def forget(self) -> list[object]:
        """Drop the prepared data, and return it. Later queries do without it, or prepare it again."""
        ...


class LastPrepared:
    """Keeps the few preparations that were used last, and drops the others.

    Each may be as large as all rows of a data set, and dozens of jobs may be open, which costs next to nothing. Each
    belongs to one job, whose queries are answered one after the other. Whether a query finds its preparation follows
    from the order in which queries got places (``row_places.py``). It must not follow from when earlier work ends, or
    the times of answers would show that. So nothing is dropped between ``used`` and ``done``. At most ``most``
    preparations are kept beyond those in use, of which there are at most as many as places. Repeated and refused
    queries do not count: they cost nothing, so they could otherwise push out what other jobs prepared.

    A thread frees the memory. An answer that is due must not wait for it, because it takes longer for more rows.
    """

    def __init__(self, most: int = MOST_PREPARED, free: Callable[[list[object]], None] = free_in_thread) -> None:
        self._most = most
        self._free = free
        self._last: list[ref[Prepares]] = []
        self._in_use: set[Prepares] = set()
        self._lock = Lock()

    def used(self, prepared: Prepares) -> None:
        """Note that a query has a place and will be answered from this. Called in the order of queries."""
        with self._lock:
            self._in_use.add(prepared)
            # A preparation that no longer exists still counts. That of an ended job goes when its last answer was made,
            # and what is kept must not depend on that moment.
            self._last = [*(each for each in self._last if each() is not prepared), ref(prepared)]
            gone, self._last = self._last[: -self._most], self._last[-self._most :]
            for each in gone:
                if (old := each()) is not None and old not in self._in_use:
                    self._free(old.forget())

    def done(self, prepared: Prepares, *, is_over: bool = False) -> None:
        """Note that the query no longer needs it. Drop it if its job is over, or if other queries pushed it out."""
        with self._lock:
            self._in_use.discard(prepared)
            if is_over or not any(each() is prepared for each in self._last):
                self._free(prepared.forget())
