"""Which of the rows that were prepared for open jobs stay prepared: those that were used last."""

from threading import Lock
from typing import Final, Protocol
from weakref import ref

MOST_PREPARED: Final = 4


class Prepares(Protocol):
    """Rows or a matrix, prepared for a job: copies of rows, a Gram matrix, or integers in scratch."""

    def forget(self) -> None:
        """Free what was prepared. Queries are answered without, or it is prepared again."""
        ...


class LastPrepared:
    """Keeps the few preparations that were used last, and has the others forgotten. Jobs may share one.

    Each may be as large as all rows of a data set, and dozens of jobs may be open, which costs next to nothing. The
    choice follows from which queries were asked, and so do all times that depend on it.
    """

    def __init__(self, most: int = MOST_PREPARED) -> None:
        self._most = most
        self._last: list[ref[Prepares]] = []
        self._lock = Lock()

    def used(self, prepared: Prepares) -> None:
        """Note that a query is about to be answered from these rows.

        This is called in the order of queries. After their answers were made, it would be in the order of times.
        """
        with self._lock:
            alive = [each for each in self._last if each() not in {None, prepared}]
            self._last = [*alive, ref(prepared)]
            gone, self._last = self._last[: -self._most], self._last[-self._most :]
        for each in gone:
            if (old := each()) is not None:
                old.forget()

    def done(self, prepared: Prepares) -> None:
        """Have rows forgotten again that were prepared while other queries pushed them out."""
        with self._lock:
            is_kept = any(each() is prepared for each in self._last)
        if not is_kept:
            prepared.forget()
