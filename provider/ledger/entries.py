"""The entries of a ledger: their kinds, the one form in which they are written, and the chain of hashes.

Pure. An entry is a line of JSON. Its hash is the SHA-256 of the previous hash, a line feed and that line, all as text,
so that anybody can check the chain with a shell. Amounts are whole units (``common/privacy/costs.py``), far beyond
2^53: a JSON reader that treats numbers as floats will round them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Final, Self, TypeAlias

from dpspca.common.decoding import STORED, decode, is_whole
from dpspca.common.errors import DpspcaError
from dpspca.common.privacy import Filter, Price

from .promises import UNKNOWN, Promise
from .quotas import JobSize, Quotas

GENESIS: Final = "0" * 64
"""The previous hash of the first entry."""


QUARANTINE_REMEDY: Final = (
    "Restore the newer ledger, or state what counts as spent: `dpspca ledger end-quarantine --help`."
)
"""The operator's remedy for a quarantine."""


class LedgerError(DpspcaError):
    """The ledger cannot be used, or not now. Whatever was asked was not answered."""

    code = "ledger"


class DamagedLedgerError(LedgerError):
    """A file of the ledger is damaged, or was altered by something else."""

    code = "ledger-damaged"


class LedgerInUseError(LedgerError):
    """Another process uses the ledger, and a ledger has only one daemon."""

    code = "ledger-in-use"


class LedgerDiskError(LedgerError):
    """A file of the ledger cannot be read or written now."""

    code = "ledger-disk"


class NotQuarantinedError(LedgerError):
    """There is no quarantine that could be ended."""

    code = "not-quarantined"


class QuarantinedError(LedgerError):
    """The ledger may have forgotten what was spent. Nothing is answered until an operator decides what counts."""

    code = "quarantined"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that a policy sets on a data set, before anything is used.

    They are the budget of the data set, one analyst's budget if there is one, the neighbours that all jobs protect, and
    the quotas of one analyst's jobs.
    """

    data_set: Filter
    analyst: Filter | None = None
    promise: Promise | None = None
    quotas: Quotas | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """How far a ledger has come: the ledger's name, its number of entries, and the hash of the last one."""

    ledger: str
    entries: int
    hash: str


# --- The kinds of entry -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Founded:
    """A ledger begins."""

    ledger: str


@dataclass(frozen=True, slots=True)
class Started:
    """A process became the ledger's one writer."""

    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A job was admitted: the price of its whole plan is reserved on its data set. Written with its first query.

    ``protects`` is the extent up to which the job protects neighbours of its unit (``promises.py``). In an entry that
    an earlier version wrote, it is unknown, and ``queries`` and ``answer_bytes`` are 0. ``blind`` are random bits that
    never leave. Receipts contain the hash of all entries, and this entry has a name for the digest of the rows
    (``row_key.py``). Without these bits, somebody who knows everything else and the key could guess rows and test the
    guess.
    """

    job: str
    data_set: str
    data_digest: str
    analyst: str
    unit: str
    spec_epsilon: float
    spec_delta: float
    units: int
    slack_units: int
    issued_at: int
    expires_at: int
    signature_hash: str
    blind: str = ""
    protects: float = UNKNOWN
    queries: int = 0
    answer_bytes: int = 0

    @property
    def price(self) -> Price:
        """The price of the job's whole plan."""
        return Price(self.units, self.slack_units)

    @property
    def promise(self) -> Promise:
        """The neighbours that the job protects."""
        return Promise(self.unit, self.protects)

    @property
    def size(self) -> JobSize:
        """How much the job takes of its analyst's quotas."""
        return JobSize(self.queries, self.answer_bytes)


@dataclass(frozen=True, slots=True)
class Vouched:
    """An operator stated which neighbours earlier jobs on a data set protected, because this was not recorded."""

    data_set: str
    protects: float
    reason: str


@dataclass(frozen=True, slots=True)
class Named:
    """Rows are about to be used for answers, under the name of this data set.

    ``rows`` are names for fingerprints of their content (``row_key.py``, ``provider/data/checked/fingerprints.py``), so
    that the rows get no second budget under another name. ``blind`` is as in ``Opening``.
    """

    data_set: str
    rows: Sequence[str]
    blind: str = ""


@dataclass(frozen=True, slots=True)
class Keyed:
    """From the first entry on, digests and fingerprints of rows are names under the provider's key (``row_key.py``).

    ``check`` recognises the key. ``rewritten`` is the number of entries before this one that an earlier version wrote
    without a key. Names replaced what they held, and the chain was computed again.
    """

    check: str
    rewritten: int = 0


@dataclass(frozen=True, slots=True)
class Reserved:
    """A query is about to be answered. From here on it is paid for."""

    job: str
    position: int
    query: str
    digest: str
    units: int
    slack_units: int

    @property
    def price(self) -> Price:
        """The price of the query."""
        return Price(self.units, self.slack_units)


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer to a query is stored, and may be sent."""

    job: str
    position: int
    shape: Sequence[int]
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A job is over, and gives back the price of queries that were never asked.

    In entries of version 0.1.0, also the price of answers that were never stored.
    """

    job: str
    state: str
    returned_units: int
    returned_slack_units: int

    @property
    def returned(self) -> Price:
        """The price that the job gives back."""
        return Price(self.returned_units, self.returned_slack_units)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The ledger lacks entries that were seen elsewhere. Every open job ends, and its whole price counts as spent.

    ``seen_...`` is the head that the ledger lacks, if it is known.
    """

    reason: str
    seen_ledger: str = ""
    seen_entries: int = 0
    seen_hash: str = ""

    @classmethod
    def over(cls, reason: str, seen: Head | None) -> Self:
        """Make the entry, with the head that is lacking if it is known."""
        return cls(reason, seen.ledger, seen.entries, seen.hash) if seen and seen.entries else cls(reason)


@dataclass(frozen=True, slots=True)
class QuarantineEnded:
    """An operator ended a quarantine, and stated for each data set what was spent beyond what the ledger shows.

    From here on the ledger has the name ``ledger``, so that entries it loses later cannot be mistaken for the ones that
    were lost before and are settled now.
    """

    reason: str
    counted: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ledger: str = ""

    @property
    def prices(self) -> dict[str, Price]:
        """The stated prices, by data set."""
        return {name: Price(*pair) for name, pair in self.counted.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A person approved or rejected a job before it was admitted, or rejected it later.

    The provider's key signed these fields (``provider/approval/decisions.py``). ``job`` is the digest of what the
    analyst signed, which names the data set and the providers, so that a decision is about no other job. ``login`` is
    the account of the operating system from which the person decided. ``expires_at`` is when the job expires.
    """

    job: str
    data_set: str
    verdict: str
    person: str
    login: str
    reason: str
    decided_at: int
    expires_at: int
    certificate: str
    signature: str


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A job with decisions ended before its first query, so that its approvals are used up."""

    job: str
    state: str
    expires_at: int


Fact: TypeAlias = (
    Founded
    | Started
    | Opening
    | Named
    | Keyed
    | Reserved
    | Stored
    | Closed
    | Quarantined
    | QuarantineEnded
    | Vouched
    | Decided
    | Lapsed
)

_KINDS: Final[Mapping[str, type[Fact]]] = {
    "founded": Founded,
    "started": Started,
    "opened": Opening,
    "named": Named,
    "keyed": Keyed,
    "reserved": Reserved,
    "stored": Stored,
    "closed": Closed,
    "quarantined": Quarantined,
    "released": QuarantineEnded,
    "vouched": Vouched,
    "decided": Decided,
    "lapsed": Lapsed,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_WRITTEN_AS: Final = {"query": "question", "queries": "questions"}
"""Keys that differ from the field's name. Ledgers keep the form of version 0.1.0, because their hashes depend on it."""
_FIELDS: Final = {
    kind: tuple((_WRITTEN_AS.get(each.name, each.name), each.name) for each in fields(kind)) for kind in _NAMES
}
_READ_AS: Final[Mapping[str, tuple[Callable[..., Fact], list[tuple[str, str]]]]] = {
    name: (kind, [pair for pair in _FIELDS[kind] if pair[0] != pair[1]]) for name, kind in _KINDS.items()
}
"""How to make the fact of each kind, and which keys have another name there."""
_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
"""The one form of an entry's line."""
_READER: Final = json.JSONDecoder()


# --- The chain --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A fact at its place in the chain."""

    number: int
    at: int
    fact: Fact
    content: str
    hash: str

    @classmethod
    def following(cls, head: Head, at: int, fact: Fact) -> Self:
        """Make the entry that comes after a head."""
        facts = {key: getattr(fact, name) for key, name in _FIELDS[type(fact)]}
        content = _FORM.encode({"number": head.entries + 1, "at": at, "kind": _NAMES[type(fact)], **facts})
        return cls(head.entries + 1, at, fact, content, link(head.hash, content))

    @classmethod
    def read(cls, content: str, written_hash: str) -> Self:
        """Parse an entry's line. Whether the entry may come at this place is checked by ``History.append``."""
        try:
            parts, end = _READER.raw_decode(content)
            number, at, kind = parts.pop("number"), parts.pop("at"), parts.pop("kind")
            if end != len(content) or not is_whole(number) or not is_whole(at):
                raise ValueError  # noqa: TRY301  # handled like every other fault of the line
            make, renamed = _READ_AS[kind]
            for written, name in renamed:
                if written in parts:
                    parts[name] = parts.pop(written)
            return cls(number, at, decode(make, parts, STORED), content, written_hash)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as problem:
            raise DamagedLedgerError("An entry of the ledger cannot be read.", "Restore a backup.") from problem

    def after(self, head: Head, changes: Mapping[str, Any]) -> Self:
        """Return this entry after another head, with other values in some fields. The rest stays as it was written."""
        content = _FORM.encode({**json.loads(self.content), **changes})
        return type(self).read(content, link(head.hash, content))

    def to_dict(self) -> dict[str, Any]:
        """Return the stored values and the hash."""
        return {**json.loads(self.content), "hash": self.hash}


def link(previous: str, content: str) -> str:
    """Hash an entry's line together with the hash of everything before it."""
    return sha256(f"{previous}\n{content}".encode()).hexdigest()
