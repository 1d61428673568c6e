"""The durable, append-only record of what was reserved, spent and sent. It notices if it is an older copy."""

from .accounts import Account, JobPosition, Release
from .balance import Balance, Balances, price_facts
from .entries import (
    QUARANTINE_REMEDY,
    Closed,
    Decided,
    Entry,
    Fact,
    Head,
    Lapsed,
    Limits,
    Named,
    Opening,
    Quarantined,
    QuarantinedError,
    QuarantineEnded,
    Reserved,
    Stored,
    Vouched,
)
from .files import file_errors, read_head
from .ledger import ANSWER, Ledger, MemoryLedger
from .past_jobs import PastJob
from .peer_receipts import PeerReceipts
from .promises import Promise, extent_of
from .quotas import Quotas
from .reader import (
    SHORT_LENGTH,
    LedgerReader,
    admission_error,
    decision_entry_facts,
    format_time,
    hypothetical_opening,
    ledger_job_facts,
    ledger_paths,
    quarantine_facts,
    read_ledger,
    release_facts,
    require_trusted,
    short_name,
)
from .rules import EXPIRED, LedgerState
from .sqlite import SqliteLedger, export, read_ledger_state, verify

__all__ = [
    "ANSWER",
    "EXPIRED",
    "QUARANTINE_REMEDY",
    "SHORT_LENGTH",
    "Account",
    "Balance",
    "Balances",
    "Closed",
    "Decided",
    "Entry",
    "Fact",
    "Head",
    "JobPosition",
    "Lapsed",
    "Ledger",
    "LedgerReader",
    "LedgerState",
    "Limits",
    "MemoryLedger",
    "Named",
    "Opening",
    "PastJob",
    "PeerReceipts",
    "Promise",
    "QuarantineEnded",
    "Quarantined",
    "QuarantinedError",
    "Quotas",
    "Release",
    "Reserved",
    "SqliteLedger",
    "Stored",
    "Vouched",
    "admission_error",
    "decision_entry_facts",
    "export",
    "extent_of",
    "file_errors",
    "format_time",
    "hypothetical_opening",
    "ledger_job_facts",
    "ledger_paths",
    "price_facts",
    "quarantine_facts",
    "read_head",
    "read_ledger",
    "read_ledger_state",
    "release_facts",
    "require_trusted",
    "short_name",
    "verify",
]
