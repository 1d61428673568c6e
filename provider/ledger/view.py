"""A provider's ledger as those see it who only look, while its daemon may be writing, and its amounts in mu."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.privacy import NOTHING, UNIT, Filter, Mixture, Price, PrivacyLoss, root_down, round_down, round_up
from dpspca.common.storage import ProviderConfig, read_config, require_own

from .accounts import Account
from .database import Database
from .entries import QUARANTINE_REMEDY, Entry, Limits, Opening, Quarantined, QuarantinedError, Released
from .files import file_errors, read_head
from .rules import Books
from .sqlite import missing_entries

LEDGER: Final = "ledger/ledger.db"
"""A provider's ledger beside its settings, where these name no other."""
LEDGER_HEAD: Final = "ledger-head"
"""The ledger's head file in the identity's folder, likewise: not where the ledger is, for one loss takes both."""
SHORT_LENGTH: Final = 12
"""Letters of a name or a hash that tell it from others well enough for people; programs are given all."""
NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class LedgerView:
    """A ledger as it was at one moment.

    ``quarantine_reason`` says why the ledger may have forgotten what was spent. It is None if it has not.
    """

    settings: ProviderConfig
    path: Path
    books: Books
    decisions: tuple[Entry, ...]
    """Its quarantines, and how they were ended."""
    quarantine_reason: str | None

    @property
    def gaps(self) -> list[str]:
        """Say since when what the ledger tells of the time before may not be all."""
        found = [
            (format_time(each.at), each.fact.reason) for each in self.decisions if isinstance(each.fact, Quarantined)
        ]
        said = [f"Found {at}: {reason} What left before may be missing here." for at, reason in found]
        return (
            said
            if self.books.quarantine or not self.quarantine_reason
            else [*said, f"{self.quarantine_reason} What left may be missing."]
        )


@dataclass(frozen=True, slots=True)
class Balance:
    """A budget, and what accounts have taken of it. No figure flatters: taken is rounded up, left is rounded down."""

    budget: Filter
    spent: Price
    reserved: Price

    @classmethod
    def of(cls, budget: Filter, accounts: Iterable[Account | None] = ()) -> "Balance":
        """Hold accounts against a budget; without any, nothing is spent yet."""
        known = [each for each in accounts if each is not None]
        return cls(
            budget, sum((each.spent for each in known), NOTHING), sum((each.reserved for each in known), NOTHING)
        )

    @property
    def left(self) -> Price:
        """What nobody has taken."""
        return (self.budget.whole - self.spent - self.reserved).at_least(NOTHING)

    def jobs(self, price: Price) -> int:
        """Return how many jobs of a price fit into what is left."""
        return price.times_in(self.left)

    def share(self, taken: Price) -> float:
        """Return what part of the budget an amount takes, rounded up."""
        return round_up(max(self._shares(taken)))

    def facts(self) -> dict[str, Any]:
        """Return it as plain values."""
        epsilon, delta = self.budget.epsilon, self.budget.delta
        worth = {"share": self.share(self.spent), "epsilon": epsilon_of(self.spent, delta)}
        left = {"mu": root_down(self.left.units * UNIT), "share": round_down(min(self._shares(self.left)))}
        return {
            "budget": {"epsilon": epsilon, "delta": delta} | price_facts(self.budget.whole),
            "spent": price_facts(self.spent) | worth,
            "reserved": price_facts(self.reserved) | {"share": self.share(self.reserved)},
            "left": price_facts(self.left) | left,
        }

    def _shares(self, taken: Price) -> list[Fraction]:
        return [Fraction(part, whole) for part, whole in zip(taken.pair, self.budget.whole.pair, strict=True)]


def ledger_paths(settings: ProviderConfig, config: Path) -> tuple[Path, Path]:
    """Say where a provider's ledger is, and its head file."""
    return settings.ledger or config.parent / LEDGER, settings.ledger_head or settings.identity / LEDGER_HEAD


def read_ledger(config: Path) -> LedgerView:
    """Read the ledger of a provider, and hold it against its head file as a start of the daemon does."""
    require_own(ProviderConfig, config)
    settings = read_config(ProviderConfig, config)
    path, head_path = ledger_paths(settings, config)
    with file_errors(head_path):
        remembered = read_head(head_path)  # before the ledger, which may go on meanwhile
    books, decisions = Books(), list[Entry]()
    with file_errors(path), Database.readable(path) as database:
        for entry in database.entries():
            books.append(entry)
            if isinstance(entry.fact, Quarantined | Released):
                decisions.append(entry)
        quarantine_reason = books.quarantine or missing_entries(books, remembered, database.hash_at)
    return LedgerView(settings, path, books, tuple(decisions), quarantine_reason)


def require_trusted(settings: ProviderConfig, config: Path) -> None:
    """Refuse a ledger that is in quarantine, quickly; ``look`` also holds it against its head file."""
    path, _ = ledger_paths(settings, config)
    with file_errors(path), Database.readable(path) as database:
        reason = database.quarantine()
    if reason:
        raise QuarantinedError(f"The ledger is in quarantine, and every job is refused: {reason}", QUARANTINE_REMEDY)


def admission_error(books: Books, opening: Opening, limits: Limits) -> DpspcaError | None:
    """Say why a job that is signed later on would not be admitted; None if it would."""
    try:
        books.to_open(opening, limits)
    except DpspcaError as refusal:
        return refusal
    return None


def hypothetical_opening(data_set: str, *, unit: str = "", analyst: str = "", price: Price = NOTHING) -> Opening:
    """Make up the opening of a job that nobody has signed yet, of a price and with a budget that covers it."""
    return Opening(
        job="",
        data_set=data_set,
        data_digest="",
        analyst=analyst,
        unit=unit,
        spec_epsilon=math.inf,
        spec_delta=1.0,
        units=price.units,
        slack_units=price.slack_units,
        issued_at=NEVER,  # after any release: how old a job may be is not the query
        expires_at=NEVER,
        signature_hash="",
        protects=math.inf,
    )


def format_time(at: int) -> str:
    """Write a time of the ledger."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def price_facts(price: Price) -> dict[str, Any]:
    """Return a price in mu, rounded up, and exactly."""
    return {"mu": price.mu, "units": price.units, "slack_units": price.slack_units}


def epsilon_of(price: Price, delta: float) -> float | None:
    """Return the epsilon that a price is worth at a delta, rounded up; None if there is none."""
    epsilon = PrivacyLoss((Mixture(gaussian_units=price.units, slack_units=price.slack_units),)).epsilon(delta)
    return epsilon if epsilon < math.inf else None


def short_name(analyst: str) -> str:
    """Shorten an analyst's name for people."""
    return analyst.rpartition("/")[2]
