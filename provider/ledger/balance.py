"""What accounts leave of budgets, and whether a further job fits. Pure; amounts are whole units, shown in mu."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from dpspca.common.errors import BudgetExceededError, DpspcaError
from dpspca.common.privacy import (
    NOTHING,
    UNIT,
    Filter,
    Mixture,
    Price,
    PrivacyLoss,
    float_above,
    float_below,
    root_down,
)

from .accounts import Account


@dataclass(frozen=True, slots=True)
class Balance:
    """A budget, and what accounts have taken of it. What is taken is rounded up, and what is left is rounded down."""

    budget: Filter
    spent: Price
    reserved: Price

    @classmethod
    def of(cls, budget: Filter, accounts: Iterable[Account | None] = ()) -> "Balance":
        """Make the balance of a budget and the accounts that take from it. Without accounts, nothing is spent."""
        known = [each for each in accounts if each is not None]
        return cls(
            budget, sum((each.spent for each in known), NOTHING), sum((each.reserved for each in known), NOTHING)
        )

    @property
    def taken(self) -> Price:
        """The part of the budget that is spent or reserved."""
        return self.spent + self.reserved

    @property
    def left(self) -> Price:
        """The part of the budget that is neither spent nor reserved."""
        return (self.budget.whole - self.taken).at_least(NOTHING)

    def jobs(self, price: Price) -> int:
        """Return how many jobs at a price fit into what is left."""
        return price.times_in(self.left)

    def share(self, taken: Price) -> float:
        """Return the share of the budget that an amount takes, rounded up."""
        return share_of(taken, self.budget.whole)

    def facts(self) -> dict[str, Any]:
        """Return the balance as plain values."""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        worth = {"share": self.share(self.spent), "epsilon": epsilon_of(self.spent, delta)}
        left = {
            "mu": root_down(self.left.units * UNIT),
            "share": float_below(min(_shares(self.left, self.budget.whole))),
        }
        return {
            "budget": {"epsilon": epsilon, "delta": delta} | price_facts(self.budget.whole),
            "spent": price_facts(self.spent) | worth,
            "reserved": price_facts(self.reserved) | {"share": self.share(self.reserved)},
            "left": price_facts(self.left) | left,
        }


def share_of(taken: Price, whole: Price) -> float:
    """Return the share of a whole that an amount takes, rounded up."""
    return float_above(max(_shares(taken, whole)))


def _shares(taken: Price, whole: Price) -> list[Fraction]:
    return [Fraction(part, room) for part, room in zip(taken.pair, whole.pair, strict=True)]


class Balances(NamedTuple):
    """How the budget of a data set stands, and that of one analyst. A job has to fit into both."""

    data_set: Balance
    analyst: Balance | None
    """None if analysts have no budget of their own."""

    @property
    def left(self) -> Price:
        """The most that one further job of the analyst may cost."""
        return self.data_set.left.at_most(self.analyst.left) if self.analyst else self.data_set.left


def admit(balance: Balance, plan: Price, whose: str) -> None:
    """Raise unless a plan fits the budget beside everything that is spent and reserved."""
    budget, gone = balance.budget, balance.taken
    try:
        left = budget.charge(gone)
    except DpspcaError:
        # Only the part of delta is too small: a larger epsilon alone would make that part even smaller.
        part = ", in the part of its delta that is kept for noise as implemented"
        raise BudgetExceededError(
            f"The budget of {whose} is smaller than what is already spent and reserved"
            f"{part if gone.units <= budget.whole.units else ''}.",
            "Ask for a larger budget.",
        ) from None
    try:
        left.charge(plan)
    except BudgetExceededError as problem:
        raise BudgetExceededError(f"The budget of {whose}: {problem.what}", problem.remedy) from None


def price_facts(price: Price) -> dict[str, Any]:
    """Return a price in mu, rounded up, and its exact units."""
    return {"mu": price.mu, "units": price.units, "slack_units": price.slack_units}


def epsilon_of(price: Price, delta: float) -> float | None:
    """Return the epsilon of a price at a delta, rounded up, or None if it is infinite."""
    epsilon = PrivacyLoss((Mixture(gaussian_units=price.units, slack_units=price.slack_units),)).epsilon(delta)
    return epsilon if epsilon < math.inf else None
