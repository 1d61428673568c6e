"""Balances, and what is known of each job: the values that ``books.py`` keeps. Pure; amounts are whole units."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from dpspca.common.errors import BudgetExceededError, DpspcaError
from dpspca.common.plan import Price
from dpspca.common.privacy.accountant import Filter

from .entries import Fact, Opening
from .gate import Standing


@dataclass(slots=True)
class Account:
    """What of a budget is gone, and what is promised."""

    spent_units: int = 0
    spent_slack_units: int = 0
    reserved_units: int = 0
    reserved_slack_units: int = 0

    def hold(self, units: int, slack: int) -> None:
        """Promise; a negative amount takes a promise back."""
        self.reserved_units += units
        self.reserved_slack_units += slack

    def spend(self, units: int, slack: int) -> None:
        """Spend what nobody was promised; a negative amount was never used."""
        self.spent_units += units
        self.spent_slack_units += slack

    def covers(self, units: int, slack: int) -> bool:
        """Tell whether that much is promised."""
        return 0 <= units <= self.reserved_units and 0 <= slack <= self.reserved_slack_units


@dataclass(frozen=True, slots=True)
class Answer:
    """A stored answer, but for its bytes."""

    stored_at: int
    shape: tuple[int, ...]
    bytes: int
    sha256: str


@dataclass(slots=True)
class Question:
    """A question that was paid for."""

    name: str
    digest: str
    units: int
    slack_units: int
    answer: Answer | None = None


@dataclass(slots=True)
class Job:
    """What is known of one job. ``state`` is how it ended, None while it is open."""

    opening: Opening
    opened_at: int
    accounts: tuple[Account, Account, Account]
    """Its own, its analyst's and its data set's."""
    questions: list[Question] = field(default_factory=list)
    state: str | None = None
    unwritten: tuple[Fact, ...] = ()
    """What is to be recorded of it with its first question; nothing once it is."""

    @property
    def account(self) -> Account:
        """What this job spent and has left."""
        return self.accounts[0]

    @property
    def standing(self) -> Standing | None:
        """How far it has come, None before its first question."""
        if not self.questions:
            return None
        return Standing(len(self.questions), Price(self.account.spent_units, self.account.spent_slack_units))

    def returnable(self) -> tuple[int, int]:
        """Say what closing gives back: the price of questions never asked, and of answers never stored.

        A question that was free may lean on the price of one before it, as blocks of rows do: where it was answered,
        none before it gives anything back. Of a sketch and a projection both are paid for: where the sketch was lost
        and the projection answered, its own price covers it, for the sketch's noise is then as good as public.
        """
        leaning = [at for at, each in enumerate(self.questions) if each.answer and not (each.units or each.slack_units)]
        first = leaning[-1] if leaning else 0
        lost = [each for each in self.questions[first:] if each.answer is None]
        return (
            self.account.reserved_units + sum(each.units for each in lost),
            self.account.reserved_slack_units + sum(each.slack_units for each in lost),
        )

    def releases(self) -> "Iterator[Release]":
        """List its answers that were stored."""
        told = self.opening
        for position, asked in enumerate(self.questions):
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
    question: str
    bytes: int
    sha256: str
    signature_hash: str


Ended: TypeAlias = Callable[[str, int], str | None]
"""Says how a job ended that books have forgotten, if one of the first so many entries opened it."""


def nothing_forgotten(_job: str, _entries: int) -> None:
    """Find no job: of books that forget none."""


def admit(budget: Filter, taken: Iterable[Account | None], plan: tuple[int, int], whose: str) -> None:
    """Hold a plan, with all that is spent and promised, against a budget; raise if it does not fit."""
    accounts = [each for each in taken if each is not None]
    units = sum(each.spent_units + each.reserved_units for each in accounts)
    slack = sum(each.spent_slack_units + each.reserved_slack_units for each in accounts)
    try:
        left = budget.charge(units, slack)
    except DpspcaError:
        # A larger epsilon alone makes that part smaller.
        kept = ", in the part of its delta that is kept for noise as implemented"
        raise BudgetExceededError(
            f"The budget of {whose} is smaller than what is spent and promised of it already"
            f"{kept if units <= budget.budget_units else ''}.",
            "Ask for a larger budget.",
        ) from None
    try:
        left.charge(*plan)
    except BudgetExceededError as problem:
        raise BudgetExceededError(f"The budget of {whose}: {problem.what}", problem.remedy) from None
