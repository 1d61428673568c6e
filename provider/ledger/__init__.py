"""What was spent, promised and sent: durable, append-only, and noticed when it goes back in time."""

from .accounts import Account, JobAccount, JobPosition, Release
from .entries import WAY_OUT, Entry, Head, Limits, Named, Opening, Quarantined, QuarantinedError, Released
from .files import files_in_words, read_head
from .ledger import ANSWER, Ledger, MemoryLedger
from .peer_receipts import PeerReceipts
from .promises import Promise, extent_of
from .quotas import Quotas
from .rules import EXPIRED, Books
from .sqlite import SqliteLedger, export, read_books, verify
from .view import (
    SHORT,
    Balance,
    Looked,
    amount,
    epsilon_of,
    imagined,
    ledger_paths,
    look,
    moment,
    probe,
    require_trusted,
    short_name,
)

__all__ = [
    "ANSWER",
    "EXPIRED",
    "SHORT",
    "WAY_OUT",
    "Account",
    "Balance",
    "Books",
    "Entry",
    "Head",
    "JobAccount",
    "JobPosition",
    "Ledger",
    "Limits",
    "Looked",
    "MemoryLedger",
    "Named",
    "Opening",
    "PeerReceipts",
    "Promise",
    "Quarantined",
    "QuarantinedError",
    "Quotas",
    "Release",
    "Released",
    "SqliteLedger",
    "amount",
    "epsilon_of",
    "export",
    "extent_of",
    "files_in_words",
    "imagined",
    "ledger_paths",
    "look",
    "moment",
    "probe",
    "read_books",
    "read_head",
    "require_trusted",
    "short_name",
    "verify",
]
