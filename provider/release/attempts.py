"""How often a query that was paid for is evaluated: few times, because each may show a little by how long it takes."""

from collections import Counter
from collections.abc import Collection
from threading import Lock
from typing import Final

from dpspca.common.errors import JobEndedError

MOST_ATTEMPTS: Final = 5
"""For each query. A full disk or a database that is down is a reason to ask again."""


class EvaluationAttempts:
    """Counts evaluations of queries whose answers were not stored, for as long as their jobs are open.

    A job may be forgotten and opened again in between. A restart of the provider counts anew.
    """

    def __init__(self, most: int = MOST_ATTEMPTS) -> None:
        self._most = most
        self._begun: dict[str, Counter[int]] = {}
        self._lock = Lock()

    def begin(self, job: str, position: int) -> None:
        """Note one more evaluation, or refuse."""
        with self._lock:
            begun = self._begun.setdefault(job, Counter())
            if begun[position] >= self._most:
                raise JobEndedError(
                    f"Query {position + 1} was evaluated {self._most} times, and no answer could be stored.",
                    "The provider's operator finds the reason in its log. Sign a new job.",
                )
            begun[position] += 1

    def end(self, job: str, position: int) -> None:
        """Forget a query whose answer is stored."""
        with self._lock:
            begun = self._begun.get(job, Counter())
            del begun[position]
            if not begun:
                self._begun.pop(job, None)

    def keep(self, jobs: Collection[str]) -> None:
        """Forget all jobs but these."""
        with self._lock:
            self._begun = {job: begun for job, begun in self._begun.items() if job in jobs}
