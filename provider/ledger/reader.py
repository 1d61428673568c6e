"""Reading a provider's ledger, even while its daemon is writing, and showing its amounts in mu."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.privacy import NOTHING, Price
from dpspca.common.storage import ProviderSettings, read_settings, require_own

from .accounts import JobAccount, Release
from .balance import epsilon_of, price_facts
from .database import Database
from .entries import QUARANTINE_REMEDY, Decided, Entry, Limits, Opening, Quarantined, QuarantinedError, QuarantineEnded
from .files import file_errors, read_head, read_row_key
from .row_key import RowKey
from .rules import LedgerState
from .sqlite import has_entry, missing_entries, require_row_key

LEDGER: Final = "ledger/ledger.db"
"""The default place of the ledger, relative to the folder of the settings."""
LEDGER_HEAD: Final = "ledger-head"
"""The default place of the head file, in the identity's folder. Beside the ledger, both could be lost at once."""
SHORT_LENGTH: Final = 12
"""Characters of a name or hash that are shown to people. Programs get all of them."""
NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """A ledger as it was at one moment.

    ``quarantine_reason`` says why the ledger may have forgotten what was spent. It is None if it has not.
    """

    settings: ProviderSettings
    path: Path
    state: LedgerState
    quarantines: tuple[Entry, ...]
    """The entries that began a quarantine or ended one."""
    decisions: tuple[Entry, ...]
    """The entries about what persons decided about jobs."""
    quarantine_reason: str | None
    row_key: RowKey | None = None

    def spending(self, data_set: str) -> list[tuple[int, Price]]:
        """Return the price spent on a data set up to each moment at which an answer was stored, oldest first.

        What operators counted as spent is included. Queries without a stored answer count when their job was opened.
        """
        changes = [
            (each.answer.stored_at if each.answer else job.opened_at, each.price)
            for job in self.state.jobs.values()
            if job.opening.data_set == data_set
            for each in job.queries
            if each.answer or job.state is None
        ]
        changes += [
            (each.at, each.fact.prices[data_set])
            for each in self.quarantines
            if isinstance(each.fact, QuarantineEnded) and data_set in each.fact.counted
        ]
        total, found = NOTHING, list[tuple[int, Price]]()
        for at, price in sorted(changes, key=lambda change: change[0]):
            total += price
            found.append((at, total))
        return found

    def data_set_of_rows(self, identifiers: Iterable[str]) -> str | None:
        """Return the data set under which rows with one of these digests or fingerprints were first used, or None."""
        require_row_key(self.path, self.state, self.row_key)
        names = identifiers if self.state.keyed is None or self.row_key is None else self.row_key.names_of(identifiers)
        return self.state.data_set_of_rows(names)

    @property
    def gaps(self) -> list[str]:
        """Say since when earlier answers may be missing from the ledger."""
        found = [
            (format_time(each.at), each.fact.reason) for each in self.quarantines if isinstance(each.fact, Quarantined)
        ]
        gaps = [f"Found {at}: {reason} Answers from before may be missing here." for at, reason in found]
        if self.quarantine_reason and not self.state.quarantine:
            gaps.append(f"{self.quarantine_reason} Answers may be missing here.")
        return gaps


def ledger_paths(settings: ProviderSettings, config: Path) -> tuple[Path, Path]:
    """Return the paths of a provider's ledger and of its head file."""
    return settings.ledger or config.parent / LEDGER, settings.ledger_head or settings.identity / LEDGER_HEAD


def read_ledger(config: Path) -> LedgerReader:
    """Read a provider's ledger and compare it with its head file, as the daemon does when it starts."""
    require_own(ProviderSettings, config)
    settings = read_settings(ProviderSettings, config)
    path, head_path = ledger_paths(settings, config)
    with file_errors(head_path):
        remembered = read_head(head_path)  # before the ledger, which may grow in the meantime
    state, quarantines, decisions = LedgerState(), list[Entry](), list[Entry]()
    with file_errors(path), Database.readable(path) as database:
        for entry in database.entries():
            state.append(entry)
            if isinstance(entry.fact, Quarantined | QuarantineEnded):
                quarantines.append(entry)
            elif isinstance(entry.fact, Decided):
                decisions.append(entry)
        key = read_row_key(path)
        reason = state.quarantine or missing_entries(state, remembered, has_entry(database, state, key))
    return LedgerReader(settings, path, state, tuple(quarantines), tuple(decisions), reason, key)


def require_trusted(settings: ProviderSettings, config: Path) -> None:
    """Refuse a ledger that is in quarantine, quickly; ``read_ledger`` also compares it with its head file."""
    path, _ = ledger_paths(settings, config)
    with file_errors(path), Database.readable(path) as database:
        reason = database.quarantine()
    if reason:
        raise QuarantinedError(f"The ledger is in quarantine, and every job is refused: {reason}", QUARANTINE_REMEDY)


def admission_error(state: LedgerState, opening: Opening, limits: Limits) -> DpspcaError | None:
    """Return why a job that is signed now would not be admitted, or None if it would."""
    try:
        state.to_open(opening, limits)
    except DpspcaError as refusal:
        return refusal
    return None


def hypothetical_opening(data_set: str, *, unit: str = "", analyst: str = "", price: Price = NOTHING) -> Opening:
    """Return the opening of an imaginary job, with a price and a budget that covers it."""
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
        issued_at=NEVER,  # after the end of any quarantine, because the age of the job does not matter here
        expires_at=NEVER,
        signature_hash="",
        protects=math.inf,
    )


def format_time(at: int) -> str:
    """Format a time of the ledger."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def release_facts(sent: Release) -> dict[str, Any]:
    """Return an answer that left, as plain values."""
    return {
        "at": format_time(sent.at),
        "job": sent.job,
        "data_set": sent.data_set,
        "analyst": sent.analyst,
        "query": sent.position + 1,
        "step": sent.query,
        "bytes": sent.bytes,
        "sha256": sent.sha256,
        "signed_job_sha256": sent.signature_hash,
    }


def ledger_job_facts(name: str, job: JobAccount) -> dict[str, Any]:
    """Return a job of the ledger as plain values."""
    opening, account = job.opening, job.account
    return {
        "job": name,
        "data_set": opening.data_set,
        "analyst": opening.analyst,
        "unit": opening.unit,
        "epsilon": opening.spec_epsilon,
        "delta": opening.spec_delta,
        "opened": format_time(job.opened_at),
        "expires": format_time(opening.expires_at),
        "state": job.state or "open",
        "answered": sum(each.answer is not None for each in job.queries),
        "asked": len(job.queries),
        "spent": price_facts(account.spent),
        "spent_epsilon": epsilon_of(account.spent, opening.spec_delta),
        "reserved": price_facts(account.reserved),
        "signed_job_sha256": opening.signature_hash,
        "data_digest": opening.data_digest,
    }


def decision_entry_facts(entry: Entry) -> dict[str, Any]:
    """Return the entry of a person's decision about a job, as plain values."""
    decided = entry.fact
    assert isinstance(decided, Decided)
    named = {name: getattr(decided, name) for name in ("job", "data_set", "verdict", "person", "login", "reason")}
    times = {"decided": format_time(decided.decided_at), "recorded_at": format_time(entry.at)}
    return {"entry": entry.number} | times | named


def quarantine_facts(entry: Entry) -> dict[str, Any]:
    """Return how a quarantine began or ended, as plain values."""
    facts: dict[str, Any] = {"at": format_time(entry.at), "entry": entry.number}
    match entry.fact:
        case QuarantineEnded() as ended:
            counted = {name: price_facts(price) for name, price in ended.prices.items()}
            return facts | {"kind": "ended", "reason": ended.reason, "counted": counted}
        case Quarantined(reason):
            return facts | {"kind": "quarantined", "reason": reason}
        case other:
            raise AssertionError(other)


def short_name(analyst: str) -> str:
    """Shorten an analyst's name for people."""
    return analyst.rpartition("/")[2]
