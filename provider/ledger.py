"""What was promised, reserved and answered. The order of its calls is the order of ``respond.py``.

This is the ledger of one process, gone with it: enough where the rows, the analyst and the noise share that process.
"""

from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol

from .gate import Standing
from .moments import Integers


class Ledger(Protocol):
    """Reserve, then store, then send; ``stored`` lets the same question get the same bytes again.

    Every ledger keeps this contract: of any number of callers that saw the same standing, ``reserve`` succeeds for
    one. Two answers to one position, or a price paid once for two answers, cannot come about.
    """

    def standing(self, job: str) -> Standing | None:
        """Say how far the job has come, None before its first question."""
        ...

    def reserve(self, job: str, digest: str, before: Standing | None, after: Standing) -> bool:
        """Record durably that the question at ``before`` is about to be answered, and what that costs.

        One atomic step. False, and nothing recorded, when the job no longer stands at ``before``.
        """
        ...

    def store(self, job: str, position: int, answer: Integers) -> None:
        """Record the answer durably; only then may it be sent."""
        ...

    def asked(self, job: str, position: int) -> str | None:
        """Give the digest of the question that a position was reserved for."""
        ...

    def stored(self, job: str, position: int) -> Integers | None:
        """Give the answer of a position, if it was made."""
        ...


@dataclass(slots=True)
class MemoryLedger:
    """A ledger in memory."""

    _standing: dict[str, Standing] = field(default_factory=dict)
    _asked: dict[tuple[str, int], str] = field(default_factory=dict)
    _answers: dict[tuple[str, int], Integers] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def standing(self, job: str) -> Standing | None:
        return self._standing.get(job)

    def reserve(self, job: str, digest: str, before: Standing | None, after: Standing) -> bool:
        with self._lock:
            if self._standing.get(job) != before:
                return False
            self._asked[job, after.reached - 1] = digest
            self._standing[job] = after
            return True

    def store(self, job: str, position: int, answer: Integers) -> None:
        kept = answer.copy()
        kept.setflags(write=False)
        self._answers[job, position] = kept

    def asked(self, job: str, position: int) -> str | None:
        return self._asked.get((job, position))

    def stored(self, job: str, position: int) -> Integers | None:
        return self._answers.get((job, position))
