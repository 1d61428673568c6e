"""What a ledger records, word for word: the kinds of entry, the one form they are written in, the chain through them.

Pure. An entry is a line of JSON; its hash is the SHA-256 of the hash before it, a line feed, and that line, all as
text, so that anybody can follow the chain with a shell. Amounts are whole units (``common/privacy/costs.py``), far
beyond 2^53: a reader of JSON that takes numbers for floats will round them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, Final, Self, TypeAlias

from dpspca.common import stored_values
from dpspca.common.errors import DpspcaError
from dpspca.common.privacy import Filter, Price

from .promises import UNKNOWN, Promise
from .quotas import JobSize, Quotas

GENESIS: Final = "0" * 64
"""What the first entry names as the hash before it."""


QUARANTINE_REMEDY: Final = "Find the newer ledger again, or say what counts as spent: `dpspca ledger release --help`."
"""Of a quarantine, for the operator."""


class LedgerError(DpspcaError):
    """The ledger cannot be used, or not now; whatever was being done was not answered."""

    code = "ledger"


class QuarantinedError(LedgerError):
    """The ledger may have forgotten what was spent: nothing is answered until an operator has decided."""

    code = "quarantined"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a policy says of a data set, with nothing used.

    Its budget, and one analyst's if there is such a cap; for which neighbours it holds; how much one analyst's jobs may
    take.
    """

    data_set: Filter
    analyst: Filter | None = None
    promise: Promise | None = None
    quotas: Quotas | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """How far a ledger has come: which one it is, its number of entries, and the hash of the last."""

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
    """A process took the ledger over, as its one writer."""

    instance: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """A job was admitted: the price of its whole plan is reserved on its data set. Written with its first query.

    ``protects`` is up to which extent it protects neighbours of its unit (``promises.py``). It is unknown, and the plan
    is as if it were nothing, where an earlier version wrote the entry.
    ``blind`` are random bits that never leave. Receipts tell the hash of all entries, and this one names the rows by
    their digest: without it, whoever knows all else could try out what they are.
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
        """What the job's whole plan costs."""
        return Price(self.units, self.slack_units)

    @property
    def promise(self) -> Promise:
        """Say which neighbours the job protects."""
        return Promise(self.unit, self.protects)

    @property
    def plan(self) -> JobSize:
        """Say what the job takes."""
        return JobSize(self.queries, self.answer_bytes)


@dataclass(frozen=True, slots=True)
class Vouched:
    """An operator said which neighbours those jobs on a data set protected of which this was not recorded."""

    data_set: str
    protects: float
    reason: str


@dataclass(frozen=True, slots=True)
class Named:
    """Rows are about to be answered about, under the name of this data set.

    ``rows`` are their names by what they say (``fingerprints.py``), so that they get no second budget under another
    name. ``blind`` is as in ``Opening``.
    """

    data_set: str
    rows: Sequence[str]
    blind: str = ""


@dataclass(frozen=True, slots=True)
class Reserved:
    """A query is about to be answered: from here on it is paid for."""

    job: str
    position: int
    query: str
    digest: str
    units: int
    slack_units: int

    @property
    def price(self) -> Price:
        """What the query costs."""
        return Price(self.units, self.slack_units)


@dataclass(frozen=True, slots=True)
class Stored:
    """The answer of a query is kept, and may be sent."""

    job: str
    position: int
    shape: Sequence[int]
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A job is over; it gives back what it never answered."""

    job: str
    state: str
    returned_units: int
    returned_slack_units: int

    @property
    def returned(self) -> Price:
        """What it gives back."""
        return Price(self.returned_units, self.returned_slack_units)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The ledger lacks what is remembered elsewhere; every open job ends, all of it counted as spent.

    ``seen_...`` is the head that it lacks, where there is one.
    """

    reason: str
    seen_ledger: str = ""
    seen_entries: int = 0
    seen_hash: str = ""

    @classmethod
    def over(cls, reason: str, seen: Head | None) -> Self:
        """Write down what is lacking, if it is known."""
        return cls(reason, seen.ledger, seen.entries, seen.hash) if seen and seen.entries else cls(reason)


@dataclass(frozen=True, slots=True)
class Released:
    """An operator ended a quarantine, and said for each data set what was spent beyond these books.

    The ledger is called ``ledger`` from here on: nothing that it forgets later can be taken for what is forgiven now.
    """

    reason: str
    counted: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ledger: str = ""


Fact: TypeAlias = Founded | Started | Opening | Named | Reserved | Stored | Closed | Quarantined | Released | Vouched

_KINDS: Final[Mapping[str, type[Fact]]] = {
    "founded": Founded,
    "started": Started,
    "opened": Opening,
    "named": Named,
    "reserved": Reserved,
    "stored": Stored,
    "closed": Closed,
    "quarantined": Quarantined,
    "released": Released,
    "vouched": Vouched,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_WRITTEN_AS: Final = {"query": "question", "queries": "questions"}
"""Keys that differ from the field's name: ledgers keep the form of version 0.1.0, on which their hashes depend."""
_NAMED: Final = {written: name for name, written in _WRITTEN_AS.items()}
_FIELDS: Final = {
    kind: tuple((_WRITTEN_AS.get(each.name, each.name), each.name) for each in fields(kind)) for kind in _NAMES
}
_FORM: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
"""The one form of an entry's line."""
_READER: Final = json.JSONDecoder()


# --- The chain --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """A fact in its place in the chain."""

    number: int
    at: int
    fact: Fact
    content: str
    hash: str

    @classmethod
    def following(cls, head: Head, at: int, fact: Fact) -> Self:
        """Write the entry that comes after a head."""
        facts = {key: getattr(fact, name) for key, name in _FIELDS[type(fact)]}
        content = _FORM.encode({"number": head.entries + 1, "at": at, "kind": _NAMES[type(fact)], **facts})
        return cls(head.entries + 1, at, fact, content, link(head.hash, content))

    @classmethod
    def read(cls, content: str, written_hash: str) -> Self:
        """Take an entry's line apart; whether it belongs where it stands is for the books to say."""
        try:
            parts, end = _READER.raw_decode(content)
            number, at, kind = parts.pop("number"), parts.pop("at"), parts.pop("kind")
            if end != len(content) or not (stored_values.is_whole(number) and stored_values.is_whole(at)):
                raise ValueError  # noqa: TRY301  # as whatever else is wrong with it
            make: Callable[..., Fact] = _KINDS[kind]
            named = {_NAMED.get(key, key): value for key, value in parts.items()}
            return cls(number, at, stored_values.made(make, named), content, written_hash)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as problem:
            raise LedgerError("An entry of the ledger cannot be read.", "Restore a backup.") from problem

    def to_dict(self) -> dict[str, Any]:
        """Give what is written, and its hash."""
        return {**json.loads(self.content), "hash": self.hash}


def link(previous: str, content: str) -> str:
    """Hash an entry's line, and all before it."""
    return sha256(f"{previous}\n{content}".encode()).hexdigest()
