"""A job as the ledger has it, also after it was forgotten in memory. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from dpspca.common.ledger_record import OPEN, answers_digest
from dpspca.common.privacy import NOTHING, Price

from .accounts import Answer, JobAccount, QueryRecord
from .entries import Closed, Entry, Opening, Reserved, Stored


@dataclass(frozen=True, slots=True)
class PastJob:
    """The record of one job."""

    opening: Opening
    opened_at: int
    queries: tuple[QueryRecord, ...]
    state: str
    spent: Price

    @classmethod
    def of(cls, job: JobAccount) -> "PastJob":
        """Return a job that is still in memory."""
        return cls(job.opening, job.opened_at, tuple(job.queries), job.state or OPEN, job.account.spent)

    @property
    def answers(self) -> int:
        """How many answers were stored."""
        return sum(each.answer is not None for each in self.queries)

    @property
    def answers_digest(self) -> str:
        """One digest of all stored answers."""
        return answers_digest(
            (position, each.answer.sha256) for position, each in enumerate(self.queries) if each.answer
        )


def past_job(entries: Iterable[Entry], quarantined: str) -> PastJob | None:
    """Return a job from its own entries, in order, or None if there are none.

    A job that was opened and is neither open nor closed ended in a quarantine, and all of its price counts as spent.
    """
    opened: tuple[Opening, int] | None = None
    queries, state, returned = list[QueryRecord](), quarantined, NOTHING
    for entry in entries:
        match entry.fact:
            case Opening() as fact:
                opened = fact, entry.at
            case Reserved() as fact:
                queries.append(QueryRecord(fact.query, fact.digest, fact.price))
            case Stored() as fact:
                queries[fact.position].answer = Answer(entry.at, tuple(fact.shape), fact.bytes, fact.sha256)
            case Closed() as fact:
                state, returned = fact.state, fact.returned
            case _:
                pass
    if opened is None:
        return None
    opening, at = opened
    return PastJob(opening, at, tuple(queries), state, opening.price - returned)
