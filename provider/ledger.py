"""What was promised, reserved and answered. The order of its calls is the order of ``respond.py``.

This is the ledger of one process, gone with it: enough where the rows, the analyst and the noise share that process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.events import Event

from .moments import Integers


class Ledger(Protocol):
    """Reserve, then store, then send; ``stored`` lets the same question get the same bytes again."""

    def spent(self, job: str) -> Filter | None:
        """Give the job's filter as it stands, None before its first question."""
        ...

    def reserve(self, job: str, position: int, digest: str, spent: Filter, events: Sequence[Event]) -> None:
        """Record durably that an answer is about to be made, and what it costs."""
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

    _spent: dict[str, Filter] = field(default_factory=dict)
    _asked: dict[tuple[str, int], str] = field(default_factory=dict)
    _answers: dict[tuple[str, int], Integers] = field(default_factory=dict)

    def spent(self, job: str) -> Filter | None:
        return self._spent.get(job)

    def reserve(self, job: str, position: int, digest: str, spent: Filter, events: Sequence[Event]) -> None:
        self._spent[job] = spent
        self._asked[job, position] = digest

    def store(self, job: str, position: int, answer: Integers) -> None:
        self._answers[job, position] = answer

    def asked(self, job: str, position: int) -> str | None:
        return self._asked.get((job, position))

    def stored(self, job: str, position: int) -> Integers | None:
        return self._answers.get((job, position))
