"""Accounts and the state of each job: the values that ``history.py`` keeps. Pure; amounts are whole units."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dpspca.common.privacy import NOTHING, Price

from .entries import Fact, Opening


@dataclass(frozen=True, slots=True)
class JobPosition:
    """How far a job has come at one provider: how many queries it has paid for, and what they cost together."""

    reached: int = 0
    spent: Price = NOTHING


@dataclass(slots=True)
class Account:
    """How much of a budget is spent, and how much is reserved."""

    spent: Price = NOTHING
    reserved: Price = NOTHING

    @property
    def taken(self) -> Price:
        """The part of the budget that no other job can use."""
        return self.spent + self.reserved

    def covers(self, price: Price) -> bool:
        """Tell whether a price is not negative and at most what is reserved."""
        left = self.reserved
        return 0 <= price.units <= left.units and 0 <= price.slack_units <= left.slack_units


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored answer, without its bytes."""

    stored_at: int
    shape: tuple[int, ...]
    bytes: int
    sha256: str


@dataclass(slots=True)
class QueryRecord:
    """A query that was paid for."""

    name: str
    digest: str
    price: Price
    answer: Answer | None = None


@dataclass(slots=True)
class JobAccount:
    """One job. ``state`` says how it ended, and is None while it is open."""

    opening: Opening
    opened_at: int
    accounts: tuple[Account, Account, Account]
    """The accounts of the job, of its analyst and of its data set."""
    queries: list[QueryRecord] = field(default_factory=list)
    state: str | None = None
    unwritten: tuple[Fact, ...] = ()
    """Facts about the job to record together with its first query. Empty once they are recorded."""

    @property
    def account(self) -> Account:
        """The price that this job has spent and still has reserved."""
        return self.accounts[0]

    @property
    def standing(self) -> JobPosition | None:
        """How far the job has come, or None before its first query."""
        if not self.queries:
            return None
        return JobPosition(len(self.queries), self.account.spent)

    def returnable(self) -> Price:
        """Return the price that closing gives back: that of queries that were never asked.

        A query stays paid for even if its answer was never stored. When a job ends, an answer may just be in the
        making. How long it took then shows in the refusal, and that must not be free: it could be repeated.
        """
        return self.account.reserved

    def returned_before(self) -> Price:
        """Return the price that closing gave back in version 0.1.0: that of answers that were never stored, too.

        A free query may rely on the price of an earlier one, as blocks of rows do. So if a free query was answered, the
        queries before it give nothing back. A sketch and a projection each have a price. If the sketch was lost and the
        projection answered, the projection's own price covers it, even if the sketch's noise were public.
        """
        answered_free = [at for at, each in enumerate(self.queries) if each.answer and each.price.is_free]
        first = answered_free[-1] if answered_free else 0
        lost = (each.price for each in self.queries[first:] if each.answer is None)
        return sum(lost, self.account.reserved)

    def releases(self) -> "Iterator[Release]":
        """List the job's stored answers."""
        opening = self.opening
        for position, query in enumerate(self.queries):
            if answer := query.answer:
                yield Release(
                    answer.stored_at,
                    opening.job,
                    opening.data_set,
                    opening.analyst,
                    position,
                    query.name,
                    answer.bytes,
                    answer.sha256,
                    opening.signature_hash,
                )


@dataclass(frozen=True, slots=True)
class Release:
    """A stored answer as an auditor sees it: what left, when, for whom, and under which signature."""

    at: int
    job: str
    data_set: str
    analyst: str
    position: int
    query: str
    bytes: int
    sha256: str
    signature_hash: str


FindEnd: TypeAlias = Callable[[str, int], str | None]
"""Takes a job and a number of entries. Returns how a forgotten job ended if one of those first entries opened it."""


def no_forgotten_jobs(_job: str, _entries: int) -> None:
    """Find no job. For a ledger that never forgets one."""
