"""Balances, and what is known of each job: the values that ``books.py`` keeps. Pure; amounts are whole units."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dpspca.common.errors import BudgetExceededError, DpspcaError
from dpspca.common.privacy import NOTHING, Filter, Price

from .entries import Fact, Opening


@dataclass(frozen=True, slots=True)
class JobPosition:
    """How far a job has come at one provider: how many queries were paid for, and what they cost together."""

    reached: int = 0
    spent: Price = NOTHING


@dataclass(slots=True)
class Account:
    """What of a budget is gone, and what is promised."""

    spent: Price = NOTHING
    reserved: Price = NOTHING

    @property
    def taken(self) -> Price:
        """What nobody else can have of the budget."""
        return self.spent + self.reserved

    def covers(self, price: Price) -> bool:
        """Whether that much, and no less than nothing, is reserved."""
        return NOTHING.is_within(price) and price.is_within(self.reserved)


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored answer, but for its bytes."""

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
    """What is known of one job. ``state`` is how it ended, None while it is open."""

    opening: Opening
    opened_at: int
    accounts: tuple[Account, Account, Account]
    """Its own, its analyst's and its data set's."""
    queries: list[QueryRecord] = field(default_factory=list)
    state: str | None = None
    unwritten: tuple[Fact, ...] = ()
    """What is to be recorded of it with its first query; nothing once it is."""

    @property
    def account(self) -> Account:
        """What this job spent and has left."""
        return self.accounts[0]

    @property
    def standing(self) -> JobPosition | None:
        """How far it has come, None before its first query."""
        if not self.queries:
            return None
        return JobPosition(len(self.queries), self.account.spent)

    def returnable(self) -> Price:
        """Say what closing gives back: the price of queries never asked, and of answers never stored.

        A query that was free may lean on the price of one before it, as blocks of rows do: where it was answered,
        none before it gives anything back. Of a sketch and a projection both are paid for: where the sketch was lost
        and the projection answered, its own price covers it, for the sketch's noise is then as good as public.
        """
        leaning = [at for at, each in enumerate(self.queries) if each.answer and each.price.is_free]
        first = leaning[-1] if leaning else 0
        lost = (each.price for each in self.queries[first:] if each.answer is None)
        return sum(lost, self.account.reserved)

    def releases(self) -> "Iterator[Release]":
        """List its answers that were stored."""
        told = self.opening
        for position, asked in enumerate(self.queries):
            if kept := asked.answer:
                yield Release(
                    kept.stored_at,
                    told.job,
                    told.data_set,
                    told.analyst,
                    position,
                    asked.name,
                    kept.bytes,
                    kept.sha256,
                    told.signature_hash,
                )


@dataclass(frozen=True, slots=True)
class Release:
    """A stored answer as an auditor sees it: what left, when, for whom, under which signature."""

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
"""Says how a job ended that books have forgotten, if one of the first so many entries opened it."""


def no_forgotten_jobs(_job: str, _entries: int) -> None:
    """Find no job: of books that forget none."""


def admit(budget: Filter, taken: Iterable[Account | None], plan: Price, whose: str) -> None:
    """Hold a plan, with all that is spent and promised, against a budget; raise if it does not fit."""
    gone = sum((each.taken for each in taken if each is not None), NOTHING)
    try:
        left = budget.charge(gone)
    except DpspcaError:
        # A larger epsilon alone makes that part smaller.
        kept = ", in the part of its delta that is kept for noise as implemented"
        raise BudgetExceededError(
            f"The budget of {whose} is smaller than what is spent and reserved already"
            f"{kept if gone.units <= budget.whole.units else ''}.",
            "Ask for a larger budget.",
        ) from None
    try:
        left.charge(plan)
    except BudgetExceededError as problem:
        raise BudgetExceededError(f"The budget of {whose}: {problem.what}", problem.remedy) from None
