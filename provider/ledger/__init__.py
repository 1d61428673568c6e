"""The durable, append-only record of what was reserved, spent and sent. It notices if it goes back in time."""

from .accounts import Account, JobAccount, JobPosition, Release
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
    Released,
    Reserved,
    Stored,
    Vouched,
)
from .files import file_errors, read_head
from .ledger import ANSWER, Ledger, MemoryLedger
from .peer_receipts import PeerReceipts
from .promises import Promise, extent_of
from .quotas import Quotas
from .recall import RecalledJob
from .rules import EXPIRED, Books
from .sqlite import SqliteLedger, export, read_books, verify
from .view import (
    SHORT_LENGTH,
    Balance,
    LedgerView,
    admission_error,
    epsilon_of,
    format_time,
    hypothetical_opening,
    ledger_paths,
    price_facts,
    read_ledger,
    require_trusted,
    short_name,
)

__all__ = [
    "ANSWER",
    "EXPIRED",
    "QUARANTINE_REMEDY",
    "SHORT_LENGTH",
    "Account",
    "Balance",
    "Books",
    "Closed",
    "Decided",
    "Entry",
    "Fact",
    "Head",
    "JobAccount",
    "JobPosition",
    "Lapsed",
    "Ledger",
    "LedgerView",
    "Limits",
    "MemoryLedger",
    "Named",
    "Opening",
    "PeerReceipts",
    "Promise",
    "Quarantined",
    "QuarantinedError",
    "Quotas",
    "RecalledJob",
    "Release",
    "Released",
    "Reserved",
    "SqliteLedger",
    "Stored",
    "Vouched",
    "admission_error",
    "epsilon_of",
    "export",
    "extent_of",
    "file_errors",
    "format_time",
    "hypothetical_opening",
    "ledger_paths",
    "price_facts",
    "read_books",
    "read_head",
    "read_ledger",
    "require_trusted",
    "short_name",
    "verify",
]
