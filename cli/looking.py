"""A provider's ledger as those see it who only look, while its daemon may be writing, and its amounts in mu."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.privacy.accountant import PrivacyLoss
from dpspca.common.privacy.costs import Mixture, mu_of
from dpspca.common.transport.config import ProviderConfig, read_config
from dpspca.provider.books import Books
from dpspca.provider.entries import WAY_OUT, Entry, Limits, Opening, Quarantined, QuarantinedError, Released
from dpspca.provider.ledger_database import Database
from dpspca.provider.ledger_files import files_in_words, read_head
from dpspca.provider.sqlite_ledger import difference

from .daemons import ledger_paths
from .flags import require_own

SHORT: Final = 12
"""Letters of a name or a hash that tell it from others well enough for people; programs are given all."""
NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Looked:
    """A ledger as it was at one moment. ``doubt`` is why it may have forgotten what was spent, if it may."""

    settings: ProviderConfig
    path: Path
    books: Books
    decisions: tuple[Entry, ...]
    """Its quarantines, and how they were ended."""
    doubt: str | None

    @property
    def gaps(self) -> list[str]:
        """Say since when what the ledger tells of the time before may not be all."""
        found = [(moment(each.at), each.fact.reason) for each in self.decisions if isinstance(each.fact, Quarantined)]
        said = [f"Found {at}: {reason} What left before may be missing here." for at, reason in found]
        return said if self.books.quarantine or not self.doubt else [*said, f"{self.doubt} What left may be missing."]


def look(config: Path) -> Looked:
    """Read the ledger of a provider, and hold it against its second path as a start of the daemon does."""
    require_own(ProviderConfig, config)
    settings = read_config(ProviderConfig, config)
    path, head_path = ledger_paths(settings, config)
    with files_in_words(head_path):
        remembered = read_head(head_path)  # before the ledger, which may go on meanwhile
    books, decisions = Books(), list[Entry]()
    with files_in_words(path), Database.readable(path) as database:
        for entry in database.entries():
            books.append(entry)
            if isinstance(entry.fact, Quarantined | Released):
                decisions.append(entry)
        doubt = books.quarantine or difference(books, remembered, database.hash_at)
    return Looked(settings, path, books, tuple(decisions), doubt)


def require_trusted(settings: ProviderConfig, config: Path) -> None:
    """Refuse a ledger that is in quarantine, quickly; ``look`` also holds it against its second path."""
    path, _ = ledger_paths(settings, config)
    with files_in_words(path), Database.readable(path) as database:
        reason = database.quarantine()
    if reason:
        raise QuarantinedError(f"The ledger is in quarantine, and every job is refused: {reason}", WAY_OUT)


def probe(books: Books, opening: Opening, limits: Limits) -> DpspcaError | None:
    """Say why a job that is signed later on would not be admitted; None if it would."""
    try:
        books.to_open(opening, limits)
    except DpspcaError as refusal:
        return refusal
    return None


def imagined(data_set: str, *, unit: str = "", analyst: str = "", units: int = 0, slack: int = 0) -> Opening:
    """Make up the opening of a job that nobody has signed yet, of a price and with a budget that covers it."""
    return Opening(
        job="",
        data_set=data_set,
        data_digest="",
        analyst=analyst,
        unit=unit,
        spec_epsilon=math.inf,
        spec_delta=1.0,
        units=units,
        slack_units=slack,
        issued_at=NEVER,  # after any release: how old a job may be is not the question
        expires_at=NEVER,
        signature_hash="",
        protects=math.inf,
    )


def moment(at: int) -> str:
    """Write a time of the ledger."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def amount(units: int, slack: int) -> dict[str, Any]:
    """Give a price in mu, rounded up, and exactly."""
    return {"mu": mu_of(units), "units": units, "slack_units": slack}


def epsilon_of(units: int, slack: int, delta: float) -> float | None:
    """Give the epsilon that a price is worth at a delta, rounded up; None if there is none."""
    epsilon = PrivacyLoss((Mixture(gaussian_units=units, slack_units=slack),)).epsilon(delta)
    return epsilon if epsilon < math.inf else None


def short_name(analyst: str) -> str:
    """Shorten an analyst's name for people."""
    return analyst.rpartition("/")[2]


def amounts(counted: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Give what was counted as spent of data sets."""
    return {name: amount(units, slack) for name, (units, slack) in counted.items()}
